# SPDX-License-Identifier: Apache-2.0
"""A worker whose process is ours: started, watched, restarted, stopped."""

from __future__ import annotations

import collections
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from praxis_core.worker_python import find_python, link_packages, worker_environment

from praxis_models.supervision import health
from praxis_models.supervision.devices import visible_devices
from praxis_models.supervision.guard import REST_S
from praxis_models.supervision.process import WorkerProcess
from praxis_models.supervision.specification import Times, WorkerSpec
from praxis_models.supervision.worker import Event, Worker, WorkerError
from praxis_models.transport.endpoint import Endpoint, endpoint_of

HOST = '127.0.0.1'
PACKAGES = ('praxis_core', 'praxis_models')
KILL_S = 5.0
"""Seconds that the end of a killed process may take."""


class OwnedWorker(Worker):
    """A worker whose process is ours."""

    def __init__(
        self, spec: WorkerSpec, times: Times, on_event: Callable[[Event], None] | None
    ) -> None:
        super().__init__(spec.name, times, on_event, spec.log.absolute())
        self._spec = spec
        self._process: WorkerProcess | None = None
        self._port = 0

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None while there is none."""
        process = self._process
        return None if process is None or process.ended else process.pid

    def stop(self) -> None:
        """End the process and return when it has ended.

        It has `Times.eof_s` to end by itself, unless it is still loading and has nothing to put
        in order, and `Times.term_s` after SIGTERM; then it is killed.
        """
        self._begin_stop()
        process = self._process
        if process is not None:
            process.end(at_once=self._phase != 'ready')
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> tuple[str, str]:
        times = self._times
        restarts: collections.deque[float] = collections.deque()
        was_ready = False
        while True:
            reason, ready_s = self._live()
            if self._stopping:
                return 'stopped', ''
            was_ready |= ready_s is not None
            # A start that fails at first fails again; what once worked may work again.
            if self._spec.restart == 'never' or not was_ready:
                return 'failed', reason
            now = time.monotonic()
            if ready_s is not None and ready_s >= times.healthy_s:
                restarts.clear()
            while restarts and restarts[0] < now - times.window_s:
                restarts.popleft()
            if len(restarts) >= times.max_restarts:
                return 'failed', f'given up after {len(restarts)} restarts in a row: {reason}'
            first, most = times.backoff_s
            delay = min(most, first * 2 ** len(restarts))
            restarts.append(now)
            self._set('starting', f'restart in {delay:g} s: {reason}')
            self._pause(delay)
            if self._stopping:
                return 'stopped', ''
            self.restarts += 1
            self._set('starting')

    def _live(self) -> tuple[str, float | None]:
        """Run one process to its end; return why it ended and for how long (s) it was ready."""
        with tempfile.TemporaryDirectory(
            prefix='praxis_worker_', ignore_cleanup_errors=True
        ) as folder:
            port_file = Path(folder, 'port')
            try:
                process = self._start(Path(folder), port_file)
            except (OSError, ValueError) as error:
                return str(error), None
            try:
                reason, ready_s = self._load(process, port_file), None
                if not reason and not self._stopping:
                    since = time.monotonic()
                    reason = self._watch(process)
                    ready_s = time.monotonic() - since
                if reason and not process.ended:
                    process.end(at_once=True)
            finally:
                self._finish(process)
        tail = f'\n{process.tail}' if process.tail else ''
        return f'{reason} (log {self.log}){tail}', ready_s

    def _finish(self, process: WorkerProcess) -> None:
        process.end()
        times = self._times
        patience = times.eof_s + times.term_s + 2 * REST_S + KILL_S
        with self._changed:
            gone = self._changed.wait_for(lambda: process.ended, patience)
        if not gone:
            process.kill()
            with self._changed:
                gone = self._changed.wait_for(lambda: process.ended, KILL_S)
        with self._changed:
            self._endpoint = ''
            self._process = None
        if not gone:
            raise WorkerError(f'process {process.pid} survives SIGKILL (log {self.log})')

    def _start(self, folder: Path, port_file: Path) -> WorkerProcess:
        spec = self._spec
        python = find_python(spec.python)
        root = spec.root and str(Path(spec.root).expanduser().absolute())
        if root and not Path(root).is_dir():
            raise ValueError(f'root: expected a folder (got {spec.root!r})')
        packages = folder / 'packages'
        packages.mkdir()
        link_packages(packages, PACKAGES)
        command = [str(python), '-m', spec.module, spec.backend, *spec.arguments]
        # A restarted worker is looked for where it was; if it cannot listen there, anywhere.
        command += ['--host', HOST, '--port', str(self._port), '--port-file', str(port_file)]
        command += ['--exit-on-stdin-eof']
        self._port = 0
        process = WorkerProcess(
            command,
            environment=worker_environment(
                python,
                packages,
                root=root,
                extra={**visible_devices(spec.device), **spec.environment},
            ),
            directory=root,
            folder=folder,
            log=self.log,
            title=f'start {self.restarts + 1} of {spec.name}',
            eof_s=self._times.eof_s,
            term_s=self._times.term_s,
            on_change=self._notify,
        )
        with self._changed:
            self._process = process
            stopping = self._stopping
        if stopping:
            process.end(at_once=True)
        return process

    def _load(self, process: WorkerProcess, port_file: Path) -> str:
        """Wait until the worker answers; return why it does not, '' if it does."""
        limit = self._spec.ready_timeout_s
        deadline = time.monotonic() + limit
        pause = self._times.first_probe_s
        endpoint = None
        missing = 'it does not listen'
        while True:
            self._pause(pause, lambda: process.ended)
            if self._stopping:
                return ''
            if process.ended:
                return _with_last_line(process, 'while loading')
            if endpoint is None and (port := _read_port(port_file)):
                endpoint = Endpoint(HOST, port, '')
                self._set('starting', endpoint=endpoint.url)
            if endpoint is not None:
                answer = health.ask(endpoint, self._times.health_timeout_s)
                # Somebody else may have the port once the worker is gone.
                if answer.state == 'ready' and not process.ended:
                    self._port = endpoint.port
                    self._set('ready')
                    return ''
                missing = answer.detail
            if time.monotonic() >= deadline:
                return f'not ready within {limit:g} s: {missing}'
            pause = min(self._times.probe_s, 1.5 * pause)

    def _watch(self, process: WorkerProcess) -> str:
        """Wait until the worker ends or answers no more; return why."""
        endpoint = endpoint_of(self._endpoint)
        failures = 0
        while True:
            self._pause(self._times.health_s, lambda: process.ended)
            if self._stopping:
                return ''
            if process.ended:
                return _with_last_line(process, 'while ready')
            answer = health.ask(endpoint, self._times.health_timeout_s)
            failures = 0 if answer.state == 'ready' else failures + 1
            if failures >= self._times.health_failures and not process.ended:
                return f'does not answer: {answer.detail}'


def _read_port(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding='ascii'))
    return 0


def _with_last_line(process: WorkerProcess, when: str) -> str:
    last = process.tail.rpartition('\n')[2]
    return f'{process.ended} {when}' + (f': {last}' if last else '')
