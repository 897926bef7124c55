# SPDX-License-Identifier: Apache-2.0
"""URDF of a robot inside a compiled MuJoCo model."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

import mujoco
import numpy as np

_GEOM = mujoco.mjtGeom
_JOINT = {mujoco.mjtJoint.mjJNT_HINGE: 'revolute', mujoco.mjtJoint.mjJNT_SLIDE: 'prismatic'}


def urdf_from_model(
    model: mujoco.MjModel,
    root: int,
    *,
    name: str,
    links: Mapping[int, str],
    joints: Mapping[int, str],
    visual_groups: tuple[int, ...] = (1,),
) -> str:
    """Write the kinematics below a body as URDF, each visual as a primitive.

    Link frames are MuJoCo's body frames. A mesh becomes its bounding box.

    Args:
        model: Compiled model.
        root: Body that becomes the root link.
        name: Of the robot.
        links: Link name of each body below `root`, `root` included; others are left out with
            what hangs on them.
        joints: Joint name by joint id.
        visual_groups: Geom groups that are drawn.

    Returns:
        XML text.

    Raises:
        ValueError: A body has more than one joint, a joint that is neither hinge nor slide, or a
            joint away from the body's origin.
    """
    robot = ElementTree.Element('robot', name=name)
    for body in range(root, model.nbody):
        parent = int(model.body_parentid[body])
        if body not in links or (body != root and parent not in links):
            continue
        link = ElementTree.SubElement(robot, 'link', name=links[body])
        first, count = int(model.body_geomadr[body]), int(model.body_geomnum[body])
        for geom in range(first, first + count):
            if model.geom_group[geom] in visual_groups:
                _visual(link, model, geom)
        if body != root:
            _joint(robot, model, body, links[parent], links[body], joints)
    ElementTree.indent(robot)
    return ElementTree.tostring(robot, encoding='unicode')


def _joint(
    robot: ElementTree.Element,
    model: mujoco.MjModel,
    body: int,
    parent: str,
    child: str,
    joints: Mapping[int, str],
) -> None:
    count = int(model.body_jntnum[body])
    if count > 1:
        raise ValueError(f'body {model.body(body).name}: {count} joints')
    identity = int(model.body_jntadr[body]) if count else -1
    if count:
        kind = _JOINT.get(int(model.jnt_type[identity]))
        if kind is None or np.any(np.abs(model.jnt_pos[identity]) > 1e-9):
            raise ValueError(f'joint {model.joint(identity).name}: no URDF equivalent')
    else:
        kind = 'fixed'
    joint = ElementTree.SubElement(
        robot, 'joint', name=joints.get(identity, f'{child}_joint'), type=kind
    )
    ElementTree.SubElement(joint, 'parent', link=parent)
    ElementTree.SubElement(joint, 'child', link=child)
    _origin(joint, model.body_pos[body], model.body_quat[body])
    if count:
        ElementTree.SubElement(joint, 'axis', xyz=_text(model.jnt_axis[identity]))
        low, high = model.jnt_range[identity] if model.jnt_limited[identity] else (-1e3, 1e3)
        ElementTree.SubElement(
            joint, 'limit', lower=f'{low:.6g}', upper=f'{high:.6g}', effort='100', velocity='3'
        )


def _visual(link: ElementTree.Element, model: mujoco.MjModel, geom: int) -> None:
    kind = int(model.geom_type[geom])
    size = model.geom_size[geom]
    position, quaternion = model.geom_pos[geom], model.geom_quat[geom]
    if kind == _GEOM.mjGEOM_SPHERE:
        shape = ('sphere', {'radius': f'{size[0]:.6g}'})
    elif kind in (_GEOM.mjGEOM_CYLINDER, _GEOM.mjGEOM_CAPSULE):
        length = 2 * size[1] + (2 * size[0] if kind == _GEOM.mjGEOM_CAPSULE else 0)
        shape = ('cylinder', {'radius': f'{size[0]:.6g}', 'length': f'{length:.6g}'})
    elif kind in (_GEOM.mjGEOM_BOX, _GEOM.mjGEOM_MESH, _GEOM.mjGEOM_ELLIPSOID):
        centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
        offset = np.empty(3)
        mujoco.mju_rotVecQuat(offset, centre, quaternion)
        position = position + offset
        shape = ('box', {'size': _text(2 * half)})
    else:
        return
    visual = ElementTree.SubElement(link, 'visual')
    _origin(visual, position, quaternion)
    geometry = ElementTree.SubElement(visual, 'geometry')
    ElementTree.SubElement(geometry, shape[0], shape[1])
    rgba = model.geom_rgba[geom]
    if model.geom_matid[geom] >= 0:
        rgba = model.mat_rgba[model.geom_matid[geom]]
    material = ElementTree.SubElement(visual, 'material', name=f'rgba_{_text(rgba, "_")}')
    ElementTree.SubElement(material, 'color', rgba=_text(rgba))


def _origin(element: ElementTree.Element, position: np.ndarray, quaternion: np.ndarray) -> None:
    ElementTree.SubElement(
        element, 'origin', xyz=_text(position), rpy=_text(roll_pitch_yaw(quaternion))
    )


def roll_pitch_yaw(quaternion: np.ndarray) -> np.ndarray:
    """Convert w x y z to URDF's fixed-axis roll, pitch, yaw in rad, R = Rz(y) Ry(p) Rx(r)."""
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quaternion, np.float64))
    rotation = matrix.reshape(3, 3)
    pitch = np.arctan2(-rotation[2, 0], np.hypot(rotation[0, 0], rotation[1, 0]))
    if np.hypot(rotation[0, 0], rotation[1, 0]) < 1e-9:
        # Roll and yaw turn about one axis there; all of it is put into roll.
        roll = np.arctan2(-rotation[1, 2], rotation[1, 1])
        return np.array([roll, pitch, 0.0])
    return np.array(
        [
            np.arctan2(rotation[2, 1], rotation[2, 2]),
            pitch,
            np.arctan2(rotation[1, 0], rotation[0, 0]),
        ]
    )


def _text(values: np.ndarray, separator: str = ' ') -> str:
    return separator.join(f'{value:.9g}' for value in values)
