# SPDX-License-Identifier: Apache-2.0
"""A server that somebody else runs: looked at, never stopped, never restarted."""

from __future__ import annotations

from collections.abc import Callable

from praxis_models.supervision import health
from praxis_models.supervision.specification import Times
from praxis_models.supervision.worker import Event, Worker
from praxis_models.transport.endpoint import endpoint_of


class JoinedWorker(Worker):
    """A server that somebody else runs: looked at, never stopped, never restarted."""

    FAILURES = 2

    def __init__(
        self, name: str, endpoint: str, times: Times, on_event: Callable[[Event], None] | None
    ) -> None:
        super().__init__(name, times, on_event, None)
        self._server = endpoint_of(endpoint)
        self._endpoint = self._server.url

    def stop(self) -> None:
        """Watch no longer; the server goes on."""
        self._begin_stop()
        self._set('stopped')

    def _run(self) -> tuple[str, str]:
        times = self._times
        failures = 0
        pause = 0.0
        while True:
            self._pause(pause)
            if self._stopping:
                return 'stopped', ''
            answer = health.ask(self._server, times.health_timeout_s)
            if answer.state == 'loading':
                failures = 0
                self._set('starting', f'loading: {answer.detail}')
            elif answer.state == 'silent':
                failures += 1
                if failures >= self.FAILURES:
                    self._set('failed', f'{self._endpoint} does not answer: {answer.detail}')
            else:
                failures = 0
                # Servers of other projects need not know /healthz.
                self._set('ready', answer.detail if answer.state == 'other' else '')
            pause = times.health_s if self._phase == 'ready' and not failures else times.probe_s
