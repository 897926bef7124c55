# SPDX-License-Identifier: Apache-2.0
"""URDF of the tabletop's robot, from the same table as the MuJoCo model."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import mujoco
import numpy as np

from praxis_sim.tabletop import panda


def description() -> str:
    """Write the robot as URDF; a capsule becomes a cylinder and two spheres."""
    robot = ElementTree.Element('robot', name='panda')
    ElementTree.SubElement(robot, 'link', name='world')
    for link in panda.LINKS:
        _link(robot, link)
    _joint(robot, 'world_to_link0', 'fixed', 'world', 'link0', np.zeros(3), np.zeros(3))
    for link in panda.LINKS:
        if not link.parent:
            continue
        joint = link.joint
        element = _joint(
            robot,
            joint.name if joint else f'{link.parent}_to_{link.name}',
            joint.kind if joint else 'fixed',
            link.parent,
            link.name,
            np.asarray(link.position, float),
            _rpy(np.asarray(link.quaternion, float)),
        )
        if joint:
            ElementTree.SubElement(element, 'axis', xyz=_numbers(joint.axis))
            ElementTree.SubElement(
                element, 'limit', lower=str(joint.limits[0]), upper=str(joint.limits[1]),
                velocity=str(joint.velocity), effort=str(joint.effort),
            )  # fmt: skip
    ElementTree.SubElement(robot, 'link', name='eef')
    _joint(robot, 'hand_to_eef', 'fixed', 'hand', 'eef', np.asarray(panda.TCP), np.zeros(3))
    ElementTree.indent(robot)
    return '<?xml version="1.0"?>\n' + ElementTree.tostring(robot, encoding='unicode') + '\n'


def _link(robot, link: panda.Link) -> None:
    element = ElementTree.SubElement(robot, 'link', name=link.name)
    inertial = ElementTree.SubElement(element, 'inertial')
    ElementTree.SubElement(inertial, 'origin', xyz=_numbers(link.centre), rpy='0 0 0')
    ElementTree.SubElement(inertial, 'mass', value=str(link.mass))
    ixx, iyy, izz = (str(value) for value in link.inertia)
    ElementTree.SubElement(
        inertial, 'inertia', ixx=ixx, iyy=iyy, izz=izz, ixy='0', ixz='0', iyz='0'
    )
    for index, shape in enumerate(link.shapes):
        for tag in ('visual', 'collision') if shape.collides else ('visual',):
            _shape(element, tag, f'{link.name}_{index}', shape)


def _shape(link, tag: str, name: str, shape: panda.Shape) -> None:
    start, end = np.asarray(shape.start, float), np.asarray(shape.end, float)
    if shape.kind == 'box':
        size = _numbers(2 * np.asarray(shape.size))
        _geometry(link, tag, name, shape, start, np.zeros(3), 'box', size=size)
        return
    axis = end - start
    length = float(np.linalg.norm(axis))
    wxyz = np.empty(4)
    mujoco.mju_quatZ2Vec(wxyz, axis / length)
    radius = str(shape.size[0])
    _geometry(
        link, tag, name, shape, (start + end) / 2, _rpy(wxyz), 'cylinder', radius=radius,
        length=f'{length:.6g}',
    )  # fmt: skip
    if shape.kind == 'capsule':
        for index, tip in enumerate((start, end)):
            _geometry(
                link, tag, f'{name}_tip{index}', shape, tip, np.zeros(3), 'sphere', radius=radius
            )


def _geometry(link, tag, name, shape, position, rpy, kind, **size) -> None:
    element = ElementTree.SubElement(link, tag, name=f'{name}_{tag}')
    ElementTree.SubElement(element, 'origin', xyz=_numbers(position), rpy=_numbers(rpy))
    ElementTree.SubElement(ElementTree.SubElement(element, 'geometry'), kind, **size)
    if tag == 'visual':
        material = '_'.join(f'{round(255 * value):02x}' for value in shape.rgba[:3])
        paint = ElementTree.SubElement(element, 'material', name=f'rgb_{material}')
        ElementTree.SubElement(paint, 'color', rgba=_numbers(shape.rgba))


def _joint(robot, name, kind, parent, child, position, rpy):
    element = ElementTree.SubElement(robot, 'joint', name=name, type=kind)
    ElementTree.SubElement(element, 'parent', link=parent)
    ElementTree.SubElement(element, 'child', link=child)
    ElementTree.SubElement(element, 'origin', xyz=_numbers(position), rpy=_numbers(rpy))
    return element


def _rpy(wxyz: np.ndarray) -> np.ndarray:
    """Fixed-axis roll, pitch, yaw of a quaternion, which need not be normalised."""
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, wxyz / np.linalg.norm(wxyz))
    r = matrix.reshape(3, 3)
    pitch = np.arctan2(-r[2, 0], np.hypot(r[0, 0], r[1, 0]))
    if abs(np.cos(pitch)) < 1e-9:
        return np.array([np.arctan2(-r[1, 2], r[1, 1]), pitch, 0.0])
    return np.array([np.arctan2(r[2, 1], r[2, 2]), pitch, np.arctan2(r[1, 0], r[0, 0])])


def _numbers(values) -> str:
    return ' '.join(f'{float(value) + 0.0:.9g}' for value in values)
