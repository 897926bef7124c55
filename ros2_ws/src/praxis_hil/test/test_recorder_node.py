# SPDX-License-Identifier: Apache-2.0
import json
import signal
import sys
from pathlib import Path

import pytest
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_core.errors import ErrorCode
from praxis_core.testing import wait_until
from praxis_data.bag import BagReader, BagTopic, BagWriter
from praxis_interfaces.msg import (
    Command,
    EpisodeStatus,
    ObservationAck,
    PrivilegedState,
    StateVector,
)
from praxis_interfaces.srv import DiscardEpisode, StartEpisode, StopEpisode
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image
from std_srvs.srv import Trigger

ROOT = Path(__file__).resolve().parents[4]
CONTRACT_PATH = ROOT / 'params' / 'robots' / 'tabletop.yaml'
CONTRACT = load_contract(CONTRACT_PATH)
CAMERAS = list(CONTRACT.interface.cameras)
HZ = CONTRACT.deployment.record_hz


class Robot:
    """Publishes whole observations, each acknowledged before the next, as in lockstep."""

    def __init__(self, probe, camera_qos=qos.SENSOR_PUBLISH):
        self.acks = probe.collect(ObservationAck, 'observation_ack', qos.COMMAND_RECORD)
        self.status = probe.collect(EpisodeStatus, 'episode_status', qos.LATCHED)
        self.status.wait(1, 60.0)
        self.images = {
            name: probe.publisher(Image, CONTRACT.image_topic(name), camera_qos, 1)
            for name in CAMERAS
        }
        self.states = probe.publisher(StateVector, 'state', qos.SENSOR_PUBLISH, 1)
        self.commands = probe.publisher(Command, 'command', qos.COMMAND_PUBLISH, 1)
        self.truth = probe.publisher(PrivilegedState, 'privileged_state')
        self.uuid, self.tick, self.cameras = 'one', 0, CAMERAS
        self.clock = probe.publisher(Clock, '/clock', 10, 1)

    def stamp(self, message):
        message.header.stamp = self.time()
        return message

    def time(self):
        sec, nanosec = divmod(10**10 + round(self.tick * 1e9 / HZ), 10**9)
        return Time(sec=sec, nanosec=nanosec)

    def step(self, count=1):
        for _ in range(count):
            self.clock.publish(Clock(clock=self.time()))
            self.truth.publish(self.stamp(PrivilegedState()))
            for name, publisher in self.images.items():
                shape = CONTRACT.interface.cameras[name]
                image = Image(height=shape.height, width=shape.width, encoding='rgb8')
                image.step = 3 * shape.width
                image.data.frombytes(bytes([self.tick % 250]) * (image.step * shape.height))
                publisher.publish(self.stamp(image))
            state = StateVector(observation_seq=self.tick, episode_uuid=self.uuid)
            state.values = [float(self.tick)] * CONTRACT.state_dim
            state.cameras = self.cameras
            self.states.publish(self.stamp(state))
            values = [0.0] * CONTRACT.action_dim
            command = Command(seq=self.tick, source='primitive', values=values, requested=values)
            self.commands.publish(self.stamp(command))
            self.acks.wait_for(lambda ack: ack.observation_seq == self.tick, 20.0)
            self.tick += 1


@pytest.fixture
def recorder(tmp_path, spawn):
    def start(**parameters):
        parameters = {
            'contract': CONTRACT_PATH,
            'dataset_root': tmp_path / 'dataset',
            'bag_root': tmp_path / 'bags',
            'min_free_gb': 0.01,
            'use_sim_time': True,
            **parameters,
        }
        flags = [part for k, v in parameters.items() for part in ('-p', f'{k}:={v}')]
        return spawn([sys.executable, '-m', 'praxis_hil.recorder_node', '--ros-args', *flags])

    return start


def call(probe, kind, name, **fields):
    return probe.call(kind, name, kind.Request(**fields), timeout=30.0)


def metadata(tmp_path):
    text = (tmp_path / 'dataset' / 'meta' / 'episodes.jsonl').read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_services_record_an_episode_and_acknowledge_every_observation(
    recorder, graph_probe, tmp_path
):
    recorder()
    robot = Robot(graph_probe)
    robot.step(2)
    started = call(graph_probe, StartEpisode, 'start_episode', task='pick')
    assert started.success, started.error_msg
    again = call(graph_probe, StartEpisode, 'start_episode', task='pick')
    assert again.error_code == ErrorCode.ALREADY_RECORDING
    robot.step(10)
    stopped = call(graph_probe, StopEpisode, 'stop_episode', outcome=1, note='fine')
    assert stopped.success, stopped.error_msg
    assert (stopped.episode_index, stopped.frames) == (0, 10)
    assert {ack.participant for ack in robot.acks.messages} == {'recorder'}
    [line] = metadata(tmp_path)
    assert line['metadata']['outcome'] == 'success'
    topics = {message.topic for message in BagReader(stopped.bag_path)}
    assert '/command' in topics
    assert not [topic for topic in topics if 'privileged' in topic]
    robot.status.wait_for(lambda s: s.state == EpisodeStatus.STATE_SAVED and s.frames == 10)
    idle = call(graph_probe, StopEpisode, 'stop_episode')
    assert idle.error_code == ErrorCode.NOT_RECORDING


def test_buttons_start_stop_and_discard_with_the_default_task(recorder, graph_probe, tmp_path):
    recorder(default_task='wipe')
    robot = Robot(graph_probe)
    assert call(graph_probe, Trigger, 'recorder/start').success
    robot.step(5)
    assert call(graph_probe, Trigger, 'recorder/discard').success
    assert call(graph_probe, Trigger, 'recorder/start').success
    robot.step(5)
    answer = call(graph_probe, Trigger, 'recorder/stop')
    assert answer.success, answer.message
    assert metadata(tmp_path)[0]['tasks'] == ['wipe']
    assert len(list((tmp_path / 'bags').iterdir())) == 1


def test_reset_ends_the_episode_with_the_reason_in_its_status(recorder, graph_probe):
    recorder()
    robot = Robot(graph_probe)
    assert call(graph_probe, StartEpisode, 'start_episode', task='pick').success
    robot.step(5)
    robot.uuid = 'two'
    robot.step(1)
    status = robot.status.wait_for(lambda s: s.state == EpisodeStatus.STATE_SAVED)
    assert 'reset' in status.message
    assert status.episode_index == 0
    deleted = call(
        graph_probe, DiscardEpisode, 'discard_episode', episode_uuid=status.episode_uuid
    )
    assert deleted.success, deleted.error_msg


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_the_episode_and_exits_with_0(recorder, graph_probe, tmp_path, number):
    process = recorder()
    robot = Robot(graph_probe)
    started = call(graph_probe, StartEpisode, 'start_episode', task='pick')
    assert started.success
    robot.step(6)
    assert process.stop(number, 30.0) == 0
    [line] = metadata(tmp_path)
    assert line['length'] == 6
    assert (
        'shut down' in line['metadata']['message'] or 'deactivated' in line['metadata']['message']
    )
    assert BagReader(started.bag_path).closed


def test_standing_simulated_time_makes_no_stream_late(recorder, graph_probe):
    process = recorder()
    health = graph_probe.collect(DiagnosticArray, '/diagnostics')
    robot = Robot(graph_probe)
    robot.step(60)
    seen = len(health.messages)
    health.wait(seen + 4, 30.0)
    levels = {s.name: s.level for s in health.messages[-1].status}
    assert {f'recorder: {name}' for name in ('state', *CAMERAS)} <= levels.keys()
    assert set(levels.values()) == {DiagnosticStatus.OK}
    assert 'ERROR' not in process.output


def test_camera_that_stops_is_late_in_simulated_time(recorder, graph_probe):
    recorder()
    health = graph_probe.collect(DiagnosticArray, '/diagnostics')
    robot = Robot(graph_probe)
    robot.step(2)
    camera = f'recorder: {CAMERAS[0]}'
    health.wait_for(lambda message: camera in [s.name for s in message.status], 30.0)
    robot.step(2)
    robot.images.pop(CAMERAS[0])
    robot.cameras = CAMERAS[1:]
    robot.step(40)
    late = (camera, DiagnosticStatus.ERROR)
    health.wait_for(lambda message: late in [(s.name, s.level) for s in message.status], 30.0)


def test_unfinished_bag_is_reported_with_the_command_that_recovers_it(recorder, tmp_path):
    path = tmp_path / 'bags' / 'crashed'
    BagWriter(path, 'mcap', [BagTopic('/x', 'std_msgs/msg/String')]).abort()
    process = recorder()
    process.expect(f'praxis bag recover {path}', 60.0)


def test_camera_that_publishes_best_effort_is_recorded_too(recorder, graph_probe):
    recorder()
    robot = Robot(graph_probe, QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT))
    assert call(graph_probe, StartEpisode, 'start_episode', task='pick').success
    robot.step(3)
    assert call(graph_probe, StopEpisode, 'stop_episode').frames == 3


def test_inactive_recorder_refuses_and_wrong_parameters_end_the_process(
    recorder, graph_probe, tmp_path
):
    process = recorder(bag_image_encoding='gif')
    assert process.wait(60.0) == 2
    assert 'bag_image_encoding' in process.output
    blocked = tmp_path / 'a_file'
    blocked.write_text('')
    for parameter in ('dataset_root', 'bag_root'):
        process = recorder(**{'bag_root': tmp_path / 'spare', parameter: blocked / 'below'})
        wait_until(lambda p=process: 'stays unconfigured' in p.output, 60.0)
        assert f'parameter {parameter}: ' in process.output
        assert 'Traceback' not in process.output
        assert process.stop(signal.SIGTERM, 60.0) == 0
    idle = recorder(autostart=False)
    wait_until(lambda: 'recorder' in graph_probe.node.get_node_names(), 60.0)
    assert not (tmp_path / 'bags').exists()
    assert idle.stop(signal.SIGTERM, 60.0) == 0
