# SPDX-License-Identifier: Apache-2.0
"""Control periods of the steady clock, each with room for one request. Imports no rclpy."""

from __future__ import annotations

from enum import Enum

from praxis_control.command import Request


class SlotEnd(Enum):
    """What a slot that ended without a waiting request was."""

    USED = 'used'
    EMPTY = 'empty'


class Slots:
    """Real time cut into slots of one control period, on absolute deadlines.

    A request executes at once in a free slot and waits for the end of a used one, where the newest
    waiting request executes. The first request after a hold or after another source never waits:
    the slots are laid around it, half a period to either side, so that a source which keeps its
    rate finds each slot free and jitter below half a period leaves none empty.
    """

    def __init__(self, period: float, now: float) -> None:
        self._period = period
        self._used_by = ''
        self._waiting: Request | None = None
        self.deadline = now + period
        """Steady time in s at which the present slot ends."""

    def offer(self, request: Request, last_source: str, now: float) -> bool:
        """Take in a valid request.

        Args:
            request: Of the active source.
            last_source: Who the last executed command came from.
            now: Steady s.

        Returns:
            True if it executes at once, False if it waits.
        """
        if self._used_by == request.source:
            self._waiting = request
            return False
        if last_source != request.source:
            self.deadline = now + 0.5 * self._period
        self._used_by = request.source
        self._waiting = None
        return True

    def end(self, now: float) -> Request | SlotEnd:
        """End the slot; a deadline that was missed is skipped, not caught up.

        Returns:
            The request that waited, or what the slot was.
        """
        late = max(0.0, now - self.deadline)
        self.deadline += self._period * (1 + int(late / self._period))
        used, self._used_by = self._used_by, ''
        if self._waiting is not None:
            request, self._waiting = self._waiting, None
            self._used_by = request.source
            return request
        return SlotEnd.USED if used else SlotEnd.EMPTY

    def drop(self) -> None:
        """Forget a request that waits."""
        self._waiting = None
