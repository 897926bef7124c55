# SPDX-License-Identifier: Apache-2.0
"""Request socket of ZeroMQ, as much of it as asking one server takes.

ZMTP 3.0 (RFC 23) with the NULL mechanism, tried with libzmq 4.3.5: a model's own server can be
asked from an environment without ZeroMQ. A socket that fails is closed and connects again for the
next request, so that a late answer is never taken for that of another. Imports no rclpy.
"""

from __future__ import annotations

import socket
import struct
import time
from urllib.parse import urlsplit

_GREETING = (
    b'\xff' + bytes(8) + b'\x7f'  # signature
    + b'\x03\x00'  # version 3.0
    + b'NULL'.ljust(20, b'\x00')
    + b'\x00'  # not a server of the mechanism
    + bytes(31)
)  # fmt: skip
_MORE, _LONG, _COMMAND = 1, 2, 4
_MAX_FRAME = 256 * 1024 * 1024


class ZmtpError(ConnectionError):
    """The peer does not speak ZMTP 3, or says what a reply socket does not say."""


class RequestSocket:
    """Asks one server, one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None
        self._end = 0.0

    def request(self, body: bytes, timeout_s: float) -> bytes:
        """Send a request and wait for its answer.

        Raises:
            TimeoutError: It does not come in time.
            OSError: The server cannot be reached, or is lost.
            ZmtpError: It is no ZeroMQ reply socket.
        """
        self._end = time.monotonic() + timeout_s
        try:
            if self._socket is None:
                self._connect()
            self._send(_frame(b'', _MORE) + _frame(body, 0))
            frames = self._message()
        except BaseException:
            self.close()
            raise
        if len(frames) != 2 or frames[0]:
            self.close()
            raise ZmtpError(f'expected an empty frame and a body (got {len(frames)} frames)')
        return frames[1]

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.close()

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, self._left())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send(_GREETING)
        greeting = self._receive(len(_GREETING))
        if greeting[0] != 0xFF or greeting[9] != 0x7F or greeting[10] < 3:
            raise ZmtpError('the server does not speak ZMTP 3')
        if greeting[12:32].rstrip(b'\x00') != b'NULL':
            raise ZmtpError('the server asks for a mechanism other than NULL')
        ready = b'\x05READY' + _property('Socket-Type', b'REQ') + _property('Identity', b'')
        self._send(_frame(ready, _COMMAND))
        flags, answer = self._read_frame()
        if not flags & _COMMAND or not answer.startswith(b'\x05READY'):
            raise ZmtpError('the server refuses the connection')

    def _message(self) -> list[bytes]:
        frames: list[bytes] = []
        while True:
            flags, body = self._read_frame()
            if flags & _COMMAND:
                continue
            frames.append(body)
            if not flags & _MORE:
                return frames

    def _read_frame(self) -> tuple[int, bytes]:
        flags = self._receive(1)[0]
        if flags > 7:
            raise ZmtpError(f'a frame with the flags {flags:#x}')
        size = struct.unpack('>Q', self._receive(8))[0] if flags & _LONG else self._receive(1)[0]
        if size > _MAX_FRAME:
            raise ZmtpError(f'a frame of {size} bytes')
        return flags, self._receive(size)

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            self._socket.settimeout(self._left())
            count = self._socket.recv_into(view[done:])
            if not count:
                raise ZmtpError('the server closed the connection')
            done += count
        return bytes(data)

    def _left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0.0:
            raise TimeoutError('timed out')
        return left


def address(endpoint: str) -> tuple[str, int]:
    """Host and port of ``tcp://HOST:PORT`` or ``HOST:PORT``.

    Raises:
        ValueError: It is neither.
    """
    parts = urlsplit(endpoint if '://' in endpoint else f'tcp://{endpoint}')
    if parts.scheme != 'tcp' or not parts.hostname or parts.port is None:
        raise ValueError(f'must be tcp://HOST:PORT (got {endpoint!r})')
    return parts.hostname, parts.port


def _frame(body: bytes, flags: int) -> bytes:
    if len(body) > 255:
        return struct.pack('>BQ', flags | _LONG, len(body)) + body
    return struct.pack('>BB', flags, len(body)) + body


def _property(name: str, value: bytes) -> bytes:
    return struct.pack('>B', len(name)) + name.encode() + struct.pack('>I', len(value)) + value
