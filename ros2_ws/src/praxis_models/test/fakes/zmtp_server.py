# SPDX-License-Identifier: Apache-2.0
"""A ZeroMQ reply socket of one thread, made from ZMTP 3.0 (RFC 23)."""

import contextlib
import socket
import struct
import threading

GREETING = b'\xff' + bytes(8) + b'\x7f' + b'\x03\x00' + b'NULL'.ljust(20, b'\0') + bytes(32)
READY = b'\x05READY' + b'\x0bSocket-Type' + struct.pack('>I', 3) + b'REP'


class ReplyServer:
    """Answers with ``handle(body)``.

    Attributes:
        greeting: What is sent first.
        before: Bytes sent before each answer, such as a command.
        hold: While set, requests are not answered.
        raw: Sent instead of an answer.
        connections: How many were accepted.
    """

    def __init__(self, handle, port=0):
        self.handle = handle
        self.greeting = GREETING
        self.before = b''
        self.raw = None
        self.hold = False
        self.connections = 0
        self._open = []
        self._closed = threading.Event()
        self._listener = socket.create_server(('127.0.0.1', port))
        self.port = self._listener.getsockname()[1]
        self.endpoint = f'tcp://127.0.0.1:{self.port}'
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self):
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for opened in self._open:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                opened, _ = self._listener.accept()
                self.connections += 1
                self._open.append(opened)
                threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened):
        with contextlib.suppress(OSError, EOFError):
            opened.sendall(self.greeting)
            greeting = self._read(opened, 64)
            assert greeting[0] == 0xFF and greeting[9] == 0x7F and greeting[10] == 3
            assert greeting[12:32].rstrip(b'\0') == b'NULL'
            flags, ready = self._frame(opened)
            assert flags == 4 and ready.startswith(b'\x05READY') and b'REQ' in ready
            opened.sendall(struct.pack('>BB', 4, len(READY)) + READY)
            while True:
                flags, delimiter = self._frame(opened)
                assert flags == 1 and delimiter == b''
                _, body = self._frame(opened)
                answer = self.handle(body)
                while self.hold and not self._closed.wait(0.01):
                    pass
                if self.raw is not None:
                    opened.sendall(self.raw)
                    continue
                head = struct.pack('>BQ', 2, len(answer))
                opened.sendall(self.before + b'\x01\x00' + head + answer)

    def _frame(self, opened):
        flags = self._read(opened, 1)[0]
        size = self._read(opened, 8 if flags & 2 else 1)
        return flags & ~2, self._read(opened, int.from_bytes(size, 'big'))

    def _read(self, opened, size):
        data = b''
        while len(data) < size:
            part = opened.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data
