# SPDX-License-Identifier: Apache-2.0
"""Start resolved processes, pass on what they print, and end them in order.

Each process leads a process group of its own, so that a signal reaches what it started as well. A
`guard` process ends the groups should this one be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from ament_index_python.packages import PackageNotFoundError, get_package_prefix

from praxis_cli import guard
from praxis_cli.console import Console
from praxis_cli.resolution import Process, parameter_yaml
from praxis_cli.substitution import LaunchError

_POLL_S = 0.02


def locate(process: Process) -> str:
    """Return the path of a node's executable, lib/PACKAGE/EXECUTABLE below the package's prefix.

    Raises:
        LaunchError: Package or executable not found.
    """
    try:
        prefix = get_package_prefix(process.package)
    except (PackageNotFoundError, ValueError) as error:
        raise LaunchError(str(error)) from error
    folder = os.path.join(prefix, 'lib', process.package)
    if not os.path.isdir(folder):
        raise LaunchError(
            f"package '{process.package}' found at '{prefix}', "
            f"but libexec directory '{folder}' does not exist"
        )
    path = shutil.which(process.executable, path=folder)
    if path is None:
        raise LaunchError(
            f"executable '{process.executable}' not found on the libexec directory '{folder}' "
        )
    return path


def command_line(process: Process, parameter_files: Sequence[str]) -> list[str]:
    """Return the arguments to execute, laid out as ``ros2 launch`` does.

    Args:
        process: What to run.
        parameter_files: A path for each item of ``process.parameters``.
    """
    if process.package is None:
        return [*process.prefix, *process.command]
    command = [*process.prefix, locate(process), *process.command]
    if process.ros_arguments:
        command += ['--ros-args', *process.ros_arguments]
    command.append('--ros-args')
    if process.name is not None:
        command += ['-r', f'__node:={process.name}']
    if process.namespace is not None:
        command += ['-r', f'__ns:={process.namespace}']
    for name, value in process.global_parameters:
        command += ['-p', f'{name}:={value}']
    for path in parameter_files:
        command += ['--params-file', path]
    for source, target in process.remaps:
        command += ['-r', f'{source}:={target}']
    return command


class Runner:
    """Runs a list of processes until all have ended or a shutdown is asked for.

    Args:
        processes: In order of start.
        console: Where everything is printed.
    """

    def __init__(self, processes: Sequence[Process], console: Console) -> None:
        self.processes = processes
        self.console = console
        self.return_code = 0
        self._stopping = asyncio.Event()
        self._urgency = 0
        self._interrupts = 0
        self._guard: subprocess.Popen | None = None
        self._folder: str | None = None

    async def run(self) -> int:
        """Run to the end and return the exit code: 0, or 1 where the launch itself failed.

        A process that fails does not change the code, as with ``ros2 launch``.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            loop.add_signal_handler(number, self._on_terminate, number)
        self._folder = tempfile.mkdtemp(prefix='launch_params_')
        try:
            commands = [
                command_line(process, self._parameter_files(index, process))
                for index, process in enumerate(self.processes)
            ]
            self._start_guard()
            async with asyncio.TaskGroup() if hasattr(asyncio, 'TaskGroup') else _Tasks() as tasks:
                for number, process in enumerate(self.processes, start=1):
                    tasks.create_task(self._supervise(number, process, commands[number - 1]))
        finally:
            self._close_guard()
            shutil.rmtree(self._folder, ignore_errors=True)
        return self.return_code

    def _parameter_files(self, index: int, process: Process) -> list[str]:
        paths = []
        for position, item in enumerate(process.parameters):
            if isinstance(item, str):
                if not os.path.isfile(item):
                    self.console.message(
                        'WARNING', 'launch', f'Parameter file path is not a file: {item}'
                    )
                    continue
                paths.append(item)
                continue
            path = Path(self._folder, f'{index}-{process.label}-{position}.yaml')
            path.write_text(parameter_yaml(process, item), encoding='utf-8')
            paths.append(str(path))
        return paths

    async def _supervise(self, number: int, process: Process, command: list[str]) -> None:
        label = f'{process.label}-{number}'
        retries = 0
        while not self._stopping.is_set():
            await self._run_once(number, label, process, command)
            if process.required and not self._stopping.is_set():
                self.console.message(
                    'INFO',
                    'launch',
                    f'process[{label}] was required: shutting down launched system',
                )
                self._stop(1)
            limit = process.respawn_max_retries
            if not process.respawn or 0 <= limit <= retries:
                return
            retries += 1
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), max(process.respawn_delay, 1e-3))

    async def _run_once(
        self, number: int, label: str, process: Process, command: list[str]
    ) -> None:
        self.console.message('DEBUG', label, f'command: {command}')
        try:
            child = self._spawn(process, command)
        except OSError as error:
            self.console.message(
                'ERROR', label, f'exception occurred while executing process: {error}'
            )
            return
        self.console.message('INFO', label, f'process started with pid [{child.pid}]')
        ending = asyncio.create_task(self._end_when_asked(label, process, child.pid))
        readers = [
            asyncio.create_task(self._forward(number, label, process, stream, error))
            for stream, error in ((child.stdout, False), (child.stderr, True))
        ]
        code = await _exited(child)
        await self._end_rest(child.pid, process)
        await asyncio.gather(*readers)
        ending.cancel()
        self._forget(child.pid)
        if code == 0:
            self.console.message('INFO', label, f'process has finished cleanly [pid {child.pid}]')
        else:
            shown = ' '.join(part for part in command if part.strip())
            self.console.message(
                'ERROR',
                label,
                f"process has died [pid {child.pid}, exit code {code}, cmd '{shown}'].",
            )

    def _spawn(self, process: Process, command: list[str]) -> subprocess.Popen:
        pipe = self._guard.stdin.fileno()

        def register() -> None:
            # Before exec, so that there is no moment at which the guard does not know the group.
            os.write(pipe, b'+%d\n' % os.getpid())

        return subprocess.Popen(
            ' '.join(command) if process.shell else command,
            shell=process.shell,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=process.cwd,
            env=dict(process.environment),
            start_new_session=True,
            preexec_fn=register,
        )

    async def _forward(
        self,
        number: int,
        label: str,
        process: Process,
        pipe: BinaryIO,
        error: bool,
    ) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        pending = b''
        while chunk := await reader.read(65536):
            *lines, pending = (pending + chunk).split(b'\n')
            for line in lines:
                text = line.decode(errors='replace').removesuffix('\r')
                self.console.output(label, number, text, process.output, error)
        if pending:
            self.console.output(
                label, number, pending.decode(errors='replace'), process.output, error
            )

    async def _end_when_asked(self, label: str, process: Process, group: int) -> None:
        """Interrupt on shutdown, terminate and kill after the time-outs, sooner when urged."""
        await self._stopping.wait()
        steps = (
            (signal.SIGINT, process.sigterm_timeout, 1),
            (signal.SIGTERM, process.sigkill_timeout, 2),
            (signal.SIGKILL, 0.0, 3),
        )
        for position, (number, timeout, level) in enumerate(steps):
            name = signal.Signals(number).name
            self.console.message('INFO', label, f"sending signal '{name}' to process[{label}]")
            self._signal(group, number)
            deadline = asyncio.get_running_loop().time() + timeout
            while asyncio.get_running_loop().time() < deadline and self._urgency <= level:
                await asyncio.sleep(_POLL_S)
            if position + 1 < len(steps) and self._urgency <= level:
                following = signal.Signals(steps[position + 1][0]).name
                self.console.message(
                    'ERROR',
                    label,
                    f"process[{label}] failed to terminate '{timeout:g}' seconds after receiving "
                    f"'{name}', escalating to '{following}'",
                )

    async def _end_rest(self, group: int, process: Process) -> None:
        """End what a process left behind in its group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not guard.alive(group):
                return
            self._signal(group, number)
            deadline = asyncio.get_running_loop().time() + process.sigkill_timeout
            while asyncio.get_running_loop().time() < deadline and guard.alive(group):
                await asyncio.sleep(_POLL_S)

    def _signal(self, group: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)

    def _stop(self, urgency: int) -> None:
        self._urgency = max(self._urgency, urgency)
        self._stopping.set()

    def _on_interrupt(self) -> None:
        self._interrupts += 1
        message = 'user interrupted with ctrl-c (SIGINT)'
        if self._interrupts == 2:
            message += ' again, terminating processes'
        elif self._interrupts > 2:
            message += ' again, killing processes'
        self.console.message('WARNING', 'launch', message)
        self._stop(self._interrupts)

    def _on_terminate(self, number: int) -> None:
        name = signal.Signals(number).name
        self.console.message('WARNING', 'launch', f'received {name}, shutting down')
        self.return_code = 1
        self._stop(1)

    def _start_guard(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, '-I', '-S', guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _forget(self, group: int) -> None:
        with contextlib.suppress(OSError):
            os.write(self._guard.stdin.fileno(), b'-%d\n' % group)

    def _close_guard(self) -> None:
        if self._guard is None:
            return
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()


async def _exited(child: subprocess.Popen) -> int:
    """Wait for a process itself, whoever else still holds its pipes; return its exit code."""
    try:
        watched = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        while child.poll() is None:
            await asyncio.sleep(_POLL_S)
        return child.returncode
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(watched, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(watched)
        os.close(watched)
    return child.wait()


class _Tasks:
    """`asyncio.TaskGroup` in short, for Python 3.10."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task] = []

    async def __aenter__(self) -> _Tasks:
        return self

    def create_task(self, coroutine) -> None:
        self._tasks.append(asyncio.create_task(coroutine))

    async def __aexit__(self, *error) -> None:
        await asyncio.gather(*self._tasks)
