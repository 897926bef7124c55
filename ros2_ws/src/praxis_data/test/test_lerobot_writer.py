# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import episode_messages as em
from praxis_data import layout
from praxis_data.assembler import Assembler
from praxis_data.durable import JsonLines
from praxis_data.episode_writer import segments
from praxis_data.layout import DatasetError, EmptyEpisodeError, MismatchError
from praxis_data.lerobot_reader import LeRobotReader
from praxis_data.lerobot_writer import LeRobotWriter
from praxis_data.video import VideoError, VideoSettings


@pytest.fixture(scope='session')
def contract(tmp_path_factory):
    return em.contract(tmp_path_factory.mktemp('contract'))


def save(writer, length=12, task='push', uuid='', events=None, **finish):
    episode = writer.begin(task, uuid)
    for row in em.ingest(Assembler(writer.contract), events or em.episode(length)):
        episode.add(row)
    return episode.finish(**finish)


def bare_rows(root, index):
    return pq.read_table(root / f'data/chunk-000/episode_{index:06d}.parquet')


def bare_frames(root, index, camera):
    path = root / f'videos/chunk-000/observation.images.{camera}/episode_{index:06d}.mp4'
    with av.open(str(path)) as container:
        return [f.to_ndarray(format='rgb24') for f in container.decode(video=0)]


def test_episode_reads_back_with_bare_pyarrow_and_pyav(tmp_path, contract):
    saved = save(LeRobotWriter(tmp_path / 'd', contract), 12)
    rows = em.ingest(Assembler(contract), em.episode(12))
    table = bare_rows(tmp_path / 'd', saved.index)
    assert (tmp_path / 'd/data/chunk-000/episode_000000.parquet').read_bytes()[-4:] == b'PAR1'
    assert table.num_rows == 12
    for camera, offset in (('top', 0), ('wrist', 1000)):
        frames = bare_frames(tmp_path / 'd', 0, camera)
        assert [em.number_in(rgb) for rgb in frames] == [k + offset for k in range(12)]
    for k, record in enumerate(table.to_pylist()):
        row = rows[k]
        assert record['observation.state'] == row.state.astype(np.float32).tolist()
        assert record['action'] == row.action.astype(np.float32).tolist()
        assert record['requested_action'] == row.requested_action.astype(np.float32).tolist()
        assert record['capture_stamp.state'] == row.stamps['state'] == em.tick(k)
        assert record['capture_timestamp'] == pytest.approx(em.tick(k) * 1e-9, abs=1e-6)
        assert record['observation_seq'] == record['frame_index'] == record['index'] == k
        assert record['timestamp'] == np.float32(k / 20)
        assert record['control_mode'] == 1
        assert not record['stale.top']


def test_columns_and_info_follow_the_reference(tmp_path, contract):
    save(LeRobotWriter(tmp_path / 'd', contract))
    info = json.loads((tmp_path / 'd/meta/info.json').read_text())
    names = bare_rows(tmp_path / 'd', 0).schema
    assert names.names[:10] == [
        'observation.state',
        'action',
        'timestamp',
        'frame_index',
        'episode_index',
        'index',
        'task_index',
        'capture_timestamp',
        'intervention',
        'control_mode',
    ]
    assert names.field('observation.state').type == pa.list_(pa.float32(), 3)
    assert names.field('timestamp').type == pa.float32()
    assert names.field('capture_timestamp').type == pa.float64()
    assert names.field('intervention').type == pa.bool_()
    assert all(names.field(n).type == pa.int64() for n in names.names[3:7])
    assert list(info['features']) == [
        *names.names,
        'observation.images.top',
        'observation.images.wrist',
    ]
    assert info['features']['action'] == {
        'dtype': 'float32',
        'shape': [2],
        'names': ['dx', 'grip'],
    }
    assert info['features']['index'] == {'dtype': 'int64', 'shape': [1], 'names': None}
    video = info['features']['observation.images.top']
    assert video['shape'] == [48, 64, 3]
    assert video['info']['video.codec'] == 'h264'
    assert info['data_path'].format(episode_chunk=0, episode_index=0) == (
        'data/chunk-000/episode_000000.parquet'
    )
    assert (info['total_episodes'], info['total_frames'], info['total_videos']) == (1, 12, 2)
    assert (info['fps'], info['chunks_size'], info['splits']) == (20, 1000, {'train': '0:1'})
    assert info['codebase_version'] == 'v2.1'
    described = json.loads(names.metadata[b'huggingface'])['info']['features']
    assert described['action'] == {
        'feature': {'dtype': 'float32', '_type': 'Value'},
        'length': 2,
        '_type': 'Sequence',
    }


def test_video_is_what_browsers_play(tmp_path, contract):
    saved = save(LeRobotWriter(tmp_path / 'd', contract), 25)
    data = saved.videos['top'].read_bytes()
    assert data.index(b'moov') < data.index(b'mdat')
    with av.open(str(saved.videos['top'])) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == 'h264'
        assert stream.codec_context.pix_fmt == 'yuv420p'
        assert stream.average_rate == 20
        assert len(container.streams) == 1
        packets = [p for p in container.demux(stream) if p.size]
    assert [k for k, p in enumerate(packets) if p.is_keyframe] == [0, 10, 20]
    assert [p.pts for p in packets] == [p.dts for p in packets]
    assert packets[0].pts == 0


def test_equal_input_gives_equal_files(tmp_path, contract):
    for name in 'ab':
        save(LeRobotWriter(tmp_path / name, contract), 8, uuid='u')
    for part in ('data', 'videos'):
        files = sorted((tmp_path / 'a' / part).rglob('episode_*'))
        assert files
        for file in files:
            twin = tmp_path / 'b' / file.relative_to(tmp_path / 'a')
            assert file.read_bytes() == twin.read_bytes()


def test_statistics_are_those_of_the_data(tmp_path, contract):
    save(LeRobotWriter(tmp_path / 'd', contract), 30)
    (line,) = JsonLines(tmp_path / 'd' / layout.STATISTICS).refresh()
    table = bare_rows(tmp_path / 'd', 0)
    stats = line['stats']
    for name in table.column_names:
        values = np.array(table.column(name).to_pylist(), dtype=np.float64).reshape(30, -1)
        assert stats[name]['count'] == [30]
        np.testing.assert_allclose(stats[name]['mean'], values.mean(axis=0), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(stats[name]['min'], values.min(axis=0), rtol=1e-12)
    spread = np.std(0.05 * np.arange(30) * 1e9)
    assert stats['capture_stamp.state']['std'][0] == pytest.approx(spread, rel=1e-9)
    frames = np.stack(bare_frames(tmp_path / 'd', 0, 'top')) / 255
    image = stats['observation.images.top']
    assert np.shape(image['mean']) == (3, 1, 1)
    np.testing.assert_allclose(np.ravel(image['mean']), frames.mean(axis=(0, 1, 2)), atol=0.02)
    np.testing.assert_allclose(np.ravel(image['std']), frames.std(axis=(0, 1, 2)), atol=0.02)


def test_second_task_and_second_writer_append(tmp_path, contract):
    first, second = LeRobotWriter(tmp_path, contract), LeRobotWriter(tmp_path, contract)
    save(first, 5, 'push', 'a')
    save(second, 6, 'pull', 'b')
    save(first, 7, 'push', 'c')
    reader = LeRobotReader(tmp_path)
    assert [(e.index, e.length, e.tasks) for e in reader.episodes()] == [
        (0, 5, ('push',)),
        (1, 6, ('pull',)),
        (2, 7, ('push',)),
    ]
    assert reader.tasks == {0: 'push', 1: 'pull'}
    assert bare_rows(tmp_path, 2).column('index').to_pylist() == list(range(11, 18))
    assert set(bare_rows(tmp_path, 2).column('task_index').to_pylist()) == {0}
    assert reader.problems() == []


def test_two_episodes_may_be_open_at_once(tmp_path, contract):
    writer = LeRobotWriter(tmp_path, contract)
    one, two = writer.begin('push', 'one'), writer.begin('push', 'two')
    for row in em.ingest(Assembler(contract), em.episode(6)):
        one.add(row)
        two.add(row)
    assert two.finish().index == 0
    assert one.finish().index == 1
    assert [e.episode_uuid for e in LeRobotReader(tmp_path).episodes()] == ['two', 'one']


def test_same_uuid_twice_is_refused(tmp_path, contract):
    writer = LeRobotWriter(tmp_path, contract)
    save(writer, 3, uuid='a')
    with pytest.raises(DatasetError, match='number 0'):
        writer.begin('push', 'a')


def test_tombstone_keeps_indices_and_files(tmp_path, contract):
    writer = LeRobotWriter(tmp_path, contract)
    for name in 'abc':
        save(writer, 4, uuid=name)
    before = {p: p.read_bytes() for p in tmp_path.rglob('*.parquet')}
    assert writer.tombstone('b', 'dropped the cup') == 1
    with pytest.raises(KeyError):
        writer.tombstone('b')
    saved = save(writer, 4, uuid='b')
    assert saved.index == 3
    reader = LeRobotReader(tmp_path)
    assert [(e.index, e.episode_uuid) for e in reader.episodes()] == [(0, 'a'), (2, 'c'), (3, 'b')]
    assert all(path.read_bytes() == data for path, data in before.items())
    assert reader.episode(1).deleted
    assert reader.episode('b').index == 3


def test_other_interface_is_refused_field_by_field(tmp_path, contract):
    save(LeRobotWriter(tmp_path / 'd', contract), 3)
    changed = em.contract(
        tmp_path / 'c',
        **{'names: [dx, grip]': 'names: [dz, grip]', '    dx: {min': '    dz: {min'},
    )
    with pytest.raises(MismatchError) as error:
        LeRobotWriter(tmp_path / 'd', changed)
    text = str(error.value)
    assert "interface.action.names[0]: 'dx'" in text
    assert 'features.action.names' in text
    larger = em.contract(tmp_path / 'e', width=128)
    with pytest.raises(MismatchError, match=r'observation\.images\.top\.shape'):
        LeRobotWriter(tmp_path / 'd', larger)


def test_folder_with_other_things_is_left_alone(tmp_path, contract):
    (tmp_path / 'precious.txt').write_text('x')
    with pytest.raises(DatasetError, match=r'precious\.txt'):
        LeRobotWriter(tmp_path, contract)
    assert [p.name for p in tmp_path.iterdir()] == ['precious.txt']


def test_abort_and_empty_episode_leave_nothing(tmp_path, contract):
    writer = LeRobotWriter(tmp_path, contract)
    with writer.begin('push') as episode:
        episode.add(em.ingest(Assembler(contract), em.episode(3))[0])
    with pytest.raises(EmptyEpisodeError):
        writer.begin('push').finish()
    assert list((tmp_path / '.staging').iterdir()) == []
    assert LeRobotReader(tmp_path).episodes() == []
    assert save(writer, 3).index == 0


def test_failed_encoder_is_reported_and_others_stay(tmp_path, contract):
    writer = LeRobotWriter(tmp_path, contract)
    save(writer, 3)
    rows = em.ingest(Assembler(contract), em.episode(8))
    episode = writer.begin('push')
    rows[2].images['top'] = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(VideoError, match='top'):
        for row in rows:
            episode.add(row)
        episode.finish()
    episode.abort()
    assert [e.index for e in LeRobotReader(tmp_path).episodes()] == [0]


def test_odd_image_size_is_refused(tmp_path):
    odd = em.contract(tmp_path / 'c', width=63)
    with pytest.raises(VideoError, match='63x48'):
        LeRobotWriter(tmp_path / 'd', odd).begin('push')
    assert list((tmp_path / 'd/.staging').iterdir()) == []


def test_rows_stream_to_disk_while_recording(tmp_path, contract):
    writer = LeRobotWriter(tmp_path, contract)
    episode = writer.begin('push')
    for row in em.ingest(Assembler(contract), em.episode(70)):
        episode.add(row)
    assert len(episode._pending) < 32
    with pa.OSFile(str(episode.staging / 'rows.arrow')) as source:
        stream = pa.ipc.open_stream(source)
        assert stream.read_next_batch().num_rows + stream.read_next_batch().num_rows == 64
    episode.abort()


def test_expert_segments_are_the_runs_of_intervention(tmp_path, contract):
    flags = np.array([0, 1, 1, 0, 0, 1], bool)
    assert segments(flags) == [
        {'start_frame_index': 1, 'end_frame_index': 2},
        {'start_frame_index': 5, 'end_frame_index': 5},
    ]
    assert segments(np.zeros(3, bool)) == []
    events = em.episode(8)
    events = [e for e in events if e.topic != 'command' or e.stamp < em.tick(4)]
    events += [em.command(em.tick(k), k, [0.0, 1.0], source='teleop') for k in range(4, 8)]
    events.append(em.status(em.tick(4), 2, 'teleop', True))
    writer = LeRobotWriter(tmp_path, contract)
    save(writer, events=sorted(events, key=lambda e: e.stamp))
    value = json.loads((tmp_path / layout.EXPERT).read_text())
    assert value == {
        'episodes': [
            {'episode_index': 0, 'segments': [{'start_frame_index': 4, 'end_frame_index': 7}]}
        ]
    }


def test_contract_is_stored_with_its_hashes(tmp_path, contract):
    saved = save(LeRobotWriter(tmp_path, contract), 3, outcome=1, note='good')
    reader = LeRobotReader(tmp_path)
    metadata = reader.episode(saved.index).metadata
    assert metadata['outcome'] == 'success'
    assert metadata['deployment_hash'] == contract.deployment_hash
    assert reader.info['praxis']['interface_hash'] == contract.interface_hash
    assert reader.contract().interface_hash == contract.interface_hash


def watch_syncs(monkeypatch):
    """Log every fsync by path, and every append to the episode index, in order."""
    log = []
    sync, write = os.fsync, os.write

    def fsync(fd):
        sync(fd)
        log.append(os.readlink(f'/proc/self/fd/{fd}'))

    def logged_write(fd, data):
        path = os.readlink(f'/proc/self/fd/{fd}')
        if path.endswith('episodes.jsonl'):
            log.append('index line')
        return write(fd, data)

    monkeypatch.setattr(os, 'fsync', fsync)
    monkeypatch.setattr(os, 'write', logged_write)
    return log


def test_finish_syncs_every_file_and_folder_before_the_index_line(tmp_path, contract, monkeypatch):
    writer = LeRobotWriter(tmp_path / 'd', contract)
    episode = writer.begin('push')
    for row in em.ingest(Assembler(contract), em.episode(4)):
        episode.add(row)
    log = watch_syncs(monkeypatch)
    episode.finish()
    before = log[: log.index('index line')]
    root, stage = str(tmp_path / 'd'), str(episode.staging)
    for name in ('rows.parquet', 'top.mp4', 'wrist.mp4'):
        assert f'{stage}/{name}' in before
    for folder in (
        'data/chunk-000',
        'videos/chunk-000/observation.images.top',
        'videos/chunk-000/observation.images.wrist',
        'data',
        'videos/chunk-000',
    ):
        assert f'{root}/{folder}' in before
    assert before.index(f'{stage}/rows.parquet') < before.index(stage)
    assert f'{root}/meta/episodes.jsonl' in log[log.index('index line') :]


CRASHER = """
import os, sys
sys.path.insert(0, {here!r})
import episode_messages as em
from pathlib import Path
from praxis_core.contract import load_contract
from praxis_data.assembler import Assembler
from praxis_data.lerobot_writer import LeRobotWriter
contract = load_contract({contract!r})
writer = LeRobotWriter({root!r}, contract)
left = int(sys.argv[1])
def count(event, args):
    global left
    if event in ('os.rename', 'os.remove', 'os.rmdir', 'os.mkdir', 'os.truncate') or (
        event == 'open' and {root!r} in str(args[0]) and args[1] is None
    ):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
for name in ('first', 'second'):
    episode = writer.begin('push', name)
    for row in em.ingest(Assembler(contract), em.episode(4)):
        episode.add(row)
    if name == 'second':
        sys.addaudithook(count)
    episode.finish()
    print(name, flush=True)
"""


@pytest.mark.parametrize('step', [0, 1, 2, 4, 6, 8, 10, 13, 16, 19, 22, 25, 30, 40])
def test_kill_while_finishing_leaves_every_finished_episode(tmp_path, contract, step):
    root = tmp_path / 'd'
    script = CRASHER.format(
        here=str(Path(__file__).parent), contract=str(contract.path), root=str(root)
    )
    done = subprocess.run(
        [sys.executable, '-c', script, str(step)], capture_output=True, text=True, timeout=120
    )
    finished = done.stdout.split()
    assert 'first' in finished, done.stderr
    assert done.returncode in (0, -signal.SIGKILL)
    # As it lies, before anyone repairs it.
    assert bare_rows(root, 0).num_rows == len(bare_frames(root, 0, 'top')) == 4
    lines = [json.loads(x) for x in (root / layout.EPISODES).read_text().splitlines()]
    for line in lines:
        assert bare_rows(root, line['episode_index']).num_rows == 4
    writer = LeRobotWriter(root, contract)
    assert list((root / '.staging').iterdir()) == []
    third = save(writer, 5, uuid='third')
    reader = LeRobotReader(root)
    uuids = [e.episode_uuid for e in reader.episodes()]
    assert uuids in (['first', 'second', 'third'], ['first', 'third'])
    assert third.index == len(uuids) - 1
    assert set(finished) <= set(uuids)
    assert reader.problems() == []
    info = json.loads((root / layout.INFO).read_text())
    assert info['total_episodes'] == len(uuids)
    assert info['total_frames'] == sum(e.length for e in reader.episodes())


def test_unfinished_index_line_is_cut_off(tmp_path, contract):
    save(LeRobotWriter(tmp_path, contract), 3, uuid='a')
    with (tmp_path / layout.EPISODES).open('a') as stream:
        stream.write('{"episode_index": 1, "len')
    writer = LeRobotWriter(tmp_path, contract)
    assert save(writer, 3, uuid='b').index == 1
    assert [e.episode_uuid for e in LeRobotReader(tmp_path).episodes()] == ['a', 'b']


def test_live_writer_is_not_taken_for_a_leftover(tmp_path, contract):
    writer = LeRobotWriter(tmp_path, contract)
    episode = writer.begin('push')
    rows = em.ingest(Assembler(contract), em.episode(4))
    episode.add(rows[0])
    LeRobotWriter(tmp_path, contract)
    for row in rows[1:]:
        episode.add(row)
    assert episode.finish().length == 4


def test_settings_change_the_encoding(tmp_path, contract):
    small = LeRobotWriter(tmp_path / 's', contract, VideoSettings('veryfast', 35, 4))
    large = LeRobotWriter(tmp_path / 'l', contract, VideoSettings('veryfast', 5, 4))
    sizes = [save(w, 8).videos['top'].stat().st_size for w in (small, large)]
    assert sizes[0] < sizes[1]
