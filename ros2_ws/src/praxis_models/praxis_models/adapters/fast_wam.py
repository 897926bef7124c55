# SPDX-License-Identifier: Apache-2.0
"""Physical observation to Fast-WAM's input, and what it predicts to controls.

Source: yuantianyuan01/FastWAM 45d8e145: ``experiments/libero/eval_libero_single.py``,
``experiments/robotwin/fastwam_policy/deploy_policy.py``, ``configs/sim_*.yaml``,
``configs/data/{libero_2cam,robotwin}.yaml`` and
``src/fastwam/datasets/lerobot/utils/normalizer.py``. Imports no rclpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from praxis_core.model_exchange import PhysicalObservation
from praxis_core.native_control import LIBERO_7D, ROBOTWIN_QPOS14, NativeControl

from praxis_models.embeddings import FAST_WAM_PROMPT
from praxis_models.normalisation import Mode, Statistics, load_statistics
from praxis_models.pixels import (
    beside,
    channels_first,
    crop,
    crop_resize,
    flip_horizontal,
    resize,
    signed_unit,
    stacked,
)
from praxis_models.rotations import quaternion_to_axis_angle

CHUNK_SIZE = 32
VIDEO_FRAMES = 9
"""Frames of a predicted video, the observation first, every fourth step of the chunk."""

_Z_EPSILON = 1e-8
_NARROW = 1e-4
_CLAMP = 5.0
_NAMES = {name: f'global_{name}' for name in ('mean', 'std', 'min', 'max', 'q01', 'q99')}


class Preset(NamedTuple):
    """How one of the released checkpoints is fed.

    Attributes:
        control: Control of the chunks.
        cameras: Roles of the views, in the order of the picture.
        state_schema: Physical states that go in.
        mode: How states and actions are normalised.
        execute_steps: Steps that the project's evaluation executes of a chunk.
        policy_hz: Rate of the steps, None: the robot's own.
    """

    control: NativeControl
    cameras: tuple[str, ...]
    state_schema: Mapping[str, int]
    mode: Mode
    execute_steps: int
    policy_hz: float | None

    @property
    def state_dim(self) -> int:
        """Length of the proprioception."""
        return 8 if self.control is LIBERO_7D else 14


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        'libero': Preset(
            LIBERO_7D,
            ('primary', 'wrist'),
            {'eef_position': 3, 'eef_quaternion_xyzw': 4, 'gripper_qpos': 2},
            'min_max',
            10,
            20.0,
        ),
        'robotwin': Preset(
            ROBOTWIN_QPOS14,
            ('head', 'left_wrist', 'right_wrist'),
            {'joint_targets': 14},
            'z_score',
            24,
            None,
        ),
    }
)


@dataclass(frozen=True)
class Normaliser:
    """The project's affine map of one vector: x scale + offset, clamped at 5 on the way in."""

    scale: np.ndarray
    offset: np.ndarray

    @classmethod
    def of(cls, statistics: Statistics, mode: Mode) -> Normaliser:
        """Map low and high to -1 and 1, or mean and deviation to 0 and 1.

        A width below 1e-4 is not scaled: its values are only moved to 0.
        """
        low, high = statistics.pair(mode)
        if mode == 'z_score':
            return cls(1.0 / (high + _Z_EPSILON), -low / (high + _Z_EPSILON))
        narrow = high - low < _NARROW
        scale = 2.0 / np.where(narrow, 2.0, high - low)
        return cls(scale, np.where(narrow, -low, -1.0 - scale * low))

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Physical values [..., n] to those of the network."""
        return np.clip(np.asarray(values) * self.scale + self.offset, -_CLAMP, _CLAMP)

    def backward(self, values: np.ndarray) -> np.ndarray:
        """Values of the network [..., n] to physical ones."""
        return (np.asarray(values, np.float64) - self.offset) / self.scale


def load_normalisers(
    path: str | Path, preset: str, key: str = 'default'
) -> tuple[Normaliser, Normaliser]:
    """Those of the state and of the action, from a checkpoint's ``dataset_stats.json``.

    Raises:
        StatisticsError: It cannot be read, or does not fit the preset.
    """
    spec = PRESETS[preset]
    sizes = {'state': spec.state_dim, 'action': spec.control.action_dim}
    state, action = (
        Normaliser.of(load_statistics(path, f'{part}/{key}', names=_NAMES, size=size), spec.mode)
        for part, size in sizes.items()
    )
    return state, action


def encode(
    preset: str, observation: PhysicalObservation, state: Normaliser, view_size: int = 224
) -> dict[str, Any]:
    """Input of one inference.

    Returns:
        ``prompt``, ``input_image`` float32[1, 3, H, W] of -1 to 1, ``proprio`` float32[1, D].
    """
    image = picture(preset, observation.images, view_size)
    return {
        'prompt': FAST_WAM_PROMPT.replace('{task}', observation.instruction),
        'input_image': channels_first(signed_unit(image))[None],
        'proprio': state.forward(proprioception(preset, observation.state))[None].astype(
            np.float32
        ),
    }


def picture(preset: str, images: Mapping[str, np.ndarray], view_size: int = 224) -> np.ndarray:
    """Views in one picture: uint8[S, 2 S, 3] of LIBERO, uint8[384, 320, 3] of RoboTwin.

    LIBERO's training images are turned by 180 degrees from the simulator's, whose origin is at the
    bottom: left and right of an upright image change places.
    """
    if preset == 'libero':
        return beside(
            [
                crop_resize(flip_horizontal(images[role]), view_size, view_size)
                for role in PRESETS[preset].cameras
            ]
        )
    head, left, right = (images[role] for role in PRESETS[preset].cameras)
    return stacked(
        [resize(head, 256, 320), beside([resize(left, 128, 160), resize(right, 128, 160)])]
    )


def views(preset: str, frames: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Undo `picture` for predicted frames uint8[H, W, 3]: role -> uint8[T, h, w, 3], upright."""
    if preset == 'libero':
        side = frames[0].shape[1] // 2
        boxes = {
            role: (0, index * side, frames[0].shape[0], side)
            for index, role in enumerate(PRESETS[preset].cameras)
        }
    else:
        boxes = {
            'head': (0, 0, 256, 320),
            'left_wrist': (256, 0, 128, 160),
            'right_wrist': (256, 160, 128, 160),
        }
    turn = flip_horizontal if preset == 'libero' else np.asarray
    return {
        role: np.stack([turn(crop(frame, *box)) for frame in frames])
        for role, box in boxes.items()
    }


def proprioception(preset: str, state: Mapping[str, np.ndarray]) -> np.ndarray:
    """Position, axis-angle and fingers [8] of LIBERO, joint targets [14] of RoboTwin.

    The angle passes pi where w is negative, as robosuite computes it.
    """
    if preset == 'robotwin':
        return np.asarray(state['joint_targets'], np.float64)
    turn = quaternion_to_axis_angle(state['eef_quaternion_xyzw'], shortest=False)
    return np.concatenate([state['eef_position'], turn, state['gripper_qpos']])


def decode(
    preset: str, values: Any, action: Normaliser, *, binarise_gripper: bool = True
) -> np.ndarray:
    """Chunk float32[32, A] of what the network gives, float[32, A] or [1, 32, A].

    LIBERO's gripper is 0 close, 1 open in the data set and +1 close, -1 open in the control:
    1 - 2 g. RoboTwin's are left as they are: 0 close, 1 open.

    Raises:
        ValueError: It is of another shape or not finite.
    """
    values = np.asarray(values, np.float64)
    values = values[0] if values.ndim == 3 and len(values) == 1 else values
    expected = (CHUNK_SIZE, PRESETS[preset].control.action_dim)
    if values.shape != expected:
        raise ValueError(f'actions: expected {list(expected)} (got {list(values.shape)})')
    # before the sign of a gripper hides it
    if not np.isfinite(values).all():
        raise ValueError('actions: expected finite numbers')
    actions = action.backward(values)
    if preset == 'libero':
        gripper = 1.0 - 2.0 * actions[:, 6]
        actions[:, 6] = np.sign(gripper) if binarise_gripper else gripper
    return actions.astype(np.float32)
