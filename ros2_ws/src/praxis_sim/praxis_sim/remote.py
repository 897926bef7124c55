# SPDX-License-Identifier: Apache-2.0
"""A platform that runs in another process, behind the same interface."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
from praxis_core.worker_python import find_python, link_packages, worker_environment

from praxis_sim.platform import (
    ENTRY_POINTS,
    CameraModel,
    Marker,
    Observation,
    PlatformError,
    PlatformOptions,
    Pose,
    Rendering,
    Task,
)
from praxis_sim.remote_protocol import (
    VERSION,
    Arena,
    Channel,
    ConnectionLostError,
    ProtocolError,
)

# Seconds of wall time per call.
TIMEOUTS = {'create': 120.0, 'reset': 120.0, 'step': 60.0, 'render': 120.0}
DEFAULT_TIMEOUT = 30.0
CLOSE_TIMEOUT = 10.0

_PACKAGES = ('praxis_core', 'praxis_sim')
_LOG_TAIL = 2000


class RemotePlatform:
    """Runs a platform in a worker process. Calls block, as they do on a platform in process.

    The worker dies with this process, however that ends. When the worker dies or is late, the
    call under way raises and the worker is killed; the next `reset` starts another.

    Args:
        executable: Python of the worker.
        platform: Entry point name, or ``MODULE:CLASS``.
        options: Of the platform; the contract must have been loaded from a file.
        log: File that takes the worker's output; a temporary one by default.
        timeouts: Seconds by method, over `TIMEOUTS`.

    Raises:
        PlatformError: The worker does not start, or refuses the options.
    """

    def __init__(
        self,
        executable: str,
        platform: str,
        options: PlatformOptions,
        *,
        log: str | os.PathLike[str] | None = None,
        timeouts: Mapping[str, float] | None = None,
    ) -> None:
        self._options = options
        self._platform = _reference(platform)
        self._executable = executable
        self._timeouts = {**TIMEOUTS, **(timeouts or {})}
        if log is None:
            descriptor, log = tempfile.mkstemp(prefix='praxis_worker_', suffix='.log')
            os.close(descriptor)
        self.log = Path(log)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._arena: Arena | None = None
        self._failure = ''
        self.control_period = float('nan')
        self._start()

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None while there is none."""
        return None if self._process is None else self._process.pid

    def failure(self) -> str:
        """Return why there is no worker, or an empty string while it lives."""
        if self._process is not None and self._process.poll() is not None:
            self._fail('between calls')
        return self._failure

    def tasks(self) -> Sequence[Task]:
        """List the tasks."""
        return self._call('tasks')

    def reset(
        self, task_id: str, seed: int, init_state: int, options: Mapping[str, Any]
    ) -> Observation:
        """Reset, in another worker if the last one died."""
        if self.failure():
            self._start()
        return self._call('reset', task_id, int(seed), int(init_state), dict(options))

    def step(self, action: np.ndarray) -> Observation:
        """Advance one control period."""
        return self._call('step', np.asarray(action, np.float64))

    def render(
        self,
        camera: str,
        width: int,
        height: int,
        *,
        rgb: bool = True,
        depth: bool = False,
        segmentation: bool = False,
    ) -> Rendering:
        """Render one camera."""
        return self._call(
            'render', camera, width, height, rgb=rgb, depth=depth, segmentation=segmentation
        )

    def camera_model(self, camera: str, width: int, height: int) -> CameraModel:
        """Intrinsics and pose of a camera."""
        return self._call('camera_model', camera, width, height)

    def link_poses(self) -> Mapping[str, Pose]:
        """World poses of the robot's links."""
        return self._call('link_poses')

    def robot_description(self) -> str:
        """URDF of the robot."""
        return self._call('robot_description')

    def markers(self) -> Sequence[Marker]:
        """Scene objects for rviz."""
        return self._call('markers')

    def privileged(self) -> Mapping[str, Pose]:
        """Ground-truth poses."""
        return self._call('privileged')

    def hold_action(self) -> np.ndarray:
        """Action that keeps the robot where it is."""
        return self._call('hold_action')

    def state_digest(self) -> bytes:
        """Bytes of the full physics state."""
        return self._call('state_digest')

    def close(self) -> None:
        """End the worker: ask, then close, then terminate, then kill."""
        if self._process is None:
            return
        with contextlib.suppress(ProtocolError, ConnectionLostError, TimeoutError):
            self._channel.send({'method': 'close'}, CLOSE_TIMEOUT)
            self._channel.receive(CLOSE_TIMEOUT)
        self._stop(grace=CLOSE_TIMEOUT)
        self._failure = 'closed'

    def _start(self) -> None:
        self._failure = ''
        try:
            python = find_python(self._executable)
        except FileNotFoundError as error:
            raise PlatformError(f'cannot start {self._executable}: {error}') from None
        here, there = socket.socketpair()
        self._arena = Arena()
        self._channel = Channel(here, self._arena)
        descriptors = (there.fileno(), self._arena.descriptor)
        command = [
            *(str(python), '-m', 'praxis_sim.worker', '--platform', self._platform),
            *('--socket', str(descriptors[0]), '--arena', str(descriptors[1])),
        ]
        self._packages = tempfile.mkdtemp(prefix='praxis_worker_')
        link_packages(Path(self._packages), _PACKAGES)
        try:
            with there, self.log.open('ab') as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=descriptors,
                    # A signal to our process group is ours: the worker is still needed to close.
                    start_new_session=True,
                    env=worker_environment(python, Path(self._packages)),
                )
        except OSError as error:
            self._stop(grace=0.0)
            raise PlatformError(f'cannot start {self._executable}: {error}') from error
        try:
            hello = self._exchange(
                {
                    'method': 'create',
                    'contract': str(self._options.contract.path),
                    'render_quality': self._options.render_quality,
                    'extra': dict(self._options.extra),
                }
            )
        except PlatformError:
            self._stop(grace=0.0)
            raise
        if hello['version'] != VERSION:
            self._stop(grace=0.0)
            raise PlatformError(f'worker speaks version {hello["version"]}, not {VERSION}')
        self.control_period = hello['control_period']

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.failure():
            raise PlatformError(self._failure)
        return self._exchange({'method': method, 'args': args, 'kwargs': kwargs})

    def _exchange(self, request: dict[str, Any]) -> Any:
        method = request['method']
        timeout = self._timeouts.get(method, DEFAULT_TIMEOUT)
        try:
            self._channel.send(request, timeout)
        except ProtocolError as error:
            raise PlatformError(f'{method}: {error}') from error
        except (ConnectionLostError, TimeoutError):
            raise self._fail(f'before {method}') from None
        try:
            reply = self._channel.receive(timeout)
        except TimeoutError:
            raise self._fail(f'{method} took longer than {timeout:g} s') from None
        except (ConnectionLostError, ProtocolError) as error:
            raise self._fail(f'during {method}: {error}') from None
        if not isinstance(reply, dict) or ('result' in reply) == ('error' in reply):
            raise self._fail(f'during {method}: no answer in {reply!r:.100}')
        if 'error' in reply:
            raise PlatformError(str(reply['error']))
        return reply['result']

    def _fail(self, when: str) -> PlatformError:
        """Kill the worker and return the error that says how it ended."""
        process = self._process
        # A worker that has just died needs a moment to become a zombie.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.0 if 'longer' in when else 1.0)
        code = process.poll()
        if code is None:
            ended = 'killed'
        elif code < 0:
            ended = f'died of {signal.Signals(-code).name}'
        else:
            ended = f'exited with {code}'
        self._stop(grace=0.0)
        self._failure = f'worker of {self._platform} {ended} ({when}); log {self.log}'
        tail = self.log.read_bytes()[-_LOG_TAIL:].decode(errors='replace').strip()
        return PlatformError(f'{self._failure}\n{tail}' if tail else self._failure)

    def _stop(self, grace: float) -> None:
        # 1. The worker sees the end of the stream and leaves.
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        # 2. Or it is made to.
        process, self._process = self._process, None
        if process is not None:
            for signalled in (None, signal.SIGTERM, signal.SIGKILL):
                if signalled is not None:
                    process.send_signal(signalled)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(None if signalled is signal.SIGKILL else grace)
                    break
        # 3. What it used is freed.
        if self._arena is not None:
            self._arena.close()
            self._arena = None
        shutil.rmtree(self._packages, ignore_errors=True)


def _reference(platform: str) -> str:
    """Resolve an entry point of this environment, since the worker's may not list it."""
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == platform:
            return point.value
    return platform
