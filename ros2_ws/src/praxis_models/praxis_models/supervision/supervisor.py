# SPDX-License-Identifier: Apache-2.0
"""Starts model workers, watches them, restarts those that fail, and stops them in order."""

from __future__ import annotations

import threading
from collections.abc import Callable

from praxis_models.supervision.joined_worker import JoinedWorker
from praxis_models.supervision.owned_worker import OwnedWorker
from praxis_models.supervision.specification import Times, WorkerSpec
from praxis_models.supervision.worker import Event, Worker

__all__ = ['Event', 'Supervisor', 'Times', 'Worker', 'WorkerSpec']


class Supervisor:
    """The workers of one process.

    A worker that was started here ends with this process, however that ends; a server that was
    joined is only watched.

    Args:
        on_event: Called at every change of a worker's phase, on that worker's thread.
        times: Of all workers.
    """

    def __init__(
        self, on_event: Callable[[Event], None] | None = None, *, times: Times | None = None
    ) -> None:
        self._on_event = on_event
        self._times = times or Times()
        self._lock = threading.Lock()
        self._stopping = False
        self._workers: dict[str, Worker] = {}

    @property
    def workers(self) -> tuple[Worker, ...]:
        """All workers in the order of their start."""
        with self._lock:
            return tuple(self._workers.values())

    def start(self, spec: WorkerSpec) -> Worker:
        """Start a worker and return at once; it goes from 'starting' to 'ready' or 'failed'.

        Raises:
            ValueError: A worker of that name is there already.
            RuntimeError: The workers are being stopped.
        """
        return self._add(OwnedWorker(spec, self._times, self._on_event))

    def join(self, name: str, endpoint: str) -> Worker:
        """Watch a server that somebody else runs; it is never stopped.

        Raises:
            ValueError: The endpoint is none, or a worker of that name is there already.
            RuntimeError: The workers are being stopped.
        """
        return self._add(JoinedWorker(name, endpoint, self._times, self._on_event))

    def _add(self, worker: Worker) -> Worker:
        with self._lock:
            if self._stopping:
                raise RuntimeError('the workers are being stopped')
            present = self._workers.get(worker.name)
            if present is not None and not present.is_over:
                raise ValueError(f'worker {worker.name!r} is there already ({present.phase})')
            self._workers.pop(worker.name, None)
            self._workers[worker.name] = worker
            worker.begin()
        return worker

    def stop(self) -> None:
        """Stop all workers, the last one first, each after the one before has ended.

        Takes at most `Times.eof_s` + `Times.term_s` for each. Can be called from several threads
        and again; workers can be started again afterwards.
        """
        with self._lock:
            self._stopping = True
            workers = list(self._workers.values())
        try:
            for worker in reversed(workers):
                worker.stop()
        finally:
            with self._lock:
                self._stopping = False

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
