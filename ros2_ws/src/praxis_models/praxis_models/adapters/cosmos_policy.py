# SPDX-License-Identifier: Apache-2.0
"""Physical observation to Cosmos Policy's LIBERO input, and what it predicts to controls.

Source: NVlabs/cosmos-policy b8ffbb42, ``experiments/robot/libero/run_libero_eval.py``
(prepare_observation) and ``experiments/robot/cosmos_utils.py`` (get_action), which compresses,
crops, scales and normalises by itself and gives actions in LIBERO's own units and signs. Its
evaluation turns the simulator's images, whose origin is at the bottom, upright; ours are.
Imports no rclpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from praxis_core.model_exchange import PhysicalObservation
from praxis_core.native_control import LIBERO_7D

CONTROL = LIBERO_7D
IMAGE_SIZE = 256
CAMERAS = {'primary_image': 'primary', 'wrist_image': 'wrist'}
"""Name of a view -> role."""

STATE_SCHEMA = {'gripper_qpos': 2, 'eef_position': 3, 'eef_quaternion_xyzw': 4}
"""States of the proprioception, in its order."""

FUTURES = {'future_image': 'primary', 'future_wrist_image': 'wrist'}
"""Name of a predicted view -> role."""

CHUNK_SIZE = 16
POLICY_HZ = 20.0


def encode(observation: PhysicalObservation) -> dict[str, np.ndarray]:
    """Input of one inference: ``primary_image``, ``wrist_image``, ``proprio`` [9].

    Raises:
        ValueError: An image is not 256x256, the size that the model was trained and evaluated at:
            it compresses at that size before it scales.
    """
    native: dict[str, np.ndarray] = {}
    for name, role in CAMERAS.items():
        image = observation.images[role]
        if image.shape[:2] != (IMAGE_SIZE, IMAGE_SIZE):
            rows, columns = image.shape[:2]
            raise ValueError(
                f'images.{role}: expected {IMAGE_SIZE}x{IMAGE_SIZE} (got {rows}x{columns})'
            )
        native[name] = np.ascontiguousarray(image)
    native['proprio'] = np.concatenate(
        [np.asarray(observation.state[name], np.float64) for name in STATE_SCHEMA]
    )
    return native


def decode(actions: Any) -> np.ndarray:
    """Chunk float32[16, 7] from a list of actions; gripper -1 open, +1 close.

    Raises:
        ValueError: It is of another shape.
    """
    chunk = np.asarray(actions, dtype=np.float32)
    expected = (CHUNK_SIZE, CONTROL.action_dim)
    if chunk.shape != expected:
        raise ValueError(f'actions: expected {list(expected)} (got {list(chunk.shape)})')
    return chunk


def decode_future(images: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Predicted views at the end of the chunk by role, uint8[1, H, W, 3].

    They show the middle of a camera's image: the model sees 95 % of its sides.
    """
    return {
        role: np.asarray(images[name], dtype=np.uint8)[None]
        for name, role in FUTURES.items()
        if name in images
    }
