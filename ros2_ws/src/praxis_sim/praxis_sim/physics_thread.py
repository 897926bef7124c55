# SPDX-License-Identifier: Apache-2.0
"""The one thread on which a platform is created, stepped, rendered and closed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

R = TypeVar('R')


class PhysicsThread:
    """Runs jobs in order of arrival; between them, a background function when it is due.

    Args:
        failed: Called on the thread with an exception that escaped a posted job or the background
            function; the background function is dropped.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._background: Callable[[], float | None] | None = None
        self._failed = failed
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name='physics', daemon=True)
        self._thread.start()

    def post(self, job: Callable[..., Any], *arguments: Any) -> None:
        """Run a job without waiting for it."""
        self._jobs.put((job, arguments, None))

    def call(self, job: Callable[..., R], *arguments: Any) -> R:
        """Run a job and wait for what it returns or raises.

        Raises:
            RuntimeError: The thread is closed.
        """
        if threading.current_thread() is self._thread:
            return job(*arguments)
        if self._closed.is_set():
            raise RuntimeError('the physics thread is closed')
        future: Future = Future()
        self._jobs.put((job, arguments, future))
        return future.result()

    def set_background(self, background: Callable[[], float | None] | None) -> None:
        """Choose what runs after every job; it returns s until it wants to run without one."""
        self._background = background

    def close(self) -> None:
        """Finish the present job, refuse the others and join."""
        self._closed.set()
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        wait: float | None = None
        while True:
            try:
                item = self._jobs.get(timeout=wait)
            except queue.Empty:
                item = ()
            if item is None or self._closed.is_set():
                self._refuse(item)
                return
            if item:
                self._execute(*item)
            # A burst of messages is taken in as a whole before the next step.
            wait = 0.0
            if self._jobs.empty():
                wait = self._run_background()

    def _run_background(self) -> float | None:
        background = self._background
        if background is None:
            return None
        try:
            return background()
        except Exception as error:
            self._background = None
            self._failed(error)
            return None

    def _execute(self, job, arguments, future: Future | None) -> None:
        try:
            result = job(*arguments)
        except Exception as error:
            if future is None:
                self._failed(error)
            else:
                future.set_exception(error)
        else:
            if future is not None:
                future.set_result(result)

    def _refuse(self, item) -> None:
        while True:
            if item and item[2] is not None:
                item[2].set_exception(RuntimeError('the simulator is shutting down'))
            try:
                item = self._jobs.get_nowait()
            except queue.Empty:
                return
