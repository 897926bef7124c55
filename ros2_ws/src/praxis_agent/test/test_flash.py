# SPDX-License-Identifier: Apache-2.0

import json

import numpy as np
import pytest
from praxis_agent.book import Book
from praxis_agent.recipe import parse_recipe
from praxis_agent.robot import (
    CancelToken,
    Motion,
    Points,
    RobotError,
    RobotState,
    Segment,
    Segmentation,
)
from praxis_agent.runner import Progress, run_flash
from praxis_core.errors import ErrorCode

RECIPE = """
schema_version: 1
name: grasp
embodiments: [x]
instructions: [pick the cube next to the bowl]
anchors:
  bowl: {find: bowl}
  cube: {find: cube, where: {nearest_to: bowl}}
plan:
  - attempt:
      retries: 2
      steps:
        - locate: [cube]
        - move_to: {at: cube, offset: [0.0, 0.05, 0.1], yaw: along}
        - set_gripper: {gripper: close}
        - move_to: {at: hand, offset: [0.0, 0.0, 0.1], gripper: close}
      verify: {gripper_opening: {above: 0.01, below: 0.06}}
      recover:
        - release: {}
  - move_to: {at: bowl, offset: [0.0, 0.0, 0.2], gripper: close}
"""


class World:
    """Boxes seen from above at 1 mm a pixel, and a hand that goes where it is told."""

    def __init__(self):
        self.things = {'bowl': [(0.5, 0.5)], 'cube': [(0.2, 0.2), (0.45, 0.4)]}
        self.position = np.array([0.4, 0.4, 0.5])
        self.opening = 0.08
        self.grasps = [0.04]
        self.moves = []
        self.on_move = lambda: None
        self.answer = (0, '', 'reached')

    def state(self):
        return RobotState(1, 'e', self.position, 0.0, 0.0, self.opening)

    def move(self, primitive, goal, cancel):
        self.moves.append((primitive, dict(goal)))
        self.on_move()
        if cancel.cancelled:
            return Motion(103, '', 'cancelled', False, 0, self.position, 0.0, self.opening)
        code, message, reason = self.answer
        if 'position' in goal and not code:
            self.position = np.array(goal['position'])
        if primitive == 'set_gripper':
            self.opening = self.grasps.pop(0)
        if primitive == 'release':
            self.opening = 0.08
        return Motion(code, message, reason, not code, 3, self.position, 0.0, self.opening)

    def segment(self, camera, prompt, point, size, min_score, cancel):
        segments = []
        for x, y in self.things.get(prompt, []):
            mask = np.zeros((1024, 1024), bool)
            row, col = round(x * 1000), round(y * 1000)
            mask[row - 20 : row + 21, col - 10 : col + 11] = True
            segments.append(Segment(prompt, 1.0, (0, 0, 1, 1), (row, col), 800, mask))
        return Segmentation(
            'oracle', 1, segments, '' if segments else 'nothing like it', ('bowl',)
        )

    def back_project(self, camera, size, pixels, z_min, z_max, cancel):
        points = np.column_stack([pixels / 1000.0, np.full(len(pixels), 0.05)])
        low, high = points.min(axis=0), points.max(axis=0)
        return Points('oracle', 1, 'world', points, len(points), (low + high) / 2, low, high)


@pytest.fixture
def world():
    return World()


def carry_out(
    world, tmp_path, instruction='Pick the cube next to the bowl', cancel=None, **kwargs
):
    result = run_flash(
        instruction,
        Book([parse_recipe(RECIPE)]),
        world,
        cancel or CancelToken(),
        folder=tmp_path,
        run_id='ab' * 16,
        **kwargs,
    )
    with open(result.transcript) as file:
        return result, [json.loads(line) for line in file]


def test_recipe_runs_to_its_end_relative_to_what_is_seen(world, tmp_path):
    progress = Progress()
    result, lines = carry_out(world, tmp_path, progress=progress)
    assert (result.reason, result.code, result.recipe) == ('finished', ErrorCode.NONE, 'grasp')
    goals = [goal['position'] for name, goal in world.moves if name == 'move_to']
    assert goals[0] == pytest.approx([0.45, 0.45, 0.15], abs=2e-3)
    assert goals[1] == pytest.approx([0.45, 0.45, 0.25], abs=2e-3)
    assert goals[2] == pytest.approx([0.5, 0.5, 0.25], abs=2e-3)
    assert world.moves[0][1]['target_yaw'] == pytest.approx(0.0, abs=0.02)
    assert [goal['gripper'] for name, goal in world.moves if name == 'move_to'] == [-1, 1, 1]
    assert lines[0]['event'] == 'run' and lines[0]['instruction'].startswith('Pick')
    tools = [line for line in lines if line['event'] == 'tool']
    assert len(tools) == result.tool_calls == progress.tool_calls
    assert tools[-1]['tool'] == 'finish'
    assert {'index', 'tool', 'arguments', 'result', 'seconds'} <= set(tools[0])
    assert lines[-1]['event'] == 'end' and lines[-1]['reason'] == 'finished'


def test_missed_grasp_is_tried_again_where_the_object_is_then(world, tmp_path):
    world.grasps = [0.001, 0.04]

    def push():
        if world.moves[-1][0] == 'release':
            world.things['cube'][1] = (0.48, 0.40)

    world.on_move = push
    result, _ = carry_out(world, tmp_path)
    assert result.reason == 'finished'
    goals = [goal['position'] for name, goal in world.moves if name == 'move_to']
    assert goals[0][0] == pytest.approx(0.45, abs=2e-3)
    assert goals[2][0] == pytest.approx(0.48, abs=2e-3)


def test_grasp_that_always_misses_fails_with_the_opening(world, tmp_path):
    world.grasps = [0.001] * 3
    result, _ = carry_out(world, tmp_path)
    assert result.reason == 'verify_failed' and result.code == ErrorCode.TOOL_FAILED
    assert '0.001' in result.message
    assert [name for name, _ in world.moves].count('set_gripper') == 3


def test_missing_anchor_is_named(world, tmp_path):
    world.things = {'bowl': [(0.5, 0.5)]}
    result, _ = carry_out(world, tmp_path)
    assert result.code == ErrorCode.ANCHOR_NOT_FOUND
    assert result.message == 'cube: nothing like it'
    assert [name for name, _ in world.moves] == ['release', 'release']


def test_two_where_one_is_meant_is_ambiguous(world, tmp_path):
    world.things['bowl'].append((0.7, 0.7))
    result, _ = carry_out(world, tmp_path)
    assert result.code == ErrorCode.ANCHOR_NOT_FOUND and 'there are 2' in result.message


def test_unknown_sentence_moves_nothing_and_names_the_nearest(world, tmp_path):
    result, lines = carry_out(world, tmp_path, 'pick the cube next to the plate')
    assert result.code == ErrorCode.INSTRUCTION_UNKNOWN
    assert result.nearest == ['grasp: pick the cube next to the bowl']
    assert world.moves == [] and lines[-1]['reason'] == 'unknown_instruction'


def test_takeover_is_not_fought_by_retries(world, tmp_path):
    world.answer = (203, 'a human took over', 'takeover')
    result, _ = carry_out(world, tmp_path)
    assert result.reason == 'stopped' and result.message == 'a human took over'
    assert len(world.moves) == 1


def test_node_that_is_gone_is_not_waited_for_by_retries(world, tmp_path):
    def move(*call):
        world.moves.append(call)
        raise RobotError(ErrorCode.TIMEOUT, 'the server of move_to is gone')

    world.move = move
    result, _ = carry_out(world, tmp_path)
    assert result.reason == 'stopped' and result.message == 'the server of move_to is gone'
    assert len(world.moves) == 1


@pytest.mark.parametrize('service', ['segment', 'back_project'])
def test_perception_that_is_gone_is_no_missing_anchor(world, tmp_path, service):
    def gone(*call):
        raise RobotError(ErrorCode.TIMEOUT, f'service {service} is not there')

    setattr(world, service, gone)
    result, _ = carry_out(world, tmp_path)
    assert result.reason == 'stopped' and result.message == f'service {service} is not there'


def test_cancel_ends_the_run_at_once(world, tmp_path):
    cancel = CancelToken()
    world.on_move = lambda: cancel.cancel('cancelled')
    result, lines = carry_out(world, tmp_path, cancel=cancel)
    assert (result.reason, result.code) == ('cancelled', ErrorCode.CANCELLED)
    assert len(world.moves) == 1
    assert lines[-2]['error_code'] == ErrorCode.CANCELLED


def test_tool_calls_are_limited(world, tmp_path):
    result, _ = carry_out(world, tmp_path, max_turns=4)
    assert result.reason == 'max_turns' and result.tool_calls == 4


def test_long_way_goes_in_legs_below_30_cm(world, tmp_path):
    world.position = np.array([0.45, -0.4, 0.5])
    carry_out(world, tmp_path)
    goals = [np.array(goal['position']) for name, goal in world.moves if name == 'move_to'][:4]
    legs = np.diff([np.array([0.45, -0.4, 0.5]), *goals], axis=0)
    assert np.linalg.norm(legs[:, :2], axis=1).max() <= 0.30
    assert goals[3] == pytest.approx([0.45, 0.45, 0.15], abs=2e-3)
