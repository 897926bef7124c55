# SPDX-License-Identifier: Apache-2.0
"""Rotations, bounding boxes and the segments of a LIBERO scene."""

from __future__ import annotations

import math
from collections.abc import Mapping

import mujoco
import numpy as np

from praxis_sim.platform import Pose

_CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)


def axis_angle(quaternion: np.ndarray) -> np.ndarray:
    """Convert x y z w to axis times angle, in rad, as LIBERO's datasets have it.

    The angle is 2 acos(w), so it passes pi where w is negative; the sign of the quaternion is
    kept, since policies are trained on it.
    """
    scalar = min(1.0, max(-1.0, float(quaternion[3])))
    norm = math.sqrt(1.0 - scalar * scalar)
    if math.isclose(norm, 0.0):
        return np.zeros(3)
    return quaternion[:3] * (2.0 * math.acos(scalar)) / norm


def bounding_box(
    model: mujoco.MjModel, data: mujoco.MjData, root: int, group: int = 1
) -> tuple[Pose, np.ndarray] | None:
    """Return the box around the visible geoms of a body and what hangs on it.

    The box is aligned with the body's frame.

    Returns:
        Pose of the box in the world and its full extents in m, None where nothing is visible.
    """
    rotation, origin = data.xmat[root].reshape(3, 3), data.xpos[root]
    corners = []
    for geom in range(model.ngeom):
        body = model.geom_bodyid[geom]
        if model.geom_group[geom] == group and model.body_rootid[body] == model.body_rootid[root]:
            world = (
                _hull(model, geom) @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]
            )
            corners.append((world - origin) @ rotation)
    if not corners:
        return None
    low, high = np.min(np.concatenate(corners), axis=0), np.max(np.concatenate(corners), axis=0)
    quaternion = data.xquat[root][[1, 2, 3, 0]]
    return Pose(origin + rotation @ ((low + high) / 2), quaternion), high - low


def _hull(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return points float64[N, 3] of a geom's frame whose hull holds the geom."""
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first = model.mesh_vertadr[mesh]
        return model.mesh_vert[first : first + model.mesh_vertnum[mesh]].astype(np.float64)
    aabb = model.geom_aabb[geom]
    return aabb[:3] + _CORNERS * aabb[3:]


def segments(
    model: mujoco.MjModel, instances: Mapping[str, tuple[str, int]]
) -> tuple[list[str], np.ndarray]:
    """Divide a scene into segments: one per instance, labelled by category, and the rest.

    Returns:
        Labels, which repeat where a category has several instances, and int[nbody]: each body's
        label index, -1 for none.
    """
    labels = ['floor', 'wall', 'table', 'robot', 'gripper']
    roots = {}
    for category, body in instances.values():
        roots[body] = len(labels)
        labels.append(category)
    table = np.full(model.nbody, -1)
    for body in range(1, model.nbody):
        parent = int(model.body_parentid[body])
        name = model.body(body).name
        if body in roots:
            table[body] = roots[body]
        elif name.startswith('gripper0_'):
            table[body] = labels.index('gripper')
        elif name.startswith(('robot0_', 'mount0_')):
            table[body] = labels.index('robot')
        elif parent:
            table[body] = table[parent]
        else:
            table[body] = labels.index('table')
    return labels, table
