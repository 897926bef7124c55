# SPDX-License-Identifier: Apache-2.0

import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from geometry_msgs.msg import PoseStamped
from praxis_control.primitives_node import PrimitivesNode
from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_core.errors import ErrorCode
from praxis_core.testing import wait_until
from praxis_interfaces.action import MoveTo, SetGripper
from praxis_interfaces.msg import Command, ControlStatus, StateVector
from praxis_interfaces.srv import AcquireLease, ReleaseLease
from rclpy.action import ActionClient
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.time import Time
from sensor_msgs.msg import JointState

CONTRACT = Path(__file__).parents[4] / 'params' / 'robots' / 'tabletop.yaml'
PERIOD_NS = 50_000_000


class Rig(Node):
    """Arbiter and robot in one: grants leases, and answers each request with a state."""

    def __init__(self):
        super().__init__('rig')
        self.contract = load_contract(CONTRACT)
        self.grant = True
        self.follow = True
        self.lease = ''
        self.released = []
        self.requests = []
        self.seq = 0
        self.episode = 'first'
        self.position = np.array([0.4, 0.0, 0.3])
        self.create_service(AcquireLease, 'acquire_lease', self.acquire)
        self.create_service(ReleaseLease, 'release_lease', self.release)
        self.status = self.create_publisher(ControlStatus, 'control_status', qos.LATCHED)
        self.state = self.create_publisher(StateVector, 'state', qos.SENSOR_PUBLISH)
        self.pose = self.create_publisher(PoseStamped, 'eef/arm/pose', qos.SENSOR_PUBLISH)
        self.joints = self.create_publisher(JointState, 'joint_states', qos.SENSOR_PUBLISH)
        self.create_subscription(Command, 'command_request/primitive', self.request, qos.REQUEST)

    def acquire(self, request, response):
        response.success = self.grant
        if self.grant:
            self.lease = request.lease_id
            response.episode_uuid = self.episode
            self.tell()
        else:
            response.error_code, response.error_msg = int(ErrorCode.WRONG_MODE), 'mode is hold'
        return response

    def release(self, request, response):
        self.released.append(request.lease_id)
        response.success = True
        return response

    def tell(self, reason=ControlStatus.REASON_NONE, text=''):
        message = ControlStatus(lease_id=self.lease, reason_code=reason, reason=text)
        self.status.publish(message)

    def revoke(self, reason, text):
        self.lease = ''
        self.tell(reason, text)

    def request(self, message):
        self.requests.append((time.monotonic(), message))
        if self.follow:
            self.position = self.position + 0.6 * 0.05 * np.array(message.values[:3])
            self.observe()

    def observe(self):
        """Publish the next observation, state last."""
        self.seq += 1
        stamp = Time(nanoseconds=self.seq * PERIOD_NS).to_msg()
        pose = PoseStamped()
        pose.header.stamp, pose.header.frame_id = stamp, 'world'
        (pose.pose.position.x, pose.pose.position.y, pose.pose.position.z) = self.position.tolist()
        pose.pose.orientation.x, pose.pose.orientation.w = 1.0, 0.0
        # Order of the names is not the contract's: they must be read by name.
        joints = JointState(name=['finger_right', *[f'joint_{i}' for i in range(7, 0, -1)]])
        joints.name.append('finger_left')
        joints.position = [0.03, *[0.0] * 7, 0.04]
        joints.header.stamp = stamp
        state = StateVector(observation_seq=self.seq, episode_uuid=self.episode, values=[0.0] * 8)
        state.header.stamp = stamp
        self.joints.publish(joints)
        self.pose.publish(pose)
        self.state.publish(state)

    @property
    def sent(self):
        return [message for _, message in self.requests]


class Client:
    def __init__(self, probe):
        self.probe = probe
        self.clients = {
            'move_to': ActionClient(probe.node, MoveTo, 'move_to'),
            'set_gripper': ActionClient(probe.node, SetGripper, 'set_gripper'),
            'release': ActionClient(probe.node, SetGripper, 'release'),
        }
        self.feedback = []
        for client in self.clients.values():
            wait_until(client.server_is_ready, message='action server')

    def send(self, name, goal):
        future = self.probe.on_executor(
            lambda: self.clients[name].send_goal_async(
                goal, feedback_callback=self.feedback.append
            )
        )
        wait_until(future.done, message='goal response')
        return future.result()

    def result(self, handle, timeout=10.0):
        future = self.probe.on_executor(handle.get_result_async)
        wait_until(future.done, timeout, 'result')
        return future.result()


def make(stepping, **parameters):
    values = {'contract': str(CONTRACT), 'stepping': stepping, **parameters}
    return PrimitivesNode(
        parameter_overrides=[Parameter(name, value=value) for name, value in values.items()]
    )


@pytest.fixture
def host(graph_probe):
    """Spin nodes beside the probe and destroy them at the end."""
    nodes = []

    def spin(node):
        nodes.append(graph_probe.spin(node))
        return node

    spin.probe = graph_probe
    yield spin
    for node in reversed(nodes):
        graph_probe.node.executor.remove_node(node)
        if isinstance(node, PrimitivesNode):
            node.close()
        node.destroy_node()


@pytest.fixture
def rig(host):
    return host(Rig())


@pytest.fixture
def lockstep(host, rig):
    host(make('lockstep', stall_s=20.0))
    client = Client(host.probe)
    wait_until(lambda: rig.state.get_subscription_count() == 1, message='state reader')
    wait_until(lambda: rig.count_publishers('command_request/primitive') == 1)
    rig.observe()
    return client


def goal_to(*offset, **fields):
    return MoveTo.Goal(position=[0.4 + offset[0], offset[1], 0.3 + offset[2]], **fields)


def test_goal_succeeds_with_one_request_per_observation(rig, lockstep):
    handle = lockstep.send('move_to', goal_to(0.1, -0.05, 0.0, gripper=1.0))
    answer = lockstep.result(handle)
    assert answer.status == GoalStatus.STATUS_SUCCEEDED
    result = answer.result
    assert result.reached and result.termination_reason == 'reached' and result.error_code == 0
    assert result.final_error <= 0.012
    assert np.allclose(result.final_position, rig.position)
    assert result.gripper_opening == pytest.approx(0.07)
    assert result.steps == len(rig.sent)
    lease = bytes(handle.goal_id.uuid).hex()
    contract = rig.contract
    assert [m.observation_seq for m in rig.sent] == list(range(1, len(rig.sent) + 1))
    assert [m.seq for m in rig.sent] == list(range(len(rig.sent)))
    for message in rig.sent:
        assert message.lease_id == lease and message.source == 'primitive'
        assert message.interface_hash == contract.interface_hash
        assert message.action_space == 'tabletop.osc_pose.delta.v1'
        assert message.episode_uuid == 'first'
        assert message.header.stamp == message.observation_stamp
        assert message.values[6] == 1.0
    assert rig.released == [lease]


def test_next_goal_answers_the_observation_the_last_one_ended_on(rig, lockstep):
    lockstep.result(lockstep.send('move_to', goal_to(0.05, 0.0, 0.0)))
    before = len(rig.sent)
    lockstep.result(lockstep.send('set_gripper', SetGripper.Goal(gripper=1.0, steps=3)))
    seqs = [m.observation_seq for m in rig.sent]
    assert len(seqs) == before + 3 and len(set(seqs)) == len(seqs)


def test_release_takes_20_periods_as_its_limit_when_given_none(rig, lockstep):
    result = lockstep.result(lockstep.send('release', SetGripper.Goal(steps=0))).result
    assert result.reached and result.steps <= 20
    assert all(m.values[6] == -1.0 for m in rig.sent)


def test_max_steps_is_a_defined_end(rig, lockstep):
    answer = lockstep.result(lockstep.send('move_to', goal_to(0.2, 0.0, 0.0, max_steps=3)))
    assert answer.status == GoalStatus.STATUS_SUCCEEDED
    assert answer.result.termination_reason == 'max_steps' and not answer.result.reached
    assert answer.result.error_code == 0 and answer.result.steps == 3


def test_cancel_is_answered_within_200_ms_and_no_command_follows(rig, lockstep):
    rig.follow = False
    pump = threading.Event()

    def observe():
        while not pump.wait(0.02):
            rig.observe()

    thread = threading.Thread(target=observe)
    thread.start()
    try:
        handle = lockstep.send('move_to', goal_to(0.2, 0.2, 0.1, max_steps=100000))
        wait_until(lambda: len(rig.sent) > 5 and lockstep.feedback, message='motion and feedback')
        started = time.monotonic()
        cancel = lockstep.probe.on_executor(handle.cancel_goal_async)
        wait_until(cancel.done, message='cancel response')
        answered = time.monotonic()
        assert cancel.result().goals_canceling
        answer = lockstep.result(handle)
        ended = time.monotonic()
        seq = rig.seq
        wait_until(lambda: rig.seq > seq + 20, message='20 more observations')
        late = [t for t, _ in rig.requests if t > answered]
    finally:
        pump.set()
        thread.join()
    assert answered - started < 0.2
    assert ended - started < 0.4
    assert late == []
    assert answer.status == GoalStatus.STATUS_CANCELED
    assert answer.result.termination_reason == 'cancelled'
    assert answer.result.error_code == ErrorCode.CANCELLED
    assert len(rig.released) == 1


def test_second_goal_is_rejected_while_one_runs(rig, lockstep):
    rig.follow = False
    handle = lockstep.send('move_to', goal_to(0.2, 0.0, 0.0))
    assert handle.accepted
    wait_until(lambda: rig.sent, message='motion')
    assert not lockstep.send('set_gripper', SetGripper.Goal()).accepted
    lockstep.probe.on_executor(handle.cancel_goal_async)
    lockstep.result(handle)
    rig.follow = True
    rig.observe()
    assert lockstep.send('set_gripper', SetGripper.Goal()).accepted


@pytest.mark.parametrize(
    ('reason', 'word', 'code'),
    [
        (ControlStatus.REASON_TAKEOVER, 'takeover', ErrorCode.LEASE_LOST),
        (ControlStatus.REASON_LEASE_EXPIRED, 'lease_lost', ErrorCode.LEASE_LOST),
        (ControlStatus.REASON_ESTOP, 'estop', ErrorCode.ESTOPPED),
    ],
)
def test_lost_lease_aborts_with_its_reason(rig, lockstep, reason, word, code):
    rig.follow = False
    handle = lockstep.send('move_to', goal_to(0.2, 0.0, 0.0))
    wait_until(lambda: rig.sent, message='motion')
    rig.revoke(reason, 'because')
    answer = lockstep.result(handle)
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == word
    assert answer.result.error_code == code
    assert answer.result.error_msg == 'because'


def test_changed_episode_aborts_and_nothing_is_sent_into_it(rig, lockstep):
    rig.follow = False
    handle = lockstep.send('move_to', goal_to(0.2, 0.0, 0.0))
    wait_until(lambda: rig.sent, message='motion')
    rig.episode = 'second'
    rig.observe()
    answer = lockstep.result(handle)
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == 'episode_changed'
    assert answer.result.error_code == ErrorCode.EPISODE_CHANGED
    assert {m.episode_uuid for m in rig.sent} == {'first'}


def test_refused_lease_aborts_with_the_arbiters_words(rig, lockstep):
    rig.grant = False
    answer = lockstep.result(lockstep.send('move_to', goal_to(0.1, 0.0, 0.0)))
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == 'lease_refused'
    assert answer.result.error_code == ErrorCode.WRONG_MODE
    assert answer.result.error_msg == 'mode is hold'
    assert rig.sent == []


@pytest.mark.parametrize(
    ('goal', 'words'),
    [
        (goal_to(0.31, 0.0, 0.0), '0.30 m'),
        (goal_to(0.1, 0.0, 0.0, tolerance=0.0), 'tolerance'),
        (goal_to(0.1, 0.0, float('nan')), 'position'),
        (goal_to(0.1, 0.0, 0.0, arm='left'), "'left'"),
    ],
)
def test_bad_goal_aborts_before_any_motion(rig, lockstep, goal, words):
    answer = lockstep.result(lockstep.send('move_to', goal))
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == 'refused'
    assert answer.result.error_code == ErrorCode.INVALID_REQUEST
    assert words in answer.result.error_msg
    assert rig.sent == []


def test_stale_state_aborts_in_real_time(host, rig):
    host(make('realtime'))
    client = Client(host.probe)
    wait_until(lambda: rig.state.get_subscription_count() == 1)
    rig.follow = False
    rig.observe()
    answer = client.result(client.send('move_to', goal_to(0.1, 0.0, 0.0)), timeout=5.0)
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == 'stale_state'
    assert answer.result.error_code == ErrorCode.STALE_STATE


def test_arbiter_that_is_not_there_aborts_in_bounded_time(host):
    host(make('lockstep', service_timeout_s=0.3))
    client = Client(host.probe)
    answer = client.result(client.send('move_to', goal_to(0.1, 0.0, 0.0)), timeout=3.0)
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == 'no_arbiter'


def test_node_that_stops_aborts_its_goal_and_answers(rig, host):
    node = host(make('lockstep'))
    client = Client(host.probe)
    wait_until(lambda: rig.state.get_subscription_count() == 1)
    rig.follow = False
    rig.observe()
    handle = client.send('move_to', goal_to(0.2, 0.0, 0.0))
    wait_until(lambda: rig.sent, message='motion')
    node.stop()
    answer = client.result(handle)
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == 'shutdown'
    assert rig.released


def test_sigterm_ends_the_process_with_status_0(spawn, graph_probe):
    module = ['python', '-m', 'praxis_control.primitives_node']
    process = spawn([*module, '--ros-args', '-p', f'contract:={CONTRACT}'])
    graph_probe.wait_for_node('primitives', 30.0)
    assert process.stop(signal.SIGTERM) == 0, process.output


def test_an_unknown_arm_ends_the_process_with_the_arms_there_are(spawn):
    module = ['python', '-m', 'praxis_control.primitives_node']
    process = spawn([*module, '--ros-args', '-p', f'contract:={CONTRACT}', '-p', 'arm:=left'])
    assert process.wait(60.0) == 2
    assert "parameter arm: 'left' is not one of ['arm']" in process.output
