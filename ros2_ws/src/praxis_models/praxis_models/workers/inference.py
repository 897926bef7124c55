# SPDX-License-Identifier: Apache-2.0
"""One thread that owns the model; jobs from an event loop run on it, first come first served."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class OverloadError(RuntimeError):
    """Too many jobs wait already."""


class SkippedError(RuntimeError):
    """A job did not run: nobody waits for it any more, or the worker is stopping."""


@dataclass
class _Job:
    call: Callable[[], Any]
    wanted: Callable[[], bool]
    future: asyncio.Future[Any]
    counted: bool


class Inference:
    """Runs jobs on the thread that calls `work`.

    Model code often insists on the main thread (signal handlers, GL contexts, CUDA graphs), so
    the process gives it that one and serves sockets from another.

    Args:
        limit: Jobs that may wait.
    """

    def __init__(self, limit: int = 32) -> None:
        self._limit = limit
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._running: _Job | None = None
        self._stopping = False

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return self._waiting

    @property
    def busy(self) -> bool:
        """A job runs."""
        return self._running is not None

    async def run(
        self,
        call: Callable[[], Any],
        *,
        wanted: Callable[[], bool] = lambda: True,
        housekeeping: bool = False,
    ) -> Any:
        """Run a call after those before it; gives what it returns and raises what it raises.

        Args:
            call: Runs on the model's thread.
            wanted: Asked on that thread when its turn comes.
            housekeeping: Runs also when the queue is full or the worker is stopping.

        Raises:
            OverloadError: The queue is full.
            SkippedError: It did not run.
        """
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._stopping and not housekeeping:
                raise SkippedError('the worker is stopping')
            if not housekeeping:
                if self._waiting >= self._limit:
                    raise OverloadError(f'{self._waiting} requests wait already')
                self._waiting += 1
            self._jobs.put(_Job(call, wanted, future, not housekeeping))
        return await future

    def work(self) -> None:
        """Run jobs until `close`."""
        while (job := self._jobs.get()) is not None:
            if job.counted:
                with self._lock:
                    self._waiting -= 1
                    stopping = self._stopping
                if stopping or job.future.cancelled() or not job.wanted():
                    reason = 'the worker is stopping' if stopping else 'nobody waits for it'
                    _settle(job.future, SkippedError(reason), failed=True)
                    continue
            self._running = job
            try:
                result, failed = job.call(), False
            except BaseException as error:  # a job must not take the worker with it
                result, failed = error, True
            self._running = None
            _settle(job.future, result, failed=failed)

    def stop(self) -> None:
        """Refuse jobs from here on, also those that wait; a running one goes on."""
        with self._lock:
            self._stopping = True

    def abandon(self) -> None:
        """Wait no longer for the running job: it ends as skipped, whenever it ends."""
        job = self._running
        if job is not None:
            _settle(job.future, SkippedError('the worker is stopping'), failed=True)

    def close(self) -> None:
        """Let `work` return after the jobs before this call."""
        self._jobs.put(None)


def _settle(future: asyncio.Future[Any], value: Any, *, failed: bool) -> None:
    def settle() -> None:
        if future.done():
            return
        if failed:
            future.set_exception(value)
        else:
            future.set_result(value)

    if failed and isinstance(value, (KeyboardInterrupt, SystemExit, StopIteration)):
        value = RuntimeError(f'{type(value).__name__}: {value}')
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        future.get_loop().call_soon_threadsafe(settle)
