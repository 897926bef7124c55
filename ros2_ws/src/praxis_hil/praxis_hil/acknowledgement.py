# SPDX-License-Identifier: Apache-2.0
"""Tell when an observation has arrived whole: its state and every image that the state lists."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Observation:
    """Identity of one observation."""

    seq: int
    episode_uuid: str


@dataclass
class _Pending:
    stamp_ns: int
    missing: set[str] = field(default_factory=set)


class ObservationTracker:
    """Match states with the images of the same stamp, in whatever order they arrive.

    Args:
        depth: Observations that may be incomplete at once; older ones are given up.

    Attributes:
        lost_images: Images that a state listed and that were given up.
        lost_states: Gaps in `observation_seq`.
    """

    def __init__(self, depth: int = 64) -> None:
        self._depth = depth
        self._pending: OrderedDict[Observation, _Pending] = OrderedDict()
        self._seen: dict[str, OrderedDict[int, None]] = {}
        self._last_seq: int | None = None
        self.lost_images: dict[str, int] = {}
        self.lost_states = 0

    def image(self, camera: str, stamp_ns: int) -> list[Observation]:
        """Take in an image; returns the observations that it completes."""
        seen = self._seen.setdefault(camera, OrderedDict())
        seen[stamp_ns] = None
        if len(seen) > self._depth:
            seen.popitem(last=False)
        for pending in self._pending.values():
            if pending.stamp_ns == stamp_ns:
                pending.missing.discard(camera)
        return self._complete()

    def state(
        self, seq: int, episode_uuid: str, stamp_ns: int, cameras: Iterable[str]
    ) -> list[Observation]:
        """Take in a state; returns the observations that it completes."""
        if self._last_seq is not None and seq > self._last_seq + 1:
            self.lost_states += seq - self._last_seq - 1
        self._last_seq = seq
        missing = {camera for camera in cameras if stamp_ns not in self._seen.get(camera, ())}
        self._pending[Observation(seq, episode_uuid)] = _Pending(stamp_ns, missing)
        if len(self._pending) > self._depth:
            _, given_up = self._pending.popitem(last=False)
            for camera in given_up.missing:
                self.lost_images[camera] = self.lost_images.get(camera, 0) + 1
        return self._complete()

    def _complete(self) -> list[Observation]:
        done = [key for key, pending in self._pending.items() if not pending.missing]
        for key in done:
            del self._pending[key]
        return done
