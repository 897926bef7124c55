# SPDX-License-Identifier: Apache-2.0
"""The time base of a recording."""

from __future__ import annotations

import struct
from collections import deque

MAX_LEAD_NS = 5_000_000_000
"""Clocks further apart than this are not of one time base; a stamp further ahead is a fault."""

_STAMP = {True: struct.Struct('<iI'), False: struct.Struct('>iI')}


def header_stamp_ns(data: bytes | memoryview) -> int:
    """Return the stamp of a serialized message whose first field is a std_msgs/Header.

    Args:
        data: CDR with its four bytes of encapsulation.
    """
    sec, nanosec = _STAMP[data[1] == 1].unpack_from(data, 4)
    return sec * 1_000_000_000 + nanosec


class LogClock:
    """Log time: the node's clock pushed ahead by header stamps, or the stamps alone.

    Under simulated time the node's clock lags behind the stamps by the latency of the clock
    topic; without the stamps a row could close before its own images. A node that does not use
    simulated time, although the stamps do, has a clock of another time base: then the stamps
    alone are the log time.

    Args:
        by_stamps: The stamps alone count; None where `judge` is to find out.

    Attributes:
        by_stamps: As given or judged.
        now: Log time, ns; never decreases between two calls of `begin`.
    """

    def __init__(self, by_stamps: bool | None = None) -> None:
        self.by_stamps = by_stamps
        self.now = 0
        self._states: deque[int] = deque(maxlen=2)
        self._doubted = False
        self._jumped = False

    def judge(self, now_ns: int, stamp_ns: int) -> None:
        """Learn the time base from a state; a second one must confirm a change of it.

        Args:
            now_ns: The node's clock.
            stamp_ns: Header stamp of the state.
        """
        apart = abs(stamp_ns - now_ns) > MAX_LEAD_NS
        if self.by_stamps is None or (self._doubted and apart != self.by_stamps):
            self.by_stamps = apart
        self._doubted = apart != self.by_stamps
        self._states.append(stamp_ns)

    def begin(self) -> None:
        """Forget the log time, as between two episodes, but not the time base."""
        self._jumped = False
        self.now = min(self._states, default=0) if self.by_stamps else 0

    def tick(self, now_ns: int) -> None:
        """Take in the node's clock."""
        if not self.by_stamps:
            self.now = max(self.now, now_ns)

    def accept(self, stamp_ns: int, is_state: bool = False) -> bool:
        """Take in a header stamp; False if it is too far ahead to be true.

        Such a stamp counts for nothing. Only a second state in a row that says so is a jump of
        time, and followed. Before log time has begun, states alone begin it.
        """
        if self.now and stamp_ns > self.now + MAX_LEAD_NS:
            confirmed = is_state and self._jumped
            self._jumped |= is_state
            if not confirmed:
                return False
        elif is_state:
            self._jumped = False
        if self.now or is_state:
            self.now = max(self.now, stamp_ns)
        return True
