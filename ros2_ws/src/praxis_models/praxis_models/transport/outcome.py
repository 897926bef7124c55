# SPDX-License-Identifier: Apache-2.0
"""A request to a model server and how it ends: once, and in bounded time. Imports no rclpy."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Kind = Literal['reply', 'refused', 'timeout', 'lost', 'invalid', 'cancelled', 'closed']
Request = dict[str, Any]

_log = logging.getLogger(__name__)


class Timing(NamedTuple):
    """When a request went where, in seconds of the monotonic clock; 0.0: never."""

    submitted: float
    sent: float = 0.0
    ended: float = 0.0

    @property
    def round_trip_ms(self) -> float:
        """From the first byte sent to the outcome."""
        return (self.ended - self.sent) * 1e3 if self.sent else 0.0


@dataclass(frozen=True)
class Outcome:
    """How a request ended.

    Attributes:
        kind: ``reply``; ``refused``: the server's own error message, or it turned the connection
            away; ``timeout``; ``lost``: no server; ``invalid``: the request could not be made,
            or the reply is none; ``cancelled``; ``closed``: by the connection's ``close``.
        message: One line for the user, empty for a reply.
        timing: When.
        reply: The server's dictionary, for a reply.
        value: What ``parse`` made of it.
        error: What ``make_request`` or ``parse`` raised.
        generation: Connection that it was sent on, 0: never sent.
    """

    kind: Kind
    message: str
    timing: Timing
    reply: dict[str, Any] | None = None
    value: Any = None
    error: Exception | None = None
    generation: int = 0

    @property
    def ok(self) -> bool:
        """There is a reply."""
        return self.kind == 'reply'


class Ticket:
    """A submitted request; see ``Connection.submit`` for the arguments."""

    def __init__(
        self,
        request: Callable[[], Request] | Request,
        done: Callable[[Outcome], None],
        cancelled: Callable[[], None],
        *,
        parse: Callable[[dict[str, Any]], Any] | None = None,
        timeout_s: float | None = None,
        generation: int | None = None,
    ) -> None:
        self.request = request
        self.parse = parse
        self.timeout_s = timeout_s
        self.wanted_generation = generation
        self.sent = 0.0
        self.sent_generation = 0
        self._submitted = time.monotonic()
        self._done = done
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, None while it has not."""
        return self._outcome

    def cancel(self) -> bool:
        """End it at once: ``done`` is called in this thread before this returns.

        Returns:
            False where it had ended already; ``done`` was or is being called with that outcome.
        """
        ended = self.end('cancelled', 'cancelled')
        if ended:
            self._cancelled()
        return ended

    def end(self, kind: Kind, message: str = '', **parts: Any) -> bool:
        """End it, as the connection does; only the first end counts."""
        timing = Timing(self._submitted, self.sent, time.monotonic())
        outcome = Outcome(kind, message, timing, generation=self.sent_generation, **parts)
        with self._lock:
            if self._outcome is not None:
                return False
            self._outcome = outcome
        try:
            self._done(outcome)
        except Exception:
            _log.exception('the receiver of an outcome failed')
        return True
