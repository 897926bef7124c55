# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_control.motion import (
    CartesianStep,
    DeltaActions,
    MotionObservation,
    SettleDetector,
    axis_rotation,
    gripper_value,
    hand_rotation,
    pitch_of,
    rotation_matrix,
    rotation_vector,
    wrap_angle,
    yaw_of,
)
from praxis_control.motion_pairing import ObservationPairing

DOWN = np.diag([1.0, -1.0, -1.0])
angles = st.floats(-3.0, 3.0)
unit = st.tuples(*[st.floats(-1.0, 1.0)] * 3).filter(lambda v: np.linalg.norm(v) > 0.1)


def make_step(translation=(0, 0, 0), rotation=(0, 0, 0), gripper=-1.0, scale=0.05):
    return CartesianStep(
        np.array(translation, float),
        np.array(rotation, float),
        gripper,
        scale,
        np.zeros(3),
        np.eye(3),
        0.025,
        0.1,
    )


HERE = MotionObservation(np.zeros(3), DOWN)


@given(unit, st.floats(0.0, math.pi - 0.01))
def test_rotation_vector_inverts_axis_rotation(axis, angle):
    vector = np.array(axis) / np.linalg.norm(axis) * angle
    assert np.allclose(rotation_vector(axis_rotation(vector)), vector, atol=1e-6)


@given(unit)
def test_rotation_vector_of_a_half_turn_has_its_axis(axis):
    vector = np.array(axis) / np.linalg.norm(axis) * math.pi
    found = rotation_vector(axis_rotation(vector))
    assert np.allclose(axis_rotation(found), axis_rotation(vector), atol=1e-5)


@given(st.floats(-1.4, 1.4), angles)
def test_hand_rotation_has_the_pitch_and_yaw_it_was_made_from(pitch, yaw):
    rotation = hand_rotation(pitch, yaw)
    assert pitch_of(rotation) == pytest.approx(pitch, abs=1e-9)
    assert yaw_of(rotation) == pytest.approx(yaw, abs=1e-9)
    assert np.allclose(rotation @ rotation.T, np.eye(3))
    assert np.linalg.det(rotation) == pytest.approx(1.0)


@given(angles)
def test_turning_about_z_adds_to_yaw_and_about_x_adds_to_pitch(angle):
    about_z = axis_rotation(np.array([0, 0, angle])) @ DOWN
    about_x = axis_rotation(np.array([angle, 0, 0])) @ DOWN
    assert wrap_angle(yaw_of(about_z) - angle) == pytest.approx(0.0, abs=1e-9)
    assert wrap_angle(pitch_of(about_x) - angle) == pytest.approx(0.0, abs=1e-9)


def test_hand_straight_down_has_neither_pitch_nor_yaw():
    assert pitch_of(DOWN) == 0.0
    assert yaw_of(DOWN) == 0.0


def test_quaternion_order_is_x_y_z_w():
    half = math.sqrt(0.5)
    assert np.allclose(rotation_matrix(np.array([0, 0, half, half])) @ [1, 0, 0], [0, 1, 0])
    assert np.allclose(rotation_matrix(np.array([2.0, 0, 0, 0])), DOWN)


@pytest.mark.parametrize('quaternion', [(0, 0, 0, 0), (math.nan, 0, 0, 1)])
def test_quaternion_that_is_no_rotation_is_refused(quaternion):
    with pytest.raises(ValueError, match='not a rotation'):
        rotation_matrix(np.array(quaternion, float))


def test_delta_action_scales_metres_and_radians_as_the_reference():
    action = DeltaActions().action(make_step((0.025, -0.01, 0), (0, 0, 0.05), 1.0), HERE)
    assert np.allclose(action, [0.5, -0.2, 0, 0, 0, 0.5, 1.0])


def test_delta_action_never_exceeds_one():
    action = DeltaActions().action(make_step((0.2, -0.2, 0), (0.4, 0, -0.4)), HERE)
    assert np.allclose(action, [1, -1, 0, 1, 0, -1, -1])


def test_delta_action_without_gripper_has_six_components():
    assert DeltaActions(6, None).action(make_step(), HERE).shape == (6,)
    with pytest.raises(ValueError, match='6 motion components'):
        DeltaActions(8, 7)


def test_gripper_follows_the_polarity_of_the_contract():
    assert gripper_value(-1.0, 1.0, 0.0) == 1.0
    assert gripper_value(1.0, 1.0, 0.0) == 0.0
    assert gripper_value(0.0, -1.0, 1.0) == 0.0


def test_settle_detector_wants_several_still_samples():
    detector = SettleDetector(0.01, 2)
    assert [detector.update(v) for v in (0.0, 0.1, 0.1, 0.1, 0.2)] == [
        False,
        False,
        False,
        True,
        False,
    ]


@given(st.permutations([(part, stamp) for part in 'abc' for stamp in range(3)]))
def test_pairing_gives_each_observation_once_and_in_order(arrivals):
    pairing = ObservationPairing(frozenset('abc'))
    whole = [
        found['a']
        for part, stamp in arrivals
        if (found := pairing.add(part, stamp, stamp)) is not None
    ]
    assert whole == sorted(set(whole))
    assert whole and whole[-1] == 2


def test_pairing_never_mixes_stamps():
    pairing = ObservationPairing(frozenset('ab'))
    assert pairing.add('a', 1, 'a1') is None
    assert pairing.add('b', 2, 'b2') is None
    assert pairing.add('a', 2, 'a2') == {'a': 'a2', 'b': 'b2'}
    assert pairing.add('b', 1, 'b1') is None


def test_pairing_forgets_the_oldest_when_full():
    pairing = ObservationPairing(frozenset('ab'), capacity=3)
    for stamp in range(10):
        pairing.add('a', stamp, stamp)
    assert pairing.add('b', 2, 2) is None
    assert pairing.add('b', 9, 9) == {'a': 9, 'b': 9}
