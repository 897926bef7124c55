# SPDX-License-Identifier: Apache-2.0
"""What a worker's process needs of the system: signals, sockets, standard input, files."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM)

REPEAT_S = 0.5
"""Terminal and launcher both pass on one Ctrl-C; within this time it is the same one."""


@contextlib.contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """Pass signals on at once, also while the main thread is inside a long call of the model.

    Python runs a handler only between two bytecodes of the main thread; the byte that it writes to
    the wake-up descriptor comes from the C handler.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    seen: dict[int, float] = {}

    def watch() -> None:
        while data := reading.recv(1):
            number, now = data[0], time.monotonic()
            if number not in SIGNALS:
                continue
            if now - seen.setdefault(number, now) > REPEAT_S:
                os.write(2, b'second signal: ending at once\n')
                os._exit(128 + number)
            stop()

    before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    descriptor = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, name='signals', daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        writing.close()
        thread.join()
        reading.close()


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket; asyncio sends at once only where its protocol is named, as here."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def watch_stdin(stop: Callable[[], None]) -> None:
    """Call a function when standard input ends, as it does with the process that holds it."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        stop()

    threading.Thread(target=watch, name='stdin', daemon=True).start()


def write_atomically(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    partial = path.with_name(f'.{path.name}.{os.getpid()}')
    partial.write_text(text, encoding='utf-8')
    os.replace(partial, path)


def quieten_handshakes() -> None:
    """Log no handshake that failed: older websockets take each answer of `/healthz` for one."""
    sockets = logging.getLogger('websockets.server')
    sockets.setLevel(logging.WARNING)
    sockets.addFilter(lambda record: record.msg != 'opening handshake failed')
