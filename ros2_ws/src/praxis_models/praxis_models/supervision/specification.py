# SPDX-License-Identifier: Apache-2.0
"""How workers are started and supervised."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESTART = ('never', 'on_failure')


@dataclass(frozen=True)
class WorkerSpec:
    """How a worker is started.

    Attributes:
        name: Of the worker and its log; unique within a supervisor.
        backend: Back end to serve.
        arguments: Further arguments of its command line, such as ``--checkpoint PATH``.
        python: Python executable, or the folder of its environment.
        root: Working directory, and first on the module path; '' for neither.
        device: '', 'cpu', 'cuda', 'cuda:1', '0,1': what it may see (`visible_devices`).
        environment: Variables that are added to its environment.
        restart: 'on_failure' restarts a worker that was ready and has ended or does not answer.
        ready_timeout_s: Seconds a start may take, the loading of the model included.
        log_dir: Folder of the log; by default `workers` in ROS 2's log folder.
        module: Module that is run; it must take the options of `praxis_models.workers`.

    Raises:
        ValueError: A value is not valid.
    """

    name: str
    backend: str
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    root: str = ''
    device: str = ''
    environment: Mapping[str, str] = field(default_factory=dict)
    restart: str = 'on_failure'
    ready_timeout_s: float = 300.0
    log_dir: str | os.PathLike[str] = ''
    module: str = 'praxis_models.workers'

    def __post_init__(self) -> None:
        if self.restart not in RESTART:
            raise ValueError(f'restart: expected never or on_failure (got {self.restart!r})')
        if not self.name.strip('/.'):
            raise ValueError(f'name: expected a name (got {self.name!r})')
        if not self.ready_timeout_s > 0:
            raise ValueError(f'ready_timeout_s: expected > 0 (got {self.ready_timeout_s!r})')

    @property
    def log(self) -> Path:
        """File that takes the worker's output."""
        folder = Path(self.log_dir) if self.log_dir else log_folder() / 'workers'
        return folder / f'{re.sub(r"[^A-Za-z0-9_.-]+", "_", self.name.strip("/"))}.log'


def log_folder() -> Path:
    """Return ROS 2's log folder."""
    if folder := os.environ.get('ROS_LOG_DIR'):
        return Path(folder).expanduser()
    return Path(os.environ.get('ROS_HOME') or '~/.ros').expanduser() / 'log'


def worker_arguments(checkpoint: str, options: str) -> tuple[str, ...]:
    """Command line of a worker.

    Args:
        checkpoint: Empty: none.
        options: JSON object of further options of the back end, empty: none. Those that are ''
            were not given: a launch file names them all.

    Raises:
        ValueError: It is no JSON object.
    """
    arguments = ['--checkpoint', checkpoint] if checkpoint else []
    try:
        given = json.loads(options) if options.strip() else {}
    except ValueError as error:
        raise ValueError(f'is not JSON: {error}') from None
    if not isinstance(given, dict):
        raise ValueError('must be a JSON object')
    for name, value in given.items():
        if value != '':
            arguments += [f'--{name.replace("_", "-")}', _word(value)]
    return tuple(arguments)


def _word(value: Any) -> str:
    if value is None:
        return 'none'
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Times:
    """Seconds and counts that supervision goes by.

    Attributes:
        first_probe_s: Until the first look at a starting worker; the next take longer each.
        probe_s: Between looks at a starting worker, at most.
        health_s: Between looks at a ready one.
        health_timeout_s: For one answer.
        health_failures: Looks in a row without an answer until a worker is given up.
        eof_s: To end by itself.
        term_s: To end after SIGTERM.
        backoff_s: Before the first restart in a row, and at most.
        max_restarts: Within `window_s`; the next failure is final.
        window_s: Span in which restarts are counted.
        healthy_s: Ready for so long, earlier restarts are forgotten.
    """

    first_probe_s: float = 0.02
    probe_s: float = 0.5
    health_s: float = 5.0
    health_timeout_s: float = 5.0
    health_failures: int = 6
    eof_s: float = 15.0
    term_s: float = 15.0
    backoff_s: tuple[float, float] = (1.0, 30.0)
    max_restarts: int = 5
    window_s: float = 600.0
    healthy_s: float = 60.0
