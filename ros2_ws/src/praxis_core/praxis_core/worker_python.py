# SPDX-License-Identifier: Apache-2.0
"""Environment of a worker process, whose Python may have nothing to do with ours.

Imports no rclpy.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

_OURS = ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV', '_ROS_WHEELS_BOOTSTRAP_COMPLETE')


def find_python(python: str) -> Path:
    """Return a Python executable from a path, a name on PATH, or an environment's folder.

    Links are kept, since a virtual environment is recognised by them.

    Raises:
        FileNotFoundError: There is none.
    """
    path = os.path.expanduser(python or sys.executable)
    if os.path.isdir(path):
        path = os.path.join(path, 'bin/python')
    found = shutil.which(path)
    if found is None:
        raise FileNotFoundError(f'python: expected a Python executable (got {python!r})')
    return Path(os.path.abspath(found))


def is_own_environment(python: Path) -> bool:
    """Return whether an executable sees the packages that this process sees."""
    return _environment_of(python) == _environment_of(Path(sys.executable))


def _environment_of(python: Path) -> Path:
    # All virtual environments of one base Python resolve to the same file.
    folder = python.parent.resolve().parent
    return folder if (folder / 'pyvenv.cfg').is_file() else python.resolve()


def link_packages(folder: Path, names: Iterable[str]) -> None:
    """Link packages of ours, and only those, into a folder that can go on a foreign PYTHONPATH."""
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            target = Path(next(iter(spec.submodule_search_locations)))
            (folder / name).symlink_to(target.absolute())


def worker_environment(
    python: Path,
    packages: Path,
    *,
    root: str = '',
    extra: Mapping[str, str] | None = None,
    inherited: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment variables of a worker.

    A foreign Python is treated as its `activate` would do. It gets neither our PYTHONPATH, whose
    packages are built for another Python, nor ROS's libraries, whose libstdc++ and the like would
    win over those that the model's packages were built against.

    Args:
        python: Its executable, as `find_python` returns it.
        packages: Folder made by `link_packages`.
        root: First on the module path; '' for none.
        extra: Variables that win over all others.
        inherited: Variables of this process, `os.environ` by default.
    """
    environment = dict(os.environ if inherited is None else inherited)
    paths = [os.path.abspath(root)] if root else []
    paths.append(str(packages))
    if is_own_environment(python):
        paths += filter(None, [environment.get('PYTHONPATH')])
    else:
        _leave_environment(environment)
        _enter_environment(environment, python)
    environment['PYTHONPATH'] = os.pathsep.join(paths)
    environment['PYTHONUNBUFFERED'] = '1'
    return environment | dict(extra or {})


def _leave_environment(environment: dict[str, str]) -> None:
    for name in _OURS:
        environment.pop(name, None)
    prefixes = [
        os.path.abspath(prefix)
        for name in ('AMENT_PREFIX_PATH', 'COLCON_PREFIX_PATH')
        for prefix in environment.get(name, '').split(os.pathsep)
        if prefix
    ]
    libraries = [
        entry
        for entry in environment.get('LD_LIBRARY_PATH', '').split(os.pathsep)
        if entry and not any(Path(entry).is_relative_to(prefix) for prefix in prefixes)
    ]
    environment.pop('LD_LIBRARY_PATH', None)
    if libraries:
        environment['LD_LIBRARY_PATH'] = os.pathsep.join(libraries)


def _enter_environment(environment: dict[str, str], python: Path) -> None:
    folder = python.parent
    environment['PATH'] = os.pathsep.join([str(folder), environment.get('PATH', os.defpath)])
    if (folder.parent / 'pyvenv.cfg').is_file():
        environment['VIRTUAL_ENV'] = str(folder.parent)
