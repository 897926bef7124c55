# SPDX-License-Identifier: Apache-2.0
"""What last happened to control, and how often requests were refused or clamped."""

from __future__ import annotations

from praxis_control.gate import Refusal
from praxis_control.modes import Reason

_NOTHING = Refusal(Reason.NONE, '')


class Events:
    """The newest event and two counters.

    Args:
        keep_s: Steady s that an event is shown at least, though commands flow again.
        now: Steady time in s.
    """

    def __init__(self, keep_s: float, now: float) -> None:
        self._keep_s = keep_s
        self._at = now
        self.newest = _NOTHING
        self.refused = 0
        self.clamped = 0

    def note(self, event: Refusal, now: float) -> None:
        """Take note of an event."""
        self.newest, self._at = event, now

    def refuse(self, source: str, refusal: Refusal, now: float) -> None:
        """Count and note a refused request."""
        self.refused += 1
        text = refusal.text
        if not text.startswith(source):
            text = f'{source} refused: {text}'
        self.note(Refusal(refusal.reason, text), now)

    def executed(self, clamped: bool, now: float) -> None:
        """Count a request that was executed; an event that was shown long enough is over."""
        self.clamped += clamped
        if now - self._at >= self._keep_s:
            self.newest = _NOTHING
