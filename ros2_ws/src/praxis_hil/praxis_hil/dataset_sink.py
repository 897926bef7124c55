# SPDX-License-Identifier: Apache-2.0
"""Turn the messages of one episode into a dataset episode, on a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_END = None


class DatasetSink:
    """Feed messages to the assembler and its rows to the dataset's writer.

    A sink that falls behind by more than `max_bytes` gives up rather than lose messages or hold
    up the bag; the episode is then made from its bag.

    Args:
        assembler: Has `ingest(topic, typename, data, log_time_ns) -> rows` and `close() -> rows`.
        make_writer: Called on the sink's thread; makes an object with `add(row)`,
            `finish(outcome, note, message) -> index` and `abort()`.
        max_bytes: Of messages that wait.

    Attributes:
        rows: Closed so far.
        stale: Of those, rows in which a stream repeats its last sample.
        error: What ended the sink early, or None.
    """

    def __init__(
        self, assembler: Any, make_writer: Callable[[], Any], max_bytes: int = 256 << 20
    ) -> None:
        self._assembler = assembler
        self._make_writer = make_writer
        self._max_bytes = max_bytes
        self._queue: deque[tuple[str, str, bytes, int] | None] = deque()
        self._bytes = 0
        self._wake = threading.Condition()
        self.writer: Any = None
        self.rows = 0
        self.stale = 0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name='dataset', daemon=True)
        self._thread.start()

    @property
    def lagging(self) -> bool:
        """Half of what may wait is waiting."""
        return self._bytes > self._max_bytes // 2

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return len(self._queue)

    @property
    def ended(self) -> str:
        """Why the assembler takes no more rows, empty while it does."""
        return self._assembler.message if self._assembler.ended else ''

    def put(self, topic: str, typename: str, data: bytes, log_time_ns: int) -> None:
        """Hand over a message; returns at once."""
        with self._wake:
            if self.error is not None:
                return
            if self._bytes > self._max_bytes:
                self._give_up(RuntimeError(f'dataset fell behind by {self._bytes >> 20} MiB'))
                return
            self._queue.append((topic, typename, data, log_time_ns))
            self._bytes += len(data)
            self._wake.notify()

    def _give_up(self, error: Exception) -> None:
        self.error = error
        self._queue.clear()
        self._bytes = 0
        self._queue.append(_END)
        self._wake.notify()

    def _take(self) -> tuple[str, str, bytes, int] | None:
        with self._wake:
            while not self._queue:
                self._wake.wait()
            item = self._queue.popleft()
            if item is not None:
                self._bytes -= len(item[2])
            return item

    def _work(self) -> None:
        try:
            self.writer = self._make_writer()
            while (item := self._take()) is not None:
                self._add(self._assembler.ingest(*item))
            if self.error is None:
                self._add(self._assembler.close())
        except Exception as error:
            with self._wake:
                self._give_up(error)

    def _add(self, rows: Any) -> None:
        for row in rows:
            self.writer.add(row)
            self.rows += 1
            self.stale += any(row.stale.values())

    def close(self) -> None:
        """Take in everything handed over and close the last row; then `writer` may be finished.

        Raises:
            Exception: What ended the sink early.
        """
        with self._wake:
            self._queue.append(_END)
            self._wake.notify()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def abort(self) -> None:
        """Drop what waits and what was written."""
        with self._wake:
            if self.error is None:
                self._give_up(RuntimeError('aborted'))
        self._thread.join()
        if self.writer is not None:
            self.writer.abort()
