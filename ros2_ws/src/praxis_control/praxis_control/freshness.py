# SPDX-License-Identifier: Apache-2.0
"""Is the observation alive: age of the state, frozen state, stalled cameras. Imports no rclpy.

Ages of states are judged on the steady clock at arrival; ages of cameras on the stamps of the
observations that list them, so that they count in the robot's own time in lockstep too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from praxis_control.gate import ControlSpec, Refusal
from praxis_control.modes import Reason

_HISTORY = 512
_NS = 1e-9


@dataclass(frozen=True)
class Observation:
    """What the arbiter reads of a StateVector.

    Attributes:
        seq: ``observation_seq``.
        stamp_ns: Capture time.
        episode_uuid: Episode, empty where the robot knows none.
        interface_hash: As the publisher states it.
        values: float64[S] in contract order.
        cameras: Names of the cameras captured with it.
    """

    seq: int
    stamp_ns: int
    episode_uuid: str
    interface_hash: str
    values: np.ndarray
    cameras: Sequence[str]


class ObservationWatch:
    """Newest observation, its age, and what is wrong with the stream."""

    def __init__(self, spec: ControlSpec, *, lockstep: bool, watch_cameras: bool) -> None:
        self._spec = spec
        self._lockstep = lockstep
        self._watch_cameras = watch_cameras
        self.newest: Observation | None = None
        self._advanced_at = -np.inf
        self._received_at = -np.inf
        self._invalid: Refusal | None = None
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=_HISTORY)
        self._listed_ns: dict[str, int] = {}

    def receive(self, observation: Observation, now: float) -> bool:
        """Take in a state.

        Returns:
            True if the robot was reset or its publisher started again, so that whatever was
            planned on earlier observations is void.
        """
        self._received_at = now
        self._invalid = self._validate(observation)
        if self._invalid is not None:
            return False
        last = self.newest
        reset = last is not None and (
            observation.episode_uuid != last.episode_uuid
            or (observation.seq < last.seq and observation.stamp_ns > last.stamp_ns)
        )
        advanced = (
            last is None
            or reset
            or (observation.seq > last.seq and observation.stamp_ns > last.stamp_ns)
        )
        if not advanced:
            return False
        if reset and observation.seq <= last.seq:
            self._arrivals.clear()
        if last is None or reset:
            self._listed_ns = dict.fromkeys(self._spec.camera_max_age, observation.stamp_ns)
        for name in observation.cameras:
            self._listed_ns[name] = observation.stamp_ns
        self.newest = observation
        self._advanced_at = now
        self._arrivals.append((observation.seq, now))
        return reset

    def _validate(self, observation: Observation) -> Refusal | None:
        spec = self._spec
        if observation.interface_hash != spec.interface_hash:
            return Refusal(Reason.WRONG_HASH, 'the state carries the hash of another contract')
        if observation.values.size != len(spec.state_names):
            return Refusal(
                Reason.WRONG_SHAPE,
                f'the state has {observation.values.size} values, '
                f'the contract {len(spec.state_names)}',
            )
        if not np.isfinite(observation.values).all():
            index = int(np.flatnonzero(~np.isfinite(observation.values))[0])
            return Refusal(
                Reason.NON_FINITE,
                f'state {spec.state_names[index]} is {observation.values[index]}',
            )
        return None

    def state_fault(self, now: float) -> Refusal | None:
        """Say what is wrong with the state stream; None where it is alive.

        In lockstep a state stands until it is answered, so its age is not judged.
        """
        if self._invalid is not None:
            return self._invalid
        if self.newest is None:
            return Refusal(Reason.STALE_STATE, 'no state received yet')
        if self._lockstep:
            return None
        limit = self._spec.max_state_age
        age = now - self._advanced_at
        if age <= limit:
            return None
        if now - self._received_at <= limit:
            return Refusal(
                Reason.FROZEN_STATE,
                f'states arrive but stay at observation {self.newest.seq} '
                f'for {age:.3f} s, limit {limit:g} s',
            )
        return Refusal(
            Reason.STALE_STATE,
            f'observation {self.newest.seq} is {age:.3f} s old, limit {limit:g} s',
        )

    def camera_fault(self) -> Refusal | None:
        """Name a camera that no observation has listed for longer than its limit."""
        if not self._watch_cameras or self.newest is None:
            return None
        for name, limit in self._spec.camera_max_age.items():
            age = (self.newest.stamp_ns - self._listed_ns[name]) * _NS
            if age > limit + 1e-9:
                return Refusal(
                    Reason.STALE_CAMERA,
                    f'camera {name} last captured {age:.3f} s before '
                    f'observation {self.newest.seq}, limit {limit:g} s',
                )
        return None

    def age_of(self, seq: int, now: float) -> float:
        """Time in s since an observation arrived; inf where it is older than the history."""
        index = bisect_right(self._arrivals, seq, key=lambda arrival: arrival[0])
        return now - self._arrivals[index - 1][1] if index else np.inf
