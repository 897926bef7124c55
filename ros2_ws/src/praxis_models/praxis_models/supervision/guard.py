# SPDX-License-Identifier: Apache-2.0
"""Starts one worker, keeps its log, and ends it when told to or when the supervisor is gone.

A process of its own, standard library only, between the supervisor and the worker, so that the
end of a worker is carried through even when the supervisor is killed half-way. The first line of
standard input is a JSON object (`command`, `environment`, `directory`, `parent`, `log`,
`log_bytes`, `title`, `eof_s`, `term_s`, and `folder`, which is removed at the end). After it, a
``t`` skips the wait for a voluntary end, and the end of the stream begins it. Standard output has
one JSON object a line: `pid` or `error`, and then `exit` with `tail`, once the worker and all that
it started are gone.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import datetime
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TAIL_LINES = 12
LINE_BYTES = 400
KEPT_LOGS = 2
PARENT_S = 1.0
"""Seconds between looks at the parent: another child of it may hold our pipe open."""
REST_S = 2.0
"""Seconds that processes left by the worker have to end."""


class Log:
    """A log file that starts anew when it is full; the old ones get the endings .1 and .2."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._file = open(path, 'ab', buffering=0)  # noqa: SIM115
        self._tail: collections.deque[bytes] = collections.deque(maxlen=TAIL_LINES)
        self._line = b''

    def write(self, data: bytes) -> None:
        """Append bytes; a full disk loses them and nothing else."""
        with contextlib.suppress(OSError):
            if self._file.tell() and self._file.tell() + len(data) > self._limit:
                self._rotate()
            self._file.write(data)

    def output(self, data: bytes) -> None:
        """Append what the worker wrote."""
        self.write(data)
        # A progress bar rewrites its line; the last version counts.
        *lines, self._line = (self._line + data).replace(b'\r\n', b'\n').split(b'\n')
        self._line = self._line[-10 * LINE_BYTES :]
        for line in lines:
            self._keep(line)

    def tail(self) -> str:
        """Last lines of what the worker wrote."""
        self._keep(self._line)
        return b'\n'.join(self._tail).decode(errors='replace')

    def _keep(self, line: bytes) -> None:
        line = line.rpartition(b'\r')[2].rstrip()
        if line:
            self._tail.append(line[:LINE_BYTES])

    def mark(self, text: str) -> None:
        """Append a line of our own."""
        now = datetime.datetime.now().astimezone().isoformat(timespec='milliseconds')
        self.write(f'=== {now} {text}\n'.encode())

    def _rotate(self) -> None:
        self._file.close()
        for number in range(KEPT_LOGS, 0, -1):
            older = f'{self._path}.{number - 1}' if number > 1 else self._path
            with contextlib.suppress(OSError):
                os.replace(older, f'{self._path}.{number}')
        self._file = open(self._path, 'ab', buffering=0)  # noqa: SIM115


def without_tokens(command: Sequence[str]) -> list[str]:
    """Return a command line with the values of its token options left out, for the log."""
    shown = list(command)
    for index, word in enumerate(command):
        flag, equals, _ = word.partition('=')
        if not flag.startswith('--') or not flag.endswith(('token', 'password', 'key')):
            continue
        if equals:
            shown[index] = f'{flag}=***'
        elif index + 1 < len(command):
            shown[index + 1] = '***'
    return shown


def descendants() -> set[int]:
    """Processes below this one that still run; orphans among them count, we adopt them."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f'/proc/{entry}/stat', 'rb') as file:
                state, parent = file.read().rpartition(b')')[2].split()[:2]
                if state not in (b'Z', b'X'):
                    children.setdefault(int(parent), []).append(int(entry))
    found: set[int] = set()
    pending = [os.getpid()]
    while pending:
        below = children.get(pending.pop(), [])
        found.update(below)
        pending += below
    return found


class Guard:
    """One worker process from its start to its end."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._order = order
        self._log = Log(order['log'], order['log_bytes'])
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        self._prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._wake, write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        # Functions, since SIG_IGN would be inherited by the worker.
        self._ending = False
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_terminate)
        self._pid = 0
        self._status: int | None = None
        self._stdin: int | None = None
        self._output: int | None = None
        self._control: int | None = 0
        self._deadline: float | None = None
        self._steps = [self._interrupt, self._terminate, self._kill]

    def _on_terminate(self, *_: Any) -> None:
        self._ending = True

    def start(self) -> None:
        """Start the worker in a session of its own.

        Raises:
            OSError: It cannot be started.
        """
        guard = os.getpid()
        prctl = self._prctl

        def follow() -> None:
            # The guard has one thread, so the thread's death is the guard's.
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != guard:
                os._exit(1)

        process = subprocess.Popen(
            self._order['command'],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._order['directory'] or None,
            env=self._order['environment'],
            start_new_session=True,
            preexec_fn=follow,
        )
        self._pid = process.pid
        self._stdin = os.dup(process.stdin.fileno())
        self._output = os.dup(process.stdout.fileno())
        for stream in (process.stdin, process.stdout):
            stream.close()
        process.returncode = 0  # reaped here, not by Popen
        os.set_blocking(self._output, False)
        command = shlex.join(without_tokens(self._order['command']))
        self._log.mark(f'{self._order["title"]}, pid {self._pid}: {command}')
        report(pid=self._pid)

    def run(self) -> None:
        """Follow the worker to its end."""
        while self._status is None:
            self._wait()
            self._reap()
            if self._ending and len(self._steps) == 3:
                self._advance()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._advance()
        self._end_rest()
        self._read_output()
        self._log.mark(f'pid {self._pid}: status {self._status}')
        shutil.rmtree(self._order['folder'], ignore_errors=True)
        report(exit=self._status, tail=self._log.tail())

    def _wait(self) -> None:
        timeout = PARENT_S
        if self._deadline is not None:
            timeout = min(timeout, max(0.0, self._deadline - time.monotonic()))
        streams = [item for item in (self._control, self._output, self._wake) if item is not None]
        readable, _, _ = select.select(streams, [], [], timeout)
        if self._wake in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if self._output in readable:
            self._read_output()
        if self._control is not None and self._control in readable:
            data = os.read(self._control, 64)
            if not data:
                self._control = None
                self._ending = True
            elif b't' in data:
                self._ending = True
                self._steps = self._steps[-2:]
                self._close_stdin()
                self._advance()
        if os.getppid() != self._order['parent']:
            self._ending = True

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._pid:
                    self._status = os.waitstatus_to_exitcode(status)

    def _read_output(self) -> None:
        while self._output is not None:
            try:
                data = os.read(self._output, 65536)
            except BlockingIOError:
                return
            if not data:
                os.close(self._output)
                self._output = None
            self._log.output(data)
            if len(data) < 65536:
                return

    def _advance(self) -> None:
        if self._steps:
            self._deadline = self._steps.pop(0)()

    def _interrupt(self) -> float:
        self._log.mark(f'pid {self._pid}: end of standard input')
        self._close_stdin()
        return time.monotonic() + self._order['eof_s']

    def _terminate(self) -> float:
        self._signal(signal.SIGTERM)
        return time.monotonic() + self._order['term_s']

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    def _signal(self, number: int) -> None:
        self._log.mark(f'pid {self._pid}: {signal.Signals(number).name} to its group')
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)

    def _end_rest(self) -> None:
        """End what the worker has left behind, in its group or out of it."""
        self._close_stdin()
        deadline = time.monotonic() + REST_S
        number = signal.SIGTERM
        told: set[int] = set()
        while left := descendants():
            if time.monotonic() >= deadline:
                if number is signal.SIGKILL:
                    self._log.mark(f'still there: {sorted(left)}')
                    return
                number = signal.SIGKILL
                deadline += REST_S
                told = set()
            for pid in left - told:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= left
            select.select([self._wake], [], [], 0.02)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
            self._read_output()
            self._reap()


def report(**message: Any) -> None:
    """Tell the supervisor, if there still is one."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b'\n')


def read_order() -> dict[str, Any]:
    """Read the first line of standard input and nothing after it."""
    data = b''
    while not data.endswith(b'\n'):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(1)
        data += byte
    return json.loads(data)


def main() -> None:
    """Run one worker."""
    order = read_order()
    try:
        guard = Guard(order)
        guard.start()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        report(error=str(error))
        return
    guard.run()


if __name__ == '__main__':
    main()
