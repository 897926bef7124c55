# SPDX-License-Identifier: Apache-2.0
"""A model server that misbehaves by script, over real sockets.

A script is a function of one accepted connection. The first connection gets the first script, and
so on; the last one is for all that follow.
"""

import contextlib
import http
import socket
import struct
import threading
from collections.abc import Callable

from praxis_models.transport import wire
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

META = {'protocol': 'praxis.model.v1', 'backend': 'noop', 'model': 'first'}


class Peer:
    """One accepted connection, as the server sees it."""

    def __init__(self, sock: socket.socket, stopped: threading.Event) -> None:
        self.socket = sock
        self.stopped = stopped
        self.headers: dict[str, str] = {}
        self.close_code: int | None = None
        self._protocol = ServerProtocol(max_size=None)
        self._events: list = []

    def accept(self) -> None:
        """Do the handshake."""
        request = self._event()
        assert isinstance(request, Request)
        self.headers = dict(request.headers.raw_items())
        self._protocol.send_response(self._protocol.accept(request))
        self._flush()

    def deny(self, status: int, body: str) -> None:
        """Answer the handshake with an HTTP error."""
        assert isinstance(self._event(), Request)
        self._protocol.send_response(self._protocol.reject(http.HTTPStatus(status), body))
        self._flush()

    def greet(self, metadata: object = META) -> None:
        """Do the handshake and send the metadata."""
        self.accept()
        self.send(wire.pack(metadata))

    def send(self, *messages: bytes | str) -> None:
        """Send whole messages in one write, text as text frames."""
        self.raw(b''.join(self.frame(message) for message in messages))

    def frame(self, message: bytes | str, *, fin: bool = True, follows: bool = False) -> bytes:
        """Bytes of a message's frame."""
        opcode = Opcode.TEXT if isinstance(message, str) else Opcode.BINARY
        data = message.encode() if isinstance(message, str) else message
        return Frame(Opcode.CONT if follows else opcode, data, fin).serialize(mask=False)

    def raw(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def drip(self, data: bytes, pause: float) -> None:
        """Send a byte at a time."""
        for index in range(len(data)):
            self.raw(data[index : index + 1])
            if self.stopped.wait(pause):
                return

    def receive(self) -> bytes | str | None:
        """Next message, None once the client has gone; pings are answered."""
        while (event := self._event()) is not None:
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY):
                data = bytes(event.data)
                return data.decode() if event.opcode is Opcode.TEXT else data
        return None

    def close(self, code: int, reason: str = '') -> None:
        """Start the closing handshake and wait for the client's part."""
        self._protocol.send_close(code, reason)
        self._flush()
        while self._event() is not None:
            pass

    def hang_up(self) -> None:
        """Close the TCP connection without a word."""
        self.socket.close()

    def reset(self) -> None:
        """Kill the TCP connection (RST)."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self.socket.close()

    def be_silent(self, seconds: float | None = None) -> None:
        """Neither read nor write, until the server stops or for a time."""
        self.stopped.wait(seconds)

    def _event(self) -> Request | Frame | None:
        while not self._events:
            data = self.socket.recv(1 << 16)
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            self._flush()
            self._events += self._protocol.events_received()
            if self._protocol.close_rcvd is not None:
                self.close_code = int(self._protocol.close_rcvd.code)
            if self._protocol.state is State.CLOSED or not data:
                return None
        return self._events.pop(0)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self.socket.sendall(data)


Script = Callable[[Peer], None]


class HostileServer:
    """Listens on a free port of the loopback, or on a given one, and runs scripts."""

    def __init__(self, *scripts: Script, port: int = 0) -> None:
        self.scripts = list(scripts)
        self.peers: list[Peer] = []
        self.failures: list[BaseException] = []
        self._stopped = threading.Event()
        self._listener = socket.create_server(('127.0.0.1', port), backlog=16)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._threads[0].start()

    @property
    def endpoint(self) -> str:
        return f'ws://127.0.0.1:{self.port}'

    def stop(self) -> None:
        """End all connections and stop to listen."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)
            peer.socket.close()
        for thread in self._threads:
            thread.join(5.0)
            assert not thread.is_alive(), 'a script goes on'

    def __enter__(self) -> 'HostileServer':
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _listen(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            script = self.scripts[min(len(self.peers), len(self.scripts) - 1)]
            peer = Peer(sock, self._stopped)
            self.peers.append(peer)
            thread = threading.Thread(target=self._play, args=(script, peer), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, script: Script, peer: Peer) -> None:
        try:
            script(peer)
        except OSError:
            pass  # the client, or stop(), was faster
        except BaseException as failure:
            self.failures.append(failure)
        finally:
            peer.socket.close()


def refusing_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        return listener.getsockname()[1]


def model(metadata: dict = META, reply: Callable[[dict], dict] = lambda request: {}) -> Script:
    """A server as it should be; the reply tells which model gave it."""

    def script(peer: Peer) -> None:
        peer.greet(metadata)
        while (message := peer.receive()) is not None:
            request = wire.unpack(message)
            peer.send(wire.pack({'model': metadata['model'], **reply(request)}))

    return script
