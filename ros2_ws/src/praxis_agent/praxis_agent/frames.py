# SPDX-License-Identifier: Apache-2.0
"""Newest transforms of /tf and /tf_static, and chains of them."""

from __future__ import annotations

import numpy as np


class FrameTree:
    """Transforms by child frame; each child has one parent (REP-105)."""

    def __init__(self) -> None:
        self._parents: dict[str, tuple[str, np.ndarray]] = {}

    def set(self, parent: str, child: str, position: np.ndarray, quaternion: np.ndarray) -> None:
        """Take in one transform.

        Args:
            parent: Frame the child is in.
            child: Frame that is placed.
            position: float64[3], m.
            quaternion: float64[4], x y z w; a zero one is ignored.
        """
        rotation = quaternion_rotation(quaternion)
        if rotation is None:
            return
        matrix = np.eye(4)
        matrix[:3, :3] = rotation
        matrix[:3, 3] = position
        self._parents[child.lstrip('/')] = (parent.lstrip('/'), matrix)

    def lookup(self, frame: str, target: str) -> np.ndarray | None:
        """Pose float64[4, 4] of a frame in one of its ancestors, None where they do not meet."""
        matrix = np.eye(4)
        current = frame.lstrip('/')
        for _ in range(len(self._parents) + 1):
            if current == target.lstrip('/'):
                return matrix
            if current not in self._parents:
                return None
            current, step = self._parents[current]
            matrix = step @ matrix
        return None


def quaternion_rotation(quaternion: np.ndarray) -> np.ndarray | None:
    """Rotation float64[3, 3] of a quaternion x y z w, None where it is zero or not finite."""
    q = np.asarray(quaternion, dtype=float)
    norm = float(np.linalg.norm(q))
    if not np.isfinite(norm) or norm < 1e-9:
        return None
    x, y, z, w = q / norm
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
