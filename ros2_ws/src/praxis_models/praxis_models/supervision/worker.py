# SPDX-License-Identifier: Apache-2.0
"""A supervised model worker as its users see it."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from praxis_models.supervision.specification import Times

_LOGGER = logging.getLogger(__name__)


class Event(NamedTuple):
    """A worker has changed its phase.

    Attributes:
        worker: Which; its endpoint may differ from that before a restart.
        phase: 'starting', 'ready', 'failed' or 'stopped'.
        reason: Why, '' where there is nothing to say.
    """

    worker: Worker
    phase: str
    reason: str


class WorkerError(RuntimeError):
    """A worker is beyond the supervisor's reach."""


class Worker(ABC):
    """A worker as its users see it. Its state changes on a thread of its own.

    Attributes:
        name: As given.
        log: File with its output, None if it is not ours.
        restarts: How often it was started again.
    """

    def __init__(
        self, name: str, times: Times, on_event: Callable[[Event], None] | None, log: Path | None
    ) -> None:
        self.name = name
        self.log = log
        self.restarts = 0
        self._times = times
        self._on_event = on_event
        self._changed = threading.Condition()
        self._phase = 'starting'
        self._reason = ''
        self._endpoint = ''
        self._since = time.monotonic()
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name=f'worker {name}', daemon=True)

    @property
    def phase(self) -> str:
        """'starting', 'ready', 'failed' or 'stopped'."""
        return self._phase

    @property
    def endpoint(self) -> str:
        """``ws://HOST:PORT``, '' while it does not listen."""
        return self._endpoint

    @property
    def reason(self) -> str:
        """Why it is in its phase; the first line says it all, others show the end of the log."""
        with self._changed:
            if self._phase == 'starting' and not self._reason:
                return f'loading for {time.monotonic() - self._since:.0f} s'
            return self._reason

    @property
    def pid(self) -> int | None:
        """Process id, None if there is none or it is not ours."""
        return None

    @property
    def is_over(self) -> bool:
        """Whether it stays as it is."""
        return self._phase == 'stopped' or (
            self._phase == 'failed' and not self._thread.is_alive()
        )

    def begin(self) -> None:
        """Start the thread; called once, by the supervisor."""
        self._thread.start()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until it is ready, has failed or was stopped.

        Args:
            timeout: Seconds, None for no limit.

        Returns:
            Whether it is ready.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._phase != 'starting', timeout)
            return self._phase == 'ready'

    @abstractmethod
    def stop(self) -> None:
        """End the process, if it is ours, and return when it has ended; or watch no longer."""

    def _begin_stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    @abstractmethod
    def _run(self) -> tuple[str, str]:
        """Live; return the last phase and its reason."""

    def _main(self) -> None:
        self._announce()
        try:
            phase, reason = self._run()
        except WorkerError as error:
            phase, reason = 'failed', str(error)
        except Exception as error:
            _LOGGER.exception('worker %s', self.name)
            phase, reason = 'failed', f'{type(error).__name__}: {error}'
        self._set(phase, reason)

    def _set(self, phase: str, reason: str = '', endpoint: str | None = None) -> None:
        with self._changed:
            if self._phase == 'stopped':
                return
            changed = phase != self._phase
            if phase == 'starting' and (changed or self._reason):
                self._since = time.monotonic()
            self._phase, self._reason = phase, reason
            if endpoint is not None:
                self._endpoint = endpoint
            self._changed.notify_all()
        if changed:
            self._announce()

    def _announce(self) -> None:
        if self._on_event is not None:
            try:
                self._on_event(Event(self, self._phase, self.reason))
            except Exception:
                _LOGGER.exception('worker %s: event %s', self.name, self._phase)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _pause(self, seconds: float, until: Callable[[], object] = lambda: False) -> None:
        """Wait for a time, until stopped, or until a condition that `_notify` has looked at."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or until(), seconds)
