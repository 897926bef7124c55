# SPDX-License-Identifier: Apache-2.0
"""Client of a model server that speaks OpenPI's protocol, in a thread of its own.

The server sends its metadata first; then each request gets one reply. The socket is watched
between requests too, so a loss is known when it happens and not at the next inference. Nothing
polls: the thread sleeps until the socket, a request or a deadline wakes it. Imports no rclpy.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from praxis_models.transport import wire
from praxis_models.transport.channel import Channel, Lost, Message, Waker, telling_line
from praxis_models.transport.conversation import Conversation, Limits, Replaced
from praxis_models.transport.endpoint import endpoint_of
from praxis_models.transport.outcome import Kind, Outcome, Request, Ticket, Timing

__all__ = ['Connection', 'Kind', 'Outcome', 'Phase', 'Status', 'Ticket', 'Timing']

Phase = Literal['connecting', 'ready', 'lost', 'refused', 'closed']

CLOSE_S = 0.2
"""How long the server is given to answer a closing handshake."""

JOIN_S = 0.8
"""How long `Connection.close` waits for the thread, which may be resolving a name."""

_log = logging.getLogger(__name__)


class Status(NamedTuple):
    """State of the connection.

    Attributes:
        phase: ``connecting``: at the first attempt, or replacing a socket on purpose; ``ready``:
            metadata is there; ``lost``: no working server; ``refused``: the server answers, but
            not as a model server would, or turns us away; ``closed``: for good. Lost and refused
            connections are tried again until they are closed.
        reason: Why, in one line.
        attempts: Failures in a row; a connection that was of use ends the row.
        since: Time of the monotonic clock at which the phase began.
    """

    phase: Phase
    reason: str
    attempts: int
    since: float


class Connection:
    """Keeps one connection to a model server and passes requests over it, first come first served.

    Callbacks run on the connection's thread and must not block; `Ticket.cancel` and `close` call
    them in the thread that they are called in. All methods may be called from any thread.

    Args:
        endpoint: ``ws://HOST:PORT``, ``http://HOST:PORT`` or ``HOST:PORT``.
        token: Sent as ``Authorization: Api-Key TOKEN``, empty: none.
        connect_timeout_s: For TCP and the WebSocket handshake together.
        receive_timeout_s: For the metadata, and for a reply from the moment of sending.
        first_reply_timeout_s: For the first inference of a connection, which may compile.
        backoff_s: First and longest pause between attempts; it doubles, less up to half at random.
        max_message_bytes: Largest message that is received.
        cancel_grace_s: How long a server may owe the reply of a cancelled request while another
            request waits, but never less than twice its last round trip.
        ping_interval_s: Silence of an idle server after which it is asked for a sign of life.
        ping_timeout_s: How long that may take.
        on_change: Called after each change of the status.

    Raises:
        ValueError: The endpoint is none.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: str = '',
        connect_timeout_s: float = 5.0,
        receive_timeout_s: float = 30.0,
        first_reply_timeout_s: float = 120.0,
        backoff_s: tuple[float, float] = (0.2, 5.0),
        max_message_bytes: int = wire.MAX_FRAME,
        cancel_grace_s: float = 2.0,
        ping_interval_s: float = 5.0,
        ping_timeout_s: float = 10.0,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self.endpoint = endpoint_of(endpoint)
        self._headers = {'Authorization': f'Api-Key {token}'} if token else {}
        self._limits = Limits(
            connect=connect_timeout_s,
            receive=receive_timeout_s,
            first_reply=max(first_reply_timeout_s, receive_timeout_s),
            cancel_grace=cancel_grace_s,
            ping_interval=ping_interval_s,
            ping_timeout=ping_timeout_s,
        )
        self._backoff_s = backoff_s
        self._max_message_bytes = max_message_bytes
        self._on_change = on_change
        self._changed = threading.Condition()
        self._status = Status('connecting', 'not started', 0, time.monotonic())
        self._attempts = 0
        self._metadata: dict[str, Any] | None = None
        self._generation = 0
        self._waker = Waker()
        self._queue: deque[Ticket] = deque()
        self._conversation: Conversation | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def status(self) -> Status:
        """Present state."""
        return self._status

    @property
    def metadata(self) -> dict[str, Any] | None:
        """First frame of the present connection, None where there is none."""
        return self._metadata

    @property
    def generation(self) -> int:
        """Number of the connection, from 1; after a change the model may be another one."""
        return self._generation

    def start(self) -> None:
        """Begin to connect, and keep at it until `close`."""
        with self._changed:
            if self._thread is not None or self._closing:
                raise RuntimeError('a connection can be started once')
            name = f'model connection {self.endpoint.address}'
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End for good, in less than a second; what waits ends as ``closed``."""
        with self._changed:
            self._closing = True
            thread = self._thread
        self._waker.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)
        self._finish()
        if thread is None:
            self._waker.close()

    def submit(
        self,
        make_request: Callable[[], Request] | Request,
        done: Callable[[Outcome], None],
        *,
        parse: Callable[[dict[str, Any]], Any] | None = None,
        timeout_s: float | None = None,
        generation: int | None = None,
        at_once: bool = False,
    ) -> Ticket:
        """Send a request when its turn comes; returns at once.

        While the connection is lost or refused the request ends with the reason of that; while
        it is connecting, the request waits for the result of the attempt.

        Args:
            make_request: The request, or what makes it at the moment of sending.
            done: Called exactly once, with the outcome.
            parse: Turns the reply into the outcome's value; what it raises makes it invalid.
            timeout_s: For the reply, from the moment of sending; None: the connection's.
            generation: The only connection that it may be sent on, so that a request never
                reaches a model that has not been checked.
            at_once: Make and send it in this thread if the connection is free, which saves the
                change of threads; for a request that is quickly made. A request that cannot be
                made then ends in this thread too.
        """
        ticket = Ticket(
            make_request,
            done,
            self._waker.wake,
            parse=parse,
            timeout_s=timeout_s,
            generation=generation,
        )
        self._queue.append(ticket)
        talk = self._conversation
        if not (at_once and talk is not None and talk.launch()):
            self._waker.wake()
        if self._closing:
            self._finish()
        return ticket

    def call(self, request: Request, **arguments: Any) -> Outcome:
        """Submit a request and wait for its outcome; for tools, not for callbacks."""
        ended = threading.Event()
        ticket = self.submit(request, lambda _: ended.set(), **arguments)
        ended.wait()
        assert ticket.outcome is not None
        return ticket.outcome

    def wait(self, timeout_s: float, *phases: Phase) -> Status:
        """Wait until the phase is one of those given, ``ready`` by default, or the timeout."""
        wanted = phases or ('ready',)
        with self._changed:
            self._changed.wait_for(lambda: self._status.phase in wanted, timeout_s)
            return self._status

    # --- the thread ---

    def _run(self) -> None:
        try:
            while not self._closing:
                self._live()
        finally:
            self._closing = True
            self._finish()
            self._waker.close()

    def _live(self) -> None:
        """One connection from its first packet to its loss, and the pause after it."""
        channel: Channel | None = None
        try:
            channel = Channel(
                self.endpoint,
                self._waker,
                headers=self._headers,
                max_message_bytes=self._max_message_bytes,
            )
            self._metadata = self._open(channel)
            self._generation += 1
            self._converse(channel)
        except Replaced as replaced:
            self._become('connecting', str(replaced))
            return
        except Lost as lost:
            self._attempts += 1
            self._become('refused' if lost.refused else 'lost', f'{self.endpoint.url}: {lost}')
        except Exception as error:
            _log.exception('the connection to a model server failed')
            self._attempts += 1
            self._become('lost', f'{self.endpoint.url}: {type(error).__name__}: {error}')
        finally:
            if channel is not None:
                channel.close(CLOSE_S if self._closing else 0.0)
        self._pause()

    def _open(self, channel: Channel) -> dict[str, Any]:
        """Wait for the handshake and the metadata."""
        limits = self._limits
        deadline = time.monotonic() + limits.connect
        handshaken = False
        while not self._closing:
            self._reject()
            messages = channel.wait(deadline)
            if messages:
                return _metadata_of(messages)
            if not channel.stage and not handshaken:
                handshaken = True
                deadline = time.monotonic() + limits.receive
            elif time.monotonic() >= deadline:
                if handshaken:
                    reason = f'the server sent no metadata within {limits.receive:g} s'
                    raise Lost(reason, refused=True)
                raise Lost(f'{channel.stage} within {limits.connect:g} s')
        raise Lost('closed')

    def _converse(self, channel: Channel) -> None:
        """Pass requests until the peer is lost or the connection closes."""
        opened = time.monotonic()
        talk = Conversation(channel, self._queue, self._limits, self._generation)
        self._conversation = talk
        self._become('ready', '')
        try:
            while not self._closing:
                talk.advance()
        except Lost as lost:
            talk.end(lost)
            raise
        except Replaced:
            raise
        except Exception as error:
            talk.stop()
            talk.end(Lost(f'{type(error).__name__}: {error}'))
            raise
        finally:
            talk.stop()
            self._metadata = None
            if talk.useful or time.monotonic() - opened > self._backoff_s[1]:
                self._attempts = 0

    def _pause(self) -> None:
        """Let the server be for a while; requests are turned away meanwhile."""
        first, longest = self._backoff_s
        pause = min(longest, first * 2.0 ** min(self._attempts - 1, 30))
        deadline = time.monotonic() + pause * random.uniform(0.5, 1.0)
        while not self._closing and time.monotonic() < deadline:
            self._reject()
            self._waker.wait(deadline)

    # --- ends ---

    def _reject(self) -> None:
        """End what waits for a server that is known to be away."""
        phase, reason, *_ = self._status
        if phase in ('lost', 'refused'):
            self._end_queue(phase, reason)

    def _finish(self) -> None:
        """End everything as closed; any thread may do so."""
        conversation = self._conversation
        present = conversation.present if conversation is not None else None
        if present is not None:
            present.end('closed', 'the connection was closed')
        self._end_queue('closed', 'the connection was closed')
        self._metadata = None
        self._become('closed', 'closed')

    def _end_queue(self, kind: Kind, message: str) -> None:
        while True:
            try:
                ticket = self._queue.popleft()
            except IndexError:
                return
            ticket.end(kind, message)

    def _become(self, phase: Phase, reason: str) -> None:
        with self._changed:
            before = self._status
            if before.phase == 'closed' or (self._closing and phase != 'closed'):
                return
            since = before.since if before.phase == phase else time.monotonic()
            self._status = Status(phase, reason, self._attempts, since)
            self._changed.notify_all()
        if self._on_change is not None and before[:3] != self._status[:3]:
            try:
                self._on_change()
            except Exception:
                _log.exception('the listener to a connection failed')


def _metadata_of(messages: list[Message]) -> dict[str, Any]:
    """Read the first frame of a connection.

    Raises:
        Lost: It is not the metadata of a model server.
    """
    first = messages[0]
    if isinstance(first, str):
        raise Lost(f'the server refused: {telling_line(first) or "no reason given"}', refused=True)
    try:
        metadata = wire.unpack(first)
    except wire.WireError as error:
        raise Lost(f'the metadata cannot be read: {error}', refused=True) from None
    if not isinstance(metadata, dict):
        found = type(metadata).__name__
        raise Lost(f'the metadata is no dictionary (got {found})', refused=True)
    if len(messages) > 1:
        raise Lost('the server sent a message out of turn', refused=True)
    return metadata
