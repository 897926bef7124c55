# SPDX-License-Identifier: Apache-2.0
"""Pinhole projection and back-projection between pixels and the world.

Pixels are integer indices of pixel centres (row, col), row 0 at the top, as in ``CameraInfo``:
the ray of pixel (v, u) passes ((u - cx) / fx, (v - cy) / fy, 1) in the optical frame (z
forward, x right, y down).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Camera:
    """Intrinsics and pose.

    Attributes:
        intrinsics: float64[3, 3], pixels.
        position: float64[3], optical centre in the world, m.
        rotation: float64[3, 3], optical frame in the world.
    """

    intrinsics: np.ndarray
    position: np.ndarray
    rotation: np.ndarray


@dataclass(frozen=True)
class Statistics:
    """What is known of a set of points.

    Attributes:
        valid: Number of points that count.
        centroid: float64[3], median per axis, m; NaN where none counts.
        minimum: float64[3], 2nd percentile per axis, m.
        maximum: float64[3], 98th percentile per axis, m.
    """

    valid: int
    centroid: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray


def rotation_matrix(x: float, y: float, z: float, w: float) -> np.ndarray:
    """Rotation float64[3, 3] of a quaternion that need not be normalised.

    Raises:
        ValueError: The quaternion is zero or not finite.
    """
    norm = float(np.sqrt(x * x + y * y + z * z + w * w))
    if not np.isfinite(norm) or norm < 1e-9:
        raise ValueError(f'not a rotation: quaternion {[x, y, z, w]}')
    x, y, z, w = x / norm, y / norm, z / norm, w / norm
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def back_project(
    camera: Camera, depth: np.ndarray, rows: np.ndarray, cols: np.ndarray
) -> np.ndarray:
    """Pixels to points.

    Args:
        camera: Of the depth image.
        depth: float32[H, W], m along the optical axis, NaN or <= 0 where unknown.
        rows: int[N].
        cols: int[N].

    Returns:
        float64[N, 3], world, m; NaN where the depth is unknown.

    Raises:
        ValueError: A pixel is outside the image, or the two lengths differ.
    """
    rows, cols = np.asarray(rows, dtype=np.int64), np.asarray(cols, dtype=np.int64)
    if rows.shape != cols.shape:
        raise ValueError(f'{len(rows)} rows but {len(cols)} cols')
    height, width = depth.shape
    outside = (rows < 0) | (rows >= height) | (cols < 0) | (cols >= width)
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f'pixel [{rows[first]}, {cols[first]}] is outside the image of {height} x {width}'
        )
    z = depth[rows, cols].astype(np.float64)
    z[~(np.isfinite(z) & (z > 0))] = np.nan
    k = camera.intrinsics
    rays = np.stack(
        [(cols - k[0, 2]) / k[0, 0], (rows - k[1, 2]) / k[1, 1], np.ones(len(rows))], axis=1
    )
    return (rays * z[:, None]) @ camera.rotation.T + camera.position


def project(camera: Camera, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points to pixels.

    Args:
        camera: To project into.
        points: float64[N, 3], world, m.

    Returns:
        Row and column float64[N, 2] (NaN behind the camera), and depth float64[N] in m.
    """
    optical = (np.asarray(points, dtype=float) - camera.position) @ camera.rotation
    depth = optical[:, 2]
    safe = np.where(depth > 0, depth, np.nan)
    k = camera.intrinsics
    cols = k[0, 0] * optical[:, 0] / safe + k[0, 2]
    rows = k[1, 1] * optical[:, 1] / safe + k[1, 2]
    return np.stack([rows, cols], axis=1), depth


def statistics(points: np.ndarray, z_min: float, z_max: float) -> Statistics:
    """Median and extent of the points whose height lies within z_min to z_max.

    Args:
        points: float64[N, 3], m; rows with NaN do not count.
        z_min: m, world.
        z_max: m, world.
    """
    with np.errstate(invalid='ignore'):
        keep = np.isfinite(points).all(axis=1) & (points[:, 2] >= z_min) & (points[:, 2] <= z_max)
    inside = points[keep]
    if not len(inside):
        nan = np.full(3, np.nan)
        return Statistics(0, nan, nan, nan)
    low, middle, high = np.percentile(inside, [2, 50, 98], axis=0)
    return Statistics(len(inside), middle, low, high)
