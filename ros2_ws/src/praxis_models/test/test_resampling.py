# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_models.playback.action_layout import ActionLayout
from praxis_models.playback.resampling import command_count, resample

DELTA = ActionLayout(('delta_x', 'gripper'), delta=True, grippers=(1,))
ABSOLUTE = ActionLayout(('joint', 'gripper'), delta=False, grippers=(1,), gripper_middle=0.5)
QUATERNION = ActionLayout(('qw', 'qx', 'qy', 'qz'), delta=False, quaternions=((0, 1, 2, 3),))


def test_same_rate_changes_nothing():
    actions = np.array([[0.1, -1.0], [0.3, 1.0], [0.2, 1.0]])
    commands, steps = resample(actions, 20.0, 20.0, DELTA)
    np.testing.assert_array_equal(commands, actions)
    assert steps.tolist() == [0, 1, 2]


def test_twenty_steps_at_20_hz_become_thirty_commands_at_30_hz():
    # The reference's own numbers: 20 steps at 20 Hz on a robot of 30 Hz.
    assert command_count(20, 20.0, 30.0) == 30
    actions = np.column_stack([np.arange(20.0), np.zeros(20)])
    commands, _ = resample(actions, 20.0, 30.0, ABSOLUTE)
    np.testing.assert_allclose(commands[:, 0], np.linspace(0.0, 19.0, 30))


def test_absolute_steps_are_interpolated_and_the_gripper_holds_its_step():
    # 3 steps at 10 Hz, 20 Hz commands: 6 places 0, 0.4, 0.8, 1.2, 1.6, 2 on the steps' axis.
    actions = np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 1.0]])
    commands, steps = resample(actions, 10.0, 20.0, ABSOLUTE)
    np.testing.assert_allclose(commands[:, 0], [0.0, 0.4, 0.8, 1.4, 2.2, 3.0])
    np.testing.assert_array_equal(commands[:, 1], [1.0, 1.0, 1.0, 0.0, 0.0, 1.0])
    assert steps.tolist() == [0, 0, 0, 1, 1, 2]


def test_offsets_are_spread_over_the_commands_of_their_step():
    actions = np.array([[0.2, -1.0], [-0.6, 1.0]])
    commands, steps = resample(actions, 10.0, 30.0, DELTA)
    np.testing.assert_allclose(commands[:, 0], [0.2 / 3] * 3 + [-0.2] * 3)
    np.testing.assert_array_equal(commands[:, 1], [-1.0] * 3 + [1.0] * 3)
    assert steps.tolist() == [0, 0, 0, 1, 1, 1]


def test_offsets_add_up_where_commands_are_slower_than_steps():
    actions = np.array([[0.1, -1.0], [0.2, -1.0], [0.3, 1.0], [0.4, 1.0]])
    commands, _ = resample(actions, 20.0, 10.0, DELTA)
    np.testing.assert_allclose(commands[:, 0], [0.3, 0.7])
    np.testing.assert_array_equal(commands[:, 1], [-1.0, 1.0])


def test_quaternions_take_the_short_way_and_keep_their_norm():
    half = np.sqrt(0.5)
    # A quarter turn about x, written with the sign that looks far away.
    actions = np.array([[1.0, 0.0, 0.0, 0.0], [-half, -half, 0.0, 0.0]])
    commands, _ = resample(actions, 10.0, 15.0, QUATERNION)
    np.testing.assert_allclose(np.linalg.norm(commands, axis=1), 1.0)
    middle = commands[1]
    # By symmetry half way is an eighth turn.
    np.testing.assert_allclose(middle, [np.cos(np.pi / 8), np.sin(np.pi / 8), 0.0, 0.0], atol=1e-9)


chunks = st.lists(st.floats(-2.0, 2.0, allow_nan=False, width=32), min_size=1, max_size=40).map(
    lambda xs: np.column_stack([xs, np.sign(xs)])
)
rates = st.sampled_from([5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 50.0])


@given(chunks, rates, rates)
def test_motion_of_offsets_is_conserved(actions, policy_hz, command_hz):
    commands, steps = resample(actions, policy_hz, command_hz, DELTA)
    assert commands[:, 0].sum() == pytest.approx(actions[:, 0].sum(), abs=1e-9)
    ratio = command_hz / policy_hz
    if ratio == int(ratio) and len(actions) * ratio >= 2:
        each = commands[:, 0].reshape(len(actions), int(ratio)).sum(axis=1)
        np.testing.assert_allclose(each, actions[:, 0], atol=1e-9)
    assert (np.diff(steps) >= 0).all()
    assert steps.min() >= 0 and steps.max() < len(actions)


@given(chunks, rates, rates)
def test_both_ends_of_absolute_steps_are_kept_and_nothing_overshoots(actions, policy, command):
    commands, _ = resample(actions, policy, command, ABSOLUTE)
    np.testing.assert_allclose(commands[0], actions[0])
    if len(actions) > 1:
        np.testing.assert_allclose(commands[-1], actions[-1])
    assert commands[:, 0].min() >= actions[:, 0].min() - 1e-12
    assert commands[:, 0].max() <= actions[:, 0].max() + 1e-12


@given(chunks, rates, rates)
def test_a_gripper_takes_no_value_that_the_model_did_not_give(actions, policy, command):
    for layout in (DELTA, ABSOLUTE):
        commands, _ = resample(actions, policy, command, layout)
        assert set(commands[:, 1]) <= set(actions[:, 1])
