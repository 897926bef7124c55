# SPDX-License-Identifier: Apache-2.0
import json
import math

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation
from praxis_models import pixels
from praxis_models.adapters import fast_wam as adapter
from praxis_models.adapters.fast_wam import Normaliser
from praxis_models.normalisation import Statistics, StatisticsError

LEAVE = Normaliser(np.ones(8), np.zeros(8))
LEAVE_7 = Normaliser(np.ones(7), np.zeros(7))
LEAVE_14 = Normaliser(np.ones(14), np.zeros(14))


def picture(height, width, seed):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def flat(height, width, value):
    return np.full((height, width, 3), value, np.uint8)


def libero(quaternion=(0.0, 0.0, 0.0, 1.0)):
    return PhysicalObservation(
        images={'primary': picture(256, 256, 0), 'wrist': picture(256, 256, 1)},
        state={
            'eef_position': np.array([0.5, -0.25, 1.5], np.float32),
            'eef_quaternion_xyzw': np.asarray(quaternion, np.float32),
            'gripper_qpos': np.array([0.04, -0.04], np.float32),
        },
        instruction='open the drawer',
    )


def statistics(**vectors):
    return Statistics('test', {name: np.array(value) for name, value in vectors.items()})


# --- LIBERO ---


def test_the_views_are_mirrored_scaled_and_side_by_side():
    images = libero().images
    made = adapter.picture('libero', images)
    assert made.shape == (224, 448, 3)
    for index, role in enumerate(('primary', 'wrist')):
        mirrored = np.ascontiguousarray(images[role][:, ::-1])
        half = made[:, 224 * index : 224 * (index + 1)]
        assert (half == pixels.resize(mirrored, 224, 224)).all()


def test_a_view_that_is_not_square_is_cropped_in_its_middle():
    wide = flat(240, 320, 0)
    wide[:, :40] = wide[:, 280:] = 200
    made = adapter.picture('libero', {'primary': wide, 'wrist': flat(240, 320, 0)}, 240)
    assert made.shape == (240, 480, 3)
    assert (made == 0).all()


def test_pixels_are_minus_one_to_one_with_channels_first():
    given = libero()
    native = adapter.encode('libero', given, LEAVE)
    image = native['input_image']
    assert image.shape == (1, 3, 224, 448) and image.dtype == np.float32
    made = adapter.picture('libero', given.images)
    assert image[0, 2, 10, 300] == pytest.approx(made[10, 300, 2] * 2 / 255 - 1, abs=1e-6)
    black = adapter.encode(
        'libero',
        PhysicalObservation({role: flat(256, 256, 0) for role in given.images}, given.state, 'x'),
        LEAVE,
    )
    assert (black['input_image'] == -1.0).all()


def test_proprioception_is_position_axis_angle_and_fingers():
    # 90 degrees about z
    half = math.sqrt(0.5)
    native = adapter.encode('libero', libero((0.0, 0.0, half, half)), LEAVE)
    assert native['proprio'].shape == (1, 8) and native['proprio'].dtype == np.float32
    expected = [0.5, -0.25, 1.5, 0.0, 0.0, math.pi / 2, 0.04, -0.04]
    assert native['proprio'][0] == pytest.approx(expected, abs=1e-6)


def test_an_angle_passes_pi_where_w_is_negative():
    # robosuite: axis * 2 acos(w) = 2 acos(-sqrt(1/2)) = 270 degrees about +z, not -90
    half = math.sqrt(0.5)
    found = adapter.proprioception('libero', libero((0.0, 0.0, half, -half)).state)
    assert found[5] == pytest.approx(1.5 * math.pi, abs=1e-6)


def test_no_turn_is_no_angle():
    assert adapter.proprioception('libero', libero().state)[3:6].tolist() == [0.0, 0.0, 0.0]


def test_the_prompt_is_the_published_one():
    assert adapter.encode('libero', libero(), LEAVE)['prompt'] == (
        "A video recorded from a robot's point of view executing the following instruction: "
        'open the drawer'
    )


@pytest.mark.parametrize(('raw', 'expected'), [(0.0, 1.0), (0.4, 1.0), (0.6, -1.0), (1.0, -1.0)])
def test_data_sets_gripper_one_is_open_and_libero_s_open_is_minus_one(raw, expected):
    values = np.zeros((32, 7))
    values[:, 6] = raw
    assert adapter.decode('libero', values, LEAVE_7)[0, 6] == expected


def test_a_gripper_that_is_not_binarised_is_one_minus_two_g():
    values = np.zeros((32, 7))
    values[:, 6] = 0.4
    found = adapter.decode('libero', values, LEAVE_7, binarise_gripper=False)
    assert found[0, 6] == pytest.approx(0.2)


def test_actions_are_restored_before_the_gripper_is_turned():
    # min -2, max 2: x -> 2 x; the gripper's 0 to 1: (x + 1) / 2
    action = Normaliser.of(statistics(min=[-2.0] * 6 + [0.0], max=[2.0] * 6 + [1.0]), 'min_max')
    values = np.tile([0.5, -0.5, 0.0, 0.25, 1.0, -1.0, 0.5], (1, 32, 1))
    found = adapter.decode('libero', values, action, binarise_gripper=False)
    assert found.shape == (32, 7) and found.dtype == np.float32
    assert found[31] == pytest.approx([1.0, -1.0, 0.0, 0.5, 2.0, -2.0, -0.5])


def test_predicted_views_are_turned_back_and_taken_apart():
    images = {'primary': picture(224, 224, 4), 'wrist': picture(224, 224, 5)}
    frame = adapter.picture('libero', images)
    found = adapter.views('libero', [frame, frame])
    assert found['primary'].shape == (2, 224, 224, 3)
    assert (found['primary'][1] == images['primary']).all()
    assert (found['wrist'][0] == images['wrist']).all()


# --- RoboTwin ---


def robotwin():
    return PhysicalObservation(
        images={
            'head': picture(240, 320, 0),
            'left_wrist': picture(240, 320, 1),
            'right_wrist': picture(240, 320, 2),
        },
        state={'joint_targets': np.arange(14, dtype=np.float32)},
        instruction='stack the blocks',
    )


def test_the_head_is_above_the_two_wrists():
    images = robotwin().images
    made = adapter.picture('robotwin', images)
    assert made.shape == (384, 320, 3)
    assert (made[:256] == pixels.resize(images['head'], 256, 320)).all()
    assert (made[256:, :160] == pixels.resize(images['left_wrist'], 128, 160)).all()
    assert (made[256:, 160:] == pixels.resize(images['right_wrist'], 128, 160)).all()


def test_robotwins_joint_targets_and_grippers_are_left_in_order():
    assert adapter.encode('robotwin', robotwin(), LEAVE_14)['proprio'][0].tolist() == [
        0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5,
    ]  # fmt: skip
    found = adapter.proprioception('robotwin', robotwin().state)
    assert found.tolist() == list(range(14))


def test_robotwins_gripper_keeps_its_sign():
    values = np.zeros((32, 14))
    values[:, 6], values[:, 13] = 1.0, 0.25
    found = adapter.decode('robotwin', values, LEAVE_14)
    assert found[0, 6] == 1.0 and found[0, 13] == 0.25


def test_robotwins_predicted_views_are_taken_apart():
    frame = adapter.picture(
        'robotwin',
        {
            'head': picture(256, 320, 0),
            'left_wrist': picture(128, 160, 1),
            'right_wrist': picture(128, 160, 2),
        },
    )
    found = adapter.views('robotwin', [frame])
    assert (found['head'][0] == picture(256, 320, 0)).all()
    assert (found['left_wrist'][0] == picture(128, 160, 1)).all()
    assert (found['right_wrist'][0] == picture(128, 160, 2)).all()


# --- normalisation, by src/fastwam/datasets/lerobot/utils/normalizer.py ---


def test_min_and_max_are_minus_one_and_one():
    found = Normaliser.of(statistics(min=[-1.0, 2.0], max=[3.0, 4.0]), 'min_max')
    assert found.forward(np.array([-1.0, 4.0])).tolist() == [-1.0, 1.0]
    assert found.backward(np.array([0.0, 0.0])).tolist() == [1.0, 3.0]


def test_a_width_that_is_nothing_moves_to_zero_and_is_not_scaled():
    found = Normaliser.of(statistics(min=[5.0], max=[5.00005]), 'min_max')
    assert found.forward(np.array([5.5])).tolist() == [0.5]
    assert found.backward(np.array([0.5])).tolist() == [5.5]


def test_z_score_adds_ten_to_the_minus_eighth():
    found = Normaliser.of(statistics(mean=[1.0], std=[0.5]), 'z_score')
    assert found.forward(np.array([2.0])) == pytest.approx(1.0 / (0.5 + 1e-8), rel=1e-12)
    assert found.backward(np.array([2.0])) == pytest.approx(2.0)


def test_what_goes_in_is_clamped_at_five_and_what_comes_out_is_not():
    found = Normaliser.of(statistics(min=[0.0], max=[2.0]), 'min_max')
    assert found.forward(np.array([100.0])).tolist() == [5.0]
    assert found.backward(np.array([100.0])).tolist() == [101.0]


def written(path, states, actions, **more):
    document = {
        part: {
            'default': {
                f'global_{name}': [value] * size
                for name, value in (('mean', 0.0), ('std', 1.0), ('min', -1.0), ('max', 1.0))
            }
        }
        for part, size in (('state', states), ('action', actions))
    }
    path.write_text(json.dumps({**document, **more}))
    return path


def test_a_checkpoints_statistics_are_read(tmp_path):
    state, action = adapter.load_normalisers(written(tmp_path / 's.json', 8, 7), 'libero')
    assert state.scale.tolist() == [1.0] * 8 and action.offset.tolist() == [0.0] * 7
    state, _ = adapter.load_normalisers(written(tmp_path / 'r.json', 14, 14), 'robotwin')
    assert state.scale == pytest.approx(np.ones(14))


def test_statistics_of_another_robot_are_refused(tmp_path):
    with pytest.raises(StatisticsError, match=r'state/default: .* has 14 numbers, expected 8'):
        adapter.load_normalisers(written(tmp_path / 's.json', 14, 14), 'libero')


@pytest.mark.parametrize('shape', [(31, 7), (32, 6), (2, 32, 7)])
def test_values_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r'actions: expected \[32, 7\]'):
        adapter.decode('libero', np.zeros(shape), LEAVE_7)


def test_a_gripper_that_is_not_a_number_is_not_hidden_by_its_sign():
    values = np.zeros((32, 7))
    values[4, 6] = np.inf
    with pytest.raises(ValueError, match='finite'):
        adapter.decode('libero', values, LEAVE_7)
