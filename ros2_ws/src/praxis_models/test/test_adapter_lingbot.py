# SPDX-License-Identifier: Apache-2.0
"""Layout of the 16 numbers: RLinf/RPent 091fac11, ``robots/robotwin/vla_client.py``."""

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation
from praxis_models.adapters import lingbot

LEFT = [0.1, 0.2, 0.3, 1.0, 0.0, 0.0, 0.0]
RIGHT = [-0.1, 0.5, 0.9, 0.0, 0.0, 0.0, 1.0]
"""Position and quaternion w x y z: the right hand is turned by 180 degrees about z."""


def observation():
    return PhysicalObservation(
        images={
            role: np.full((2, 3, 3), value, np.uint8)
            for value, role in enumerate(('head', 'left_wrist', 'right_wrist'))
        },
        state={
            'left_eef_pose': np.array(LEFT, np.float32),
            'left_gripper': np.array([0.25], np.float32),
            'right_eef_pose': np.array(RIGHT, np.float32),
            'right_gripper': np.array([0.75], np.float32),
        },
        instruction='stack the blocks',
    )


def test_request_has_the_servers_keys_and_sixteen_numbers_with_w_first():
    request = lingbot.encode(observation())
    assert set(request) == {
        'observation.images.cam_high',
        'observation.images.cam_left_wrist',
        'observation.images.cam_right_wrist',
        'observation.state',
        'task',
    }
    assert request['observation.images.cam_high'].tolist() == np.zeros((2, 3, 3)).tolist()
    assert request['observation.images.cam_right_wrist'][0, 0].tolist() == [2, 2, 2]
    np.testing.assert_array_equal(
        request['observation.state'],
        np.array([*LEFT, 0.25, *RIGHT, 0.75], np.float32),
    )
    assert request['task'] == 'stack the blocks'


def test_chunk_keeps_w_first_and_its_quaternions_become_unit():
    action = np.zeros((1, 16))
    action[0] = [1, 2, 3, 0, 0, 3, 4, 0.5, 4, 5, 6, 0, 0, 0, 0.5, 0.5]
    decoded = lingbot.decode({'action': action}, observation())
    assert decoded.dtype == np.float32
    # (0, 0, 3, 4) is of length 5; (0, 0, 0, 0.5) of length 0.5
    np.testing.assert_allclose(
        decoded, [[1, 2, 3, 0, 0, 0.6, 0.8, 0.5, 4, 5, 6, 0, 0, 0, 1, 0.5]], rtol=1e-6
    )
    assert lingbot.CONTROL.action_schema[3:7] == ('left_qw', 'left_qx', 'left_qy', 'left_qz')


def test_signs_go_on_from_the_observation_through_the_chunk():
    half = np.sqrt(0.5)
    action = np.zeros((3, 16))
    action[:, 3:7] = [[-1, 0, 0, 0], [half, half, 0, 0], [-half, -half, 0, 0]]
    action[:, 11:15] = [[0, 0, 0, -1], [0, 0, 0, 1], [0, 0, 0, -1]]
    decoded = lingbot.decode({'action': action}, observation())
    np.testing.assert_allclose(
        decoded[:, 3:7], [[1, 0, 0, 0], [half, half, 0, 0], [half, half, 0, 0]], atol=1e-7
    )
    np.testing.assert_allclose(decoded[:, 11:15], [[0, 0, 0, 1]] * 3, atol=1e-7)


def test_grippers_stay_between_closed_and_open():
    action = np.zeros((2, 16))
    action[:, 3] = action[:, 11] = 1.0
    action[:, 7], action[:, 15] = [-0.1, 1.2], [0.4, 0.0]
    decoded = lingbot.decode({'action': action}, observation())
    np.testing.assert_allclose(decoded[:, [7, 15]], [[0, 0.4], [1, 0]], atol=1e-7)


@pytest.mark.parametrize(
    ('reply', 'message'),
    [
        ({'action': np.zeros((50, 14))}, r'expected shape \[H, 16\] \(got \[50, 14\]\)'),
        ({'action': None}, r'expected shape \[H, 16\]'),
        ({}, r'expected shape \[H, 16\]'),
        ({'action': np.full((1, 16), np.nan)}, 'is not finite'),
        ({'action': np.zeros((1, 16))}, 'no length'),
    ],
)
def test_reply_of_another_policy_is_refused(reply, message):
    with pytest.raises(ValueError, match=message):
        lingbot.decode(reply, observation())
