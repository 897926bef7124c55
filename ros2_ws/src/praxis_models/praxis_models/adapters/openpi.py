# SPDX-License-Identifier: Apache-2.0
"""Physical observation to the dictionaries of openpi's policies, and their chunks to controls.

Source of the schema: Physical-Intelligence/openpi 15a9616a, ``src/openpi/policies/*_policy.py``
for the keys, ``examples/{libero,droid,aloha_sim}`` for what is done around a policy. A policy
resizes, pads, normalises and tokenises by itself. Imports no rclpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from praxis_core.model_exchange import PhysicalObservation
from praxis_core.native_control import LIBERO_7D, NativeControl

from praxis_models.pixels import channels_first, flip_horizontal
from praxis_models.rotations import quaternion_to_axis_angle

DROID_VELOCITY = NativeControl(
    embodiment='droid_franka',
    action_space='droid.joint_velocity.v1',
    action_schema=(*(f'joint_velocity_{index}' for index in range(7)), 'gripper'),
)
"""DROID's Franka: joint velocities of -1 to 1 of its own scale, gripper 0 open, 1 closed."""

DROID_POSITION = NativeControl(
    embodiment='droid_franka',
    action_space='droid.joint_position.v1',
    action_schema=(*(f'joint_position_{index}' for index in range(7)), 'gripper'),
)
"""DROID's Franka: joint positions in rad, gripper 0 open, 1 closed."""

ALOHA_QPOS14 = NativeControl(
    embodiment='aloha_qpos14',
    action_space='aloha.joint_position.absolute.v1',
    action_schema=tuple(
        f'{side}_{part}'
        for side in ('left', 'right')
        for part in (*(f'joint_{index}' for index in range(6)), 'gripper')
    ),
)
"""ALOHA's two arms: six joints in rad and the gripper, 0 closed, 1 open, left arm first."""


class Preset(NamedTuple):
    """How one family of openpi's policies is fed.

    Attributes:
        control: Control of the chunks.
        cameras: Name that openpi has for a view -> role.
        state_schema: Physical states that go in.
        policy_hz: Rate that the family's data was recorded at.
        execute_steps: Steps that openpi's own example executes of a chunk.
    """

    control: NativeControl
    cameras: Mapping[str, str]
    state_schema: Mapping[str, int]
    policy_hz: float
    execute_steps: int


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        'libero': Preset(
            LIBERO_7D,
            {'image': 'primary', 'wrist_image': 'wrist'},
            {'eef_position': 3, 'eef_quaternion_xyzw': 4, 'gripper_qpos': 2},
            20.0,
            5,
        ),
        'droid': Preset(
            DROID_VELOCITY,
            {'exterior_image_1_left': 'primary', 'wrist_image_left': 'wrist'},
            {'joint_positions': 7, 'gripper_position': 1},
            15.0,
            8,
        ),
        'droid_position': Preset(
            DROID_POSITION,
            {'exterior_image_1_left': 'primary', 'wrist_image_left': 'wrist'},
            {'joint_positions': 7, 'gripper_position': 1},
            15.0,
            8,
        ),
        'aloha': Preset(
            ALOHA_QPOS14,
            {'cam_high': 'head', 'cam_left_wrist': 'left_wrist', 'cam_right_wrist': 'right_wrist'},
            {'state': 14},
            50.0,
            25,
        ),
    }
)

ALOHA_CAMERAS = ('cam_high', 'cam_low', 'cam_left_wrist', 'cam_right_wrist')


def preset_of(config: str) -> str:
    """Preset that a training configuration's name tells of, empty where it tells nothing."""
    if 'libero' in config:
        return 'libero'
    if 'droid' in config:
        # the one that openpi trains on the data set's joint positions
        return 'droid_position' if 'full_droid' in config else 'droid'
    return 'aloha' if 'aloha' in config else ''


def encode(
    preset: str, observation: PhysicalObservation, cameras: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Input of one inference.

    Args:
        preset: Key of `PRESETS`.
        observation: As the preset's cameras and state schema say.
        cameras: openpi's name -> role, where they are not the preset's.
    """
    images, state = observation.images, observation.state
    views = {name: images[role] for name, role in (cameras or PRESETS[preset].cameras).items()}
    if preset == 'aloha':
        return {
            'images': {name: channels_first(image) for name, image in views.items()},
            'state': state['state'].astype(np.float64),
            'prompt': observation.instruction,
        }
    native: dict[str, Any] = {'prompt': observation.instruction}
    if preset == 'libero':
        # openpi turns the simulator's upside-down images by 180 degrees: left and right of an
        # upright one change places
        views = {name: flip_horizontal(image) for name, image in views.items()}
        native['observation/state'] = libero_state(observation)
    else:
        native['observation/joint_position'] = state['joint_positions'].astype(np.float64)
        native['observation/gripper_position'] = state['gripper_position'].astype(np.float64)
    native.update((f'observation/{name}', image) for name, image in views.items())
    return native


def libero_state(observation: PhysicalObservation) -> np.ndarray:
    """Position, axis-angle and finger positions, float64[8].

    The angle passes pi where w is negative, as robosuite computes it; hands that point down have
    w near 0, so the quaternion's sign must be the simulator's own.
    """
    state = observation.state
    return np.concatenate(
        [
            state['eef_position'],
            quaternion_to_axis_angle(state['eef_quaternion_xyzw'], shortest=False),
            state['gripper_qpos'],
        ]
    ).astype(np.float64)


def decode(preset: str, actions: np.ndarray) -> np.ndarray:
    """Chunk of the preset's control, float32[H, A].

    Values are clipped where what executes them upstream clips: robosuite's controller to -1 ... 1,
    DROID's loop likewise, which also closes the gripper above 0.5 and opens it below.

    Args:
        preset: Key of `PRESETS`.
        actions: [H, A or more], as the policy returns them.

    Raises:
        ValueError: The policy returned something of another shape.
    """
    width = PRESETS[preset].control.action_dim
    actions = np.array(actions, dtype=np.float32)
    if actions.ndim != 2 or actions.shape[1] < width:
        raise ValueError(
            f'the policy returned actions of shape {list(actions.shape)}, not [H, {width}]: is '
            f'{preset!r} the preset of its configuration?'
        )
    actions = actions[:, :width]
    if preset in ('libero', 'droid'):
        actions = np.clip(actions, -1.0, 1.0)
    if preset in ('droid', 'droid_position'):
        actions[:, -1] = actions[:, -1] > 0.5
    return actions
