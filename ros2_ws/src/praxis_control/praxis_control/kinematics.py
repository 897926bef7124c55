# SPDX-License-Identifier: Apache-2.0
"""Inverse kinematics on a MuJoCo model, and Cartesian steps as joint setpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mujoco
import numpy as np

from praxis_control.motion import (
    CartesianStep,
    MotionObservation,
    axis_rotation,
    clip,
    gripper_value,
    rotation_vector,
)
from praxis_control.primitives import RefusedError

MODELS = Path(__file__).parent / 'models'
DAMPING = 0.05
POSTURE_GAIN = 0.02
MAX_INTEGRAL = 0.03
INTEGRAL_GAIN = 0.15


class Kinematics:
    """One serial arm of a MuJoCo model, known by joint names and an end-effector site."""

    def __init__(self, model: mujoco.MjModel, joints: Sequence[str], site: str = 'eef') -> None:
        """Look up the joints and the site.

        Args:
            model: Compiled model.
            joints: Arm joints in contract order; hinges.
            site: End-effector site.

        Raises:
            ValueError: The model lacks a joint or the site; the message names it.
        """
        self._model = model
        self._data = mujoco.MjData(model)
        known = [model.joint(i).name for i in range(model.njnt)]
        missing = [name for name in joints if name not in known]
        if missing:
            raise ValueError(f'kinematic model lacks joints {missing}; it has {known}')
        self._site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, site)
        if self._site < 0:
            raise ValueError(f'kinematic model lacks the site {site!r}')
        self._qpos = np.array([model.joint(name).qposadr[0] for name in joints])
        self._dof = np.array([model.joint(name).dofadr[0] for name in joints])
        indices = [model.joint(name).id for name in joints]
        self.lower, self.upper = model.jnt_range[indices].T

    def forward(self, joints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pose of the site: position float64[3] in m and rotation float64[3, 3], model frame."""
        self._data.qpos[self._qpos] = joints
        mujoco.mj_kinematics(self._model, self._data)
        return (
            self._data.site_xpos[self._site].copy(),
            self._data.site_xmat[self._site].reshape(3, 3).copy(),
        )

    def solve(
        self,
        position: np.ndarray,
        rotation: np.ndarray,
        start: np.ndarray,
        posture: np.ndarray,
        iterations: int = 30,
    ) -> tuple[np.ndarray, float]:
        """Joints that bring the site to a pose, by damped least squares near ``start``.

        Args:
            position: float64[3], m, model frame.
            rotation: float64[3, 3].
            start: float64[J], rad.
            posture: float64[J], rad, that the null space is drawn to.
            iterations: Upper limit.

        Returns:
            Joints float64[J] within their limits, and the remaining error (m and rad as one norm).
        """
        q = np.clip(start, self.lower, self.upper)
        jacobian = np.zeros((6, self._model.nv))
        error = np.zeros(6)
        for _ in range(iterations):
            p, r = self.forward(q)
            error = np.concatenate([position - p, rotation_vector(rotation @ r.T)])
            if np.linalg.norm(error) < 1e-5:
                break
            mujoco.mj_comPos(self._model, self._data)
            mujoco.mj_jacSite(self._model, self._data, jacobian[:3], jacobian[3:], self._site)
            j = jacobian[:, self._dof]
            # Damping falls with the error, so that the end is exact and the far start is calm.
            damping = DAMPING**2 * min(1.0, float(error @ error) * 10)
            inverse = j.T @ np.linalg.inv(j @ j.T + (damping + 1e-8) * np.eye(6))
            null = (np.eye(len(q)) - inverse @ j) @ (POSTURE_GAIN * (posture - q))
            q = np.clip(q + inverse @ error + null, self.lower, self.upper)
        return q, float(np.linalg.norm(error))


def load_kinematics(path: str | None, joints: Sequence[str], site: str = 'eef') -> Kinematics:
    """Kinematics of a model file.

    Args:
        path: MJCF or URDF file, or the name of a model of this package (``panda``).
        joints: Arm joints in contract order.
        site: End-effector site.

    Raises:
        ValueError: No such model, or it does not have the joints.
    """
    if not path:
        raise ValueError('deployment.kinematic_model: a joint action space needs one')
    file = MODELS / f'{path}.xml'
    if not file.is_file():
        file = Path(path)
    if not file.is_file():
        known = sorted(p.stem for p in MODELS.glob('*.xml'))
        raise ValueError(f'deployment.kinematic_model: no file {path!r}; built in are {known}')
    return Kinematics(mujoco.MjModel.from_xml_path(str(file)), joints, site)


@dataclass
class JointActions:
    """Cartesian steps as absolute joint setpoints.

    A setpoint pose runs from the measured one to the goal by at most the step's clips, and inverse
    kinematics follows it. Where a servo settles short of its setpoint, the goal is shifted by the
    integral of what remains. The base of the model is placed so that its site agrees with the
    measured pose at the start; a model that is wrong in its tool shows as an error of the
    motion, not of the map.

    Attributes:
        kinematics: Arm model.
        joint_indices: Where each arm joint stands in the action.
        dim: Components of the action.
        gripper_index: Position of the gripper, or None.
        gripper_open: Contract value of an open gripper.
        gripper_close: Contract value of a closed gripper.
        max_step: float64[J], rad per control period.
    """

    kinematics: Kinematics
    joint_indices: Sequence[int]
    dim: int
    gripper_index: int | None
    gripper_open: float
    gripper_close: float
    max_step: np.ndarray
    _base: tuple[np.ndarray, np.ndarray] = field(default=None, repr=False)
    _position: np.ndarray = field(default=None, repr=False)
    _rotation: np.ndarray = field(default=None, repr=False)
    _joints: np.ndarray = field(default=None, repr=False)
    _posture: np.ndarray = field(default=None, repr=False)
    _integral: np.ndarray = field(default=None, repr=False)

    def start(self, observation: MotionObservation) -> None:
        """Begin a motion: setpoint and model base from the measured state.

        Raises:
            RefusedError: Joint positions are unknown.
        """
        if observation.joints is None:
            raise RefusedError('joint positions are unknown')
        p, r = self.kinematics.forward(observation.joints)
        rotation = observation.rotation @ r.T
        self._base = (observation.position - rotation @ p, rotation)
        self._position = observation.position.copy()
        self._rotation = observation.rotation.copy()
        self._posture = observation.joints.copy()
        self._integral = np.zeros(3)
        # Where the last motion ended short of its setpoint, going on from the setpoint avoids a
        # sag.
        last = self._joints
        if last is None or np.abs(last - observation.joints).max() > 0.05:
            self._joints = observation.joints.copy()

    def action(self, step: CartesianStep, observation: MotionObservation) -> np.ndarray:
        """Action float64[dim]: joint setpoints in rad, and the gripper."""
        remaining = step.goal_position - self._position
        if np.abs(remaining).max() < 1e-3:
            self._integral = clip(
                self._integral + INTEGRAL_GAIN * (step.goal_position - observation.position),
                MAX_INTEGRAL,
            )
        self._position = self._position + clip(remaining, step.step_clip)
        turn = rotation_vector(step.goal_rotation @ self._rotation.T)
        angle = float(np.linalg.norm(turn))
        if angle > step.angle_clip:
            turn = turn * (step.angle_clip / angle)
        self._rotation = axis_rotation(turn) @ self._rotation
        origin, base = self._base
        solution, _ = self.kinematics.solve(
            base.T @ (self._position + self._integral - origin),
            base.T @ self._rotation,
            self._joints,
            self._posture,
        )
        # All joints slow down together, so that the hand keeps to its line.
        change = solution - self._joints
        excess = float(np.max(np.abs(change) / self.max_step))
        self._joints = self._joints + change / max(1.0, excess)
        action = np.zeros(self.dim)
        action[list(self.joint_indices)] = self._joints
        if self.gripper_index is not None:
            action[self.gripper_index] = gripper_value(
                step.gripper, self.gripper_open, self.gripper_close
            )
        return action
