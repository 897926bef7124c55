# SPDX-License-Identifier: Apache-2.0
"""One WebSocket to a model server, driven by the thread that waits on it. Imports no rclpy.

The bytes go through the protocol engine of ``websockets``; the socket never blocks. One wait ends
with a message, with the loss of the peer, with a wake-up from another thread or at a deadline,
whichever is first, so nothing that a server does or leaves undone holds the thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, PayloadTooBig
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from praxis_models.transport.endpoint import Endpoint

LEAST_READ, LARGEST_READ = 4 * 1024, 256 * 1024
"""Bytes of one read: more while they hold large frames, fewer under a flood of small ones."""

MAX_READS = 4
"""Reads of one wait; what a flooding peer has sent beyond them is left to the next."""

MANY_FRAMES = 64
"""Frames of one read that make it a flood."""

MAX_UNSENT = 1024
"""Writes that wait for a peer that does not read, such as answers to its pings."""

_KEEPALIVE = (('TCP_KEEPIDLE', 5), ('TCP_KEEPINTVL', 2), ('TCP_KEEPCNT', 3))
"""The kernel's own probes find a vanished host within 11 s also while a reply is awaited."""


Message = bytes | bytearray | str
"""Whole message of a peer: str is a text frame."""


class Lost(Exception):  # noqa: N818 - an event of a connection's life
    """The peer is not there, is gone, or broke the protocol; the text is one line.

    Attributes:
        refused: The peer is there and does not want to, or is not able to, talk to us.
        garbled: It sent what must not be read, such as a message beyond the limit.
    """

    def __init__(self, reason: str, *, refused: bool = False, garbled: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused
        self.garbled = garbled


def telling_line(text: str, limit: int = 300) -> str:
    """First line of a server's text that says something; the last one of a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ''
    line = lines[-1] if lines[0].startswith('Traceback') else lines[0]
    return line if len(line) <= limit else f'{line[: limit - 3]}...'


class Waker:
    """Ends a wait of `Channel.wait` from another thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Descriptor that is readable once `wake` was called."""
        return self._reader.fileno()

    def wake(self) -> None:
        """End the present wait, or the next one."""
        # Full means that a wake-up is on its way; closed, that nobody waits any longer.
        with contextlib.suppress(OSError):
            self._writer.send(b'.')

    def clear(self) -> None:
        """Take note of the wake-up."""
        with contextlib.suppress(OSError):
            while len(self._reader.recv(4096)) == 4096:
                pass

    def wait(self, deadline: float) -> None:
        """Sleep until the deadline of the monotonic clock or a wake-up."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            if selector.select(max(0.0, deadline - time.monotonic())):
                self.clear()

    def close(self) -> None:
        """Release the descriptors."""
        self._reader.close()
        self._writer.close()


Events = list[tuple[selectors.SelectorKey, int]]


class Channel:
    """A WebSocket in the making, open, or lost. For one thread at a time, except `sleep`.

    Args:
        endpoint: Where to connect to.
        waker: What ends a wait besides the socket.
        headers: Of the handshake request.
        max_message_bytes: A longer message from the peer ends the channel.

    Attributes:
        stage: What is being waited for until the channel is open, empty afterwards.
        heard: Time of the monotonic clock at which the peer last sent anything.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        waker: Waker,
        *,
        headers: dict[str, str],
        max_message_bytes: int,
    ) -> None:
        self.stage = 'no connection'
        self.heard = time.monotonic()
        self._waker = waker
        self._headers = headers
        self._max_message_bytes = max_message_bytes
        self._socket: socket.socket | None = None
        self._lost: Lost | None = None
        self._unsent: list[memoryview] = []
        self._text = False
        self._part = bytearray()
        self._buffer = memoryview(bytearray(LARGEST_READ))
        self._room = LEAST_READ
        self._protocol = ClientProtocol(parse_uri(endpoint.url), max_size=max_message_bytes)
        self._selector = selectors.DefaultSelector()
        self._selector.register(waker, selectors.EVENT_READ)
        try:
            self._addresses = socket.getaddrinfo(
                endpoint.host, endpoint.port, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as error:
            self.close()
            reason = getattr(error, 'strerror', None) or str(error)
            raise Lost(f'cannot resolve {endpoint.host}: {reason}') from None
        self._connect('no address')

    @property
    def is_open(self) -> bool:
        """The handshake is done and the peer not lost."""
        return not self.stage and self._lost is None

    def send(self, message: bytes) -> None:
        """Send a binary message; what does not fit into the socket is sent while waiting."""
        if self._lost is None:  # otherwise the next wait tells
            self._protocol.send_binary(message)
            self._flush()

    def ping(self) -> None:
        """Ask the peer for a sign of life; see ``heard``."""
        if self._lost is None:
            self._protocol.send_ping(b'praxis')
            self._flush()

    def wait(self, deadline: float) -> list[Message]:
        """Wait for messages, for progress in opening, for a wake-up or for the deadline.

        Args:
            deadline: Of the monotonic clock, in seconds.

        Returns:
            Whole messages.

        Raises:
            Lost: Messages that came before the loss are returned by an earlier call.
        """
        return self.collect(self.sleep(deadline))

    def sleep(self, deadline: float) -> Events:
        """First half of `wait`; meanwhile another thread may send."""
        if self._lost is not None:
            return []
        return self._selector.select(max(0.0, deadline - time.monotonic()))

    def collect(self, events: Events) -> list[Message]:
        """Second half of `wait`."""
        messages: list[Message] = []
        for key, mask in events:
            if key.fileobj is self._waker:
                self._waker.clear()
                continue
            if mask & selectors.EVENT_WRITE:
                if self.stage == 'no connection':
                    self._finish_connect()
                else:
                    self._flush()
            if mask & selectors.EVENT_READ and self._lost is None:
                self._read(messages)
        if self._lost is not None and not messages:
            raise self._lost
        return messages

    def close(self, timeout: float = 0.0) -> None:
        """Take leave of the peer, wait for its answer up to the timeout, release the socket."""
        if self.is_open and not self._unsent:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
            deadline = time.monotonic() + timeout
            with contextlib.suppress(Lost):
                while time.monotonic() < deadline:
                    self.wait(deadline)
        self._lost = self._lost or Lost('closed')
        if self._socket is not None:
            self._socket.close()
        self._selector.close()

    # --- opening ---

    def _connect(self, reason: str) -> None:
        """Try the next address of the host."""
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        while self._addresses:
            family, kind, protocol, _, address = self._addresses.pop(0)
            try:
                self._socket = socket.socket(family, kind, protocol)
                self._socket.setblocking(False)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
                for name, value in _KEEPALIVE:
                    if hasattr(socket, name):
                        self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
                code = self._socket.connect_ex(address)
            except OSError as error:
                code = error.errno or errno.EIO
            if code in (0, errno.EINPROGRESS):
                self._selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
                return
            reason = os.strerror(code)
            if self._socket is not None:
                self._socket.close()
                self._socket = None
        self._lost = Lost(f'cannot connect: {reason}')

    def _finish_connect(self) -> None:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._connect(os.strerror(code))
            return
        self.stage = 'no answer to the handshake'
        request = self._protocol.connect()
        request.headers.update(self._headers)
        self._protocol.send_request(request)
        self._flush()

    def _finish_handshake(self, response: Response | None) -> None:
        failure = self._protocol.handshake_exc
        if failure is None and response is not None:
            self.stage = ''
        elif isinstance(failure, InvalidStatus):
            found = failure.response
            said = telling_line(bytes(found.body or b'').decode('utf-8', 'replace'))
            reason = f'HTTP {found.status_code} {found.reason_phrase}'.strip()
            self._lost = Lost(f'{reason}: {said}' if said else reason, refused=True)
        elif isinstance(failure.__cause__, EOFError):
            self._lost = Lost('the server closed the connection during the handshake')
        else:
            self._lost = Lost(f'no WebSocket there: {telling_line(str(failure))}', refused=True)

    # --- bytes in and out ---

    def _flush(self) -> None:
        """Write what the protocol wants to send, as far as the socket takes it."""
        if self._socket is None or self._lost is not None:
            return
        writes = self._protocol.data_to_send()  # an empty one ends the stream, as closing does
        data = writes[0] if len(writes) == 1 else b''.join(writes)
        if data:
            self._unsent.append(memoryview(data))
        waited = False
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0])
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                else:
                    del self._unsent[0]
        except BlockingIOError:
            waited = True
        except OSError as error:
            self._lost = Lost(f'connection lost: {error.strerror or error}')
            return
        if len(self._unsent) > MAX_UNSENT:
            self._lost = Lost('the server does not read')
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if waited else 0)
        if self._selector.get_key(self._socket).events != wanted:
            self._selector.modify(self._socket, wanted)

    def _read(self, messages: list[Message]) -> None:
        assert self._socket is not None
        for _ in range(MAX_READS):
            try:
                count = self._socket.recv_into(self._buffer, self._room)
            except BlockingIOError:
                return
            except OSError as error:
                if self.stage == 'no connection':
                    return  # SO_ERROR tells, in _finish_connect
                self._lost = Lost(f'connection lost: {error.strerror or error}')
                return
            if count:
                self.heard = time.monotonic()
                self._protocol.receive_data(self._buffer[:count])
            else:
                self._protocol.receive_eof()
            full = count == self._room
            if self._take(messages) > MANY_FRAMES:
                self._room = LEAST_READ
            elif full:
                self._room = min(self._room * 4, LARGEST_READ)
            if not count and self._lost is None:
                during = ' during the handshake' if self.stage else ''
                self._lost = Lost(f'the server closed the connection{during}')
            self._flush()
            if self._lost is not None or not full:
                return

    def _take(self, messages: list[Message]) -> int:
        """Turn what the protocol found into messages and the reason of a loss; counts it."""
        events = self._protocol.events_received()
        for event in events:
            if isinstance(event, Response):
                self._finish_handshake(event)
            elif isinstance(event, Frame):
                self._take_frame(event, messages)
        if self._lost is None:
            self._judge()
        return len(events)

    def _judge(self) -> None:
        """Find out whether the protocol has come to an end."""
        protocol = self._protocol
        if self.stage and protocol.handshake_exc is not None:
            self._finish_handshake(None)
        elif protocol.close_rcvd is not None:
            close = protocol.close_rcvd
            said = telling_line(close.reason)
            self._lost = Lost(
                f'the server closed the connection: {int(close.code)}{" " if said else ""}{said}'
            )
        elif isinstance(protocol.parser_exc, PayloadTooBig):
            limit = f'{self._max_message_bytes / 2**20:g} MiB'
            self._lost = Lost(f'a message above the limit of {limit}', garbled=True)
        elif protocol.parser_exc is not None and not isinstance(protocol.parser_exc, EOFError):
            self._lost = Lost(f'broken WebSocket: {protocol.parser_exc}', garbled=True)
        elif protocol.state in (State.CLOSING, State.CLOSED) and not self.stage:
            self._lost = Lost('the server closed the connection')

    def _take_frame(self, frame: Frame, messages: list[Message]) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
            if frame.fin:
                messages.append(self._message(frame.data))
                return
        self._part += frame.data
        if frame.fin:
            messages.append(self._message(self._part))
            self._part = bytearray()

    def _message(self, data: bytes | bytearray) -> Message:
        return str(data, 'utf-8', 'replace') if self._text else data
