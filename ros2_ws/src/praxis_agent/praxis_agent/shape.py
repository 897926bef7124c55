# SPDX-License-Identifier: Apache-2.0
"""Shape of an object from the points of its visible surface."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

TOP_LAYER = 0.015
"""m below the highest point that count as the object's top: a rim, or the face of a box."""

MIN_POINTS = 8


def describe_points(
    points: np.ndarray, z_min: float = -math.inf, z_max: float = math.inf
) -> dict[str, Any]:
    """Top layer of an object: centre, extent and the direction of its long side.

    The sides that a camera sees bias the middle of all points towards it; the top is seen whole.

    Args:
        points: float64[N, 3], world, m; NaN where unknown.
        z_min: m; points below do not count.
        z_max: m; points above do not count.

    Returns:
        ``top_centre`` [x, y, z] in m, ``top_size`` [long, short] in m, ``long_axis_yaw`` in rad
        within (-pi/2, pi/2]; empty where there are too few points.
    """
    with np.errstate(invalid='ignore'):
        keep = np.isfinite(points).all(axis=1) & (points[:, 2] >= z_min) & (points[:, 2] <= z_max)
    inside = points[keep]
    if len(inside) < MIN_POINTS:
        return {}
    height = float(np.percentile(inside[:, 2], 98))
    top = inside[inside[:, 2] >= height - TOP_LAYER][:, :2]
    if len(top) < MIN_POINTS:
        return {}
    yaw = rectangle_yaw(top)
    axes = np.array([[math.cos(yaw), math.sin(yaw)], [-math.sin(yaw), math.cos(yaw)]])
    along = top @ axes.T
    low, high = np.percentile(along, [1, 99], axis=0)
    centre = (low + high) / 2 @ axes
    long_side, short_side = high - low
    return {
        'top_centre': [round(float(v), 5) for v in (*centre, height)],
        'top_size': [round(float(long_side), 5), round(float(short_side), 5)],
        'long_axis_yaw': round(yaw, 5),
    }


def rectangle_yaw(points: np.ndarray) -> float:
    """Direction of the long side of the smallest rectangle around points.

    Args:
        points: float64[N, 2], m.

    Returns:
        rad within (-pi/2, pi/2].
    """
    angles = np.deg2rad(np.arange(0.0, 90.0, 1.0))
    cos, sin = np.cos(angles), np.sin(angles)
    first = points @ np.stack([cos, sin])
    second = points @ np.stack([-sin, cos])
    width = np.subtract(*np.percentile(first, [99, 1], axis=0))
    depth = np.subtract(*np.percentile(second, [99, 1], axis=0))
    best = int(np.argmin(width * depth))
    yaw = float(angles[best])
    if depth[best] > width[best]:
        yaw += math.pi / 2
    return yaw if yaw <= math.pi / 2 else yaw - math.pi
