# SPDX-License-Identifier: Apache-2.0
"""The time base of a recording."""

from __future__ import annotations

import struct

_STAMP = {True: struct.Struct('<iI'), False: struct.Struct('>iI')}


def header_stamp_ns(data: bytes) -> int:
    """Return the stamp of a serialized message whose first field is a std_msgs/Header.

    Args:
        data: CDR with its four bytes of encapsulation.
    """
    sec, nanosec = _STAMP[data[1] == 1].unpack_from(data, 4)
    return sec * 1_000_000_000 + nanosec


class LogClock:
    """Log time: the greatest of the node's clock and the header stamps seen.

    Under simulated time the node's clock lags behind the stamps by the latency of the clock
    topic; without the stamps a row could close before its own images.
    """

    def __init__(self) -> None:
        self._last_ns = 0

    def reset(self) -> None:
        """Forget the past, as between two episodes."""
        self._last_ns = 0

    def advance(self, now_ns: int, stamp_ns: int = 0) -> int:
        """Return the log time of a message that arrives now; it never decreases."""
        self._last_ns = max(self._last_ns, now_ns, stamp_ns)
        return self._last_ns
