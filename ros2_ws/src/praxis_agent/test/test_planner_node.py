# SPDX-License-Identifier: Apache-2.0

import threading
from pathlib import Path

import pytest
from action_msgs.msg import GoalStatus
from praxis_agent.planner_node import PlannerNode
from praxis_core.errors import ErrorCode
from praxis_core.testing import wait_until
from praxis_interfaces.action import RunTask
from praxis_interfaces.srv import Segment
from rclpy.action import ActionClient
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.parameter import Parameter

CONTRACT = Path(__file__).parents[4] / 'params' / 'robots' / 'tabletop.yaml'


class Perception(Node):
    """Segment service that finds nothing, or does not answer."""

    def __init__(self):
        super().__init__('perception')
        self.asked = threading.Event()
        self.silent = False
        group = ReentrantCallbackGroup()
        self.service = self.create_service(Segment, 'segment', self.segment, callback_group=group)

    async def segment(self, request, response):
        self.asked.set()
        if self.silent:
            from rclpy.task import Future

            await Future(executor=self.executor)
        response.backend = 'oracle'
        response.error_code = int(ErrorCode.NO_DETECTION)
        response.reason = 'nothing in view'
        return response


class Client:
    def __init__(self, probe, planner, perception):
        self.probe, self.planner, self.perception = probe, planner, perception
        self.feedback = []
        self.action = ActionClient(probe.node, RunTask, 'run_task')
        wait_until(self.action.server_is_ready, 20.0, 'run_task')
        wait_until(lambda: planner.is_active, 20.0, 'active')

    def send(self, instruction, **fields):
        goal = RunTask.Goal(instruction=instruction, **fields)
        future = self.probe.on_executor(
            lambda: self.action.send_goal_async(goal, feedback_callback=self.feedback.append)
        )
        wait_until(future.done)
        return future.result()

    def result(self, handle, timeout=15.0):
        future = self.probe.on_executor(handle.get_result_async)
        wait_until(future.done, timeout, 'result')
        return future.result()


@pytest.fixture
def client(graph_probe, tmp_path):
    values = {'contract': str(CONTRACT), 'transcript_dir': str(tmp_path / 'transcripts')}
    planner = PlannerNode(
        parameter_overrides=[Parameter(name, value=value) for name, value in values.items()]
    )
    graph_probe.spin(planner)
    perception = graph_probe.spin(Perception())
    yield Client(graph_probe, planner, perception)
    planner.stop()
    for node in (planner, perception):
        graph_probe.node.executor.remove_node(node)
    planner.close()
    for node in (planner, perception):
        node.destroy_node()


def test_unknown_sentence_aborts_and_names_the_nearest_recipes(client):
    answer = client.result(client.send('pick up the red cubes'))
    assert answer.status == GoalStatus.STATUS_ABORTED
    result = answer.result
    assert result.error_code == ErrorCode.INSTRUCTION_UNKNOWN
    assert result.termination_reason == 'unknown_instruction'
    assert result.nearest_recipes[0] == 'tabletop_pick: pick up the red cube'
    assert result.tool_calls == 0 and Path(result.transcript_path).is_file()


def test_anchor_that_is_not_seen_aborts_with_its_name(client):
    answer = client.result(client.send('Reach the red cube.'), 60.0)
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.error_code == ErrorCode.ANCHOR_NOT_FOUND
    assert answer.result.recipe == 'tabletop_reach'
    assert 'nothing in view' in answer.result.error_msg


def test_cancel_ends_canceled_with_feedback_before(client):
    client.perception.silent = True
    handle = client.send('reach the red cube')
    assert client.perception.asked.wait(20.0)
    wait_until(lambda: client.feedback, message='feedback')
    assert client.feedback[-1].feedback.step == 'locate cube'
    client.probe.on_executor(handle.cancel_goal_async)
    answer = client.result(handle)
    assert answer.status == GoalStatus.STATUS_CANCELED
    assert answer.result.error_code == ErrorCode.CANCELLED
    assert answer.result.termination_reason == 'cancelled'


def test_service_that_goes_away_during_a_call_ends_the_run(client):
    client.perception.silent = True
    handle = client.send('reach the red cube')
    assert client.perception.asked.wait(20.0)
    client.probe.on_executor(lambda: client.perception.destroy_service(client.perception.service))
    answer = client.result(handle)
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == 'stopped'
    assert answer.result.error_msg == 'no answer of segment: its node is gone'


def test_timeout_aborts(client):
    client.perception.silent = True
    answer = client.result(client.send('reach the red cube', timeout=0.3))
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == 'timeout'
    assert answer.result.error_code == ErrorCode.TIMEOUT


def test_second_goal_and_bad_goals_are_rejected(client):
    assert not client.send('   ').accepted
    assert not client.send('reach the red cube', planner='magic').accepted
    client.perception.silent = True
    handle = client.send('reach the red cube')
    assert not client.send('reach the red cube').accepted
    client.probe.on_executor(handle.cancel_goal_async)
    client.result(handle)


def test_deactivation_aborts_the_run_and_rejects_goals(client):
    client.perception.silent = True
    handle = client.send('reach the red cube')
    assert client.perception.asked.wait(20.0)
    client.probe.on_executor(client.planner.trigger_deactivate)
    answer = client.result(handle)
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.termination_reason == 'deactivated'
    assert answer.result.error_code == ErrorCode.NOT_ACTIVE
    assert not client.send('reach the red cube').accepted


def test_planner_subscribes_to_neither_verdict_nor_ground_truth(client):
    subscriptions = list(client.planner.subscriptions)
    text = str([(entity.topic_name, entity.msg_type.__name__) for entity in subscriptions])
    assert '/state' in text
    for word in ('task_status', 'TaskStatus', 'privileged', 'PrivilegedState'):
        assert word not in text
