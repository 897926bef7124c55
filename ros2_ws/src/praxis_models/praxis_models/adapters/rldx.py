# SPDX-License-Identifier: Apache-2.0
"""Physical observation to RLDX-1's RoboCasa365 input, its chunks to controls, and its own wire.

Sources: RLWRLD/RLDX-1 21007bd4, ``rldx/configs/data/robocasa365_config.py`` for the keys,
``rldx/policy/rldx_policy.py`` (RLDXSimPolicyWrapper, 0bbc9e30) for the shapes,
``rldx/eval/sim/wrapper/multistep_wrapper.py`` (0bbc9e30) for the history,
``rldx/policy/server_client.py`` for the wire; robocasa/robocasa 8f3c96ec,
``robocasa/wrappers/gym_wrapper.py`` (PandaOmronKeyConverter) for what the actions become.
Imports no rclpy.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
from praxis_core.model_exchange import PhysicalObservation
from praxis_core.native_control import NativeControl

CONTROL = NativeControl(
    embodiment='robocasa_panda_omron',
    action_space='robocasa.panda_omron.osc_pose.delta.v1',
    action_schema=(
        *(f'delta_{axis}' for axis in 'xyz'),
        *(f'delta_axis_angle_{axis}' for axis in 'xyz'),
        'gripper',
        'base_forward',
        'base_lateral',
        'base_turn',
        'torso',
        'control_mode',
    ),
)
"""Panda on an Omron base, as robosuite's step takes it: -1 to 1 of the controllers' scales;
gripper -1 open, +1 close; control_mode -1 arm, +1 base."""

CAMERAS = ('robot0_agentview_left', 'robot0_agentview_right', 'robot0_eye_in_hand')
IMAGE_SIZE = 256

STATES = {
    'end_effector_position_relative': 'eef_position_in_base',
    'end_effector_rotation_relative': 'eef_quaternion_xyzw_in_base',
    'gripper_qpos': 'gripper_qpos',
    'base_position': 'base_position',
    'base_rotation': 'base_quaternion_xyzw',
}
"""Name of a state -> physical name; positions in m, quaternions x y z w."""

STATE_SCHEMA = {
    'eef_position_in_base': 3,
    'eef_quaternion_xyzw_in_base': 4,
    'gripper_qpos': 2,
    'base_position': 3,
    'base_quaternion_xyzw': 4,
}

LANGUAGE = 'annotation.human.task_description'

ACTIONS = {
    'end_effector_position': 3,
    'end_effector_rotation': 3,
    'gripper_close': 1,
    'base_motion': 4,
    'control_mode': 1,
}
"""Parts of an action in the order of the control, and the length of each."""

POLICY_HZ = 20.0


def check_images(images: Mapping[str, np.ndarray]) -> None:
    """Check the size that the evaluation renders.

    Raises:
        ValueError: An image has another.
    """
    for role in CAMERAS:
        if images[role].shape[:2] != (IMAGE_SIZE, IMAGE_SIZE):
            rows, columns = images[role].shape[:2]
            raise ValueError(
                f'images.{role}: expected {IMAGE_SIZE}x{IMAGE_SIZE} (got {rows}x{columns})'
            )


def history(
    frames: Sequence[Mapping[str, np.ndarray]], deltas: Sequence[int], spacing: int
) -> list[Mapping[str, np.ndarray]]:
    """Choose the frames of a video from those of the requests so far.

    A video is made of frames some steps back, such as -6, -4, -2, 0; a worker has those that came
    with requests, a chunk apart. The nearest in time is taken, the newer of two, and the first
    where nothing is old enough, as the evaluation repeats an episode's first frame. It is exact
    where every delta is a multiple of the spacing.

    Args:
        frames: Oldest first, at least one.
        deltas: Steps back from the newest, none above 0.
        spacing: Steps from one request to the next.
    """
    chosen = []
    for delta in deltas:
        back = math.ceil(-delta / spacing - 0.5)
        chosen.append(frames[max(len(frames) - 1 - back, 0)])
    return chosen


def encode(
    observation: PhysicalObservation, video: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, Any]:
    """Input of one inference, for a batch of one.

    Args:
        observation: State and instruction.
        video: Images by role, oldest first.

    Returns:
        ``video.NAME`` uint8[1, T, H, W, 3], ``state.NAME`` float32[1, 1, n], the task [1].
    """
    native: dict[str, Any] = {
        f'video.{role}': np.stack([frame[role] for frame in video])[None] for role in CAMERAS
    }
    for name, source in STATES.items():
        native[f'state.{name}'] = np.asarray(observation.state[source], np.float32)[None, None]
    native[LANGUAGE] = [observation.instruction]
    return native


def decode(actions: Mapping[str, Any], chunk_size: int) -> np.ndarray:
    """Chunk float32[H, 12] from ``action.NAME`` [1, H, n].

    The gripper and the mode are 0 to 1 in the data set and become -1 below 0.5, else +1.

    Raises:
        ValueError: A part is missing, of another shape or not finite.
    """
    parts = []
    for name, size in ACTIONS.items():
        key = f'action.{name}'
        part = np.asarray(actions.get(key), dtype=np.float64)
        expected = (1, chunk_size, size)
        if part.shape != expected or not np.isfinite(part).all():
            raise ValueError(
                f'{key}: expected finite numbers {list(expected)} (got {list(part.shape)})'
            )
        if name in ('gripper_close', 'control_mode'):
            part = np.where(part < 0.5, -1.0, 1.0)
        parts.append(part[0])
    return np.concatenate(parts, axis=1).astype(np.float32)


def pack(value: Any) -> bytes:
    """Write a message of the project's own server: arrays as files of NumPy in MessagePack."""
    return msgpack.packb(value, default=_pack_array)


def unpack(message: bytes) -> Any:
    """Read a message of the project's own server.

    Raises:
        ValueError: It is none.
    """
    try:
        return msgpack.unpackb(message, object_hook=_unpack_array, strict_map_key=False)
    except (msgpack.exceptions.UnpackException, ValueError, TypeError, EOFError) as error:
        raise ValueError(f'no message of RLDX: {error}') from None


def _pack_array(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise TypeError(f'{type(value).__name__} has no form in a message')
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=False)
    return {'__ndarray_class__': True, 'as_npy': stream.getvalue()}


def _unpack_array(found: dict[Any, Any]) -> Any:
    if '__ndarray_class__' in found:
        return np.load(io.BytesIO(found['as_npy']), allow_pickle=False)
    if '__ModalityConfig_class__' in found:
        return found['as_json']
    return found
