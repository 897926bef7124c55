# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_models.playback.action_layout import ActionLayout
from praxis_models.playback.blending import blend, ensemble_weights

LAYOUT = ActionLayout(('x', 'gripper'), delta=True, grippers=(1,))


def test_weights_of_an_ensemble_fall_from_the_oldest():
    # exp(0), exp(-0.5), exp(-1) over their sum 1.97441
    np.testing.assert_allclose(ensemble_weights(3, 0.5), [0.506480, 0.307196, 0.186324], atol=1e-6)
    np.testing.assert_allclose(ensemble_weights(4, 0.0), [0.25] * 4)


def test_proposals_are_averaged_by_weight():
    result = blend(np.array([[1.0, 1.0], [3.0, 1.0]]), np.array([0.25, 0.75]), LAYOUT)
    np.testing.assert_allclose(result, [2.5, 1.0])


@pytest.mark.parametrize(
    ('weights', 'gripper'),
    [([0.6, 0.4], -1.0), ([0.4, 0.6], 1.0), ([0.5, 0.5], 1.0)],
    ids=['older_wins', 'newer_wins', 'tie_goes_to_the_newest'],
)
def test_a_gripper_opens_or_closes_and_nothing_in_between(weights, gripper):
    result = blend(np.array([[0.0, -1.0], [0.0, 1.0]]), np.array(weights), LAYOUT)
    assert result[1] == gripper


def test_on_a_tie_the_newest_proposal_decides_also_to_open():
    result = blend(np.array([[0.0, 1.0], [0.0, -1.0]]), np.array([0.5, 0.5]), LAYOUT)
    assert result[1] == -1.0


def test_a_gripper_from_0_to_1_is_split_at_its_own_middle():
    layout = ActionLayout(('gripper',), delta=False, grippers=(0,), gripper_middle=0.5)
    result = blend(np.array([[0.1], [0.9], [1.0]]), np.array([0.4, 0.3, 0.3]), layout)
    assert result[0] == pytest.approx(0.95)


def test_quaternions_of_opposite_sign_are_the_same_rotation():
    layout = ActionLayout(('qw', 'qx', 'qy', 'qz'), delta=False, quaternions=((0, 1, 2, 3),))
    rotation = np.array([0.8, 0.6, 0.0, 0.0])
    result = blend(np.array([rotation, -rotation]), np.array([0.5, 0.5]), layout)
    np.testing.assert_allclose(result, rotation)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([-1.0, 1.0])), min_size=1, max_size=6),
    st.floats(0.0, 2.0),
)
def test_a_blend_stays_within_its_proposals(rows, m):
    proposals = np.array(rows)
    result = blend(proposals, ensemble_weights(len(rows), m), LAYOUT)
    assert proposals[:, 0].min() - 1e-9 <= result[0] <= proposals[:, 0].max() + 1e-9
    assert result[1] in (-1.0, 1.0)
