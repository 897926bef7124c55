# SPDX-License-Identifier: Apache-2.0
"""A worker's process as the supervisor holds it, through its guard."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from praxis_models.supervision import guard

LOG_BYTES = 16 * 2**20


class WorkerProcess:
    """One run of a worker.

    Args:
        command: Command line, the executable as an absolute path.
        environment: All environment variables.
        directory: Working directory, '' for ours.
        folder: Removed when the worker has ended.
        log: File that its output is appended to.
        title: First words of the log's header.
        eof_s: Seconds to end by itself after the end of its standard input.
        term_s: Seconds to end after SIGTERM.
        on_change: Called on a thread of its own once the worker has a pid, and when it has ended.

    Attributes:
        pid: Of the worker, None until it runs.
        ended: How it ended, '' while it lives. All that it started is gone then, too.
        tail: Last lines of its output, once it has ended.

    Raises:
        OSError: The guard cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str,
        folder: Path,
        log: Path,
        title: str,
        eof_s: float,
        term_s: float,
        on_change: Callable[[], None],
    ) -> None:
        self.pid: int | None = None
        self.ended = ''
        self.tail = ''
        self._on_change = on_change
        self._lock = threading.Lock()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open('ab') as errors:
            self._guard = subprocess.Popen(
                [sys.executable, '-I', '-S', guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C in a terminal is for us: we end the workers, in order.
                start_new_session=True,
            )
        order = {
            'command': list(command),
            'environment': dict(environment),
            'directory': directory,
            'folder': str(folder),
            'parent': os.getpid(),
            'log': str(log),
            'log_bytes': LOG_BYTES,
            'title': title,
            'eof_s': eof_s,
            'term_s': term_s,
        }
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.write(json.dumps(order).encode() + b'\n')
            self._guard.stdin.flush()
        threading.Thread(target=self._read, name='worker_reports', daemon=True).start()

    def end(self, *, at_once: bool = False) -> None:
        """Ask the worker to end; `ended` tells when it has. Does nothing the second time.

        Args:
            at_once: Terminate it without waiting until it ends by itself.
        """
        with self._lock, contextlib.suppress(OSError, ValueError):
            if at_once and not self._guard.stdin.closed:
                self._guard.stdin.write(b't')
            self._guard.stdin.close()

    def kill(self) -> None:
        """Kill the guard, and the worker with it: for a guard that does not do its work."""
        self._guard.kill()

    def _read(self) -> None:
        ended = tail = ''
        for line in self._guard.stdout:
            message = json.loads(line)
            if 'pid' in message:
                self.pid = message['pid']
                self._on_change()
            elif 'error' in message:
                ended = f'cannot be started: {message["error"]}'
            else:
                ended, tail = describe_status(message['exit']), message['tail']
        self._guard.stdout.close()
        self._guard.wait()
        self.end()
        if not ended:
            # The worker has died with its guard; others of its group may not have.
            ended = 'lost its guard process'
            if self.pid is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
        self.tail = tail
        self.ended = ended
        self._on_change()


def describe_status(status: int) -> str:
    """Return how a process ended in words."""
    if status >= 0:
        return f'exited with {status}'
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f'signal {-status}'
    return f'died of {name}' + (' (out of memory?)' if -status == signal.SIGKILL else '')
