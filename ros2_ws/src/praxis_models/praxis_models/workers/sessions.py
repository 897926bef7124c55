# SPDX-License-Identifier: Apache-2.0
"""Who is using a worker: sessions with idle expiry and a cap. The clock is passed in."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from praxis_core.exchange_error import ExchangeError, described

from praxis_models.backend import Session

IDLE_S = 3600.0
LIMIT = 256

_ID = re.compile(r'[A-Za-z0-9_.:-]{1,64}')


@dataclass
class _Entry:
    session: Session
    used: float
    pinned: bool
    calls: int = 0


class Sessions:
    """Sessions of one worker.

    Args:
        clock: Seconds of a clock that never goes back.
        idle_s: A session that nobody used for longer is unknown.
        limit: Sessions at one time.
    """

    def __init__(
        self, clock: Callable[[], float], *, idle_s: float = IDLE_S, limit: int = LIMIT
    ) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._limit = limit
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def register(self, session_id: str = '', *, pinned: bool = False) -> Session:
        """Begin a session, or go on with a live one of that id.

        Args:
            session_id: 1 to 64 letters, digits and ``_ . : -``; empty: ``s_`` + 8 hex digits.
            pinned: It does not expire; whoever registered it closes it.

        Raises:
            ExchangeError: The id is not one, or there are too many sessions.
        """
        if session_id:
            if not isinstance(session_id, str) or not _ID.fullmatch(session_id):
                expected = '1 to 64 letters, digits and _ . : -'
                raise ExchangeError('session_id', expected, described(session_id))
            entry = self._entries.get(session_id)
            if entry is not None and not self._expired(entry):
                entry.used = self._clock()
                return entry.session
        if len(self._entries) >= self._limit:
            expected = f'at most {self._limit} at one time'
            raise ExchangeError('sessions', expected, f'{len(self._entries)} already')
        if session_id in self._entries:
            raise ExchangeError('session_id', 'one that has not expired', described(session_id))
        while not session_id or session_id in self._entries:
            session_id = f's_{secrets.token_hex(4)}'
        session = Session(session_id)
        self._entries[session_id] = _Entry(session, self._clock(), pinned)
        return session

    def touch(self, session_id: str) -> Session:
        """Look a session up and count it as used now.

        Raises:
            ExchangeError: It is unknown, closed or expired; names it.
        """
        entry = self._find(session_id)
        entry.used = self._clock()
        return entry.session

    def begin(self, session_id: str) -> Session:
        """As `touch`; until `end` it does not expire."""
        session = self.touch(session_id)
        self._entries[session_id].calls += 1
        return session

    def end(self, session_id: str) -> None:
        """End a call that `begin` started; the session may have been closed meanwhile."""
        entry = self._entries.get(session_id)
        if entry is not None and entry.calls:
            entry.calls -= 1
            entry.used = self._clock()

    def close(self, session_id: str) -> Session:
        """Take a session out.

        Raises:
            ExchangeError: As `touch`.
        """
        self._find(session_id)
        return self._entries.pop(session_id).session

    def sweep(self) -> list[Session]:
        """Take out what has expired."""
        expired = [name for name, entry in self._entries.items() if self._expired(entry)]
        return [self._entries.pop(name).session for name in expired]

    def clear(self) -> list[Session]:
        """Take out all."""
        sessions = [entry.session for entry in self._entries.values()]
        self._entries.clear()
        return sessions

    def _find(self, session_id: str) -> _Entry:
        entry = self._entries.get(session_id) if isinstance(session_id, str) else None
        if entry is None or self._expired(entry):
            raise ExchangeError(
                'session_id', 'one that was registered and is in use', described(session_id)
            )
        return entry

    def _expired(self, entry: _Entry) -> bool:
        idle = self._clock() - entry.used
        return not entry.pinned and not entry.calls and idle > self._idle_s
