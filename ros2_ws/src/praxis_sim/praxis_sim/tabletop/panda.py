# SPDX-License-Identifier: Apache-2.0
"""The Franka Emika Panda as a table of primitives: the source of both MuJoCo model and URDF.

Kinematics, inertial parameters and limits follow Franka's published description; the shapes are
our own capsules, cylinders and boxes, light enough for a CPU renderer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WHITE = (0.91, 0.92, 0.94, 1.0)
GREY = (0.30, 0.32, 0.35, 1.0)
DARK = (0.13, 0.14, 0.16, 1.0)
BLUE = (0.10, 0.45, 0.85, 1.0)
PAD = (0.22, 0.23, 0.25, 1.0)


@dataclass(frozen=True)
class Shape:
    """A primitive in the frame of its link.

    Attributes:
        kind: ``capsule``, ``cylinder`` or ``box``.
        size: Capsule and cylinder: (radius,); box: half extents, m.
        start: Axis start, or centre of a box, m.
        end: Axis end; unused for a box.
        rgba: Colour.
        collides: Takes part in contacts.
        pad: Fingertip with grasping friction.
    """

    kind: str
    size: tuple[float, ...]
    start: tuple[float, float, float]
    end: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rgba: tuple[float, float, float, float] = WHITE
    collides: bool = True
    pad: bool = False


@dataclass(frozen=True)
class Joint:
    """Joint between a link and its parent.

    Attributes:
        name: As in the contract.
        kind: ``revolute`` or ``prismatic``.
        axis: In the link's frame.
        limits: rad or m.
        velocity: rad/s or m/s.
        effort: N m or N.
    """

    name: str
    kind: str
    axis: tuple[float, float, float]
    limits: tuple[float, float]
    velocity: float
    effort: float


@dataclass(frozen=True)
class Link:
    """A rigid body of the robot.

    Attributes:
        name: TF frame.
        parent: Name of the parent link, empty for the base.
        position: Of the link in its parent, m.
        quaternion: w x y z, need not be normalised.
        mass: kg.
        centre: Of mass, m.
        inertia: Diagonal about the centre of mass, kg m^2.
        joint: To the parent, None where fixed.
        shapes: Geometry.
    """

    name: str
    parent: str
    position: tuple[float, float, float]
    quaternion: tuple[float, float, float, float]
    mass: float
    centre: tuple[float, float, float]
    inertia: tuple[float, float, float]
    joint: Joint | None
    shapes: tuple[Shape, ...]


def _revolute(index: int, low: float, high: float) -> Joint:
    velocity, effort = (2.175, 87.0) if index <= 4 else (2.61, 12.0)
    return Joint(f'joint_{index}', 'revolute', (0.0, 0.0, 1.0), (low, high), velocity, effort)


def _finger(name: str) -> Joint:
    return Joint(name, 'prismatic', (0.0, 1.0, 0.0), (0.0, 0.04), 0.1, 70.0)


def _capsule(radius, start, end, rgba=WHITE, collides=True):
    return Shape('capsule', (radius,), start, end, rgba, collides)


def _cylinder(radius, start, end, rgba=WHITE, collides=False):
    return Shape('cylinder', (radius,), start, end, rgba, collides)


def _box(half, centre, rgba=WHITE, collides=True, pad=False):
    return Shape('box', half, centre, rgba=rgba, collides=collides, pad=pad)


def _knuckle(radius, axis, half, centre=(0.0, 0.0, 0.0)):
    """Housing of a joint across the arm: a white drum with dark caps."""
    offset = np.asarray(axis, float)
    centre = np.asarray(centre, float)
    ends = [
        tuple(float(v) for v in centre + s * h * offset)
        for h in (half, half + 0.010)
        for s in (-1, 1)
    ]
    return (
        _cylinder(radius, ends[0], ends[1], WHITE),
        _cylinder(radius * 0.80, ends[2], ends[3], GREY),
    )


_FINGER_SHAPES = (
    _box((0.0095, 0.0065, 0.0150), (0.0, 0.0165, 0.0150), DARK, collides=False),
    _box((0.0090, 0.0040, 0.0130), (0.0, 0.0120, 0.0320), DARK, collides=False),
    _box((0.0100, 0.0045, 0.0115), (0.0, 0.0045, 0.0425), PAD, pad=True),
)

LINKS: tuple[Link, ...] = (
    Link(
        'link0',
        '',
        (0, 0, 0),
        (1, 0, 0, 0),
        0.629769,
        (-0.041018, -0.00014, 0.049974),
        (0.00315, 0.00388, 0.004285),
        None,
        (
            _box((0.085, 0.075, 0.012), (-0.045, 0.0, 0.012), GREY),
            _cylinder(0.072, (0, 0, 0.0), (0, 0, 0.128), WHITE, collides=True),
            _box((0.062, 0.050, 0.048), (-0.068, 0.0, 0.062), WHITE),
            _cylinder(0.066, (0, 0, 0.126), (0, 0, 0.141), GREY),
        ),
    ),
    Link(
        'link1',
        'link0',
        (0, 0, 0.333),
        (1, 0, 0, 0),
        4.970684,
        (0.003875, 0.002081, -0.04762),
        (0.70337, 0.70661, 0.0091170),
        _revolute(1, -2.8973, 2.8973),
        (
            _cylinder(0.062, (0, 0, -0.192), (0, 0, -0.115)),
            _capsule(0.060, (0, 0, -0.120), (0, 0, -0.005)),
            *_knuckle(0.062, (0, 1, 0), 0.062),
        ),
    ),
    Link(
        'link2',
        'link1',
        (0, 0, 0),
        (1, -1, 0, 0),
        0.646926,
        (-0.003141, -0.02872, 0.003495),
        (0.0079620, 2.8110e-2, 2.5995e-2),
        _revolute(2, -1.7628, 1.7628),
        (
            _capsule(0.056, (0, -0.02, 0), (0, -0.135, 0)),
            _cylinder(0.061, (0, -0.135, 0), (0, -0.188, 0)),
            _cylinder(0.056, (0, -0.186, 0), (0, -0.198, 0), GREY),
        ),
    ),
    Link(
        'link3',
        'link2',
        (0, -0.316, 0),
        (1, 1, 0, 0),
        3.228604,
        (2.7518e-2, 3.9252e-2, -6.6502e-2),
        (3.7242e-2, 3.6155e-2, 1.083e-2),
        _revolute(3, -2.8973, 2.8973),
        (
            _cylinder(0.058, (0, 0, -0.119), (0, 0, -0.070)),
            _capsule(0.054, (0, 0, -0.075), (0.0825, 0, 0)),
            *_knuckle(0.056, (0, 1, 0), 0.058, (0.0825, 0, 0)),
        ),
    ),
    Link(
        'link4',
        'link3',
        (0.0825, 0, 0),
        (1, 1, 0, 0),
        3.587895,
        (-5.317e-2, 1.04419e-1, 2.7454e-2),
        (2.5853e-2, 1.9552e-2, 2.8323e-2),
        _revolute(4, -3.0718, -0.0698),
        (
            _capsule(0.050, (-0.005, 0.01, 0), (-0.0825, 0.085, 0)),
            _cylinder(0.057, (-0.0825, 0.070, 0), (-0.0825, 0.126, 0)),
            _cylinder(0.052, (-0.0825, 0.124, 0), (-0.0825, 0.136, 0), GREY),
        ),
    ),
    Link(
        'link5',
        'link4',
        (-0.0825, 0.384, 0),
        (1, -1, 0, 0),
        1.225946,
        (-1.1953e-2, 4.1065e-2, -3.8437e-2),
        (3.5549e-2, 2.9474e-2, 8.627e-3),
        _revolute(5, -2.8973, 2.8973),
        (
            _cylinder(0.055, (0, 0, -0.250), (0, 0, -0.215)),
            _capsule(0.050, (0, 0.005, -0.215), (0, 0.048, -0.080)),
            _capsule(0.046, (0, 0.040, -0.090), (0, 0.0, -0.005)),
            *_knuckle(0.050, (0, 1, 0), 0.050),
        ),
    ),
    Link(
        'link6',
        'link5',
        (0, 0, 0),
        (1, 1, 0, 0),
        1.666555,
        (6.0149e-2, -1.4117e-2, -1.0517e-2),
        (1.964e-3, 4.354e-3, 5.433e-3),
        _revolute(6, -0.0175, 3.7525),
        (
            _capsule(0.043, (0.0, 0.0, 0), (0.088, 0.0, 0)),
            _cylinder(0.049, (0.088, 0.042, 0), (0.088, -0.052, 0)),
            _cylinder(0.038, (0.088, 0.050, 0), (0.088, 0.0, 0), GREY),
        ),
    ),
    Link(
        'link7',
        'link6',
        (0.088, 0, 0),
        (1, 1, 0, 0),
        0.735522,
        (1.0517e-2, -4.252e-3, 6.1597e-2),
        (1.2516e-2, 1.0027e-2, 4.815e-3),
        _revolute(7, -2.8973, 2.8973),
        (
            _cylinder(0.046, (0, 0, 0.050), (0, 0, 0.062), GREY),
            _cylinder(0.046, (0, 0, 0.061), (0, 0, 0.092), WHITE),
            _cylinder(0.035, (0, 0, 0.091), (0, 0, 0.107), GREY),
        ),
    ),
    Link(
        'hand',
        'link7',
        (0, 0, 0.107),
        (0.9238795, 0, 0, -0.3826834),
        0.73,
        (-0.01, 0.0, 0.03),
        (0.001, 0.0025, 0.0017),
        None,
        (
            _box((0.0300, 0.0820, 0.0200), (0, 0, 0.026), WHITE),
            _cylinder(0.030, (0, 0.082, 0.006), (0, 0.082, 0.046), WHITE, collides=True),
            _cylinder(0.030, (0, -0.082, 0.006), (0, -0.082, 0.046), WHITE, collides=True),
            _box((0.0305, 0.0500, 0.0030), (0, 0, 0.026), BLUE, collides=False),
            _box((0.0200, 0.0900, 0.0065), (0, 0, 0.0515), GREY),
        ),
    ),
    Link(
        'finger_left',
        'hand',
        (0, 0, 0.0584),
        (1, 0, 0, 0),
        0.015,
        (0, 0.012, 0.027),
        (2.375e-6, 2.375e-6, 7.5e-7),
        _finger('finger_left'),
        _FINGER_SHAPES,
    ),
    Link(
        'finger_right',
        'hand',
        (0, 0, 0.0584),
        (0, 0, 0, 1),
        0.015,
        (0, 0.012, 0.027),
        (2.375e-6, 2.375e-6, 7.5e-7),
        _finger('finger_right'),
        _FINGER_SHAPES,
    ),
)

ARM_JOINTS = tuple(f'joint_{i}' for i in range(1, 8))
FINGER_JOINTS = ('finger_left', 'finger_right')
JOINTS = {link.joint.name: link.joint for link in LINKS if link.joint}

TCP = (0.0, 0.0, 0.1034)
"""Tool centre point between the fingertips, in the frame of ``hand``, m."""

HOME = np.array([0.0, -0.1837, 0.0, -2.5136, 0.0, 2.3299, np.pi / 4])
"""Joint positions of the rest pose, rad: gripper straight down."""

FINGER_OPEN = 0.04
"""Travel of one finger, m."""
