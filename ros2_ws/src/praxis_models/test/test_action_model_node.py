# SPDX-License-Identifier: Apache-2.0
import itertools
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticArray
from praxis_core import qos
from praxis_core.errors import ErrorCode
from praxis_core.parameters import ParameterError
from praxis_core.testing import GraphProbe, wait_until
from praxis_interfaces.msg import ActionChunk, ControlStatus, PrivilegedState
from praxis_interfaces.srv import GetModelInfo, ResetModel
from sensor_msgs.msg import Image
from std_msgs.msg import Float64

sys.path.insert(0, str(Path(__file__).parent))

from action_model_rig import (
    JOINT,
    PERIOD_S,
    ROBOTS,
    STEPS,
    TABLETOP,
    Client,
    Policy,
    Rig,
    counted,
    make_node,
    meta_of,
)
from hostile_server import HostileServer, refusing_port
from praxis_models.action_model_node import ActionModelNode

SUCCEEDED, CANCELED, ABORTED = (
    GoalStatus.STATUS_SUCCEEDED,
    GoalStatus.STATUS_CANCELED,
    GoalStatus.STATUS_ABORTED,
)
CANCEL_S = 0.05
"""What a cancel may take; the least of several is compared, since others share the machine."""


class Stage:
    """Puts nodes and servers of a test on, and takes them off."""

    def __init__(self, probe):
        self.probe = probe
        self.nodes = []
        self.servers = []
        # A process of its own in life, so a thread of its own here.
        self.other = GraphProbe('other')

    def server(self, *scripts, port=0):
        server = HostileServer(*scripts, port=port)
        self.servers.append(server)
        return server

    def rig(self, *args, **kwargs):
        rig = self.probe.spin(Rig(*args, **kwargs))
        self.nodes.append((self.probe, rig))
        return rig

    def node(self, endpoint, stepping='lockstep', **parameters):
        node = make_node(endpoint, stepping, **parameters)
        self.other.spin(node)
        self.nodes.append((self.other, node))
        wait_until(lambda: node.state_label == 'active', message='activation')
        return node

    def close(self):
        for probe, node in reversed(self.nodes):
            probe.on_executor(lambda: None)
            probe.node.executor.remove_node(node)
        self.other.close()
        for _, node in reversed(self.nodes):
            if isinstance(node, ActionModelNode):
                node.close()
            node.destroy_node()
        for server in self.servers:
            server.stop()
            assert not server.failures


@pytest.fixture
def stage(graph_probe):
    stage = Stage(graph_probe)
    yield stage
    stage.close()


def start(stage, *scripts, contract=TABLETOP, stepping='lockstep', ready=True, **parameters):
    """Rig, node and client around a server with these scripts."""
    server = stage.server(*scripts)
    rig = stage.rig(contract, lockstep=stepping == 'lockstep')
    path = str(ROBOTS / f'{contract.name}.yaml')
    node = stage.node(server.endpoint, stepping, contract=path, **parameters)
    client = Client(stage.probe)
    wait_until(lambda: rig.state.get_subscription_count() >= 1, message='reader of the state')
    wait_until(lambda: rig.count_publishers('command_request/policy') == 1)
    if ready:
        wait_until(lambda: node.link.trouble is None, message='a model')
    return rig, node, client


def silent(peer):
    """Delay of a model that thinks for ever."""
    peer.be_silent()


# Execution


def test_chunks_are_executed_in_order_one_step_for_each_observation(stage):
    policy = Policy()
    rig, _, client = start(stage, policy)
    chunks = stage.probe.collect(ActionChunk, 'action_chunk')
    wait_until(lambda: rig.count_subscribers('action_chunk') == 1)
    handle = client.run(max_chunks=3)
    rig.observe()
    status, result = client.result(handle)
    assert (status, result.termination_reason, result.error_code) == (SUCCEEDED, 'max_chunks', 0)
    assert (result.chunks, result.commands, result.outcome) == (3, 12, 'unknown')
    assert rig.firsts == [0.0, 0.001, 0.002, 0.003, 0.01, 0.011, 0.012, 0.013,
                          0.02, 0.021, 0.022, 0.023]  # fmt: skip
    assert [m.observation_seq for m in rig.sent] == list(range(1, 13))
    assert [m.chunk_index for m in rig.sent] == [0, 1, 2, 3] * 3
    goal = bytes(handle.goal_id.uuid).hex()
    for message in rig.sent:
        assert message.lease_id == goal and message.source == 'policy'
        assert message.interface_hash == TABLETOP.interface_hash
        assert message.action_space == TABLETOP.interface.action_space
        assert message.episode_uuid == 'first'
        assert message.header.stamp == message.observation_stamp
    assert [m.seq for m in rig.sent] == list(range(12))
    assert rig.released == [goal]
    published = chunks.wait(3)
    assert [m.chunk_id for m in published] == [rig.sent[i].chunk_id for i in (0, 4, 8)]
    assert [m.observation_seq for m in published] == [1, 5, 9]
    np.testing.assert_allclose(
        np.array(published[1].actions).reshape(STEPS, 7)[:, 0], [0.01, 0.011, 0.012, 0.013]
    )
    assert [call['method'] for call in policy.calls] == ['reset']
    assert {request['instruction'] for request in policy.requests} == {'pick'}


def test_the_goal_says_how_many_steps_of_a_chunk_are_executed(stage):
    rig, _, client = start(stage, Policy())
    handle = client.run(max_chunks=2, execute_steps=2)
    rig.observe()
    assert client.result(handle)[1].commands == 4
    assert rig.firsts == [0.0, 0.001, 0.01, 0.011]


def test_lockstep_latency_decides_the_tick_whatever_the_model_takes(stage):
    """A slow and a fast model give the same commands: the chunk is awaited at its tick."""
    seen = []
    for delay in (0.0, 0.1):
        policy = Policy(delay=lambda peer, s=delay: peer.be_silent(s))
        rig, node, client = start(stage, policy, prefetch_steps=3, latency_ticks=2)
        handle = client.run(max_chunks=4)
        rig.observe()
        client.result(handle)
        seen.append([(round(m.values[0], 6), m.chunk_index) for m in rig.sent])
        for probe, each in stage.nodes:
            probe.node.executor.remove_node(each)
            if each is node:
                node.close()
            each.destroy_node()
        stage.nodes.clear()
    assert seen[0] == seen[1]
    # Each is asked for three steps before the end of the one before, and used from its third.
    assert seen[0][:6] == [(0.0, 0), (0.001, 1), (0.002, 2), (0.012, 2), (0.013, 3), (0.022, 2)]


def test_a_relative_chunk_is_executed_at_its_own_anchor(stage):
    """The robot moves while a chunk plays; its steps stay where their observation put them."""
    anchors = {f'joint_{i + 1}': f'joint_positions[{i}]' for i in range(7)}
    offsets = np.array([[0.01 * k] * 7 + [1.0] for k in range(1, STEPS + 1)], np.float32)
    policy = Policy(
        meta_of(JOINT, state_schema={'joint_positions': 7}, anchors=anchors),
        lambda request, number: {'actions': offsets},
    )
    rig, _, client = start(stage, policy, contract=JOINT)
    starts = [np.array([0.1 * (k + 1)] * 7) for k in range(3)]
    handle = client.run(max_chunks=2)
    rig.step = False
    rig.values[:7] = starts[0]
    rig.observe()
    for k in range(2 * STEPS):
        wait_until(lambda k=k: len(rig.sent) == k + 1)
        rig.values[:7] = starts[1] if k == STEPS - 1 else rig.values[:7] + 0.037
        rig.observe()
    client.result(handle)
    for number in range(2):
        for k in range(STEPS):
            values = rig.sent[number * STEPS + k].values
            np.testing.assert_allclose(values[:7], starts[number] + 0.01 * (k + 1), atol=1e-6)
            assert values[7] == 1.0


def test_the_next_chunk_is_predicted_while_the_present_one_plays(stage):
    policy = Policy(
        meta_of(chunk_size=None),
        lambda request, number: {'actions': np.full((10, 7), 0.1 * number, np.float32)},
        delay=lambda peer: peer.be_silent(3 * PERIOD_S),
    )
    rig, _, client = start(stage, policy, stepping='realtime', prefetch_steps=6)
    handle = client.run(max_chunks=4)
    client.result(handle)
    commands = rig.sent
    seqs = [m.observation_seq for m in commands]
    assert len(commands) > 15
    gaps = sum(later - earlier - 1 for earlier, later in itertools.pairwise(seqs))
    assert gaps <= 2, 'one tick in fifteen may be lost to a loaded machine'
    first_of = {}
    for message in commands:
        first_of.setdefault(message.chunk_id, message)
    later = list(first_of.values())[1:]
    # Latency compensation: what was commanded while the model thought is skipped.
    assert later and all(message.chunk_index >= 2 for message in later)


def test_steps_of_a_slower_policy_become_commands_of_the_robots_rate(stage):
    policy = Policy(meta_of(policy_hz=10.0))
    rig, _, client = start(stage, policy)
    handle = client.run(max_chunks=1)
    rig.observe()
    assert client.result(handle)[1].commands == 2 * STEPS
    # Offsets are halved, so that the motion is the same.
    np.testing.assert_allclose(rig.firsts, np.repeat([0, 0.0005, 0.001, 0.0015], 2), atol=1e-6)
    assert [m.chunk_index for m in rig.sent] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_deltas_beyond_the_limits_are_clipped_and_others_are_not(stage):
    actions = np.array([[1.5, -2.0, 0.5, 0, 0, 0, 1.0]] * STEPS, np.float32)
    rig, _, client = start(stage, Policy(reply=lambda *_: {'actions': actions}))
    handle = client.run(max_chunks=1)
    rig.observe()
    client.result(handle)
    assert list(rig.sent[0].values) == [1.0, -1.0, 0.5, 0, 0, 0, 1.0]


def test_images_of_the_very_observation_reach_the_model_in_lockstep(stage):
    meta = meta_of(camera_roles=('primary', 'wrist'))
    policy = Policy(meta)
    rig, _, client = start(stage, policy)
    rig.cameras = ('agentview', 'wrist')
    wait_until(lambda: all(p.get_subscription_count() == 1 for p in rig.images.values()))
    handle = client.run(max_chunks=3)
    rig.observe()
    client.result(handle)
    shades = [{int(i[0, 0, 0]) for i in r['images'].values()} for r in policy.requests]
    assert shades == [{1}, {5}, {9}]


def test_lockstep_takes_no_lease_over_an_observation_that_it_has_not_whole(stage):
    """With a lease time would stand still, and what was missed would never come."""
    rig, node, client = start(stage, Policy(meta_of(camera_roles=('primary',))))
    wait_until(lambda: rig.images['agentview'].get_subscription_count() == 1)
    handle = client.run(max_chunks=1)
    image = rig.images['agentview']
    rig.cameras = ('agentview',)
    rig.images['agentview'] = rig.images['wrist']  # so that it is lost
    rig.observe()
    wait_until(lambda: node.observed is not None)
    wait_until(lambda: len(client.feedback) >= 2)
    assert not rig.acquired
    rig.images['agentview'] = image
    rig.observe()
    assert client.result(handle)[1].commands == STEPS
    assert rig.sent[0].observation_seq == 2


# Ends


def begin(stage, policy, **options):
    """A run in progress that has sent commands."""
    parameters = options.pop('parameters', {})
    rig, node, client = start(stage, policy, stepping='realtime', **parameters)
    handle = client.run(**options)
    wait_until(lambda: len(rig.sent) >= 2, message='commands')
    return rig, node, client, handle


def test_a_cancel_is_answered_at_once_though_the_model_is_silent(stage):
    policy = Policy(delay=silent)
    rig, _, client = start(stage, policy, stepping='realtime')
    times = []
    for count in range(1, 6):
        handle = client.run()
        wait_until(lambda n=count: len(policy.requests) + len(rig.released) >= n)
        status, result, seconds = client.cancel(handle)
        assert status == CANCELED
        assert (result.termination_reason, result.error_code) == ('cancelled', 103)
        times.append(seconds)
    assert min(times) < CANCEL_S and not rig.sent


def test_no_command_follows_a_cancel_whenever_it_comes(stage):
    policy = Policy(delay=lambda peer: peer.be_silent(random.uniform(0.0, 0.03)))
    rig, _, client = start(stage, policy, stepping='realtime')
    pause = threading.Event()
    times = []
    for _ in range(20):
        handle = client.run()
        pause.wait(random.uniform(0.0, 0.4))
        status, result, seconds = client.cancel(handle)
        count = result.commands
        assert (status, result.termination_reason) == (CANCELED, 'cancelled')
        times.append(seconds)
        goal = bytes(handle.goal_id.uuid).hex()
        seq = rig.seq
        wait_until(lambda s=seq: rig.seq >= s + 3)
        assert sum(m.lease_id == goal for m in rig.sent) == count
    assert sorted(times)[len(times) // 2] < CANCEL_S + 0.05 and min(times) < CANCEL_S


@pytest.mark.parametrize(
    ('reason', 'text', 'code'),
    [
        (ControlStatus.REASON_TAKEOVER, 'takeover', ErrorCode.LEASE_LOST),
        (ControlStatus.REASON_ESTOP, 'estop', ErrorCode.ESTOPPED),
        (ControlStatus.REASON_RESET, 'reset', ErrorCode.EPISODE_CHANGED),
    ],
)
def test_a_lease_that_is_withdrawn_ends_the_run(stage, reason, text, code):
    rig, _, client, handle = begin(stage, Policy())
    stage.probe.on_executor(lambda: rig.revoke(reason, 'the arbiter says so'))
    status, result = client.result(handle)
    assert (status, result.termination_reason, result.error_code) == (ABORTED, text, code)
    assert 'the arbiter says so' in result.error_msg
    count, seq = len(rig.sent), rig.seq
    wait_until(lambda: rig.seq >= seq + 4)
    assert len(rig.sent) == count


def test_a_new_episode_ends_the_run(stage):
    rig, _, client, handle = begin(stage, Policy())
    rig.episode = 'second'
    status, result = client.result(handle)
    assert (status, result.termination_reason) == (ABORTED, 'reset')
    assert 'second' in result.error_msg


@pytest.mark.parametrize(
    ('verdict', 'reason', 'outcome'),
    [
        ({'success': True, 'terminated': True}, 'task_success', 'success'),
        ({'terminated': True}, 'task_failure', 'failure'),
        ({'truncated': True}, 'task_failure', 'failure'),
    ],
    ids=['success', 'failure', 'truncated'],
)
def test_the_verdict_on_the_task_ends_the_run_as_meant(stage, verdict, reason, outcome):
    rig, _, client, handle = begin(stage, Policy())
    stage.probe.on_executor(lambda: rig.judge(**verdict))
    status, result = client.result(handle)
    assert (status, result.termination_reason) == (SUCCEEDED, reason)
    assert (result.outcome, result.error_code) == (outcome, 0)


def test_time_that_is_up_ends_the_run_as_meant(stage):
    _, _, client, handle = begin(stage, Policy(), timeout=0.5)
    status, result = client.result(handle)
    assert (status, result.termination_reason, result.error_code) == (SUCCEEDED, 'timeout', 0)


def test_states_that_stop_end_the_run(stage):
    rig, _, client, handle = begin(stage, Policy())
    rig.timer.cancel()
    status, result = client.result(handle)
    assert (status, result.termination_reason) == (ABORTED, 'stale_observation')
    assert result.error_code == ErrorCode.STALE_OBSERVATION
    assert 'no state for' in result.error_msg


def test_a_camera_that_stalls_ends_the_run_and_is_named(stage):
    policy = Policy(meta_of(camera_roles=('primary', 'wrist')))
    rig, _, client = start(stage, policy, stepping='realtime')
    rig.cameras = ('agentview', 'wrist')
    handle = client.run()
    wait_until(lambda: len(rig.sent) >= 2)
    rig.cameras = ('agentview',)
    status, result = client.result(handle)
    assert (status, result.termination_reason) == (ABORTED, 'stale_observation')
    assert 'camera wrist' in result.error_msg and 'limit 0.15 s' in result.error_msg


def dies(peer):
    peer.hang_up()


def test_a_model_that_dies_is_waited_for_and_then_given_up(stage):
    port = refusing_port()
    server = stage.server(Policy(), port=port)
    rig = stage.rig(lockstep=False)
    node = stage.node(server.endpoint, 'realtime')
    client = Client(stage.probe)
    wait_until(lambda: node.link.trouble is None)
    handle = client.run()
    wait_until(lambda: len(rig.sent) >= 2)
    stage.servers.remove(server)
    server.stop()
    began = time.monotonic()
    status, result = client.result(handle)
    assert (status, result.termination_reason) == (ABORTED, 'model_lost')
    assert result.error_code == ErrorCode.MODEL_LOST and str(port) in result.error_msg
    assert time.monotonic() - began > 0.9, 'model_patience_s is 1'


@pytest.mark.parametrize(
    ('reply', 'reason', 'code', 'words'),
    [
        (lambda *_: 'no such thing', 'model_refused', 802, 'no such thing'),
        (lambda *_: {'actions': np.zeros((4, 6), np.float32)}, 'model_reply_invalid', 804,
         'expected numbers of shape [4, 7] (got float32[4, 6])'),
        (lambda *_: {'actions': np.zeros((3, 7), np.float32)}, 'model_reply_invalid', 804,
         '[3, 7]'),
        (lambda *_: {'actions': np.full((4, 7), np.nan, np.float32)}, 'model_reply_invalid', 804,
         'actions[0].delta_x: expected a finite number'),
        (lambda *_: {}, 'model_reply_invalid', 804, 'nothing'),
    ],
    ids=['refuses', 'wrong_dimension', 'wrong_length', 'not_finite', 'no_actions'],
)  # fmt: skip
def test_a_model_that_answers_wrongly_is_never_executed(stage, reply, reason, code, words):
    rig, _, client = start(stage, Policy(reply=reply), stepping='realtime')
    status, result = client.result(client.run())
    assert (status, result.termination_reason, result.error_code) == (ABORTED, reason, code)
    assert words in result.error_msg and not rig.sent


def test_a_model_that_does_not_answer_in_time_is_given_up(stage):
    options = {'receive_timeout_s': 0.3, 'first_reply_timeout_s': 0.3}
    rig, _, client = start(stage, Policy(delay=silent), stepping='realtime', **options)
    status, result = client.result(client.run())
    assert (status, result.error_code) == (ABORTED, ErrorCode.MODEL_TIMEOUT)
    assert result.termination_reason == 'model_timeout' and not rig.sent


@pytest.mark.parametrize(
    ('meta', 'parameters', 'words'),
    [
        (meta_of(JOINT), {}, "control.embodiment: expected 'tabletop_7d'"),
        (meta_of(), {'backend': 'openpi'}, "backend: expected 'openpi' (got 'fake')"),
        (meta_of(camera_roles=('head',)), {}, 'camera_roles'),
        (meta_of(interface_hash='f' * 64), {}, 'interface_hash'),
    ],
    ids=['embodiment', 'backend', 'camera', 'hash'],
)
def test_a_model_for_something_else_is_refused_before_its_first_inference(
    stage, meta, parameters, words
):
    policy = Policy(meta)
    _, node, client = start(stage, policy, ready=False, **parameters)
    wait_until(lambda: node.link.trouble and node.link.trouble.kind == 'mismatch')
    for send in (client.run, client.predict):
        status, result = client.result(send())
        assert (status, result.error_code) == (ABORTED, ErrorCode.MODEL_MISMATCH)
        assert result.termination_reason == 'model_mismatch' and words in result.error_msg
    info = stage.probe.call(GetModelInfo, 'get_model_info')
    assert info.error_code == ErrorCode.MODEL_MISMATCH and words in info.error_msg
    assert not policy.requests


def test_a_server_that_is_not_there_is_named(stage):
    port = refusing_port()
    stage.rig(lockstep=False)
    stage.node(f'127.0.0.1:{port}', 'realtime', model_patience_s=0.2)
    client = Client(stage.probe)
    status, result = client.result(client.run())
    assert (status, result.termination_reason) == (ABORTED, 'model_unreachable')
    assert result.error_code == ErrorCode.MODEL_UNREACHABLE and str(port) in result.error_msg


def test_deactivation_ends_the_run(stage):
    rig, node, client, handle = begin(stage, Policy())
    stage.other.on_executor(node.trigger_deactivate)
    status, result = client.result(handle)
    assert (status, result.termination_reason) == (ABORTED, 'deactivated')
    assert result.error_code == ErrorCode.NOT_ACTIVE
    count, seq = len(rig.sent), rig.seq
    wait_until(lambda: rig.seq >= seq + 4)
    assert len(rig.sent) == count
    assert not client.run().accepted
    stage.other.on_executor(node.trigger_activate)
    second = client.run(max_chunks=1)
    assert client.result(second)[1].termination_reason == 'max_chunks'


def test_a_process_that_is_told_to_end_tells_its_client(stage):
    _, node, client, handle = begin(stage, Policy())
    node.stop()
    status, result = client.result(handle)
    assert (status, result.termination_reason) == (ABORTED, 'deactivated')


def test_a_lease_that_is_refused_is_told_in_the_arbiters_words(stage):
    rig, _, client = start(stage, Policy(), stepping='realtime')
    rig.grant = False
    status, result = client.result(client.run())
    assert (status, result.termination_reason) == (ABORTED, 'lease_refused')
    assert (result.error_code, result.error_msg) == (ErrorCode.WRONG_MODE, 'mode is hold')


def test_an_arbiter_that_is_missing_is_told(stage):
    server = stage.server(Policy())
    stage.node(server.endpoint, 'realtime', service_timeout_s=0.3)
    status, result = (client := Client(stage.probe)).result(client.run())
    assert (status, result.error_code) == (ABORTED, ErrorCode.TIMEOUT)
    assert 'the arbiter does not answer' in result.error_msg


def test_an_instruction_without_words_is_refused_with_a_reason(stage):
    rig, _, client = start(stage, Policy())
    for send in (client.run, client.predict):
        status, result = client.result(send(' '))
        assert (status, result.error_code) == (ABORTED, ErrorCode.INVALID_REQUEST)
        assert 'instruction must not be empty' in result.error_msg
    assert not rig.acquired


# The model comes and goes


def test_a_run_goes_on_after_the_model_came_back(stage):
    first = Policy(delay=lambda peer: len(first.requests) > 2 and peer.hang_up())
    second = Policy(reply=lambda request, number: counted(request, number + 50))
    rig, _, client = start(stage, first, second, stepping='realtime', model_patience_s=10.0)
    handle = client.run(max_chunks=5)
    status, result = client.result(handle)
    assert (status, result.termination_reason, result.chunks) == (SUCCEEDED, 'max_chunks', 5)
    assert len(first.requests) == 3 and len(second.requests) == 3
    assert any(0.01 <= value < 0.02 for value in rig.firsts)
    assert any(value >= 0.5 for value in rig.firsts)
    # The one that came back remembers nothing, so it is told that it begins.
    assert [call['method'] for call in second.calls] == ['reset']


def test_the_lease_is_kept_while_the_model_thinks(stage):
    policy = Policy(delay=lambda peer: peer.be_silent(1.0))
    rig, _, client = start(stage, policy, stepping='realtime', lease_s=0.3)
    handle = client.run(max_chunks=1)
    assert client.result(handle)[1].termination_reason == 'max_chunks'
    assert len(rig.acquired) >= 4
    assert {request.lease_id for request in rig.acquired} == {rig.sent[0].lease_id}
    assert {request.duration for request in rig.acquired} == {0.3}


def test_a_model_with_memory_gets_a_session_for_each_run(stage):
    policy = Policy(meta_of(uses_sessions=True))
    rig, _, client = start(stage, policy)
    handle = client.run(max_chunks=1)
    rig.observe()
    client.result(handle)
    assert policy.requests[0]['session_id'] == 's_00000001'
    wait_until(lambda: len(policy.calls) == 2)
    assert policy.calls[0] == {'method': 'session.register'}
    assert policy.calls[1] == {'method': 'session.close', 'session_id': 's_00000001'}


# One inference


def test_one_chunk_is_predicted_and_published_and_nothing_is_requested(stage):
    rig, _, client = start(stage, Policy())
    chunks = stage.probe.collect(ActionChunk, 'action_chunk')
    rig.observe()
    status, result = client.result(client.predict())
    assert (status, result.termination_reason, result.error_code) == (SUCCEEDED, 'finished', 0)
    chunk = result.chunk
    assert (chunk.horizon, chunk.action_dim, chunk.policy_hz) == (STEPS, 7, 20.0)
    assert chunk.observation_seq == 1 and chunk.inference_ms > 0.0
    np.testing.assert_allclose(chunk.actions[7], 0.001)
    assert chunks.wait(1)[0] == chunk
    assert not rig.requests and not rig.acquired


def test_a_prediction_without_observation_says_so(stage):
    _, _, client = start(stage, Policy(), observation_patience_s=0.2)
    status, result = client.result(client.predict())
    assert (status, result.error_code) == (ABORTED, ErrorCode.STALE_OBSERVATION)
    assert result.termination_reason == 'stale_observation'
    assert 'no state received yet' in result.error_msg


def test_a_prediction_is_cancelled_at_once(stage):
    rig, _, client = start(stage, Policy(delay=silent))
    rig.observe()
    times = []
    for _ in range(4):
        status, result, seconds = client.cancel(client.predict())
        assert (status, result.termination_reason) == (CANCELED, 'cancelled')
        times.append(seconds)
    assert min(times) < CANCEL_S


def test_there_is_one_goal_at_a_time(stage):
    policy = Policy(delay=silent)
    rig, _, client = start(stage, policy)
    handle = client.run()
    rig.observe()
    wait_until(lambda: policy.requests)
    assert not client.predict().accepted and not client.run().accepted
    reset = stage.probe.call(ResetModel, 'reset_model')
    assert not reset.success and reset.error_code == ErrorCode.BUSY
    client.cancel(handle)
    assert client.predict().accepted


# Services, topics


def test_the_model_is_described_and_can_be_reset(stage):
    policy = Policy(meta_of(policy_hz=10.0, metadata={'about': 'nothing'}))
    start(stage, policy)
    info = stage.probe.call(GetModelInfo, 'get_model_info')
    assert info.error_code == 0
    assert (info.backend, info.embodiment) == ('fake', 'tabletop_7d')
    assert info.action_schema == list(TABLETOP.interface.action.names)
    assert (list(info.state_names), list(info.state_sizes)) == (['state'], [8])
    assert info.chunk_size == STEPS and '"about": "nothing"' in info.metadata
    answer = stage.probe.call(ResetModel, 'reset_model', ResetModel.Request(session_id='s_1'))
    assert answer.success
    assert policy.calls == [{'method': 'reset', 'session_id': 's_1'}]


def test_predicted_frames_and_value_are_shown_as_the_chunk_plays(stage):
    frames = np.zeros((STEPS + 1, 2, 2, 3), np.uint8)
    frames[:, 0, 0, 0] = np.arange(STEPS + 1)

    def reply(request, number):
        future = {'primary': frames}
        return {**counted(request, number), 'future_observation': future, 'value': 0.25}

    meta = meta_of(returns_future_observation=True, returns_value=True)
    rig, _, client = start(stage, Policy(meta, reply))
    values = stage.probe.collect(Float64, 'value')
    images = stage.probe.collect(Image, 'future/primary/image_raw', qos.SENSOR_PUBLISH)
    rig.observe()
    client.result(client.predict())
    shown = images.wait(STEPS)
    # First and last frame are the first and the last step's.
    assert [m.data[0] for m in shown[:STEPS]][-1] == STEPS
    assert values.wait(1)[0].data == 0.25
    handle = client.run(max_chunks=1)
    status, _ = client.result(handle)
    assert status == SUCCEEDED
    shown = images.wait(2 * STEPS)[STEPS:]
    assert [m.data[0] for m in shown] == [0, 1, 3, 4]
    assert shown[0].encoding == 'rgb8'


def test_ground_truth_is_read_only_where_the_model_asks_for_it(stage):
    publisher = stage.probe.publisher(PrivilegedState, 'privileged_state')
    start(stage, Policy())
    assert publisher.get_subscription_count() == 0
    other = stage.server(Policy(meta_of(state_schema={'privileged.red_cube': 7})))
    stage.node(other.endpoint, 'realtime', namespace='/other')
    there = stage.probe.publisher(PrivilegedState, '/other/privileged_state', readers=1)
    assert there.get_subscription_count() == 1
    assert publisher.get_subscription_count() == 0


def test_diagnostics_tell_the_model_and_its_times(stage):
    rig, _, client = start(stage, Policy())
    reports = stage.probe.collect(DiagnosticArray, '/diagnostics')
    rig.observe()
    client.result(client.predict())

    def told(message):
        for status in message.status:
            values = {pair.key: pair.value for pair in status.values}
            if status.name == 'action_model: model' and values.get('inferences') == '1':
                return values
        return None

    values = told(reports.wait_for(told))
    assert values['connection'] == 'ready' and values['backend'] == 'fake'
    assert float(values['inference_ms_p50']) > 0.0 and float(values['latency_ms_p95']) > 0.0
    assert {'queue_depth', 'stale_observations', 'failures', 'endpoint'} <= set(values)


def test_two_robots_are_two_namespaces(stage):
    policies, rigs, clients = [], [], []
    for name, number in (('left', 1), ('right', 2)):
        policy = Policy(reply=lambda request, n, k=number: counted(request, k))
        rig = stage.rig(namespace=name)
        stage.node(stage.server(policy).endpoint, namespace=f'/{name}')
        clients.append(Client(stage.probe, f'/{name}'))
        wait_until(lambda r=rig: r.state.get_subscription_count() == 1)
        policies.append(policy)
        rigs.append(rig)
    handles = [client.run(max_chunks=1) for client in clients]
    for rig, client, handle in zip(rigs, clients, handles, strict=True):
        rig.observe()
        assert client.result(handle)[1].commands == STEPS
    assert rigs[0].firsts == [0.01, 0.011, 0.012, 0.013]
    assert rigs[1].firsts == [0.02, 0.021, 0.022, 0.023]


@pytest.mark.parametrize(
    ('parameters', 'words'),
    [
        ({'endpoint': ''}, 'backend: is needed to start a worker'),
        ({'checkpoint': '/some/where'}, 'checkpoint: must be empty, since endpoint'),
        ({'endpoint': '', 'backend': 'noop', 'worker_options': '[1]'}, 'must be a JSON object'),
        ({'endpoint': '', 'backend': 'noop', 'worker_options': '{'}, 'is not JSON'),
        ({'dialect': 'klingon'}, 'openpi_libero'),
        ({'blending': 'cubic'}, 'blending'),
    ],
)
def test_parameters_that_do_not_fit_together_are_refused_as_a_set(
    rclpy_context, parameters, words
):
    with pytest.raises(ParameterError, match='parameter') as refused:
        make_node(**{'endpoint': 'ws://127.0.0.1:1', 'stepping': 'lockstep', **parameters})
    assert words in str(refused.value)
