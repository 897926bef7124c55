# SPDX-License-Identifier: Apache-2.0
"""Physical observation to the dictionary of an APXInf policy, and its chunks to controls.

Sources of the schema: infinigence/ApxInf 19bbb696 (``policies/impls/pi05.py``) for the engine's
keys; RLinf/RPent (``rpent/robots/components/pi05_vla_{server,client}.py`` of October 2026) for the
three presets; RLinf/RLinf 122ed3ac (``openpi/policies/dual_franka_tcp_rot6d_policy.py`` and
``dataconfig``) for the layouts and for what its pi0.5 predicts relative to the state.

The engine scales the images, writes the state into the prompt and restores the scale of the
actions; it knows nothing of robots, so the step from relative to absolute is done here. Imports
no rclpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from praxis_core.model_exchange import PhysicalObservation
from praxis_core.native_control import LIBERO_7D, NativeControl

from praxis_models import rotations
from praxis_models.adapters.openpi import libero_state
from praxis_models.pixels import flip_horizontal

_SIDES = ('left', 'right')

DUAL_FRANKA = NativeControl(
    embodiment='dual_franka_tcp',
    action_space='dual_franka.tcp_rot6d.absolute.v1',
    action_schema=tuple(
        f'{side}_{part}'
        for side in _SIDES
        for part in ('x', 'y', 'z', *(f'rot6d_{index}' for index in range(6)), 'gripper')
    ),
)
"""Two Frankas: TCP position in m, first two columns of its rotation, gripper 1 open, -1 closed."""

YAM_QPOS14 = NativeControl(
    embodiment='yam_qpos14',
    action_space='yam.joint_position.absolute.v1',
    action_schema=tuple(
        f'{side}_{part}'
        for side in _SIDES
        for part in (*(f'joint_{index}' for index in range(6)), 'gripper')
    ),
)
"""Two YAM arms: six joints in rad and the gripper, 0 closed, 1 open, left arm first."""

STATE_KEY = 'observation/state'
PROMPT_KEY = 'prompt'
_EXTRA = ('observation/image', 'observation/extra_view_image-0', 'observation/extra_view_image-1')


class Preset(NamedTuple):
    """One robot.

    Attributes:
        control: Control of the chunks.
        cameras: Key of a view -> role, in the order of the model's views.
        state_schema: Physical states that go in.
        horizon: Steps that the model predicts.
        return_steps: Steps that the reference returns of them.
        execute_steps: Steps to execute of what is returned.
        policy_hz: Rate of the steps, None: the contract's.
        discrete_state: The state is written into the prompt.
        relative: The model predicts poses or joints relative to the state.
    """

    control: NativeControl
    cameras: Mapping[str, str]
    state_schema: Mapping[str, int]
    horizon: int
    return_steps: int
    execute_steps: int
    policy_hz: float | None
    discrete_state: bool
    relative: bool


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        'libero': Preset(
            LIBERO_7D,
            {'observation/image': 'primary', 'observation/wrist_image': 'wrist'},
            {'eef_position': 3, 'eef_quaternion_xyzw': 4, 'gripper_qpos': 2},
            10, 5, 5, 20.0, False, False,
        ),
        'dual_franka': Preset(
            DUAL_FRANKA,
            # the reference's rig sends the left wrist as its main view
            dict(zip(_EXTRA, ('left_wrist', 'primary', 'right_wrist'), strict=True)),
            {
                f'{side}_{part}': size
                for side in _SIDES
                for part, size in (('tcp_position', 3), ('tcp_quaternion_xyzw', 4), ('gripper', 1))
            },
            20, 20, 20, None, True, True,
        ),
        'yam': Preset(
            YAM_QPOS14,
            dict(zip(_EXTRA, ('head', 'left_wrist', 'right_wrist'), strict=True)),
            {'joint_positions': 12, 'left_gripper': 1, 'right_gripper': 1},
            30, 30, 5, 30.0, True, True,
        ),
    }
)  # fmt: skip


def state_of(preset: str, observation: PhysicalObservation) -> np.ndarray:
    """State as the model was trained on it: float32[8], [20] or [14].

    For two Frankas it is, for each arm, position, rot6d and gripper: the order that RLinf's
    transform gives its environment's vector, and that of the actions.
    """
    state = observation.state
    if preset == 'libero':
        return libero_state(observation).astype(np.float32)
    if preset == 'dual_franka':
        parts = []
        for side in _SIDES:
            turn = rotations.quaternion_to_matrix(state[f'{side}_tcp_quaternion_xyzw'])
            parts += [
                state[f'{side}_tcp_position'],
                rotations.matrix_to_rot6d(turn),
                state[f'{side}_gripper'],
            ]
        return np.concatenate(parts).astype(np.float32)
    joints = state['joint_positions']
    return np.concatenate(
        [joints[:6], state['left_gripper'], joints[6:], state['right_gripper']]
    ).astype(np.float32)


def encode(
    preset: str, observation: PhysicalObservation, cameras: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Input of one inference.

    Args:
        preset: Key of `PRESETS`.
        observation: As the preset's cameras and state schema say.
        cameras: Key of a view -> role, where they are not the preset's.
    """
    native: dict[str, Any] = {
        STATE_KEY: state_of(preset, observation),
        PROMPT_KEY: observation.instruction,
    }
    for key, role in (cameras or PRESETS[preset].cameras).items():
        image = observation.images[role]
        # LIBERO's models see the simulator's images turned by 180 degrees
        native[key] = flip_horizontal(image) if preset == 'libero' else np.ascontiguousarray(image)
    return native


def decode(
    preset: str,
    actions: np.ndarray,
    observation: PhysicalObservation,
    *,
    steps: int,
    relative: bool,
) -> np.ndarray:
    """Chunk of the preset's control, float32[H, A].

    Args:
        preset: Key of `PRESETS`.
        actions: [horizon, A or more], as the policy returns them.
        observation: That it was given.
        steps: Steps to keep.
        relative: Make joints, or poses in the frame of the present TCP, absolute.

    Raises:
        ValueError: The policy returned something of another shape, or rotations that are none.
    """
    width = PRESETS[preset].control.action_dim
    actions = np.asarray(actions, dtype=np.float64)
    if actions.ndim != 2 or actions.shape[0] < steps or actions.shape[1] < width:
        raise ValueError(
            f'the policy returned actions of shape {list(actions.shape)}, not [{steps} or more, '
            f'{width}]'
        )
    actions = actions[:steps, :width].copy()
    if preset == 'libero':
        # what robosuite's controller does
        return np.clip(actions, -1.0, 1.0).astype(np.float32)
    state = state_of(preset, observation).astype(np.float64)
    if preset == 'dual_franka':
        for start in (0, 10):
            _place(actions, state, start, relative)
    else:
        if relative:
            joints = np.r_[0:6, 7:13]
            actions[:, joints] += state[joints]
        # RPent's YAM server: the policy may overshoot, the robot takes 0 ... 1
        actions[:, [6, 13]] = np.clip(actions[:, [6, 13]], 0.0, 1.0)
    return actions.astype(np.float32)


def _place(actions: np.ndarray, state: np.ndarray, start: int, relative: bool) -> None:
    """Make one arm's rotations orthonormal, and its poses absolute: T = T_state T_relative."""
    place, turn = slice(start, start + 3), slice(start + 3, start + 9)
    rotation = rotations.rot6d_to_matrix(actions[:, turn])
    if relative:
        anchor = rotations.rot6d_to_matrix(state[turn])
        actions[:, place] = actions[:, place] @ anchor.T + state[place]
        rotation = anchor @ rotation
    actions[:, turn] = rotations.matrix_to_rot6d(rotation)
