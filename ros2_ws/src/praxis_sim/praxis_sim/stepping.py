# SPDX-License-Identifier: Apache-2.0
"""When the simulator may advance: lockstep by commands and acknowledgements, or the steady clock.

Pure state machines; the caller passes the time of a steady clock, in s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

MODES = ('realtime', 'lockstep')


@dataclass(frozen=True)
class Advance:
    """Permission to step once.

    Attributes:
        values: Action float64[A], or None to hold.
    """

    values: np.ndarray | None


class Stepping(Protocol):
    """Decides when to step, and with which command."""

    def observed(self, seq: int, episode_uuid: str, now: float) -> None:
        """Note that an observation is about to be published."""

    def command(self, seq: int, values: np.ndarray | None, now: float) -> bool:
        """Take a command that answers observation ``seq``; None holds. False: not taken."""

    def acknowledge(self, participant: str, seq: int, episode_uuid: str) -> None:
        """Take a participant's acknowledgement."""

    def poll(self, now: float) -> Advance | None:
        """Permission to step, once per control period."""

    def wait(self, now: float) -> float | None:
        """Seconds after which `poll` can answer otherwise by itself; None: only after an event."""

    def waiting_for(self, now: float) -> Sequence[str]:
        """Who keeps the simulation from advancing for longer than the stall time."""


class Lockstep:
    """One step per command that answers the newest observation, acknowledged by everyone.

    Args:
        participants: Names whose acknowledgement is needed.
        stall: Seconds without progress after which `waiting_for` names who is missing.
    """

    def __init__(self, participants: Sequence[str] = (), stall: float = 2.0) -> None:
        self._participants = frozenset(participants)
        self._stall = stall
        self._seq = -1
        self._episode = ''
        self._since = 0.0
        self._advance: Advance | None = None
        self._missing: set[str] = set()

    def observed(self, seq: int, episode_uuid: str, now: float) -> None:
        """See `Stepping.observed`."""
        self._seq, self._episode, self._since = seq, episode_uuid, now
        self._advance = None
        self._missing = set(self._participants)

    def command(self, seq: int, values: np.ndarray | None, now: float) -> bool:
        """See `Stepping.command`; the first command for an observation counts."""
        if seq != self._seq or self._advance is not None:
            return False
        self._advance = Advance(values)
        self._since = now
        return True

    def acknowledge(self, participant: str, seq: int, episode_uuid: str) -> None:
        """See `Stepping.acknowledge`."""
        if seq == self._seq and episode_uuid == self._episode:
            self._missing.discard(participant)

    def poll(self, now: float) -> Advance | None:
        """See `Stepping.poll`."""
        if self._advance is None or self._missing:
            return None
        advance, self._advance = self._advance, None
        self._seq = -1
        return advance

    def wait(self, now: float) -> float | None:
        """See `Stepping.wait`."""
        return self._stall

    def waiting_for(self, now: float) -> Sequence[str]:
        """See `Stepping.waiting_for`; an idle simulator without a command is not stalled."""
        if self._advance is None or now - self._since < self._stall:
            return ()
        return sorted(self._missing)


class RealTime:
    """One step per period of the steady clock, with the newest command.

    A tick without a command repeats the last one once; from the second such tick on it holds.

    Args:
        period: s.
    """

    HOLD_AFTER = 2
    """Ticks without a command until it holds."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._due: float | None = None
        self._values: np.ndarray | None = None
        self._fresh = False
        self._missed = 0
        self._episode: str | None = None
        self._ticks = 0
        self._window: tuple[float, int] = (0.0, 0)
        self._factor = 1.0

    @property
    def missed(self) -> int:
        """Ticks in a row without a command."""
        return self._missed

    def factor(self, now: float) -> float:
        """Simulated time per steady time over the last window of at least 1 s."""
        start, ticks = self._window
        if now - start >= 1.0:
            self._factor = (self._ticks - ticks) * self._period / (now - start)
            self._window = (now, self._ticks)
        return self._factor

    def observed(self, seq: int, episode_uuid: str, now: float) -> None:
        """See `Stepping.observed`; a changed episode forgets the last command."""
        if episode_uuid != self._episode:
            self._episode = episode_uuid
            self._values, self._fresh, self._missed = None, False, self.HOLD_AFTER
            self._due = now + self._period
            self._window = (now, self._ticks)

    def command(self, seq: int, values: np.ndarray | None, now: float) -> bool:
        """See `Stepping.command`; whichever observation it answers."""
        self._values, self._fresh = values, True
        return True

    def acknowledge(self, participant: str, seq: int, episode_uuid: str) -> None:
        """See `Stepping.acknowledge`; nobody is waited for."""

    def poll(self, now: float) -> Advance | None:
        """See `Stepping.poll`."""
        if self._due is None or now < self._due:
            return None
        # A late simulation is slow, it does not catch up in a burst.
        self._due = max(self._due + self._period, now)
        self._ticks += 1
        if self._fresh:
            self._fresh, self._missed = False, 0
        else:
            self._missed += 1
        return Advance(self._values if self._missed < self.HOLD_AFTER else None)

    def wait(self, now: float) -> float | None:
        """See `Stepping.wait`."""
        return None if self._due is None else max(0.0, self._due - now)

    def waiting_for(self, now: float) -> Sequence[str]:
        """See `Stepping.waiting_for`."""
        return ()


class LateReaders:
    """Decides when an observation is published again for readers that came after it.

    In lockstep nothing follows until somebody has answered, and who has not seen it cannot. A
    reader that is discovered may not be able to receive yet, hence the second time.

    Args:
        settle: Seconds from the discovery of a reader to the second repetition.
    """

    def __init__(self, settle: float = 0.3) -> None:
        self._settle = settle
        self._readers = 0
        self._again: float | None = None

    def due(self, readers: int, now: float) -> bool:
        """Whether to publish again.

        Args:
            readers: Subscriptions of all topics of an observation.
            now: Steady time, s.
        """
        before, self._readers = self._readers, readers
        if readers > before:
            self._again = now + self._settle
            return True
        if self._again is not None and now >= self._again:
            self._again = None
            return True
        return False
