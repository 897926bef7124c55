# SPDX-License-Identifier: Apache-2.0
"""From the subscriptions to one thread that sees every message in arrival order.

Images are encoded on worker threads meanwhile; their place in the order is kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any


@dataclass
class Arrival:
    """A message on its way.

    Attributes:
        take: Called with the payload on the ingest thread.
        size: Bytes that count against the bound.
        payload: Message, or the future of its encoded form.
        failed: Called instead of `take` when encoding raised.
    """

    take: Callable[[bytes], None]
    size: int
    payload: bytes | Future[bytes]
    failed: Callable[[Exception], None] | None = None


class Pipeline:
    """Bounded queue in front of the ingest thread.

    Args:
        max_bytes: Of messages that wait; beyond it `offer` refuses.
        workers: Threads that encode images.
        on_error: Called with what `take` raised; the thread goes on.

    Attributes:
        refused: Messages refused so far.
        peak_bytes: Most that ever waited.
    """

    def __init__(
        self,
        max_bytes: int = 256 << 20,
        workers: int = 2,
        on_error: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._queue: deque[Arrival | None] = deque()
        self._bytes = 0
        self.peak_bytes = 0
        self.refused = 0
        self._wake = threading.Condition()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix='encode')
        self._thread = threading.Thread(target=self._work, name='ingest', daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait."""
        return self._bytes

    @property
    def waiting(self) -> int:
        """Messages that wait."""
        return len(self._queue)

    def offer(
        self,
        data: bytes,
        take: Callable[[bytes], None],
        encode: Callable[[bytes], bytes] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> bool:
        """Queue a message; returns False, and takes nothing, when the queue is full."""
        size = len(data)
        if self._bytes + size > self._max_bytes:
            self.refused += 1
            return False
        payload = data if encode is None else self._pool.submit(encode, data)
        self._put(Arrival(take, size, payload, failed))
        return True

    def call(self, function: Callable[[], Any]) -> None:
        """Run a function on the ingest thread, after all that was offered before."""
        self._put(Arrival(lambda _: function(), 0, b''))

    def _put(self, arrival: Arrival | None) -> None:
        with self._wake:
            self._queue.append(arrival)
            if arrival is not None:
                self._bytes += arrival.size
                self.peak_bytes = max(self.peak_bytes, self._bytes)
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._queue:
                    self._wake.wait()
                arrival = self._queue.popleft()
            if arrival is None:
                return
            try:
                payload = arrival.payload
                if isinstance(payload, Future):
                    try:
                        payload = payload.result()
                    except Exception as error:
                        if arrival.failed is not None:
                            arrival.failed(error)
                        continue
                arrival.take(payload)
            except Exception as error:
                self._on_error(error)
            finally:
                with self._wake:
                    self._bytes -= arrival.size

    def close(self) -> None:
        """Take in what waits and end the threads."""
        self._put(None)
        self._thread.join()
        self._pool.shutdown()
