# SPDX-License-Identifier: Apache-2.0
"""When a human's request takes control. Imports no rclpy."""

from __future__ import annotations


class Takeover:
    """Who of the human sources commands, and whether one may take over.

    Control that was given back is not taken again by the tail of the same motion: the human has to
    pause first.

    Args:
        rearm_s: Pause in steady s after which a request takes over again.
    """

    def __init__(self, rearm_s: float) -> None:
        self._rearm_s = rearm_s
        self._armed = True
        self._requested_at = -float('inf')
        self.human = ''

    @property
    def armed(self) -> bool:
        """Whether a request takes over."""
        return self._armed

    def requested(self, now: float) -> None:
        """Note a human's request; one after a pause arms."""
        if now - self._requested_at >= self._rearm_s:
            self._armed = True
        self._requested_at = now

    def disarm(self) -> None:
        """Require a pause before the next takeover."""
        self._armed = False
