# SPDX-License-Identifier: Apache-2.0
"""One goal of the primitive servers, from its first observation to its end. Imports no rclpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from praxis_core.errors import ErrorCode

from praxis_control.motion import CartesianStep, MotionObservation
from praxis_control.primitives import MAX_STEPS, REACHED, Primitive, RefusedError

LEASE_GRACE_S = 0.5
"""Steady s after its grant within which a status may still be from before it."""


class ActionMap(Protocol):
    """Turns Cartesian steps into actions of one contract."""

    def start(self, observation: MotionObservation) -> None:
        """Begin a motion here."""

    def action(self, step: CartesianStep, observation: MotionObservation) -> np.ndarray:
        """Action float64[A] of one step."""


@dataclass(frozen=True)
class StampedObservation:
    """A motion observation with what a request must quote of it.

    Attributes:
        motion: Pose, gripper and joints.
        seq: ``observation_seq`` of the state.
        stamp_ns: Header stamp, ns.
        episode_uuid: Episode of the state.
    """

    motion: MotionObservation
    seq: int
    stamp_ns: int
    episode_uuid: str


@dataclass(frozen=True)
class End:
    """Why a goal ended.

    Attributes:
        reason: Word for ``termination_reason``.
        code: `ErrorCode`; NONE where the end is a defined one.
        message: Particulars, empty where there is nothing to add.
        reached: Within the tolerances.
    """

    reason: str
    code: ErrorCode = ErrorCode.NONE
    message: str = ''
    reached: bool = False


class PrimitiveRun:
    """Drives one primitive; once `end` is set it never gives another action."""

    def __init__(
        self,
        primitive: Primitive,
        actions: ActionMap,
        lease_id: str,
        stall_s: float,
        clock: Callable[[], float],
    ) -> None:
        """Prepare a goal.

        Args:
            primitive: State machine that decides the steps.
            actions: Map into the contract's action space.
            lease_id: Goal UUID, 32 hex digits.
            stall_s: Seconds of the clock without an observation after which the goal is given up.
            clock: Steady clock, s.
        """
        self.primitive = primitive
        self.lease_id = lease_id
        self.end: End | None = None
        self.last: StampedObservation | None = None
        self._actions = actions
        self._stall_s = stall_s
        self._clock = clock
        self._episode: str | None = None
        self._seen = clock()
        self._started = False
        self._lease_seen = False
        self._bound = math.inf

    def bind(self, episode_uuid: str) -> None:
        """Fix the episode, as the arbiter bound the lease to it."""
        self._episode = episode_uuid or None
        self._seen = self._bound = self._clock()

    def stop(self, reason: str, code: ErrorCode, message: str = '') -> None:
        """End from outside; the first end counts."""
        if self.end is None:
            self.end = End(reason, code, message)

    def observe(self, observation: StampedObservation) -> np.ndarray | None:
        """Take in one observation.

        Returns:
            The action that answers it, or None when the goal has ended or waits for its episode.
        """
        if self.end is not None:
            return None
        self._seen = self._clock()
        if self._episode is None:
            self._episode = observation.episode_uuid
        if observation.episode_uuid != self._episode:
            if not self._started:
                return None
            self.stop(
                'episode_changed',
                ErrorCode.EPISODE_CHANGED,
                f'episode {self._episode} was replaced by {observation.episode_uuid}',
            )
            return None
        self.last = observation
        try:
            if not self._started:
                self.primitive.start(observation.motion)
                self._actions.start(observation.motion)
                self._started = True
            step = self.primitive.update(observation.motion)
            if step is not None:
                return self._actions.action(step, observation.motion)
        except RefusedError as error:
            self.stop('refused', ErrorCode.INVALID_REQUEST, str(error))
            return None
        outcome = self.primitive.outcome
        assert outcome is not None and outcome.reason in (REACHED, MAX_STEPS)
        self.end = End(outcome.reason, reached=outcome.reached)
        return None

    def check(self) -> None:
        """End the goal if observations have stopped."""
        silence = self._clock() - self._seen
        if self.end is None and silence > self._stall_s:
            self.stop(
                'stale_state',
                ErrorCode.STALE_STATE,
                f'no observation for {silence:.2f} s (limit {self._stall_s:g} s)',
            )

    def lease_status(self, lease_id: str, reason_name: str, reason: str) -> None:
        """Take in what the arbiter says about the lease.

        Args:
            lease_id: In force now, empty if none.
            reason_name: Why the arbiter holds: ``takeover``, ``reset``, ...
            reason: The same in words.
        """
        if lease_id == self.lease_id:
            self._lease_seen = True
        elif self._lease_seen or self._clock() - self._bound > LEASE_GRACE_S:
            ends = {
                'takeover': ('takeover', ErrorCode.LEASE_LOST),
                'operator': ('takeover', ErrorCode.LEASE_LOST),
                'estop': ('estop', ErrorCode.ESTOPPED),
                'reset': ('episode_changed', ErrorCode.EPISODE_CHANGED),
                'stale_state': ('stale_state', ErrorCode.STALE_STATE),
                'frozen_state': ('stale_state', ErrorCode.STALE_STATE),
            }
            name, code = ends.get(reason_name, ('lease_lost', ErrorCode.LEASE_LOST))
            self.stop(name, code, reason or 'the arbiter withdrew the lease')

    @property
    def steps(self) -> int:
        """Control periods used."""
        return self.primitive.steps

    @property
    def error(self) -> float:
        """Remaining error, m or rad; NaN before the first observation."""
        return self.primitive.error

    @property
    def position(self) -> np.ndarray:
        """Last position float64[3], m; NaN before the first observation."""
        return np.full(3, math.nan) if self.last is None else self.last.motion.position

    @property
    def gripper_opening(self) -> float:
        """Last opening, m; NaN before the first observation."""
        return math.nan if self.last is None else self.last.motion.gripper_opening
