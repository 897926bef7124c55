# SPDX-License-Identifier: Apache-2.0
"""Features as huggingface/lerobot 7427f318 writes them into config.json."""

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation
from praxis_models.adapters import lerobot

ALOHA = {
    'observation.images.top': ('VISUAL', (3, 2, 3)),
    'observation.state': ('STATE', (4,)),
}
ACTION = {'action': ('ACTION', (4,))}


def image(height, width):
    return np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)


def observation(height=2, width=3):
    return PhysicalObservation(
        images={'head': image(height, width)},
        state={'joint_positions': np.arange(3, dtype=np.float32), 'gripper': np.ones(1, 'f4')},
        instruction='transfer the cube',
    )


def test_features_are_views_state_and_action():
    features = lerobot.read_features(ALOHA, ACTION)
    assert features.views == {'top': (2, 3)}
    assert features.keys == {'top': 'observation.images.top'}
    assert (features.state, features.action) == (4, 4)


def test_single_camera_and_no_state():
    features = lerobot.read_features({'observation.image': ('VISUAL', (3, 96, 96))}, ACTION)
    assert features.keys == {'image': 'observation.image'}
    assert features.state == 0


def test_renamed_view_goes_in_by_the_name_before():
    inputs = {'observation.images.camera1': ('VISUAL', (3, 2, 3))}
    features = lerobot.read_features(
        inputs, ACTION, {'observation.images.front': 'observation.images.camera1'}
    )
    assert features.keys == {'front': 'observation.images.front'}


@pytest.mark.parametrize(
    ('inputs', 'outputs', 'message'),
    [
        ({'observation.environment_state': ('ENV', (6,))}, ACTION, 'the type ENV'),
        ({'observation.images.depth': ('VISUAL', (1, 4, 4))}, ACTION, 'expected an image'),
        ({'observation.state': ('STATE', (2, 4))}, ACTION, 'expected a vector'),
        (ALOHA, {}, 'action: is not among'),
    ],
)
def test_feature_that_no_observation_has_is_refused(inputs, outputs, message):
    with pytest.raises(ValueError, match=message):
        lerobot.read_features(inputs, outputs)


def test_images_go_in_as_they_are_and_states_one_after_the_other():
    features = lerobot.read_features(ALOHA, ACTION)
    native = lerobot.encode(
        features, observation(), cameras={'top': 'head'}, states=('gripper', 'joint_positions')
    )
    assert native['observation.images.top'].tolist() == image(2, 3).tolist()
    assert native['observation.state'].tolist() == [1, 0, 1, 2]
    assert native['observation.state'].dtype == np.float32


def test_image_of_another_shape_is_padded_stretched_or_left():
    features = lerobot.read_features({'observation.images.top': ('VISUAL', (3, 4, 4))}, ACTION)
    white = PhysicalObservation({'head': np.full((2, 4, 3), 255, np.uint8)}, {}, 'go')
    got = {
        fit: lerobot.encode(features, white, cameras={'top': 'head'}, states=(), fit=fit)[
            'observation.images.top'
        ]
        for fit in ('pad', 'stretch', 'as_is')
    }
    # 2x4 in 4x4: one black row above and one below
    assert got['pad'][:, 0, 0].tolist() == [0, 255, 255, 0]
    assert got['stretch'].tolist() == np.full((4, 4, 3), 255).tolist()
    assert got['as_is'].shape == (2, 4, 3)


def test_libero_is_mirrored_and_its_state_in_axis_angle():
    # LeRobot turns the simulator's images by 180 degrees: mirrors upright ones
    features = lerobot.read_features(
        {
            'observation.images.image': ('VISUAL', (3, 2, 3)),
            'observation.state': ('STATE', (8,)),
        },
        {'action': ('ACTION', (7,))},
    )
    seen = PhysicalObservation(
        {'primary': image(2, 3)},
        {
            'eef_position': np.array([0.5, 0.25, 1.0], np.float32),
            'eef_quaternion_xyzw': np.array([0, 0, np.sqrt(0.5), np.sqrt(0.5)], np.float32),
            'gripper_qpos': np.array([0.04, -0.04], np.float32),
        },
        'open the drawer',
    )
    native = lerobot.encode(features, seen, cameras={'image': 'primary'}, states=(), libero=True)
    assert native['observation.images.image'][0].tolist() == [[6, 7, 8], [3, 4, 5], [0, 1, 2]]
    np.testing.assert_allclose(
        native['observation.state'], [0.5, 0.25, 1, 0, 0, np.pi / 2, 0.04, -0.04], atol=1e-6
    )
    assert lerobot.decode(features, np.full((1, 7), 1.5), libero=True).tolist() == [[1.0] * 7]


def test_chunk_of_another_width_is_refused():
    features = lerobot.read_features(ALOHA, ACTION)
    assert lerobot.decode(features, np.full((2, 4), 1.5)).tolist() == [[1.5] * 4] * 2
    with pytest.raises(ValueError, match=r'expected \[H, 4\] \(got \[2, 7\]\)'):
        lerobot.decode(features, np.zeros((2, 7)))
