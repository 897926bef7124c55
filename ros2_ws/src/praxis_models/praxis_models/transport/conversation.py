# SPDX-License-Identifier: Apache-2.0
"""Requests and replies over one open channel of OpenPI's protocol. Imports no rclpy.

One request is answered by one reply, in order and without numbers. From that follow the rules
here: one request is under way at a time; where its reply can no longer be told from the next
one's (a timeout, a message out of turn) the channel is given up; a cancelled request leaves a
reply behind that is waited for and dropped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from praxis_models.transport import wire
from praxis_models.transport.channel import Channel, Lost, Message, telling_line
from praxis_models.transport.outcome import Ticket

REFUSAL_PAUSE_S = 0.05
"""OpenPI's server closes after it refused; no request is sent into that closing socket."""


class Limits(NamedTuple):
    """How long a server is given, in seconds; see ``Connection``."""

    connect: float = 5.0
    receive: float = 30.0
    first_reply: float = 120.0
    cancel_grace: float = 2.0
    ping_interval: float = 5.0
    ping_timeout: float = 10.0


class Replaced(Exception):  # noqa: N818 - no error: the channel is given up on purpose
    """The channel is given up on purpose; another one is to be opened at once."""


@dataclass
class _Flight:
    """A request whose reply the server owes."""

    ticket: Ticket
    sent: float
    timeout: float
    inference: bool


class Conversation:
    """What is said over a channel.

    One thread advances it. While that thread sleeps, another may launch a request: on a busy
    machine it would lose more time to the change of threads than the request takes to send.

    Args:
        channel: Open, its metadata received.
        queue: Requests that wait, first come first served.
        limits: Of time.
        generation: Number of the connection.

    Attributes:
        present: Request that is being made or under way.
        useful: The server has answered a request.
    """

    def __init__(
        self, channel: Channel, queue: deque[Ticket], limits: Limits, generation: int
    ) -> None:
        self.present: Ticket | None = None
        self.useful = False
        self._channel = channel
        self._queue = queue
        self._limits = limits
        self._generation = generation
        self._flight: _Flight | None = None
        self._warm = False
        self._round_trip = 0.0
        self._pinged = 0.0
        self._pause_until = 0.0
        self._turn = threading.Lock()
        self._asleep_until = 0.0
        self._over = False

    def advance(self) -> None:
        """Send what can be sent and wait once.

        Raises:
            Lost: The peer is gone, silent, or cannot be followed any longer.
            Replaced: A reply that nobody wants holds up another request.
        """
        with self._turn:
            if self._may_send():
                self._flight = self._launch()
            self._asleep_until = self._deadline()
        events = self._channel.sleep(self._asleep_until)
        with self._turn:
            try:
                for message in self._channel.collect(events):
                    self._take(message)
                self._check(time.monotonic())
            except BaseException:
                self._over = True
                raise

    def launch(self) -> bool:
        """Send the next request from another thread than the one that advances.

        Returns:
            Whether it was sent and the other thread need not be woken. Never waits for it.
        """
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self._over or not self._may_send():
                return False
            self._flight = self._launch()
            return self._flight is not None and self._asleep_until <= self._deadline()
        finally:
            self._turn.release()

    def stop(self) -> None:
        """Launch nothing any more."""
        with self._turn:
            self._over = True

    def _may_send(self) -> bool:
        return (
            self._flight is None
            and self._channel.is_open
            and time.monotonic() >= self._pause_until
        )

    def end(self, lost: Lost) -> None:
        """End the request under way after a loss.

        Raises:
            Replaced: The server only closed because it had refused a request.
        """
        if self._flight is not None:
            self._flight.ticket.end('invalid' if lost.garbled else 'lost', str(lost))
        elif time.monotonic() < self._pause_until:
            raise Replaced(f'the server closed after it refused a request: {lost}')

    def _launch(self) -> _Flight | None:
        """Send the next request that can be sent."""
        while self._queue:
            ticket = self.present = self._queue.popleft()
            if ticket.outcome is not None:
                continue
            if ticket.wanted_generation not in (None, self._generation):
                ticket.end('lost', 'the connection was replaced before the request was sent')
                continue
            try:
                request = ticket.request() if callable(ticket.request) else ticket.request
                frame = wire.pack(request)
            except Exception as error:
                ticket.end('invalid', f'request: {error}', error=error)
                continue
            if ticket.outcome is not None:
                continue  # cancelled meanwhile; the server need not know
            return self._send(ticket, frame, 'method' not in request)
        self.present = None
        return None

    def _send(self, ticket: Ticket, frame: bytes, inference: bool) -> _Flight:
        timeout = ticket.timeout_s
        if timeout is None:
            cold = inference and not self._warm
            timeout = self._limits.first_reply if cold else self._limits.receive
        ticket.sent, ticket.sent_generation = time.monotonic(), self._generation
        self._channel.send(frame)
        return _Flight(ticket, ticket.sent, timeout, inference)

    def _take(self, message: Message) -> None:
        """Give a message to the request that it answers."""
        flight, self._flight = self._flight, None
        if flight is None:
            said = f': {telling_line(message)}' if isinstance(message, str) else ''
            raise Lost(f'the server sent a message out of turn{said}')
        self.present = None
        self.useful = True
        self._round_trip = time.monotonic() - flight.sent
        ticket = flight.ticket
        if isinstance(message, str):
            self._pause_until = time.monotonic() + REFUSAL_PAUSE_S
            ticket.end('refused', telling_line(message) or 'the server gave no reason')
            return
        self._warm = self._warm or flight.inference
        if ticket.outcome is not None:
            return
        try:
            reply = wire.unpack(message)
            if not isinstance(reply, dict):
                raise wire.WireError(f'a dictionary is wanted (got {type(reply).__name__})')
            value: Any = ticket.parse(reply) if ticket.parse is not None else None
        except Exception as error:
            ticket.end('invalid', f'reply: {error}', error=error)
        else:
            ticket.end('reply', reply=reply, value=value)

    def _deadline(self) -> float:
        """When to look again though nothing happens, on the monotonic clock."""
        flight = self._flight
        if flight is not None:
            deadline = flight.sent + flight.timeout
            outcome = flight.ticket.outcome
            if outcome is not None and self._someone_waits():
                deadline = min(deadline, outcome.timing.ended + self._grace())
            return deadline
        heard = self._channel.heard
        if self._pinged > heard:
            deadline = self._pinged + self._limits.ping_timeout
        else:
            deadline = heard + self._limits.ping_interval
        return min(deadline, self._pause_until) if self._someone_waits() else deadline

    def _check(self, now: float) -> None:
        """Act on what has taken too long."""
        flight, limits = self._flight, self._limits
        if flight is None:
            # A server that computes is not asked: OpenPI's own answers no pings meanwhile.
            if self._pinged > self._channel.heard:
                if now >= self._pinged + limits.ping_timeout:
                    raise Lost(f'no answer to a ping within {limits.ping_timeout:g} s')
            elif now >= self._channel.heard + limits.ping_interval:
                self._pinged = now
                self._channel.ping()
            return
        if now >= flight.sent + flight.timeout:
            reason = f'no reply within {flight.timeout:g} s'
            flight.ticket.end('timeout', reason)
            raise Lost(reason)
        outcome = flight.ticket.outcome
        overdue = outcome is not None and now >= outcome.timing.ended + self._grace()
        if overdue and self._someone_waits():
            raise Replaced('the server still owes the reply of a cancelled request')

    def _grace(self) -> float:
        """How long the reply of a cancelled request may hold up another one."""
        return max(self._limits.cancel_grace, 2 * self._round_trip)

    def _someone_waits(self) -> bool:
        return any(ticket.outcome is None for ticket in tuple(self._queue))
