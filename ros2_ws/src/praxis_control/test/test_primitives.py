# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from praxis_control.motion import (
    DeltaActions,
    MotionObservation,
    axis_rotation,
    pitch_of,
    wrap_angle,
    yaw_of,
)
from praxis_control.primitives import (
    MovePose,
    MoveTo,
    RefusedError,
    Release,
    RotatePitch,
    RotateWrist,
    SetGripper,
)

DOWN = np.diag([1.0, -1.0, -1.0])


class Plant:
    """A hand that follows a share of each commanded delta, and fingers with a speed."""

    def __init__(self, follows=0.6, turns=0.15):
        self.position = np.array([0.1, 0.0, 0.3])
        self.rotation = DOWN.copy()
        self.opening = 0.08
        self.actions = []
        self._follows, self._turns = follows, turns

    def observe(self):
        return MotionObservation(self.position.copy(), self.rotation.copy(), self.opening)

    def run(self, primitive):
        primitive.start(self.observe())
        while (step := primitive.update(self.observe())) is not None:
            action = DeltaActions().action(step, self.observe())
            self.actions.append(action)
            self.position = self.position + self._follows * 0.05 * action[:3]
            self.rotation = axis_rotation(self._turns * action[3:6]) @ self.rotation
            goal = 0.08 if action[6] < 0 else 0.0
            self.opening += float(np.clip(goal - self.opening, -0.02, 0.02))
        return primitive.outcome


@settings(max_examples=40)
@given(st.tuples(*[st.floats(-0.2, 0.2)] * 3))
def test_move_to_reaches_its_goal_with_the_gripper_held(offset):
    plant = Plant()
    goal = plant.position + np.array(offset)
    outcome = plant.run(MoveTo(goal, gripper=1.0))
    assert outcome.reached and outcome.reason == 'reached'
    assert np.linalg.norm(plant.position - goal) <= 0.012
    assert all(action[6] == 1.0 for action in plant.actions)
    assert all(np.abs(action[:3]).max() <= 0.5 + 1e-9 for action in plant.actions)


def test_move_to_action_is_the_clipped_error_over_the_scale():
    primitive = MoveTo(np.array([0.2, 0.005, 0.3]))
    here = Plant().observe()
    primitive.start(here)
    step = primitive.update(here)
    assert np.allclose(DeltaActions().action(step, here), [0.5, 0.1, 0, 0, 0, 0, -1])


def test_move_to_turns_the_wrist_on_the_way():
    plant = Plant()
    outcome = plant.run(MoveTo(plant.position + np.array([0.1, 0, 0]), target_yaw=0.7))
    assert outcome.reached
    assert yaw_of(plant.rotation) == pytest.approx(0.7, abs=0.05)


def test_move_to_without_yaw_never_turns():
    plant = Plant()
    plant.run(MoveTo(plant.position + np.array([0.1, 0.1, 0])))
    assert not np.any([action[3:6] for action in plant.actions])


def test_move_to_that_is_there_already_commands_nothing():
    plant = Plant()
    outcome = plant.run(MoveTo(plant.position + 0.001))
    assert outcome.reached and outcome.steps == 0 and plant.actions == []


def test_move_to_ends_after_max_steps():
    plant = Plant(follows=0.0)
    outcome = plant.run(MoveTo(plant.position + np.array([0.1, 0, 0]), max_steps=7))
    assert (outcome.reason, outcome.reached, outcome.steps) == ('max_steps', False, 7)
    assert len(plant.actions) == 7
    assert outcome.error == pytest.approx(0.1)


@pytest.mark.parametrize(('planar', 'refused'), [(0.301, True), (0.299, False)])
def test_planar_move_beyond_30_cm_is_refused(planar, refused):
    here = Plant().observe()
    goal = here.position + np.array([planar * 0.6, planar * 0.8, 0.5])
    for primitive in (MoveTo(goal), MovePose(goal, 0.0, 0.0)):
        if refused:
            with pytest.raises(RefusedError, match='two steps'):
                primitive.start(here)
        else:
            primitive.start(here)


@settings(max_examples=30)
@given(st.floats(-0.6, 0.6), st.floats(-1.2, 1.2))
def test_move_pose_reaches_position_pitch_and_yaw_together(pitch, yaw):
    plant = Plant()
    goal = plant.position + np.array([0.05, -0.1, 0.02])
    outcome = plant.run(MovePose(goal, pitch, yaw))
    assert outcome.reached
    assert np.linalg.norm(plant.position - goal) <= 0.012
    assert pitch_of(plant.rotation) == pytest.approx(pitch, abs=0.05)
    assert abs(wrap_angle(yaw_of(plant.rotation) - yaw)) <= 0.05


def test_rotate_wrist_to_an_angle_takes_the_short_way():
    plant = Plant()
    plant.rotation = axis_rotation(np.array([0, 0, 3.0])) @ DOWN
    outcome = plant.run(RotateWrist(-3.0))
    assert outcome.reached
    assert all(action[5] > 0 for action in plant.actions)


def test_rotate_wrist_by_more_than_half_a_turn_goes_all_the_way():
    plant = Plant()
    outcome = plant.run(RotateWrist(-4.0, relative=True, max_steps=200))
    assert outcome.reached
    assert all(action[5] < 0 for action in plant.actions[:20])
    assert wrap_angle(yaw_of(plant.rotation) + 4.0) == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize('relative', [True, False])
def test_rotate_pitch_turns_about_x_and_holds_the_position(relative):
    plant = Plant()
    start = plant.position.copy()
    outcome = plant.run(RotatePitch(-0.5, relative=relative))
    assert outcome.reached and outcome.error <= 0.02
    assert pitch_of(plant.rotation) == pytest.approx(-0.5, abs=0.02)
    assert np.allclose(plant.position, start)
    assert all(action[6] == 1.0 for action in plant.actions)
    assert np.abs([action[3] for action in plant.actions]).max() <= 1.0


def test_rotation_corrects_drift_of_the_position():
    primitive = RotateWrist(1.0)
    here = Plant().observe()
    primitive.start(here)
    drifted = MotionObservation(here.position + np.array([0.0, 0.004, 0.0]), here.rotation)
    assert primitive.update(drifted).translation[1] == pytest.approx(-0.004)


def test_set_gripper_commands_for_exactly_its_steps():
    plant = Plant()
    outcome = plant.run(SetGripper(1.0, steps=5))
    assert outcome.reached and outcome.steps == 5
    assert [action[6] for action in plant.actions] == [1.0] * 5
    assert plant.opening == pytest.approx(0.0)


def test_release_ends_when_the_fingers_stop():
    plant = Plant()
    plant.opening = 0.0
    outcome = plant.run(Release())
    assert outcome.reached and outcome.steps < 20
    assert plant.opening == pytest.approx(0.08)


def test_release_waits_for_fingers_that_begin_late():
    primitive = Release()
    here = Plant().observe()
    openings = [0.06] * 8 + [0.065, 0.075, 0.08, 0.08, 0.08, 0.08]
    primitive.start(MotionObservation(here.position, DOWN, openings[0]))
    steps = 0
    while primitive.update(MotionObservation(here.position, DOWN, openings[steps])) is not None:
        steps += 1
    assert primitive.outcome.reached and steps == 13


def test_release_gives_up_at_its_limit():
    primitive = Release(max_steps=6)
    here = Plant().observe()
    primitive.start(here)
    openings = iter(np.linspace(0, 0.08, 50))
    steps = 0
    while primitive.update(MotionObservation(here.position, DOWN, next(openings))) is not None:
        steps += 1
    assert steps == 6 and not primitive.outcome.reached


@pytest.mark.parametrize(
    'make',
    [
        lambda: MoveTo([math.nan, 0, 0]),
        lambda: MoveTo([0, 0]),
        lambda: MoveTo([0, 0, 0], gripper=1.5),
        lambda: MoveTo([0, 0, 0], tolerance=0.0),
        lambda: MoveTo([0, 0, 0], step_clip=-1.0),
        lambda: MoveTo([0, 0, 0], max_steps=0),
        lambda: MoveTo([0, 0, 0], action_scale=math.inf),
        lambda: MoveTo([0, 0, 0], target_yaw=math.nan),
        lambda: MovePose([0, 0, 0], 1.6, 0.0),
        lambda: RotateWrist(math.inf),
        lambda: SetGripper(0.0, 0),
    ],
)
def test_goal_out_of_range_is_refused_with_the_field(make):
    with pytest.raises(RefusedError, match='must be'):
        make()


def test_ended_primitive_stays_ended():
    plant = Plant()
    primitive = SetGripper(1.0, 1)
    plant.run(primitive)
    assert primitive.update(plant.observe()) is None
