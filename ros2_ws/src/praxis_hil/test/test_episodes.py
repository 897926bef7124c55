# SPDX-License-Identifier: Apache-2.0
import json
import os
import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from praxis_core.contract import load_contract
from praxis_core.errors import ErrorCode
from praxis_data import messages
from praxis_data.bag import BagReader, BagTopic
from praxis_data.compare import compare_episodes
from praxis_data.convert import convert_bag
from praxis_data.layout import data_file
from praxis_data.recover import recover_episode, unfinished_bags
from praxis_hil.dataset import Dataset
from praxis_hil.disk_space import GIB, DiskGuard
from praxis_hil.episode_files import EpisodeFiles
from praxis_hil.episodes import EpisodeRecorder
from praxis_hil.image_encoding import ImageEncoder
from praxis_hil.status import RefusedError, State
from praxis_hil.topics import Kind, recorded_topics

ROOT = Path(__file__).resolve().parents[4]
CONTRACT = load_contract(ROOT / 'params' / 'robots' / 'tabletop.yaml')
HZ = CONTRACT.deployment.record_hz
CAMERAS = list(CONTRACT.interface.cameras)
START_NS = 100_000_000_000


def grey(camera, level=0):
    """Return the fields of an image of one level."""
    shape = CONTRACT.interface.cameras[camera]
    size = {'height': shape.height, 'width': shape.width, 'step': 3 * shape.width}
    return {**size, 'encoding': 'rgb8', 'data': bytes([level]) * (shape.height * size['step'])}


class Rig:
    """A recorder with a robot that advances by one control period at a call."""

    def __init__(self, root, encoding='jpeg', **files):
        self.free_gb = 100.0
        self.encoder = ImageEncoder(encoding)
        self.disk = DiskGuard([root], 2.0, lambda _: (0, 0, int(self.free_gb * GIB)))
        self.dataset_root, self.bag_root = root / 'dataset', root / 'bags'
        self.bag_root.mkdir(parents=True, exist_ok=True)
        self.dataset = Dataset(self.dataset_root, CONTRACT)
        self.files = EpisodeFiles(
            contract=CONTRACT,
            bag_root=self.bag_root,
            bag_storage='mcap',
            dataset=self.dataset,
            dataset_root=self.dataset_root,
            watermark_s=0.2,
            namespace='',
            configuration={},
            commit='test',
            **files,
        )
        self.routes = []
        for topic in recorded_topics(CONTRACT):
            name, typename = f'/{topic.name.strip("/")}', topic.typename
            if topic.kind is Kind.IMAGE:
                name, typename = self.encoder.topic(name), self.encoder.typename
            if typename != 'tf2_msgs/msg/TFMessage':
                self.routes.append((topic, BagTopic(name, typename).resolved()))
        self.statuses, self.observations, self.warnings = [], [], []
        self.recorder = EpisodeRecorder(
            self.routes,
            self.encoder,
            self.files.open,
            self.dataset.tombstone,
            self.disk,
            on_status=self.statuses.append,
            on_observation=self.observations.append,
            on_warning=self.warnings.append,
        )
        self.tick, self.environment, self.seq = 0, str(uuid.uuid4()), 0
        self.clock_offset_ns = 0

    @property
    def stamp(self):
        return START_NS + round(self.tick * 1e9 / HZ)

    @property
    def now(self):
        return self.stamp + self.clock_offset_ns

    def send(self, topic, typename, **fields):
        data = messages.encode(typename, messages.make(typename, **fields))
        self.recorder.ingest(topic, data, self.now)

    def step(self, count=1, skip_command=False):
        for _ in range(count):
            header = {'stamp': messages.time_fields(self.stamp)}
            for camera in CAMERAS:
                self.send(
                    CONTRACT.image_topic(camera),
                    'sensor_msgs/msg/Image',
                    header=header,
                    **grey(camera, self.tick % 250),
                )
            self.send(
                'state',
                'praxis_interfaces/msg/StateVector',
                header=header,
                observation_seq=self.tick,
                episode_uuid=self.environment,
                interface_hash=CONTRACT.interface_hash,
                values=[float(self.tick)] * CONTRACT.state_dim,
                cameras=CAMERAS,
            )
            if not skip_command:
                self.command()
            self.seq += 1
            self.tick += 1

    def command(self):
        self.send(
            'command',
            'praxis_interfaces/msg/Command',
            header={'stamp': messages.time_fields(self.stamp)},
            seq=self.seq,
            source='primitive',
            values=[0.0] * CONTRACT.action_dim,
            requested=[0.0] * CONTRACT.action_dim,
        )

    def start(self, task='pick up the cube', **options):
        return self.recorder.start(
            task, options.get('uuid', ''), options.get('metadata', ''), self.now
        )

    def rows(self, index):
        return pq.read_table(self.dataset_root / data_file(index))


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.recorder.close()


def test_an_episode_is_in_bag_and_dataset_with_one_row_a_tick(rig):
    status = rig.start(metadata='{"operator": "ada"}')
    rig.step(20)
    saved = rig.recorder.stop(1, 'well done').result(30)
    assert (saved.error, saved.index, saved.frames) == ('', 0, 20)
    table = rig.rows(0)
    assert [v[0] for v in table['observation.state'].to_pylist()] == [float(k) for k in range(20)]
    bag = BagReader(status.bag_path)
    counts = [m.topic for m in bag]
    assert counts.count('/state') == 20
    assert counts.count(f'/cameras/{CAMERAS[0]}/image_raw/compressed') == 20
    assert bag.custom_data['praxis.task'] == 'pick up the cube'
    assert bag.custom_data['praxis.outcome'] == '1'
    assert bag.custom_data['praxis.contract'] == CONTRACT.path.read_text()
    [line] = (rig.dataset_root / 'meta' / 'episodes.jsonl').read_text().splitlines()
    metadata = json.loads(line)['metadata']
    assert metadata['episode_uuid'] == status.uuid
    assert metadata['operator'] == 'ada'
    assert [s.state for s in rig.statuses] == [State.RECORDING, State.SAVING, State.SAVED]
    assert unfinished_bags(rig.bag_root) == []


def test_every_observation_is_reported_once_written_also_when_idle(rig):
    rig.step(3)
    rig.start()
    rig.step(3)
    rig.recorder.stop().result(30)
    assert [o.seq for o in rig.observations] == list(range(6))
    assert {o.episode_uuid for o in rig.observations} == {rig.environment}


def test_second_start_is_refused_and_the_first_goes_on(rig):
    first = rig.start()
    rig.step(5)
    with pytest.raises(RefusedError, match=first.uuid) as refused:
        rig.start()
    assert refused.value.code is ErrorCode.ALREADY_RECORDING
    rig.step(5)
    assert rig.recorder.stop().result(30).frames == 10


def test_a_new_episode_starts_while_the_former_is_saved(rig):
    rig.start()
    rig.step(10)
    first = rig.recorder.stop()
    rig.start()
    rig.step(7)
    second = rig.recorder.stop()
    assert first.result(30).frames == 10
    assert second.result(30).frames == 7
    assert (first.result().index, second.result().index) == (0, 1)


def test_reset_without_stop_closes_and_keeps_the_episode(rig):
    first = rig.start()
    rig.step(6)
    rig.environment = str(uuid.uuid4())
    rig.step(3)
    assert not rig.recorder.recording
    saved = rig.recorder.stop().result(30)
    assert saved.uuid == first.uuid
    assert 'reset' in saved.message
    assert rig.rows(0).num_rows == 6
    with pytest.raises(RefusedError):
        rig.recorder.stop()


def test_an_observation_that_still_waits_for_its_command_opens_the_episode(rig):
    rig.step(3)
    rig.step(skip_command=True)
    rig.start()
    rig.tick -= 1
    rig.command()
    rig.tick += 1
    rig.step(5)
    assert rig.recorder.stop().result(30).frames == 6
    assert rig.rows(0)['observation_seq'].to_pylist() == [3, 4, 5, 6, 7, 8]
    assert not any(rig.rows(0)['stale.action'].to_pylist())


def test_a_start_ahead_of_the_reset_it_names_begins_with_the_first_state_after_it(rig):
    rig.step(3)
    rig.step(skip_command=True)
    reset = str(uuid.uuid4())
    rig.start(uuid=reset)
    rig.environment = reset.replace('-', '')
    rig.step(5)
    saved = rig.recorder.stop().result(30)
    assert (saved.frames, saved.message) == (5, '')
    assert rig.rows(0)['observation_seq'].to_pylist() == [4, 5, 6, 7, 8]


def test_a_name_of_the_callers_own_does_not_wait_for_a_reset(rig):
    rig.step(skip_command=True)
    rig.start(uuid=str(uuid.uuid4()))
    for _ in range(4):
        rig.recorder.watch()
    rig.tick -= 1
    rig.command()
    rig.tick += 1
    rig.step(4)
    assert rig.recorder.stop().result(30).frames == 5


def test_requests_that_make_no_sense_are_refused(rig):
    with pytest.raises(RefusedError, match='no episode') as refused:
        rig.recorder.stop()
    assert refused.value.code is ErrorCode.NOT_RECORDING
    for options in ({'task': '  '}, {'uuid': 'no-uuid'}, {'metadata': '[1]'}):
        with pytest.raises(RefusedError) as refused:
            rig.start(**options)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(RefusedError) as refused:
        rig.recorder.discard(str(uuid.uuid4()), '').result(30)
    assert refused.value.code is ErrorCode.NOT_FOUND


def test_uuid_of_a_saved_episode_is_refused(rig):
    uuid = rig.start().uuid
    rig.step(4)
    rig.recorder.stop().result(30)
    with pytest.raises(RefusedError, match='already'):
        rig.start(uuid=uuid)
    assert len(list(rig.bag_root.iterdir())) == 1


def test_discard_deletes_the_episode_in_progress_and_leaves_no_index_behind(rig):
    status = rig.start()
    rig.step(5)
    rig.recorder.discard('', 'slipped').result(30)
    assert not Path(status.bag_path).exists()
    assert rig.statuses[-1].state is State.DISCARDED
    rig.start()
    rig.step(5)
    assert rig.recorder.stop().result(30).index == 0


def test_discard_of_a_saved_episode_is_a_tombstone_and_shifts_no_index(rig):
    uuids = []
    for _ in range(2):
        uuids.append(rig.start().uuid)
        rig.step(4)
        rig.recorder.stop().result(30)
    rig.recorder.discard(uuids[0], 'bad').result(30)
    rig.start()
    rig.step(4)
    assert rig.recorder.stop().result(30).index == 2
    assert (rig.dataset_root / data_file(0)).exists()
    [line] = (rig.dataset_root / 'meta' / 'tombstones.jsonl').read_text().splitlines()
    assert json.loads(line)['episode_uuid'] == uuids[0]


def test_full_disk_refuses_a_start_and_ends_and_keeps_a_running_episode(rig):
    rig.start()
    rig.step(5)
    rig.free_gb = 1.0
    rig.recorder.watch()
    assert not rig.recorder.recording
    saved = rig.recorder.stop().result(30)
    assert saved.index == 0
    assert 'min_free_gb' in saved.message
    with pytest.raises(RefusedError, match='min_free_gb') as refused:
        rig.start()
    assert refused.value.code is ErrorCode.NO_SPACE


def test_failed_save_keeps_the_bag_from_which_the_episode_is_recovered(rig, monkeypatch):
    rig.start()
    rig.step(8)
    rig.recorder.pipeline.call(lambda: None)
    session = rig.recorder.session

    def broken(*_):
        raise OSError(5, 'Input/output error')

    monkeypatch.setattr('praxis_hil.dataset.DatasetEpisode.finish', broken)
    saved = rig.recorder.stop().result(30)
    monkeypatch.undo()
    assert 'Input/output error' in saved.error
    assert f'praxis bag recover {saved.bag_path}' in saved.error
    assert rig.statuses[-1].state is State.FAILED
    assert unfinished_bags(rig.bag_root) == [session.bag.path]
    conversion = recover_episode(saved.bag_path, rig.dataset_root)
    assert conversion.rows == 8
    assert unfinished_bags(rig.bag_root) == []


def test_shutdown_saves_the_episode_in_progress(tmp_path):
    rig = Rig(tmp_path)
    rig.start()
    rig.step(9)
    rig.recorder.close()
    assert rig.rows(0).num_rows == 9
    assert unfinished_bags(rig.bag_root) == []


def test_missing_commands_count_as_dropped(rig):
    rig.start()
    rig.step(5)
    rig.step(2, skip_command=True)
    rig.step(5)
    assert rig.recorder.status.progress.dropped == 2
    rig.recorder.stop().result(30)


def test_damaged_image_is_left_out_and_counted(rig):
    rig.start()
    rig.step(3)
    topic = CONTRACT.image_topic(CAMERAS[0])
    stamp = {'stamp': messages.time_fields(START_NS + 1)}
    rig.send(topic, 'sensor_msgs/msg/Image', header=stamp, height=5, width=5, encoding='nonsense')
    rig.step(3)
    saved = rig.recorder.stop()
    assert saved.result(30).frames == 6
    assert any('nonsense' in text for text in rig.warnings)


def test_dataset_that_falls_behind_gives_up_but_the_bag_has_everything(tmp_path):
    rig = Rig(tmp_path, max_waiting_bytes=1)
    rig.start()
    rig.step(12)
    saved = rig.recorder.stop().result(30)
    assert 'fell behind' in saved.error
    assert recover_episode(saved.bag_path, rig.dataset_root).rows == 12
    rig.recorder.close()


def test_latched_messages_from_before_the_start_begin_the_bag(rig):
    rig.send('robot_description', 'std_msgs/msg/String', data='<robot/>')
    status = rig.start()
    rig.step(3)
    rig.recorder.stop().result(30)
    assert next(iter(BagReader(status.bag_path))).topic == '/robot_description'


@pytest.mark.parametrize('idle_steps', [0, 3])
def test_simulated_stamps_under_a_wall_clock_are_the_log_time(rig, tmp_path, idle_steps):
    rig.clock_offset_ns = 1_700_000_000 * 10**9
    rig.send('robot_description', 'std_msgs/msg/String', data='<robot/>')
    rig.step(idle_steps)
    bag = rig.start().bag_path
    rig.step(20)
    saved = rig.recorder.stop().result(30)
    assert saved.frames == 20
    assert rig.rows(0)['stale.state'].to_pylist() == [False] * 20
    [warning] = rig.warnings
    assert 'use_sim_time' in warning
    times = [message.log_time_ns for message in BagReader(bag)]
    assert times == sorted(times)
    assert START_NS <= times[0] <= times[-1] == rig.stamp - round(1e9 / HZ)
    convert_bag(bag, tmp_path / 'converted')
    assert compare_episodes(rig.dataset_root, 0, tmp_path / 'converted', 0).equal


def test_messages_before_the_first_state_are_kept_also_if_none_comes(rig):
    status = rig.start()
    for _ in range(3):
        rig.send('robot_description', 'std_msgs/msg/String', data='<robot/>')
    rig.recorder.stop().result(30)
    assert len(list(BagReader(status.bag_path))) == 3


def test_image_from_before_a_discard_still_completes_its_observation(rig):
    rig.start()
    header = {'stamp': messages.time_fields(rig.stamp)}
    for camera in CAMERAS:
        topic = CONTRACT.image_topic(camera)
        rig.send(topic, 'sensor_msgs/msg/Image', header=header, **grey(camera))
    rig.recorder.discard('', 'wrong start').result(30)
    fields = {'observation_seq': 7, 'cameras': CAMERAS, 'values': [0.0] * CONTRACT.state_dim}
    rig.send('state', 'praxis_interfaces/msg/StateVector', header=header, **fields)
    rig.recorder.pipeline.close()
    assert [o.seq for o in rig.observations] == [7]


@pytest.mark.parametrize('topic', ['state', CONTRACT.image_topic(CAMERAS[0])])
def test_stamp_in_the_far_future_closes_no_row_and_is_reported(rig, tmp_path, topic):
    bag = rig.start().bag_path
    rig.step(8)
    header = {'stamp': messages.time_fields(rig.stamp + 3600 * 10**9)}
    if topic == 'state':
        fields = {'observation_seq': rig.tick, 'episode_uuid': rig.environment}
        fields['values'] = [0.0] * CONTRACT.state_dim
        rig.send('state', 'praxis_interfaces/msg/StateVector', header=header, **fields)
    else:
        rig.send(topic, 'sensor_msgs/msg/Image', header=header, **grey(CAMERAS[0]))
    rig.step(8)
    saved = rig.recorder.stop().result(30)
    assert (saved.frames, rig.recorder.implausible) == (16, {topic: 1})
    table = rig.rows(0)
    assert [v[0] for v in table['observation.state'].to_pylist()] == [float(k) for k in range(16)]
    assert not any(any(table[f'stale.{name}'].to_pylist()) for name in ('state', *CAMERAS))
    [warning] = rig.warnings
    assert topic in warning
    convert_bag(bag, tmp_path / 'converted')
    assert compare_episodes(rig.dataset_root, 0, tmp_path / 'converted', 0).equal


def test_stop_answers_only_when_bag_and_episode_are_synced(rig, monkeypatch):
    """Fails when an fsync before the answer to stop_episode is left out."""
    synced = {}

    def trace(name):
        real = getattr(os, name)

        def traced(fd):
            real(fd)
            synced[os.fstat(fd).st_ino] = os.fstat(fd).st_size

        monkeypatch.setattr(os, name, traced)

    trace('fsync')
    trace('fdatasync')
    status = rig.start()
    rig.step(10)
    saved = rig.recorder.stop().result(30)
    done = dict(synced)
    files = list(Path(status.bag_path).iterdir())
    for pattern in ('*.parquet', '*.mp4', '*.jsonl'):
        files += rig.dataset_root.rglob(pattern)
    assert saved.index == 0
    assert len(files) >= 6
    for path in files:
        assert path.stat().st_ino in done, f'{path} was not synced'
        assert done[path.stat().st_ino] == path.stat().st_size, f'{path} grew after its sync'
    for folder in (Path(status.bag_path), (rig.dataset_root / data_file(0)).parent):
        assert folder.stat().st_ino in done, f'{folder} was not synced'
