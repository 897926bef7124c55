# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation
from praxis_models.adapters import cosmos3 as adapter
from praxis_models.normalisation import Statistics

# libero_native_frame_wise_relative_rot6d.json of NVIDIA/cosmos-framework 5eee9ed5, global_raw
Q01 = [-0.723214, -0.808929, -0.937500, 0.934955, -0.223431, -0.189878, -0.334735]
Q01 += [0.938516, -0.107736, 0.0]
Q99 = [0.937500, 0.870536, 0.937500, 1.0, 0.331000, 0.163153, 0.226216, 1.0, 0.127158, 1.0]
STATISTICS = Statistics('published', {'q01': np.array(Q01), 'q99': np.array(Q99)})


def observation(primary, wrist, instruction='open the drawer'):
    return PhysicalObservation({'primary': primary, 'wrist': wrist}, {}, instruction)


def flat(value, size=256):
    return np.full((size, size, 3), value, np.uint8)


def chunk(row):
    return np.tile(np.asarray(row, np.float64), (16, 1))


def raw_of(row):
    """What a network would give for a raw action: 2 (x - q01) / (q99 - q01) - 1."""
    low, high = np.array(Q01), np.array(Q99)
    return chunk(2 * (np.asarray(row) - low) / (high - low) - 1)


def test_the_request_has_the_parameters_of_the_libero_recipe():
    request = adapter.encode(observation(flat(0), flat(0)))
    assert request['parameters'] == {
        'action_mode': 'policy',
        'raw_action_dim': 10,
        'num_frames': 17,
        'action_fps': 20.0,
        'fps': 20,
        'action_view_point': 'ego_view',
        'num_inference_steps': 30,
        'seed': 1140,
        'height': 192,
        'width': 320,
        'domain_name': 'libero',
    }


def test_the_prompt_says_what_the_image_shows():
    shown = (
        ' This video contains concatenated views from multiple camera perspectives.'
        ' The left half shows the third-person view; the right half shows the wrist-mounted'
        ' camera.'
    )
    assert adapter.prompt('open the drawer') == 'open the drawer.' + shown
    assert adapter.prompt('Open the drawer.  ') == 'Open the drawer.' + shown
    assert adapter.prompt(adapter.prompt('x')) == adapter.prompt('x')


def test_the_third_person_view_is_on_the_left():
    image = adapter.picture([flat(10), flat(200)])
    assert image.shape == (192, 320, 3)
    assert (image[:, :158] == 10).all() and (image[:, 162:] == 200).all()


def test_left_and_right_of_a_view_change_places():
    view = flat(0)
    view[:, :128] = 100
    image = adapter.picture([view, flat(0)])
    # 256 columns become 160: the bright left half lies in columns 80 to 160
    assert (image[:, :77] == 0).all()
    assert (image[:, 83:157] == 100).all()


def test_the_last_rows_are_the_mirror_of_those_above():
    random = np.random.default_rng(0)
    views = [random.integers(0, 256, (256, 256, 3), dtype=np.uint8) for _ in range(2)]
    image = adapter.picture(views)
    # 512x256 becomes 320x160; row 160 is row 158, row 191 is row 127
    assert (image[160] == image[158]).all()
    assert (image[191] == image[127]).all()


def test_views_of_other_sizes_are_scaled_to_that_of_the_training():
    assert adapter.picture([flat(3, 128), flat(9, 512)]).shape == (192, 320, 3)


def test_a_turn_about_z_comes_out_as_its_angle():
    # columns of a turn by 0.2 rad about z: (c, s, 0) and (-s, c, 0)
    c, s = math.cos(0.2), math.sin(0.2)
    raw = [0.5, -0.25, 0.125, c, s, 0.0, -s, c, 0.0, 1.0]
    actions = adapter.decode(raw_of(raw), STATISTICS)
    assert actions.shape == (16, 7) and actions.dtype == np.float32
    assert actions[7] == pytest.approx([0.5, -0.25, 0.125, 0.0, 0.0, 0.2, -1.0], abs=1e-6)


def test_the_six_numbers_are_columns_and_not_rows():
    # a turn by +0.3 rad about x: columns (1, 0, 0), (0, c, s); as rows it would be -0.3
    c, s = math.cos(0.3), math.sin(0.3)
    actions = adapter.decode(raw_of([0, 0, 0, 1, 0, 0, 0, c, s, 0]), STATISTICS)
    assert actions[0, 3:6] == pytest.approx([0.3, 0.0, 0.0], abs=1e-6)


def test_quantiles_are_the_ends_of_the_networks_range():
    low = adapter.decode(chunk([-1.0] * 10), STATISTICS)
    high = adapter.decode(chunk([1.0] * 10), STATISTICS)
    assert low[0, :3] == pytest.approx(Q01[:3])
    assert high[0, :3] == pytest.approx(Q99[:3])


def test_rotations_that_are_not_quite_orthogonal_are_made_so():
    raw = [0, 0, 0, 2.0, 0, 0, 5.0, 0.5, 0, 0]
    actions = adapter.decode(chunk(raw), None)
    assert actions[0, 3:6] == pytest.approx([0, 0, 0], abs=1e-7)


IDENTITY = [0, 0, 0, 1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(('raw', 'expected'), [(0.0, 1.0), (0.4, 1.0), (0.6, -1.0), (1.0, -1.0)])
def test_raw_gripper_one_is_open_and_libero_s_open_is_minus_one(raw, expected):
    assert adapter.decode(chunk([*IDENTITY, raw]), None)[0, 6] == expected


def test_a_gripper_that_is_not_binarised_is_scaled_and_clipped():
    def gripper(raw):
        return adapter.decode(chunk([*IDENTITY, raw]), None, binarise_gripper=False)[0, 6]

    assert gripper(0.25) == pytest.approx(0.5)
    assert gripper(-0.5) == 1.0
    assert gripper(1.5) == -1.0


def test_padding_beyond_ten_is_dropped():
    padded = np.concatenate([chunk([*IDENTITY, 1.0]), np.full((16, 54), 9.0)], axis=1)
    assert adapter.decode(padded, None)[0].tolist() == [0, 0, 0, 0, 0, 0, -1]


@pytest.mark.parametrize('shape', [(15, 10), (16, 9), (1, 16, 10), (16,)])
def test_values_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r'actions: expected \[16, 10\]'):
        adapter.decode(np.zeros(shape), None)


def test_values_that_are_no_rotation_or_not_finite_are_refused():
    with pytest.raises(ValueError, match='span no plane'):
        adapter.decode(np.zeros((16, 10)), None)
    bad = chunk([*IDENTITY, 1.0])
    bad[3, 2] = np.nan
    with pytest.raises(ValueError, match='finite'):
        adapter.decode(bad, None)
