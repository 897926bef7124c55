# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation
from praxis_models.adapters import cosmos_policy as adapter


def observation(size=256):
    random = np.random.default_rng(3)
    return PhysicalObservation(
        images={
            role: random.integers(0, 256, (size, size, 3), dtype=np.uint8)
            for role in ('primary', 'wrist')
        },
        state={
            'eef_position': np.array([1.0, 2.0, 3.0], np.float32),
            'eef_quaternion_xyzw': np.array([0.5, -0.5, 0.5, -0.5], np.float32),
            'gripper_qpos': np.array([0.04, -0.04], np.float32),
        },
        instruction='open the drawer',
    )


def test_proprioception_is_fingers_then_position_then_quaternion_with_w_last():
    # NVlabs/cosmos-policy b8ffbb42, run_libero_eval.py, prepare_observation
    proprio = adapter.encode(observation())['proprio']
    assert proprio.dtype == np.float64
    assert proprio == pytest.approx([0.04, -0.04, 1, 2, 3, 0.5, -0.5, 0.5, -0.5])


def test_the_quaternion_keeps_its_sign():
    native = adapter.encode(observation())
    assert native['proprio'][-1] == -0.5


def test_images_are_upright_and_untouched():
    given = observation()
    native = adapter.encode(given)
    assert (native['primary_image'] == given.images['primary']).all()
    assert (native['wrist_image'] == given.images['wrist']).all()
    assert native['primary_image'].flags['C_CONTIGUOUS']


def test_an_image_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r'images\.primary: expected 256x256 \(got 224x224\)'):
        adapter.encode(observation(224))


def test_actions_are_libero_s_own():
    actions = [np.arange(7) + 10 * step for step in range(16)]
    chunk = adapter.decode(actions)
    assert chunk.shape == (16, 7) and chunk.dtype == np.float32
    assert chunk[3].tolist() == [30, 31, 32, 33, 34, 35, 36]


def test_a_chunk_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r'expected \[16, 7\] \(got \[15, 7\]\)'):
        adapter.decode([np.zeros(7)] * 15)


def test_predicted_views_get_their_roles_and_one_frame():
    future = adapter.decode_future(
        {
            'future_image': np.full((2, 2, 3), 1, np.uint8),
            'future_wrist_image': np.full((2, 2, 3), 2, np.uint8),
        }
    )
    assert future['primary'].shape == future['wrist'].shape == (1, 2, 2, 3)
    assert (future['primary'].max(), future['wrist'].max()) == (1, 2)
