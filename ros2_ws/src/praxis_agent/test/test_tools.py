# SPDX-License-Identifier: Apache-2.0

import inspect
import json
import threading
from pathlib import Path

import numpy as np
import praxis_agent
import pytest
from praxis_agent.robot import (
    CameraMeta,
    CancelledError,
    CancelToken,
    Motion,
    Points,
    Robot,
    RobotError,
    RobotState,
    Segment,
    Segmentation,
)
from praxis_agent.tools import RESULT_LIMIT, Registry, ToolResult
from praxis_core.testing import wait_until

REFERENCE = {
    'view_env_state': {'step': -1},
    'move_to': {
        'xyz': None,
        'gripper': -1.0,
        'tol': 0.012,
        'step_clip': 0.025,
        'max_steps': 80,
        'action_scale': 0.05,
        'target_yaw': None,
        'yaw_step_clip': 0.10,
    },
    'move_pose': {
        'xyz': None,
        'target_pitch': None,
        'target_yaw': None,
        'gripper': -1.0,
        'step_clip': 0.02,
        'pitch_step': 0.08,
        'yaw_step': 0.08,
        'tol': 0.012,
        'ori_tol': 0.05,
        'action_scale': 0.05,
        'max_steps': 150,
    },
    'rotate_wrist': {
        'target_yaw': None,
        'delta_yaw': None,
        'gripper': 1.0,
        'max_steps': 40,
        'tol': 0.02,
        'step_clip': 0.10,
    },
    'rotate_pitch': {
        'target_pitch': None,
        'delta_pitch': None,
        'gripper': 1.0,
        'max_steps': 40,
        'tol': 0.02,
        'step_clip': 0.10,
    },
    'set_gripper': {'gripper': -1.0, 'steps': 5},
    'release': {'max_steps': 20},
    'segment': {
        'prompt': None,
        'point': None,
        'camera': 'agentview',
        'step': -1,
        'min_score': 0.2,
    },
    'back_project': {
        'row': None,
        'col': None,
        'row_range': None,
        'col_range': None,
        'step': -1,
        'camera': 'agentview',
        'resolution': 'high',
    },
    'view_camera_meta': {'camera': 'agentview', 'step': -1},
    'finish': {'status': None, 'summary': None},
}


class FakeRobot:
    """Remembers calls; motions last until they are let go."""

    def __init__(self):
        self.moves = []
        self.gate = threading.Event()
        self.gate.set()
        self.moving = 0
        self.most_moving = 0
        self.reading = 0

    def state(self):
        return RobotState(3, 'e', np.zeros(3), 0.1, 0.2, float('nan'), {'joint_1': 0.5})

    def move(self, primitive, goal, cancel):
        self.moves.append((primitive, dict(goal)))
        self.moving += 1
        self.most_moving = max(self.most_moving, self.moving)
        try:
            while not self.gate.wait(0.005):
                if cancel.cancelled:
                    return Motion(103, '', 'cancelled', False, 1, np.zeros(3), 0.0, 0.0)
        finally:
            self.moving -= 1
        return Motion(0, '', 'reached', True, 4, np.ones(3), 0.001, 0.08)

    def segment(self, camera, prompt, point, size, min_score, cancel):
        self.reading += 1
        assert threading.active_count() and camera == 'agentview'
        wait_until(lambda: self.gate.is_set() or self.reading >= 2, 5.0)
        if prompt == 'nothing':
            return Segmentation('oracle', 3, [], 'not there', ('bowl',))
        mask = np.zeros((size, size), bool)
        mask[10:20, 10:30] = True
        return Segmentation(
            'oracle', 3, [Segment('bowl', 1.0, (10, 10, 20, 30), (14.5, 19.5), 200, mask)]
        )

    def back_project(self, camera, size, pixels, z_min, z_max, cancel):
        points = np.column_stack([pixels / size, np.full(len(pixels), 0.5)])
        return Points('oracle', 3, 'world', points, len(pixels), *[points.mean(axis=0)] * 3)

    def camera_meta(self, camera):
        if camera != 'agentview':
            raise RobotError(402, f'no camera {camera!r}')
        return CameraMeta(256, 256, np.eye(3), 'agentview_optical_frame', None)


@pytest.fixture
def robot():
    return FakeRobot()


@pytest.fixture
def tools(robot):
    return Registry(robot)


def test_names_parameters_and_defaults_are_the_references(tools):
    assert list(tools.tools) == list(REFERENCE)
    for name, parameters in REFERENCE.items():
        fields = tools.tools[name].arguments.model_fields
        assert set(parameters) <= set(fields)
        for key, default in parameters.items():
            if default is not None:
                assert fields[key].default == default, (name, key)


def test_schemas_are_json_and_forbid_what_they_do_not_name(tools):
    schemas = json.loads(json.dumps(tools.schemas()))
    assert [schema['name'] for schema in schemas] == list(REFERENCE)
    for schema in schemas:
        assert schema['description']
        assert schema['input_schema']['additionalProperties'] is False


@pytest.mark.parametrize(
    ('name', 'arguments', 'words'),
    [
        ('move_to', {}, 'xyz'),
        ('move_to', {'xyz': [0, 0, 0], 'speed': 1}, 'speed'),
        ('move_to', {'xyz': [0, 0]}, 'xyz'),
        ('move_to', {'xyz': ['0', 0, 0]}, 'xyz'),
        ('move_to', {'xyz': [float('nan'), 0, 0]}, 'xyz'),
        ('move_to', {'xyz': [0, 0, 0], 'gripper': 2}, 'gripper'),
        ('rotate_wrist', {}, 'exactly one'),
        ('rotate_wrist', {'target_yaw': 0.1, 'delta_yaw': 0.1}, 'exactly one'),
        ('segment', {}, 'exactly one'),
        ('segment', {'prompt': 'a', 'point': [1, 2]}, 'exactly one'),
        ('segment', {'prompt': 'a', 'step': 3}, 'newest'),
        ('back_project', {}, 'row and col'),
        ('back_project', {'row': 1}, 'row and col'),
        ('back_project', {'row': 1, 'col': 1, 'mask': 'm1'}, 'row and col'),
        ('back_project', {'mask': 'm9'}, 'no mask'),
        ('finish', {'status': 'great', 'summary': 'x'}, 'status'),
        ('teleport', {}, "no tool 'teleport'"),
    ],
)
def test_bad_call_is_an_answer_and_moves_nothing(tools, robot, name, arguments, words):
    result = tools.call(name, arguments)
    assert not result.ok and words in result.error
    assert robot.moves == []


def test_move_to_fills_the_goal_of_its_action(tools, robot):
    result = tools.call('move_to', {'xyz': [0.1, 0.2, 0.3], 'target_yaw': 0.5})
    assert result.ok and result.data['reached']
    ((name, goal),) = robot.moves
    assert name == 'move_to'
    assert goal['position'] == [0.1, 0.2, 0.3]
    assert goal['has_target_yaw'] and goal['target_yaw'] == 0.5
    assert (goal['tolerance'], goal['step_clip'], goal['max_steps']) == (0.012, 0.025, 80)


@pytest.mark.parametrize(
    ('name', 'arguments', 'expected'),
    [
        ('rotate_wrist', {'delta_yaw': 0.2}, {'relative': True, 'yaw': 0.2}),
        ('rotate_wrist', {'target_yaw': 0.0}, {'relative': False, 'yaw': 0.0}),
        ('rotate_pitch', {'target_pitch': 0.3}, {'relative': False, 'pitch': 0.3}),
        ('set_gripper', {'gripper': 1.0}, {'gripper': 1.0, 'steps': 5}),
        ('release', {}, {'steps': 20}),
    ],
)
def test_other_motions_fill_theirs(tools, robot, name, arguments, expected):
    assert tools.call(name, arguments).ok
    assert expected.items() <= robot.moves[0][1].items()


def test_moving_tools_run_one_at_a_time_in_the_order_of_their_calls(tools, robot):
    robot.gate.clear()
    threads = []
    for number in range(4):
        arguments = {'xyz': [float(number), 0.0, 0.0]}
        thread = threading.Thread(target=tools.call, args=('move_to', arguments))
        threads.append(thread)
        thread.start()
        wait_until(lambda n=number: len(robot.moves) == 1 and len(tools._turn._queue) == n)
    robot.gate.set()
    for thread in threads:
        thread.join(5.0)
    assert robot.most_moving == 1
    assert [goal['position'][0] for _, goal in robot.moves] == [0.0, 1.0, 2.0, 3.0]


def test_reading_tools_run_together_and_beside_a_motion(tools, robot):
    robot.gate.clear()
    moving = threading.Thread(target=tools.call, args=('move_to', {'xyz': [0.0, 0.0, 0.0]}))
    moving.start()
    wait_until(lambda: robot.moving)
    reading = [
        threading.Thread(target=tools.call, args=('segment', {'prompt': 'bowl'})) for _ in range(2)
    ]
    for thread in reading:
        thread.start()
    for thread in reading:
        thread.join(5.0)
    assert robot.reading == 2 and robot.moving == 1
    robot.gate.set()
    moving.join(5.0)


def test_cancel_ends_the_motion_and_those_that_wait(tools, robot):
    robot.gate.clear()
    cancel, ended = CancelToken(), []

    def call():
        try:
            tools.call('move_to', {'xyz': [0.0, 0.0, 0.0]}, cancel)
        except CancelledError as error:
            ended.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: robot.moving)
    cancel.cancel('enough')
    for thread in threads:
        thread.join(5.0)
    assert ended == ['enough', 'enough']
    assert len(robot.moves) == 1


def test_segment_then_back_project_by_mask(tools):
    found = tools.call('segment', {'prompt': 'bowl', 'resolution': 'low'})
    assert found.data['backend'] == 'oracle'
    (instance,) = found.data['instances']
    points = tools.call('back_project', {'mask': instance['mask_id']})
    assert points.ok and points.data['valid'] == 200 and points.data['backend'] == 'oracle'
    assert points.data['top_centre'] == pytest.approx([14.5 / 256, 19.5 / 256, 0.5], abs=1e-3)


def test_finding_nothing_is_an_answer_with_a_reason(tools):
    result = tools.call('segment', {'prompt': 'nothing'})
    assert result.ok and not result.data['found']
    assert result.data['reason'] == 'not there' and result.data['known_labels'] == ['bowl']


def test_state_text_is_json_even_where_a_value_is_unknown(tools):
    data = json.loads(tools.call('view_env_state', {}).text())
    assert data['gripper_opening'] is None and data['eef_yaw'] == 0.1


def test_error_of_the_robot_is_an_answer_with_its_code(tools):
    result = tools.call('view_camera_meta', {'camera': 'top'})
    assert not result.ok and result.error_code == 402


def test_long_result_is_cut_to_the_limit():
    text = ToolResult(True, {'rows': ['x' * 100] * 2000}).text()
    assert len(text.encode()) <= RESULT_LIMIT and json.loads(text)['truncated']


def test_every_call_is_observed(robot):
    calls = []
    tools = Registry(robot, lambda *call: calls.append(call))
    tools.call('move_to', {'xyz': [0, 0, 0]})
    tools.call('fly', {})
    assert [(name, result.ok) for name, _, result, _ in calls] == [
        ('move_to', True),
        ('fly', False),
    ]


def test_no_tool_can_reach_verdict_or_ground_truth():
    methods = {name for name, _ in inspect.getmembers(Robot, inspect.isfunction)}
    methods = {name for name in methods if not name.startswith('_')}
    assert methods == {'state', 'move', 'segment', 'back_project', 'camera_meta'}
    for file in Path(praxis_agent.__file__).parent.glob('*.py'):
        text = file.read_text()
        for word in ('TaskStatus', 'task_status', 'PrivilegedState', 'privileged'):
            assert word not in text, f'{file.name} mentions {word}'
