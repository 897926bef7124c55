# SPDX-License-Identifier: Apache-2.0
"""Numbers worked out by hand from Physical-Intelligence/openpi 15a9616a.

``examples/libero/main.py`` turns both images by 180 degrees and builds the state,
``examples/droid/main.py`` decides on the gripper, ``examples/aloha_sim/env.py`` puts channels
first, ``src/openpi/policies/*_policy.py`` name the keys.
"""

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation
from praxis_models.adapters import openpi


def numbered(height, width, first=0):
    """Image whose pixel (y, x) has the values 3 k, 3 k + 1, 3 k + 2 with k = y width + x."""
    return (np.arange(height * width * 3, dtype=np.uint8) + first).reshape(height, width, 3)


def libero_observation(**state):
    values = {
        'eef_position': [0.1, -0.2, 0.3],
        'eef_quaternion_xyzw': [0.0, 0.0, 0.0, 1.0],
        'gripper_qpos': [0.04, -0.04],
        **state,
    }
    return PhysicalObservation(
        images={'primary': numbered(2, 3), 'wrist': numbered(3, 2, 100)},
        state={name: np.array(value, np.float32) for name, value in values.items()},
        instruction='put the bowl on the plate',
    )


def test_libero_images_are_mirrored_and_neither_scaled_nor_turned():
    # the simulator's image is upside down: [::-1, ::-1] of it is [:, ::-1] of the upright one
    upright = numbered(2, 3)
    raw = upright[::-1]
    native = openpi.encode('libero', libero_observation())
    assert native['observation/image'].tolist() == [
        [[6, 7, 8], [3, 4, 5], [0, 1, 2]],
        [[15, 16, 17], [12, 13, 14], [9, 10, 11]],
    ]
    assert native['observation/image'].tolist() == raw[::-1, ::-1].tolist()
    assert native['observation/wrist_image'][0].tolist() == [[103, 104, 105], [100, 101, 102]]
    assert native['observation/image'].flags.c_contiguous


def test_libero_keys_are_those_of_its_policy():
    native = openpi.encode('libero', libero_observation())
    assert set(native) == {
        'observation/image',
        'observation/wrist_image',
        'observation/state',
        'prompt',
    }
    assert native['prompt'] == 'put the bowl on the plate'
    np.testing.assert_allclose(
        native['observation/state'], [0.1, -0.2, 0.3, 0, 0, 0, 0.04, -0.04], atol=1e-7
    )


def test_libero_angle_passes_pi_where_w_is_negative():
    # a hand that points down, turned past pi about x: 2 acos(-0.1) = 3.3419275
    x = np.sqrt(1 - 0.1**2)
    down = libero_observation(eef_quaternion_xyzw=[x, 0.0, 0.0, -0.1])
    state = openpi.encode('libero', down)['observation/state']
    np.testing.assert_allclose(state[3:6], [2 * np.arccos(-0.1), 0.0, 0.0], rtol=1e-6)
    assert state[3] == pytest.approx(3.3419275, abs=1e-6)


def test_libero_chunk_keeps_its_gripper_convention_and_is_clipped_like_the_controller():
    padded = np.zeros((2, 32))
    padded[0, :8] = [0.5, -1.5, 0, 0, 0, 2.0, -1.0, 9.0]
    padded[1, :7] = [0, 0, 0, 0, 0, 0, 1.03]
    decoded = openpi.decode('libero', padded)
    assert decoded.dtype == np.float32
    assert decoded.tolist() == [[0.5, -1, 0, 0, 0, 1, -1], [0, 0, 0, 0, 0, 0, 1]]
    assert openpi.PRESETS['libero'].control.action_schema[-1] == 'gripper'


def test_decoding_leaves_the_policys_own_array_alone():
    native = np.full((1, 8), 3.0, np.float32)
    openpi.decode('droid', native)
    assert native.tolist() == [[3.0] * 8]


def test_droid_gripper_closes_above_a_half_and_velocities_are_clipped():
    native = np.zeros((3, 8))
    native[:, 0] = [1.5, -2.0, 0.25]
    native[:, 7] = [0.5, 0.51, -0.2]
    assert openpi.decode('droid', native)[:, [0, 7]].tolist() == [[1, 0], [-1, 1], [0.25, 0]]


def test_droid_positions_are_radians_and_stay_as_they_are():
    native = np.array([[2.8, -1.7, 0, 0, 0, 3.1, 0, 0.9]])
    decoded = openpi.decode('droid_position', native)
    np.testing.assert_allclose(decoded, [[2.8, -1.7, 0, 0, 0, 3.1, 0, 1.0]], rtol=1e-6)


def test_droid_is_fed_upright_images_and_joints_apart_from_the_gripper():
    observation = PhysicalObservation(
        images={'primary': numbered(2, 2), 'wrist': numbered(2, 2, 50)},
        state={
            'joint_positions': np.arange(7, dtype=np.float32),
            'gripper_position': np.array([0.5], np.float32),
        },
        instruction='open the drawer',
    )
    native = openpi.encode('droid', observation)
    assert native['observation/exterior_image_1_left'].tolist() == numbered(2, 2).tolist()
    assert native['observation/wrist_image_left'].tolist() == numbered(2, 2, 50).tolist()
    assert native['observation/joint_position'].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert native['observation/gripper_position'].tolist() == [0.5]


def test_aloha_images_have_their_channels_first_and_any_of_its_cameras():
    observation = PhysicalObservation(
        images={'primary': numbered(2, 3)},
        state={'state': np.arange(14, dtype=np.float32)},
        instruction='transfer the cube',
    )
    native = openpi.encode('aloha', observation, {'cam_high': 'primary'})
    assert set(native) == {'images', 'state', 'prompt'}
    assert set(native['images']) == {'cam_high'}
    assert native['images']['cam_high'].tolist() == [
        [[0, 3, 6], [9, 12, 15]],
        [[1, 4, 7], [10, 13, 16]],
        [[2, 5, 8], [11, 14, 17]],
    ]
    assert native['state'].tolist() == list(range(14))


def test_aloha_chunk_is_absolute_joints_of_both_arms():
    native = np.tile(np.arange(14) * 0.5, (2, 1))
    assert openpi.decode('aloha', native).tolist() == native.tolist()


@pytest.mark.parametrize(
    ('config', 'preset'),
    [
        ('pi05_libero', 'libero'),
        ('pi0_fast_libero', 'libero'),
        ('pi05_droid', 'droid'),
        ('pi05_droid_finetune', 'droid'),
        ('pi0_fast_full_droid_finetune', 'droid_position'),
        ('pi0_aloha_sim', 'aloha'),
        ('debug_pi05', ''),
    ],
)
def test_configuration_tells_its_robot(config, preset):
    assert openpi.preset_of(config) == preset


def test_chunk_of_another_robot_is_refused_by_its_width():
    with pytest.raises(ValueError, match=r"shape \[10, 7\], not \[H, 14\]: is 'aloha' the preset"):
        openpi.decode('aloha', np.zeros((10, 7)))
