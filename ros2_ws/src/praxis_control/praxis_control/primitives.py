# SPDX-License-Identifier: Apache-2.0
"""Motion primitives as state machines: one observation in, one Cartesian step out.

Parameters, defaults and meanings are those of the agent reference. A primitive knows neither
topics nor action spaces; `motion.DeltaActions` and `kinematics.JointActions` turn its steps
into actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from praxis_control.motion import (
    CartesianStep,
    MotionObservation,
    SettleDetector,
    axis_rotation,
    clip,
    hand_rotation,
    pitch_of,
    wrap_angle,
    yaw_of,
)

MAX_PLANAR_MOVE = 0.30
"""Largest |dxy| in m of one motion; longer ones are a planner's mistake more often than a wish."""

HOLD_CLIP = 0.01
"""m per control period with which a rotation or the gripper corrects drift of the position."""

REACHED = 'reached'
MAX_STEPS = 'max_steps'


class RefusedError(ValueError):
    """A goal that is refused before any motion; the message names the field and the value."""


@dataclass(frozen=True)
class Outcome:
    """How a primitive ended by itself.

    Attributes:
        reason: ``reached`` or ``max_steps``.
        reached: Within the tolerances.
        steps: Control periods used.
        error: m, or rad for rotations.
    """

    reason: str
    reached: bool
    steps: int
    error: float


class Primitive:
    """Base of all primitives.

    Call `start` once with the first observation, then `update` with it and every later one.
    `update` returns the step to command, or None when the primitive has ended; `outcome` is set
    from then on.
    """

    def __init__(self, gripper: float, max_steps: int) -> None:
        _require_range('gripper', gripper, -1.0, 1.0)
        if max_steps < 1:
            raise RefusedError(f'max_steps must be at least 1 (got {max_steps})')
        self.gripper = gripper
        self.max_steps = max_steps
        self.steps = 0
        self.error = math.nan
        self.outcome: Outcome | None = None
        self._anchor = np.zeros(3)
        self._rotation = np.eye(3)

    def start(self, observation: MotionObservation) -> None:
        """Fix what the goal is relative to.

        Raises:
            RefusedError: The goal cannot be carried out from here.
        """
        self._anchor = observation.position.copy()
        self._rotation = observation.rotation.copy()

    def update(self, observation: MotionObservation) -> CartesianStep | None:
        """Step for this observation, or None once the primitive has ended."""
        if self.outcome is not None:
            return None
        reached = self._evaluate(observation)
        if reached or self.steps >= self.max_steps:
            reason = REACHED if reached else MAX_STEPS
            self.outcome = Outcome(reason, reached, self.steps, self.error)
            return None
        self.steps += 1
        return self._step(observation)

    def _evaluate(self, observation: MotionObservation) -> bool:
        raise NotImplementedError

    def _step(self, observation: MotionObservation) -> CartesianStep:
        raise NotImplementedError

    def _hold(self, observation: MotionObservation, rotation: np.ndarray) -> CartesianStep:
        """Step that turns by ``rotation`` (rad about the base axes) and keeps the position."""
        return CartesianStep(
            translation=clip(self._anchor - observation.position, HOLD_CLIP),
            rotation=rotation,
            gripper=self.gripper,
            action_scale=0.05,
            goal_position=self._anchor,
            goal_rotation=self._rotation,
            step_clip=HOLD_CLIP,
            angle_clip=max(float(np.abs(rotation).max()), 0.02),
        )


class MoveTo(Primitive):
    """Move the end effector to a position, optionally turning the wrist on the way."""

    def __init__(
        self,
        position: np.ndarray,
        gripper: float = -1.0,
        tolerance: float = 0.012,
        step_clip: float = 0.025,
        max_steps: int = 80,
        action_scale: float = 0.05,
        target_yaw: float | None = None,
        yaw_step_clip: float = 0.10,
        yaw_tolerance: float = 0.05,
    ) -> None:
        """Check and keep the goal.

        Args:
            position: float64[3], m, base frame.
            gripper: -1 open to +1 close, held throughout.
            tolerance: m.
            step_clip: m per control period and axis.
            max_steps: Control periods after which the motion ends without having reached.
            action_scale: m per unit of action.
            target_yaw: rad, or None to leave the wrist as it is.
            yaw_step_clip: rad per control period.
            yaw_tolerance: rad.

        Raises:
            RefusedError: A value is not finite or out of range.
        """
        super().__init__(gripper, max_steps)
        self.position = _require_vector('position', position)
        self.tolerance = _require_positive('tolerance', tolerance)
        self.step_clip = _require_positive('step_clip', step_clip)
        self.action_scale = _require_positive('action_scale', action_scale)
        self.target_yaw = target_yaw if target_yaw is None else _require('target_yaw', target_yaw)
        self.yaw_step_clip = _require_positive('yaw_step_clip', yaw_step_clip)
        self.yaw_tolerance = _require_positive('yaw_tolerance', yaw_tolerance)

    def start(self, observation: MotionObservation) -> None:
        """Refuse a planar move beyond 0.30 m."""
        super().start(observation)
        _require_near(self.position, observation.position)
        if self.target_yaw is not None:
            turn = wrap_angle(self.target_yaw - yaw_of(observation.rotation))
            self._rotation = axis_rotation(np.array([0.0, 0.0, turn])) @ observation.rotation

    def _yaw_error(self, observation: MotionObservation) -> float:
        if self.target_yaw is None:
            return 0.0
        return wrap_angle(self.target_yaw - yaw_of(observation.rotation))

    def _evaluate(self, observation: MotionObservation) -> bool:
        self.error = float(np.linalg.norm(self.position - observation.position))
        turned = abs(self._yaw_error(observation)) <= self.yaw_tolerance
        return self.error <= self.tolerance and turned

    def _step(self, observation: MotionObservation) -> CartesianStep:
        yaw = float(np.clip(self._yaw_error(observation), -self.yaw_step_clip, self.yaw_step_clip))
        return CartesianStep(
            translation=clip(self.position - observation.position, self.step_clip),
            rotation=np.array([0.0, 0.0, yaw]),
            gripper=self.gripper,
            action_scale=self.action_scale,
            goal_position=self.position,
            goal_rotation=self._rotation,
            step_clip=self.step_clip,
            angle_clip=self.yaw_step_clip,
        )


class MovePose(Primitive):
    """Move the end effector to a position, pitch and yaw together."""

    def __init__(
        self,
        position: np.ndarray,
        target_pitch: float,
        target_yaw: float,
        gripper: float = -1.0,
        step_clip: float = 0.02,
        pitch_step: float = 0.08,
        yaw_step: float = 0.08,
        tolerance: float = 0.012,
        orientation_tolerance: float = 0.05,
        action_scale: float = 0.05,
        max_steps: int = 150,
    ) -> None:
        """Check and keep the goal; units as in `MoveTo`, angles in rad.

        Raises:
            RefusedError: A value is not finite or out of range.
        """
        super().__init__(gripper, max_steps)
        self.position = _require_vector('position', position)
        self.target_pitch = _require_range('target_pitch', target_pitch, -1.5, 1.5)
        self.target_yaw = _require('target_yaw', target_yaw)
        self.step_clip = _require_positive('step_clip', step_clip)
        self.pitch_step = _require_positive('pitch_step', pitch_step)
        self.yaw_step = _require_positive('yaw_step', yaw_step)
        self.tolerance = _require_positive('tolerance', tolerance)
        self.orientation_tolerance = _require_positive(
            'orientation_tolerance', orientation_tolerance
        )
        self.action_scale = _require_positive('action_scale', action_scale)

    def start(self, observation: MotionObservation) -> None:
        """Refuse a planar move beyond 0.30 m."""
        super().start(observation)
        _require_near(self.position, observation.position)
        self._rotation = hand_rotation(self.target_pitch, self.target_yaw)

    def _angles(self, observation: MotionObservation) -> tuple[float, float]:
        return (
            wrap_angle(self.target_pitch - pitch_of(observation.rotation)),
            wrap_angle(self.target_yaw - yaw_of(observation.rotation)),
        )

    def _evaluate(self, observation: MotionObservation) -> bool:
        self.error = float(np.linalg.norm(self.position - observation.position))
        turned = max(abs(a) for a in self._angles(observation)) <= self.orientation_tolerance
        return self.error <= self.tolerance and turned

    def _step(self, observation: MotionObservation) -> CartesianStep:
        pitch, yaw = self._angles(observation)
        return CartesianStep(
            translation=clip(self.position - observation.position, self.step_clip),
            rotation=np.array(
                [
                    np.clip(pitch, -self.pitch_step, self.pitch_step),
                    0.0,
                    np.clip(yaw, -self.yaw_step, self.yaw_step),
                ]
            ),
            gripper=self.gripper,
            action_scale=self.action_scale,
            goal_position=self.position,
            goal_rotation=self._rotation,
            step_clip=self.step_clip,
            angle_clip=max(self.pitch_step, self.yaw_step),
        )


class Rotate(Primitive):
    """Turn the hand about one axis of the base; the position is held."""

    def __init__(
        self,
        angle_of: Callable[[np.ndarray], float],
        axis: np.ndarray,
        angle: float,
        relative: bool,
        gripper: float,
        max_steps: int,
        tolerance: float,
        step_clip: float,
    ) -> None:
        super().__init__(gripper, max_steps)
        self.angle = _require('angle', angle)
        self.tolerance = _require_positive('tolerance', tolerance)
        self.step_clip = _require_positive('step_clip', step_clip)
        self.relative = relative
        self._angle_of = angle_of
        self._axis = axis
        self._target = angle
        self._remaining = 0.0
        self._last = 0.0

    def start(self, observation: MotionObservation) -> None:
        """Fix the target angle."""
        super().start(observation)
        now = self._angle_of(observation.rotation)
        # Tracked without wrapping, so that a relative turn beyond pi keeps its direction.
        self._remaining = self.angle if self.relative else wrap_angle(self.angle - now)
        self._last = now
        self._rotation = axis_rotation(self._axis * self._remaining) @ observation.rotation

    def _evaluate(self, observation: MotionObservation) -> bool:
        now = self._angle_of(observation.rotation)
        self._remaining -= wrap_angle(now - self._last)
        self._last = now
        self.error = abs(self._remaining)
        return self.error <= self.tolerance

    def _step(self, observation: MotionObservation) -> CartesianStep:
        turn = float(np.clip(self._remaining, -self.step_clip, self.step_clip))
        return self._hold(observation, self._axis * turn)


class RotateWrist(Rotate):
    """Turn the wrist about the vertical axis."""

    def __init__(
        self,
        yaw: float,
        relative: bool = False,
        gripper: float = 1.0,
        max_steps: int = 40,
        tolerance: float = 0.02,
        step_clip: float = 0.10,
    ) -> None:
        """Check and keep the goal; yaw in rad, a change when ``relative``."""
        axis = np.array([0.0, 0.0, 1.0])
        super().__init__(yaw_of, axis, yaw, relative, gripper, max_steps, tolerance, step_clip)


class RotatePitch(Rotate):
    """Pitch the hand about the base's x axis."""

    def __init__(
        self,
        pitch: float,
        relative: bool = False,
        gripper: float = 1.0,
        max_steps: int = 40,
        tolerance: float = 0.02,
        step_clip: float = 0.10,
    ) -> None:
        """Check and keep the goal; pitch in rad, a change when ``relative``."""
        axis = np.array([1.0, 0.0, 0.0])
        super().__init__(pitch_of, axis, pitch, relative, gripper, max_steps, tolerance, step_clip)


class SetGripper(Primitive):
    """Command the gripper for a number of control periods; the hand is held."""

    def __init__(self, gripper: float = -1.0, steps: int = 5) -> None:
        """Check and keep the goal; ``steps`` in control periods."""
        super().__init__(gripper, steps)

    def _evaluate(self, observation: MotionObservation) -> bool:
        self.error = float(np.linalg.norm(self._anchor - observation.position))
        return self.steps >= self.max_steps

    def _step(self, observation: MotionObservation) -> CartesianStep:
        return self._hold(observation, np.zeros(3))


class Release(Primitive):
    """Open the gripper until it has stopped opening."""

    MOVED = 0.002
    """m of opening that count as having begun."""
    PATIENCE = 15
    """Control periods that fingers pressed together may take to begin."""

    def __init__(self, max_steps: int = 20) -> None:
        """Keep the limit in control periods."""
        super().__init__(-1.0, max_steps)
        self._settled = SettleDetector(change=5e-4, samples=3)
        self._closed = math.nan

    def start(self, observation: MotionObservation) -> None:
        """Note the opening it begins with."""
        super().start(observation)
        self._closed = observation.gripper_opening

    def _evaluate(self, observation: MotionObservation) -> bool:
        self.error = float(np.linalg.norm(self._anchor - observation.position))
        still = self._settled.update(observation.gripper_opening)
        moved = observation.gripper_opening - self._closed > self.MOVED
        return still and (moved or self.steps >= self.PATIENCE)

    def _step(self, observation: MotionObservation) -> CartesianStep:
        return self._hold(observation, np.zeros(3))


def _require(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise RefusedError(f'{name} must be finite (got {value})')
    return float(value)


def _require_positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise RefusedError(f'{name} must be positive (got {value})')
    return float(value)


def _require_range(name: str, value: float, low: float, high: float) -> float:
    if not (math.isfinite(value) and low <= value <= high):
        raise RefusedError(f'{name} must be within [{low}, {high}] (got {value})')
    return float(value)


def _require_vector(name: str, value: np.ndarray) -> np.ndarray:
    vector = np.asarray(value, dtype=float)
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise RefusedError(f'{name} must be three finite numbers (got {vector.tolist()})')
    return vector


def _require_near(goal: np.ndarray, start: np.ndarray) -> None:
    planar = float(np.linalg.norm((goal - start)[:2]))
    if planar > MAX_PLANAR_MOVE:
        raise RefusedError(
            f'planar move of {planar:.3f} m exceeds {MAX_PLANAR_MOVE:.2f} m; go in two steps'
        )
