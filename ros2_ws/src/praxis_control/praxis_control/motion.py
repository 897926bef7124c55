# SPDX-License-Identifier: Apache-2.0
"""Cartesian motion: what is observed, one control period's step, and its action in delta spaces.

Angles follow the agent reference: ``yaw = atan2(R10, R00)`` and ``pitch = atan2(R12, -R22)``,
with R the rotation of the end effector in the base frame. Turning about the base's z axis by a
adds a to yaw; turning about its x axis by a adds a to pitch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

ROTATION_SCALE = 0.10
"""Radians of rotation step that make an action of 1."""


@dataclass(frozen=True)
class MotionObservation:
    """What a primitive sees at one observation.

    Attributes:
        position: float64[3], end effector, m, base frame.
        rotation: float64[3, 3], end effector in the base frame.
        gripper_opening: m, sum of finger magnitudes; NaN where there is no gripper.
        joints: float64[J], arm joints in contract order, rad, or None where unknown.
    """

    position: np.ndarray
    rotation: np.ndarray
    gripper_opening: float = math.nan
    joints: np.ndarray | None = None


@dataclass(frozen=True)
class CartesianStep:
    """Motion that a primitive wants over one control period.

    Attributes:
        translation: float64[3], m, base frame, clipped.
        rotation: float64[3], rad about the base axes x, y, z, clipped.
        gripper: -1 open to +1 close.
        action_scale: m of translation that make an action of 1.
        goal_position: float64[3], where the motion is to end, m.
        goal_rotation: float64[3, 3], orientation it is to end in.
        step_clip: m per control period.
        angle_clip: rad per control period.
    """

    translation: np.ndarray
    rotation: np.ndarray
    gripper: float
    action_scale: float
    goal_position: np.ndarray
    goal_rotation: np.ndarray
    step_clip: float
    angle_clip: float


def rotation_matrix(quaternion: np.ndarray) -> np.ndarray:
    """Rotation of a quaternion x y z w.

    Args:
        quaternion: float64[4], need not be normalised.

    Returns:
        float64[3, 3].

    Raises:
        ValueError: The quaternion is zero or not finite.
    """
    q = np.asarray(quaternion, dtype=float)
    norm = float(np.linalg.norm(q))
    if not math.isfinite(norm) or norm < 1e-9:
        raise ValueError(f'not a rotation: quaternion {q.tolist()}')
    x, y, z, w = q / norm
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def axis_rotation(rotation_vector: np.ndarray) -> np.ndarray:
    """Rotation of an axis-angle vector float64[3] in rad (Rodrigues)."""
    vector = np.asarray(rotation_vector, dtype=float)
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross


def rotation_vector(rotation: np.ndarray) -> np.ndarray:
    """Axis-angle float64[3] in rad of a rotation float64[3, 3]; angle within [0, pi]."""
    cosine = max(-1.0, min(1.0, (float(np.trace(rotation)) - 1) / 2))
    angle = math.acos(cosine)
    axis = np.array(
        [
            rotation[2, 1] - rotation[1, 2],
            rotation[0, 2] - rotation[2, 0],
            rotation[1, 0] - rotation[0, 1],
        ]
    )
    if angle < 1e-7:
        return axis / 2
    if math.pi - angle < 1e-4:
        # The antisymmetric part vanishes at pi; the axis is the eigenvector of eigenvalue 1.
        symmetric = (rotation + np.eye(3)) / 2
        column = symmetric[:, int(np.argmax(np.diag(symmetric)))]
        column = column / np.linalg.norm(column)
        return angle * (column if float(column @ axis) >= 0 else -column)
    return angle * axis / (2 * math.sin(angle))


def yaw_of(rotation: np.ndarray) -> float:
    """Yaw in rad of a rotation float64[3, 3]."""
    return math.atan2(rotation[1, 0], rotation[0, 0])


def pitch_of(rotation: np.ndarray) -> float:
    """Pitch in rad of a rotation float64[3, 3]; 0 with the hand straight down."""
    return math.atan2(rotation[1, 2], -rotation[2, 2])


def hand_rotation(pitch: float, yaw: float) -> np.ndarray:
    """Orientation with this pitch and yaw whose approach axis lies in the y-z plane.

    Args:
        pitch: rad, within (-pi/2, pi/2).
        yaw: rad.

    Returns:
        float64[3, 3] R with ``pitch_of(R) == pitch`` and ``yaw_of(R) == yaw``.
    """
    approach = np.array([0.0, math.sin(pitch), -math.cos(pitch)])
    lateral = np.array([math.cos(yaw), math.sin(yaw), math.sin(yaw) * math.tan(pitch)])
    lateral /= np.linalg.norm(lateral)
    return np.column_stack([lateral, np.cross(approach, lateral), approach])


def wrap_angle(angle: float) -> float:
    """The same angle within [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


def clip(value: np.ndarray, limit: float) -> np.ndarray:
    """Each component limited to [-limit, limit]."""
    return np.clip(value, -limit, limit)


@dataclass
class DeltaActions:
    """Steps as actions of an end-effector delta space.

    The action is ``[clip(delta, step_clip) / action_scale, rotation step / 0.10, gripper]``,
    each motion component limited to 1.

    Attributes:
        dim: Components of an action: 7, or 6 without a gripper.
        gripper_index: Position of the gripper, or None.
        gripper_open: Contract value of an open gripper.
        gripper_close: Contract value of a closed gripper.
    """

    dim: int = 7
    gripper_index: int | None = 6
    gripper_open: float = -1.0
    gripper_close: float = 1.0

    def __post_init__(self) -> None:
        expected = 6 if self.gripper_index is None else 7
        if self.dim != expected or self.gripper_index not in (None, 6):
            raise ValueError(
                f'a delta space has 6 motion components, then the gripper; got {self.dim} '
                f'with the gripper at {self.gripper_index}'
            )

    def start(self, observation: MotionObservation) -> None:
        """Begin a motion; a delta space keeps nothing between motions."""

    def action(self, step: CartesianStep, observation: MotionObservation) -> np.ndarray:
        """Action float64[dim] of one step."""
        action = np.zeros(self.dim)
        action[:3] = clip(step.translation / step.action_scale, 1.0)
        action[3:6] = clip(step.rotation / ROTATION_SCALE, 1.0)
        if self.gripper_index is not None:
            action[self.gripper_index] = gripper_value(
                step.gripper, self.gripper_open, self.gripper_close
            )
        return action


def gripper_value(gripper: float, open_value: float, close_value: float) -> float:
    """Contract value of a gripper command from -1 (open) to +1 (close)."""
    return open_value + (gripper + 1) / 2 * (close_value - open_value)


@dataclass
class SettleDetector:
    """Tells when a scalar has stopped changing.

    Attributes:
        change: Largest change per sample that counts as still.
        samples: Still samples in a row that make it settled.
    """

    change: float
    samples: int
    _last: float = field(default=math.nan, repr=False)
    _still: int = field(default=0, repr=False)

    def update(self, value: float) -> bool:
        """Take one sample and tell whether the value has settled."""
        self._still = self._still + 1 if abs(value - self._last) <= self.change else 0
        self._last = value
        return self._still >= self.samples
