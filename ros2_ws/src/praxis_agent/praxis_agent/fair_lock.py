# SPDX-License-Identifier: Apache-2.0
"""A lock for one motion at a time, in the order of the calls."""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """A lock that is handed over in the order it was asked for."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._queue: deque[threading.Event] = deque()
        self._held = False

    def __enter__(self) -> None:
        with self._mutex:
            if not self._held:
                self._held = True
                return
            ticket = threading.Event()
            self._queue.append(ticket)
        ticket.wait()

    def __exit__(self, *exc: object) -> None:
        with self._mutex:
            if self._queue:
                self._queue.popleft().set()
            else:
                self._held = False
