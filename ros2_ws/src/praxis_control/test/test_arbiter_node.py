# SPDX-License-Identifier: Apache-2.0
import signal
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_core.testing import wait_until
from praxis_interfaces.msg import Command, ControlStatus, StateVector
from praxis_interfaces.srv import AcquireLease, ReleaseLease, SetControlMode
from rcl_interfaces.srv import DescribeParameters
from std_srvs.srv import Trigger

CONTRACT = Path(__file__).resolve().parents[4] / 'params/robots/tabletop.yaml'
MODES = SetControlMode.Request


@pytest.fixture
def start(spawn):
    def start(*parameters, namespace=''):
        command = [sys.executable, '-m', 'praxis_control.arbiter_node', '--ros-args']
        if namespace:
            command += ['-r', f'__ns:=/{namespace}']
        for parameter in (f'contract:={CONTRACT}', *parameters):
            command += ['-p', parameter]
        return spawn(command)

    return start


class Robot:
    """Publishes a state when it is told to, and requests."""

    def __init__(self, probe, namespace='') -> None:
        prefix = f'/{namespace}/' if namespace else ''
        self.probe, self.prefix = probe, prefix
        self.contract = load_contract(CONTRACT)
        self.states = probe.publisher(StateVector, f'{prefix}state', qos.SENSOR_PUBLISH, readers=1)
        self.policy = probe.publisher(
            Command, f'{prefix}command_request/policy', qos.REQUEST, readers=1
        )
        self.commands = probe.collect(Command, f'{prefix}command', qos.COMMAND_RECORD)
        self.status = probe.collect(ControlStatus, f'{prefix}control_status', qos.LATCHED)
        self.status.wait()
        wait_until(lambda: probe.node.count_publishers(f'{prefix}command') == 1)
        self.lease = uuid.uuid4().hex
        self.message = StateVector(
            interface_hash=self.contract.interface_hash, episode_uuid=uuid.uuid4().hex
        )
        self.message.values = [0.0] * self.contract.state_dim
        self.message.cameras = list(self.contract.interface.cameras)

    def state(self) -> None:
        self.message.observation_seq += 1
        sec, nanosec = divmod(50_000_000 * self.message.observation_seq, 1_000_000_000)
        self.message.header.stamp = Time(sec=sec, nanosec=nanosec)
        self.states.publish(self.message)

    def acquire(self):
        self.status.wait_for(lambda s: s.episode_uuid == self.message.episode_uuid)
        request = AcquireLease.Request(
            source='policy', lease_id=self.lease, interface_hash=self.contract.interface_hash
        )
        return self.probe.call(AcquireLease, f'{self.prefix}acquire_lease', request)

    def request(self, **fields) -> None:
        message = Command(source='policy', lease_id=self.lease)
        message.episode_uuid = self.message.episode_uuid
        message.observation_seq = self.message.observation_seq
        message.observation_stamp = self.message.header.stamp
        message.interface_hash = self.contract.interface_hash
        message.action_space = self.contract.interface.action_space
        message.values = [0.1] * self.contract.action_dim
        message.chunk_id, message.chunk_index = 'chunk', 3
        for name, value in fields.items():
            setattr(message, name, value)
        self.policy.publish(message)


def test_lockstep_answers_each_observation_once_with_its_stamp(start, graph_probe):
    start('stepping:=lockstep')
    robot = Robot(graph_probe)
    robot.state()
    assert robot.acquire().episode_uuid == robot.message.episode_uuid
    for k in range(1, 21):
        robot.request()
        command = robot.commands.wait(k)[-1]
        assert command.observation_seq == k == command.seq
        assert command.header.stamp == robot.message.header.stamp
        assert (command.source, command.chunk_id, command.chunk_index) == ('policy', 'chunk', 3)
        robot.request()
        robot.state()
    robot.status.wait_for(lambda s: s.reason_code == ControlStatus.REASON_STALE_REQUEST)
    assert len(robot.commands.messages) == 20


def test_lockstep_holds_after_the_idle_time_without_any_request(start, graph_probe):
    start('stepping:=lockstep', 'idle_hold_s:=0.3')
    robot = Robot(graph_probe)
    robot.state()
    command = robot.commands.wait(1)[0]
    assert command.hold and command.source == 'arbiter' and command.observation_seq == 1


def test_real_time_ticks_at_the_command_rate_while_it_holds(start, graph_probe):
    start()
    robot = Robot(graph_probe)
    robot.state()
    stamps = [
        c.header.stamp.sec + c.header.stamp.nanosec * 1e-9
        for c in robot.commands.wait(41, timeout=20.0)
    ]
    assert (stamps[40] - stamps[0]) / 40 == pytest.approx(0.05, rel=0.05)
    assert np.diff(stamps).min() > 0.0


def test_services_and_buttons_change_the_mode(start, graph_probe):
    start('enable:=false')
    robot = Robot(graph_probe)
    robot.state()
    assert not robot.acquire().success
    press = lambda name: graph_probe.call(Trigger, f'arbiter/{name}')  # noqa: E731
    assert press('resume').message == 'mode autonomous'
    assert robot.acquire().success
    assert press('estop').message == 'mode estop'
    ask = MODES(mode=MODES.MODE_AUTONOMOUS, source='operator')
    response = graph_probe.call(SetControlMode, 'set_control_mode', ask)
    assert not response.success and response.mode == MODES.MODE_ESTOP and response.error_msg
    assert press('resume').message == 'mode hold'
    assert not graph_probe.call(SetControlMode, 'set_control_mode', MODES(mode=9)).success
    gone = graph_probe.call(ReleaseLease, 'release_lease', ReleaseLease.Request(lease_id='x'))
    assert not gone.success and gone.error_code


def test_late_reader_gets_the_status_that_was_published_before(start, graph_probe):
    start().expect('mode autonomous')
    status = graph_probe.collect(ControlStatus, 'control_status', qos.LATCHED).wait()[0]
    assert status.mode_name == 'autonomous' and status.model_control_enabled and status.holding


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signal_leaves_a_hold_and_ends_with_zero(start, graph_probe, number):
    arbiter = start('stepping:=realtime')
    robot = Robot(graph_probe)
    robot.state()
    assert robot.acquire().success
    robot.request()
    robot.commands.wait_for(lambda c: c.source == 'policy')
    assert arbiter.stop(number) == 0
    wait_until(lambda: robot.commands.messages[-1].hold, message='a hold at the end')
    assert 'Traceback' not in arbiter.output


def test_two_robots_do_not_hear_each_other(start, graph_probe):
    start('stepping:=lockstep', namespace='left')
    start('stepping:=lockstep', namespace='right')
    left, right = Robot(graph_probe, 'left'), Robot(graph_probe, 'right')
    left.state()
    right.state()
    assert left.acquire().success
    left.request()
    left.commands.wait(1)
    assert not right.commands.messages
    assert right.status.messages[-1].lease_id == ''


def test_unknown_parameter_is_refused_with_the_nearest_known(start):
    arbiter = start('idle_holds:=1.0')
    assert arbiter.wait() == 2
    assert 'idle_hold_s' in arbiter.output


def test_parameters_are_described(start, graph_probe):
    start().expect('mode autonomous')
    request = DescribeParameters.Request(names=['stepping', 'lease_s', 'sources'])
    described = graph_probe.call(DescribeParameters, 'arbiter/describe_parameters', request)
    assert all(d.description and d.read_only for d in described.descriptors)
