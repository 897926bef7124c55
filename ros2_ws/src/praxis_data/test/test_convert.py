# SPDX-License-Identifier: Apache-2.0
import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import episode_messages as em
from praxis_data import messages
from praxis_data.assembler import Assembler
from praxis_data.bag import BagTopic, BagWriter
from praxis_data.compare import compare_episodes
from praxis_data.convert import convert_bag
from praxis_data.layout import DatasetError
from praxis_data.lerobot_reader import LeRobotReader
from praxis_data.lerobot_writer import LeRobotWriter


@pytest.fixture(scope='session')
def contract(tmp_path_factory):
    return em.contract(tmp_path_factory.mktemp('contract'))


def delayed(events, seed=0, longest=190_000_000):
    """Return the events in an order of arrival that delays below the watermark cause."""
    rng = random.Random(seed)
    late = [em.Event(e.topic, e.typename, e.data, e.stamp, rng.randrange(longest)) for e in events]
    return sorted(late, key=lambda e: e.arrival)


def record(folder, contract, events, storage='mcap', namespace='', custom=True, log=None, **extra):
    """Write a bag and a live dataset at once, as the recorder does; return both paths."""
    metadata = {
        'praxis.contract': contract.path.read_text(),
        'praxis.task': 'push the block',
        'praxis.episode_uuid': 'episode-1',
        'praxis.watermark_s': '0.2',
        'praxis.outcome': '1',
        **extra,
    }
    topics = {f'/{namespace}{e.topic}': e.typename for e in events}
    assembler = Assembler(contract, namespace=namespace)
    episode = LeRobotWriter(folder / 'live', contract).begin('push the block', 'episode-1')
    log_time = 0
    with BagWriter(
        folder / 'bag',
        storage,
        [BagTopic(name, kind) for name, kind in topics.items()],
        metadata if custom else {},
    ) as bag:
        for event in events:
            name = f'/{namespace}{event.topic}'
            log_time = max(log_time, event.arrival)
            bag.write(name, event.data, log(log_time) if log else log_time)
            for row in assembler.ingest(name, event.typename, event.data, log_time):
                episode.add(row)
    for row in assembler.close():
        episode.add(row)
    episode.finish(1)
    return folder / 'bag', folder / 'live'


@pytest.mark.parametrize('storage', ['mcap', 'sqlite3'])
@pytest.mark.parametrize('encoding', ['raw', 'jpeg', 'png'])
def test_converted_episode_is_the_live_one(tmp_path, contract, storage, encoding):
    events = delayed(em.episode(20, encoding=encoding))
    lost = [e for k, e in enumerate(events) if k not in (23, 41, 55)]
    bag, live = record(tmp_path, contract, lost, storage)
    seen = []
    done = convert_bag(bag, tmp_path / 'converted', progress=lambda m, r: seen.append((m, r)))
    result = compare_episodes(live, 'episode-1', tmp_path / 'converted', done.episode_index)
    assert result.differences == []
    assert result.equal
    assert result.video_bytes_equal
    assert done.rows == result.rows[0] == result.frames['top'][1]
    assert done.messages == len(lost)
    assert seen[-1] == (len(lost), done.rows)
    metadata = LeRobotReader(tmp_path / 'converted').episode(0).metadata
    assert metadata['episode_uuid'] == 'episode-1'
    assert metadata['outcome'] == 'success'
    assert metadata['assembly']['ended'] == 'stopped'


def test_reset_and_stale_end_convert_alike(tmp_path, contract):
    reset = em.episode(6) + em.episode(6, uuid='episode-b', first=6)
    stalled = [e for e in em.episode(20) if 'top' not in e.topic or e.stamp < em.tick(7)]
    for name, events, rows in (('reset', reset, 6), ('stale', stalled, 7)):
        bag, live = record(tmp_path / name, contract, events)
        done = convert_bag(bag, tmp_path / name / 'converted')
        assert (done.assembly['ended'], done.rows) == (name, rows)
        assert compare_episodes(live, 0, done.dataset_path, 0).equal


def test_namespaced_bag_converts(tmp_path, contract):
    bag, live = record(
        tmp_path, contract, em.episode(5), namespace='robot/', **{'praxis.namespace': '/robot'}
    )
    done = convert_bag(bag, tmp_path / 'c')
    assert compare_episodes(live, 0, done.dataset_path, 0).equal


def test_foreign_bag_with_wall_clock_log_time_converts(tmp_path, contract):
    events = em.episode(10)
    bag, live = record(
        tmp_path,
        contract,
        events,
        namespace='robot/',
        custom=False,
        log=lambda t: t + 90 * 24 * 3600 * 1_000_000_000,
    )
    with pytest.raises(DatasetError, match='no contract'):
        convert_bag(bag, tmp_path / 'c')
    with pytest.raises(DatasetError, match='no task'):
        convert_bag(bag, tmp_path / 'c', contract=contract)
    done = convert_bag(bag, tmp_path / 'c', contract=contract, task='push the block')
    assert done.rows == 10
    assert compare_episodes(live, 0, done.dataset_path, 0).rows_equal


def test_stamp_in_the_far_future_does_not_end_a_foreign_bag(tmp_path, contract):
    events = em.episode(10)
    glitch = em.image(em.tick(4) + 3600 * 10**9, 'top', em.picture(0))
    later = em.state(em.tick(4) + 3600 * 10**9, 99, [0.0, 0.0, 0.0])
    at = next(i for i, e in enumerate(events) if e.stamp > em.tick(4))
    _, live = record(tmp_path, contract, events)
    with BagWriter(
        tmp_path / 'foreign',
        'mcap',
        [BagTopic(f'/{e.topic}', e.typename) for e in events],
    ) as writer:
        for event in [*events[:at], glitch, later, *events[at:]]:
            writer.write(f'/{event.topic}', event.data, 1)
    done = convert_bag(tmp_path / 'foreign', tmp_path / 'c', contract=contract, task='push')
    assert done.assembly['implausible'] == {'state': 1, 'top': 1}
    assert compare_episodes(live, 0, tmp_path / 'c', 0).rows_equal


def test_cut_off_bag_gives_a_prefix_of_the_live_episode(tmp_path, contract):
    events = em.episode(40)
    bag, live = record(tmp_path, contract, events)
    file = next(bag.glob('*.mcap'))
    cut = tmp_path / 'cut'
    cut.mkdir()
    data = file.read_bytes()
    (cut / 'cut_0.mcap').write_bytes(data[: len(data) // 2])
    done = convert_bag(cut, tmp_path / 'c')
    assert 0 < done.rows < 40
    live_table = LeRobotReader(live).episode(0).table
    table = LeRobotReader(tmp_path / 'c').episode(0).table
    assert table.equals(live_table.slice(0, done.rows))


def test_second_conversion_into_one_dataset_is_refused(tmp_path, contract):
    bag, live = record(tmp_path, contract, em.episode(4))
    with pytest.raises(DatasetError, match='there already'):
        convert_bag(bag, live)
    again = convert_bag(bag, live, episode_uuid='other')
    assert again.episode_index == 1
    assert compare_episodes(live, 0, live, 1).equal


def test_bag_without_rows_says_what_is_missing(tmp_path, contract):
    events = em.episode(4)
    with BagWriter(
        tmp_path / 'bag',
        'mcap',
        [BagTopic('state', 'praxis_interfaces/msg/StateVector')],
        {'praxis.contract': contract.path.read_text(), 'praxis.task': 'push'},
    ) as bag:
        for event in events:
            if event.topic == 'state':
                bag.write('state', event.data, event.stamp)
    with pytest.raises(DatasetError, match='action, top, wrist'):
        convert_bag(tmp_path / 'bag', tmp_path / 'd')
    assert LeRobotReader(tmp_path / 'd').episodes() == []


def test_embedded_definition_wins_over_the_installed_one(contract):
    kind = 'praxis_interfaces/msg/StateVector'
    older = messages.definition(kind).replace('string[] cameras ', 'uint8 quality\nstring[] eyes ')
    codec = messages.Codec({kind: older})
    fields = {'header': em.header(em.T0), 'values': [1.0, 2.0, 3.0], 'quality': 7, 'eyes': ['top']}
    data = codec.encode(kind, codec.make(kind, **fields))
    assert codec.decode(kind, data).quality == 7
    rows = Assembler(contract, message_codec=codec)
    rows.ingest('state', kind, data, em.T0)
    assert not rows.invalid


def test_comparison_names_the_row_the_camera_and_the_level(tmp_path, contract):
    for name, shift in (('a', 0), ('b', 9)):
        episode = LeRobotWriter(tmp_path / name, contract).begin('push')
        for row in em.ingest(Assembler(contract), em.episode(6)):
            if shift and row.index == 4:
                row.state[1] += 1e-4
                row.images['wrist'] = np.full_like(row.images['wrist'], 128)
            episode.add(row)
        episode.finish()
    result = compare_episodes(tmp_path / 'a', 0, tmp_path / 'b', 0)
    assert not result.equal
    assert (result.rows_equal, result.pixels_equal) == (False, False)
    assert any('observation.state: 1 rows differ, first row 4' in d for d in result.differences)
    assert any(d.startswith('wrist: ') and 'first 4' in d for d in result.differences)
    assert not any(d.startswith('top') for d in result.differences)
