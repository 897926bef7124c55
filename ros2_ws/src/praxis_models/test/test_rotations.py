# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from praxis_models import rotations

HALF = np.sqrt(0.5)
QUARTER_Z = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
"""A turn of 90 degrees about z: x goes to y, y to -x."""


def random_quaternions(count=200):
    return rotations.unit_quaternion(np.random.default_rng(3).normal(size=(count, 4)))


def test_w_moves_between_end_and_front_without_touching_the_rest():
    xyzw = np.array([[0.1, 0.2, 0.3, 0.9], [-1.0, 0.0, 0.0, 0.0]])
    wxyz = rotations.xyzw_to_wxyz(xyzw)
    assert wxyz.tolist() == [[0.9, 0.1, 0.2, 0.3], [0.0, -1.0, 0.0, 0.0]]
    assert rotations.wxyz_to_xyzw(wxyz).tolist() == xyzw.tolist()


def test_quarter_turn_about_z_is_the_matrix_that_takes_x_to_y():
    matrix = rotations.quaternion_to_matrix(np.array([0.0, 0.0, HALF, HALF]))
    np.testing.assert_allclose(matrix, QUARTER_Z, atol=1e-15)
    np.testing.assert_allclose(
        rotations.matrix_to_quaternion(QUARTER_Z), [0.0, 0.0, HALF, HALF], atol=1e-15
    )


@pytest.mark.parametrize(
    ('matrix', 'quaternion'),
    [
        (np.diag([1.0, -1.0, -1.0]), [1, 0, 0, 0]),
        (np.diag([-1.0, 1.0, -1.0]), [0, 1, 0, 0]),
        (np.diag([-1.0, -1.0, 1.0]), [0, 0, 1, 0]),
        (np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, -1]]), [HALF, HALF, 0, 0]),
    ],
)
def test_half_turns_have_a_quaternion_without_w(matrix, quaternion):
    np.testing.assert_allclose(rotations.matrix_to_quaternion(matrix), quaternion, atol=1e-15)


def test_quaternions_come_back_from_their_matrices_with_w_not_negative():
    quaternions = random_quaternions()
    back = rotations.matrix_to_quaternion(rotations.quaternion_to_matrix(quaternions))
    np.testing.assert_allclose(back, rotations.canonical_quaternion(quaternions), atol=1e-12)
    assert (back[:, 3] >= 0).all()


def test_sign_is_chosen_by_w_and_by_the_first_other_where_w_is_zero():
    quaternions = np.array([[0, 0, 1, -1.0], [-1.0, 0, 0, 0], [0, -1.0, 1, 0], [0, 0, 0.5, 2.0]])
    assert rotations.canonical_quaternion(quaternions).tolist() == [
        [0, 0, -1, 1],
        [1, 0, 0, 0],
        [0, 1, -1, 0],
        [0, 0, 0.5, 2],
    ]


def test_path_of_quaternions_changes_sign_where_the_next_one_is_on_the_far_side():
    angles = np.linspace(0.0, 4.0 * np.pi, 50)
    path = np.stack([np.zeros(50), np.zeros(50), np.sin(angles / 2), np.cos(angles / 2)], axis=-1)
    broken = rotations.canonical_quaternion(path)
    assert np.abs(np.diff(broken, axis=0)).max() > 1.0
    np.testing.assert_allclose(rotations.continuous_quaternions(broken), path, atol=1e-12)
    np.testing.assert_allclose(
        rotations.continuous_quaternions(broken, previous=-path[0]), -path, atol=1e-12
    )


def test_axis_angle_is_the_axis_times_the_angle_in_radians():
    third = np.deg2rad(60)
    quaternion = np.array([0.0, np.sin(third / 2), 0.0, np.cos(third / 2)])
    np.testing.assert_allclose(
        rotations.quaternion_to_axis_angle(quaternion), [0.0, third, 0.0], atol=1e-15
    )
    np.testing.assert_allclose(
        rotations.axis_angle_to_quaternion(np.array([0.0, third, 0.0])), quaternion, atol=1e-15
    )


def test_negative_w_turns_the_short_way_or_as_robosuite_does_the_long_way():
    # 2 acos(-0.5) = 240 degrees about z; the same rotation is -120 degrees
    quaternion = np.array([0.0, 0.0, np.sqrt(0.75), -0.5])
    short = rotations.quaternion_to_axis_angle(quaternion)
    long = rotations.quaternion_to_axis_angle(quaternion, shortest=False)
    np.testing.assert_allclose(short, [0.0, 0.0, -np.deg2rad(120)], atol=1e-14)
    np.testing.assert_allclose(long, [0.0, 0.0, np.deg2rad(240)], atol=1e-14)


def test_rotation_vector_beyond_pi_comes_back_the_long_way():
    # LIBERO's hands point down, at about pi about x: their state goes out as a quaternion and
    # back into the axis-angle that its models were trained on
    vectors = np.array([[3.3, 0.1, -0.2], [np.pi, 0.0, 0.0], [0.0, -4.0, 3.0], [2.9, 0.3, 0.1]])
    quaternions = rotations.axis_angle_to_quaternion(vectors)
    assert quaternions[0, 3] < 0.0
    back = rotations.quaternion_to_axis_angle(quaternions, shortest=False)
    np.testing.assert_allclose(back, vectors, atol=1e-12)


def test_no_rotation_has_no_axis_and_small_ones_keep_theirs():
    assert rotations.quaternion_to_axis_angle(np.array([0.0, 0, 0, 1])).tolist() == [0, 0, 0]
    small = np.array([1e-7, -2e-7, 3e-7])
    back = rotations.quaternion_to_axis_angle(rotations.axis_angle_to_quaternion(small))
    np.testing.assert_allclose(back, small, rtol=1e-9)


def test_rotation_vectors_come_back_from_matrices():
    vectors = rotations.quaternion_to_axis_angle(random_quaternions())
    back = rotations.matrix_to_axis_angle(rotations.axis_angle_to_matrix(vectors))
    np.testing.assert_allclose(back, vectors, atol=1e-9)


def test_rot6d_of_a_quarter_turn_in_each_layout():
    # columns of QUARTER_Z: (0, 1, 0) and (-1, 0, 0); rows: (0, -1, 0) and (1, 0, 0)
    expected = {
        'columns': [0, 1, 0, -1, 0, 0],
        'rows': [0, -1, 0, 1, 0, 0],
        'interleaved': [0, -1, 1, 0, 0, 0],
    }
    for layout, numbers in expected.items():
        assert rotations.matrix_to_rot6d(QUARTER_Z, layout).tolist() == numbers
        np.testing.assert_allclose(
            rotations.rot6d_to_matrix(np.array(numbers), layout), QUARTER_Z, atol=1e-15
        )


def test_rot6d_that_is_not_orthonormal_becomes_a_rotation_by_gram_schmidt():
    # b1 = x; a2 less its part along x is (0, 0, 4), so b2 = z and b3 = x cross z = -y
    matrix = rotations.rot6d_to_matrix(np.array([2.0, 0, 0, 3.0, 0, 4.0]))
    assert matrix.tolist() == [[1, 0, 0], [0, 0, -1], [0, 1, 0]]
    with pytest.raises(ValueError, match='span no plane'):
        rotations.rot6d_to_matrix(np.array([1.0, 0, 0, 2.0, 0, 0]))


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r'quaternion must be of shape \[\.\.\., 4\], not \[3\]'):
        rotations.quaternion_to_matrix(np.zeros(3))
    with pytest.raises(ValueError, match='no length'):
        rotations.quaternion_to_matrix(np.zeros(4))
