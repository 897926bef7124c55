# SPDX-License-Identifier: Apache-2.0
"""From actions to servo references: differential IK, joint targets and the gripper.

Both controllers move a *setpoint* at the physics rate; the joints follow it by stiff servos with a
velocity reference. An action changes the goal once per control period.
"""

from __future__ import annotations

import math
from typing import Protocol

import mujoco
import numpy as np

from praxis_sim.tabletop import panda, scene

POSITION_STEP = 0.05
"""Goal change of a full action, m."""
ROTATION_STEP = 0.5
"""Goal change of a full action, rad."""

_LOWER = np.array([panda.JOINTS[name].limits[0] for name in panda.ARM_JOINTS])
_UPPER = np.array([panda.JOINTS[name].limits[1] for name in panda.ARM_JOINTS])
_INNER = (_LOWER + 0.01, _UPPER - 0.01)
_VELOCITY = np.array([panda.JOINTS[name].velocity for name in panda.ARM_JOINTS])
_GAINS = np.array([scene.gains(name) for name in panda.ARM_JOINTS])
_DAMPING = 0.03**2 * np.eye(6)
_LEAD = _GAINS[:, 1] / _GAINS[:, 0]


class Controller(Protocol):
    """Turns one action per control period into arm setpoints at the physics rate."""

    def reset(self) -> None:
        """Take the present joint positions as setpoint and goal."""

    def set_action(self, action: np.ndarray) -> None:
        """Take the arm part of an action, float64[A - 1]."""

    def advance(self) -> np.ndarray:
        """Move the setpoint by one physics step; returns ctrl float64[7], rad."""

    def hold_action(self) -> np.ndarray:
        """Arm part of the action that keeps the robot where it is."""

    def digest(self) -> bytes:
        """Bytes of the internal state."""


class EndEffectorControl:
    """Pose deltas of the TCP in the world frame, as robosuite's operational-space controller.

    A full action moves the goal by `POSITION_STEP` and `ROTATION_STEP` from the measured pose. A
    zero part freezes its goal where the arm was when it became zero, so that holding never creeps.
    The setpoint approaches the goal by damped least squares (Buss 2004) with a posture task in the
    null space.
    """

    _APPROACH = 16.0  # 1/s
    _SPEED, _SPIN = 0.7, 3.0  # m/s, rad/s
    _POSTURE = 1.0  # 1/s

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self._model, self._data = model, data
        self._scratch = mujoco.MjData(model)
        self._site = model.site('tcp').id
        self._jacobian = np.zeros((6, model.nv))
        self._moving = [False, False]
        self.reset()

    def reset(self) -> None:
        """See `Controller.reset`."""
        self._setpoint = self._data.qpos[:7].copy()
        self._position = self._data.site_xpos[self._site].copy()
        self._rotation = self._data.site_xmat[self._site].copy()
        self._moving = [False, False]

    def set_action(self, action: np.ndarray) -> None:
        """Take float64[6]: translation, then rotation vector, both in the world frame, -1 to 1."""
        shift, spin = action[:3] * POSITION_STEP, action[3:6] * ROTATION_STEP
        moving = [bool(np.any(shift)), bool(np.any(spin))]
        if moving[0] or self._moving[0]:
            self._position = self._data.site_xpos[self._site] + shift
        if moving[1] or self._moving[1]:
            angle = float(np.linalg.norm(spin))
            turn, matrix = np.empty(4), np.empty(9)
            mujoco.mju_axisAngle2Quat(
                turn, spin / angle if angle else np.array([0, 0, 1.0]), angle
            )
            mujoco.mju_quat2Mat(matrix, turn)
            measured = self._data.site_xmat[self._site].reshape(3, 3)
            self._rotation = (matrix.reshape(3, 3) @ measured).reshape(9)
        self._moving = moving

    def advance(self) -> np.ndarray:
        """See `Controller.advance`."""
        scratch = self._scratch
        scratch.qpos[:7] = self._setpoint
        mujoco.mj_kinematics(self._model, scratch)
        mujoco.mj_comPos(self._model, scratch)
        mujoco.mj_jacSite(self._model, scratch, self._jacobian[:3], self._jacobian[3:], self._site)
        jacobian = self._jacobian[:, :7]
        twist = np.empty(6)
        twist[:3] = self._APPROACH * (self._position - scratch.site_xpos[self._site])
        twist[3:] = self._APPROACH * _rotation_vector(
            self._rotation.reshape(3, 3) @ scratch.site_xmat[self._site].reshape(3, 3).T
        )
        _cap(twist[:3], self._SPEED)
        _cap(twist[3:], self._SPIN)
        gram = jacobian @ jacobian.T
        gram += _DAMPING
        posture = self._POSTURE * (panda.HOME - self._setpoint)
        velocity = posture + jacobian.T @ np.linalg.solve(gram, twist - jacobian @ posture)
        velocity /= max(1.0, float(np.max(np.abs(velocity) / _VELOCITY)))
        before = self._setpoint
        self._setpoint = np.minimum(
            np.maximum(before + velocity * scene.PHYSICS_STEP, _INNER[0]), _INNER[1]
        )
        return self._setpoint + _LEAD * (self._setpoint - before) / scene.PHYSICS_STEP

    def hold_action(self) -> np.ndarray:
        """See `Controller.hold_action`."""
        return np.zeros(6)

    def digest(self) -> bytes:
        """See `Controller.digest`."""
        parts = (self._setpoint, self._position, self._rotation, np.array(self._moving, float))
        return b''.join(part.tobytes() for part in parts)


class JointControl:
    """Absolute joint targets, approached in a straight line within joint limits and speeds.

    Args:
        data: State of the model.
        steps: Physics steps per control period.
    """

    def __init__(self, data: mujoco.MjData, steps: int) -> None:
        self._data, self._steps = data, steps
        self.reset()

    def reset(self) -> None:
        """See `Controller.reset`."""
        self._setpoint = self._data.qpos[:7].copy()
        self._target = self._setpoint.copy()
        self._velocity = np.zeros(7)

    def set_action(self, action: np.ndarray) -> None:
        """Take float64[7], rad."""
        self._target = np.clip(action[:7], _LOWER, _UPPER)
        period = self._steps * scene.PHYSICS_STEP
        velocity = (self._target - self._setpoint) / period
        self._velocity = velocity / max(1.0, float(np.max(np.abs(velocity) / _VELOCITY)))

    def advance(self) -> np.ndarray:
        """See `Controller.advance`."""
        step = self._velocity * scene.PHYSICS_STEP
        remaining = self._target - self._setpoint
        self._setpoint = self._setpoint + np.where(
            np.abs(step) < np.abs(remaining), step, remaining
        )
        return self._setpoint + _LEAD * np.where(remaining == 0, 0.0, self._velocity)

    def hold_action(self) -> np.ndarray:
        """See `Controller.hold_action`."""
        return self._setpoint.copy()

    def digest(self) -> bytes:
        """See `Controller.digest`."""
        return self._setpoint.tobytes() + self._target.tobytes()


class Gripper:
    """Two fingers moved at constant speed; the sign of the command decides, 0 keeps the target.

    Positive closes, as in LIBERO.
    """

    _SPEED = 0.12  # m/s per finger

    def __init__(self) -> None:
        self.reset(panda.FINGER_OPEN)

    def reset(self, opening: float) -> None:
        """Start from an opening of each finger, m."""
        self._target = opening
        self.command = -1.0

    def set_action(self, value: float) -> None:
        """Take the gripper's part of an action."""
        self.command = value

    def advance(self) -> float:
        """Move by one physics step; returns the reference of each finger, m."""
        step = self._SPEED * scene.PHYSICS_STEP * float(np.sign(self.command))
        self._target = float(np.clip(self._target - step, 0.0, panda.FINGER_OPEN))
        return self._target

    def digest(self) -> bytes:
        """Bytes of the internal state."""
        return np.array([self._target, self.command]).tobytes()


def _rotation_vector(rotation: np.ndarray) -> np.ndarray:
    wxyz, vector = np.empty(4), np.empty(3)
    mujoco.mju_mat2Quat(wxyz, np.ascontiguousarray(rotation).reshape(9))
    mujoco.mju_quat2Vel(vector, wxyz, 1.0)
    return vector


def _cap(vector: np.ndarray, limit: float) -> None:
    norm = math.sqrt(vector @ vector)
    if norm > limit:
        vector *= limit / norm
