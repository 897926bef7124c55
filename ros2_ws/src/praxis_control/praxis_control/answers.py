# SPDX-License-Identifier: Apache-2.0
"""Which observations are answered, and whether a request comes in time. Imports no rclpy."""

from __future__ import annotations

from praxis_control.command import Options, Request
from praxis_control.freshness import ObservationWatch
from praxis_control.gate import Refusal
from praxis_control.modes import Reason


class Answers:
    """Judges the observation that a request answers.

    In lockstep an observation is answered once, by anyone. In real time a source answers each
    observation once and in order; a human's device may answer one again, since its requests are
    what the human wants at that moment and replace each other.
    """

    def __init__(self, options: Options, max_age: float) -> None:
        self._options = options
        self._max_age = max_age
        self._by_source: dict[str, int] = {}
        self._answered = -1
        self._fresh_after = -1

    def answered(self, seq: int) -> bool:
        """Whether a command was executed for an observation or a later one."""
        return seq <= self._answered

    def executed(self, seq: int) -> None:
        """A command answering this observation was executed."""
        self._answered = max(self._answered, seq)

    def accepted(self, request: Request) -> None:
        """A request was accepted."""
        self._by_source[request.source] = request.observation_seq

    def require_after(self, seq: int) -> None:
        """Accept only answers to observations after this one."""
        self._fresh_after = seq

    def reset(self, first_seq: int) -> None:
        """A new episode, or a restarted publisher, begins with this observation."""
        self._by_source.clear()
        self._answered = self._fresh_after = first_seq - 1

    def refusal(self, request: Request, watch: ObservationWatch, now: float) -> Refusal | None:
        """Say why a request does not come in time; None where it does."""
        newest = watch.newest
        if newest is None:
            return Refusal(Reason.STALE_STATE, 'no state received yet')
        if request.episode_uuid != newest.episode_uuid:
            return Refusal(
                Reason.WRONG_EPISODE,
                f'{request.source} answers episode {request.episode_uuid[:8]!r}, '
                f'running is {newest.episode_uuid[:8]!r}',
            )
        seq = request.observation_seq
        stale = self._stale(request.source, seq, newest.seq)
        if stale is None and not self._options.lockstep:
            age = watch.age_of(seq, now)
            if age > self._max_age:
                stale = f'which is {age:.3f} s old, limit {self._max_age:g} s'
        if stale is None:
            return None
        return Refusal(
            Reason.STALE_REQUEST, f'{request.source} answers observation {seq}, {stale}'
        )

    def _stale(self, source: str, seq: int, newest: int) -> str | None:
        if seq > newest:
            return f'the newest is {newest}'
        if seq <= self._fresh_after:
            return 'taken before control was given back'
        if self._options.lockstep:
            if seq <= self._answered:
                return 'which is answered already'
            return f'the newest is {newest}' if seq < newest else None
        last = self._by_source.get(source, -1)
        human = source in self._options.human_sources
        if seq < last or (seq == last and not human):
            return f'it has answered {last} already'
        return None
