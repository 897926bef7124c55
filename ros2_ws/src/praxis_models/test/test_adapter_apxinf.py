# SPDX-License-Identifier: Apache-2.0
"""Numbers worked out by hand from the layouts that `praxis_models.adapters.apxinf` names."""

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation
from praxis_models.adapters import apxinf

HALF = np.sqrt(0.5)
QUARTER_Z = [0.0, 0.0, HALF, HALF]
"""Quaternion x y z w of 90 degrees about z: columns (0, 1, 0), (-1, 0, 0), (0, 0, 1)."""


def numbered(first):
    return (np.arange(18, dtype=np.uint8) + first).reshape(2, 3, 3)


def dual_franka():
    return PhysicalObservation(
        images={'left_wrist': numbered(0), 'primary': numbered(20), 'right_wrist': numbered(40)},
        state={
            'left_tcp_position': np.array([0.5, 0.25, 0.125], np.float32),
            'left_tcp_quaternion_xyzw': np.array(QUARTER_Z, np.float32),
            'left_gripper': np.array([0.75], np.float32),
            'right_tcp_position': np.array([1.0, 2.0, 3.0], np.float32),
            'right_tcp_quaternion_xyzw': np.array([0.0, 0.0, 0.0, 1.0], np.float32),
            'right_gripper': np.array([-0.5], np.float32),
        },
        instruction='hand over the cup',
    )


def yam():
    return PhysicalObservation(
        images={'head': numbered(0), 'left_wrist': numbered(20), 'right_wrist': numbered(40)},
        state={
            'joint_positions': np.arange(12, dtype=np.float32) / 4,
            'left_gripper': np.array([0.5], np.float32),
            'right_gripper': np.array([1.0], np.float32),
        },
        instruction='put the can into the bag',
    )


def libero():
    return PhysicalObservation(
        images={'primary': numbered(0), 'wrist': numbered(20)},
        state={
            'eef_position': np.array([0.5, 0.25, 1.0], np.float32),
            'eef_quaternion_xyzw': np.array([0.0, 0.0, np.sqrt(0.75), -0.5], np.float32),
            'gripper_qpos': np.array([0.04, -0.04], np.float32),
        },
        instruction='open the drawer',
    )


def test_libero_is_mirrored_and_turns_the_long_way_where_w_is_negative():
    native = apxinf.encode('libero', libero())
    assert list(native) == [
        'observation/state',
        'prompt',
        'observation/image',
        'observation/wrist_image',
    ]
    assert native['observation/image'][0].tolist() == [[6, 7, 8], [3, 4, 5], [0, 1, 2]]
    expected = [0.5, 0.25, 1.0, 0.0, 0.0, np.deg2rad(240), 0.04, -0.04]
    np.testing.assert_allclose(native['observation/state'], expected, rtol=1e-6, atol=1e-7)
    assert native['observation/state'].dtype == np.float32


def test_libero_returns_the_first_steps_and_clips_them_like_the_controller():
    actions = np.zeros((10, 7))
    actions[:, 0] = np.arange(10) / 4
    chunk = apxinf.decode('libero', actions, libero(), steps=5, relative=False)
    assert chunk.shape == (5, 7)
    assert chunk[:, 0].tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_two_frankas_state_is_position_rot6d_gripper_of_each_arm():
    native = apxinf.encode('dual_franka', dual_franka())
    expected = [0.5, 0.25, 0.125, 0, 1, 0, -1, 0, 0, 0.75, 1, 2, 3, 1, 0, 0, 0, 1, 0, -0.5]
    np.testing.assert_allclose(native['observation/state'], expected, atol=1e-7)
    assert native['observation/image'].tolist() == numbered(0).tolist()
    assert native['observation/extra_view_image-0'].tolist() == numbered(20).tolist()
    assert native['observation/extra_view_image-1'].tolist() == numbered(40).tolist()


def test_cameras_may_be_in_another_order():
    order = {'observation/image': 'primary', 'observation/extra_view_image-0': 'left_wrist'}
    native = apxinf.encode('dual_franka', dual_franka(), order)
    assert native['observation/image'].tolist() == numbered(20).tolist()
    assert 'observation/extra_view_image-1' not in native


def test_relative_pose_of_a_franka_is_in_the_frame_of_its_tcp():
    # left: 0.1 along the TCP's x, which points along the base's y; turned by 90 degrees about its
    # own x, the columns of which are (1, 0, 0), (0, 0, 1): the base's (0, 1, 0), (0, 0, 1).
    # right: the TCP's frame is the base's.
    actions = np.zeros((20, 20))
    actions[:, 0:3] = [0.1, 0.0, 0.0]
    actions[:, 3:9] = [1, 0, 0, 0, 0, 1]
    actions[:, 9] = -1.0
    actions[:, 10:13] = [0.0, 0.0, -0.5]
    actions[:, 13:19] = [1, 0, 0, 0, 1, 0]
    actions[:, 19] = 1.0
    chunk = apxinf.decode('dual_franka', actions, dual_franka(), steps=20, relative=True)
    expected = [0.5, 0.35, 0.125, 0, 1, 0, 0, 0, 1, -1, 1, 2, 2.5, 1, 0, 0, 0, 1, 0, 1]
    np.testing.assert_allclose(chunk, [expected] * 20, atol=1e-6)


def test_absolute_poses_are_only_made_orthonormal():
    actions = np.zeros((1, 20))
    actions[0] = [1, 2, 3, 2, 0, 0, 1, 3, 0, 1, 4, 5, 6, 0, 0, 5, 0, 2, 1, -1]
    chunk = apxinf.decode('dual_franka', actions, dual_franka(), steps=1, relative=False)
    # (1, 3, 0) less its part along x is (0, 3, 0); (0, 2, 1) less its part along z is (0, 2, 0)
    expected = [1, 2, 3, 1, 0, 0, 0, 1, 0, 1, 4, 5, 6, 0, 0, 1, 0, 1, 0, -1]
    np.testing.assert_allclose(chunk, [expected], atol=1e-7)


def test_yam_state_is_six_joints_and_gripper_of_each_arm():
    native = apxinf.encode('yam', yam())
    assert native['observation/state'].tolist() == [
        0, 0.25, 0.5, 0.75, 1, 1.25, 0.5, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 1,
    ]  # fmt: skip
    assert native['observation/extra_view_image-1'].tolist() == numbered(40).tolist()
    assert native['prompt'] == 'put the can into the bag'


def test_yam_joints_are_relative_and_its_grippers_absolute_between_0_and_1():
    actions = np.full((30, 14), 0.125)
    actions[:, 6], actions[:, 13] = -0.2, 1.4
    chunk = apxinf.decode('yam', actions, yam(), steps=30, relative=True)
    expected = np.array([0, 1, 2, 3, 4, 5, 0, 6, 7, 8, 9, 10, 11, 0]) / 4 + 0.125
    expected[[6, 13]] = [0.0, 1.0]
    assert chunk.tolist() == [expected.tolist()] * 30
    absolute = apxinf.decode('yam', actions, yam(), steps=30, relative=False)
    assert absolute[0, :7].tolist() == [0.125] * 6 + [0.0]


@pytest.mark.parametrize('shape', [(10, 14), (30, 7), (30, 14, 1)])
def test_chunk_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match='the policy returned actions of shape'):
        apxinf.decode('yam', np.zeros(shape), yam(), steps=30, relative=True)
