# SPDX-License-Identifier: Apache-2.0
"""Files that survive a crash: synced, replaced whole, appended by the line."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def sync_file(path: Path) -> None:
    """Return when the content of a file is on disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Return when the names in a folder are on disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make a folder and its parents such that their names are on disk."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file whole: after a crash it has its former or its given content."""
    temporary = path.with_name(f'.{path.name}.tmp')
    with temporary.open('w', encoding='utf-8') as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write JSON as `write_text` does."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + '\n')


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes, on a file that is made where it is missing."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def try_lock(path: Path) -> int | None:
    """Lock a file for as long as the returned descriptor is open; None where another holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


class JsonLines:
    """A JSON-lines file that only grows; what was read is not read again.

    Attributes:
        rows: Parsed lines, up to the last refresh.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self._offset = 0

    def refresh(self) -> list[dict[str, Any]]:
        """Read the lines that other writers appended; an unfinished last line is left out."""
        try:
            with self.path.open('rb') as stream:
                size = os.fstat(stream.fileno()).st_size
                if size < self._offset:
                    self.rows, self._offset = [], 0
                stream.seek(self._offset)
                data = stream.read(size - self._offset)
        except FileNotFoundError:
            self.rows, self._offset = [], 0
            return self.rows
        whole = data[: data.rfind(b'\n') + 1]
        self.rows.extend(json.loads(line) for line in whole.splitlines() if line.strip())
        self._offset += len(whole)
        return self.rows

    def repair(self) -> None:
        """Cut off a last line that a crash left unfinished."""
        self.refresh()
        if self.path.exists() and self.path.stat().st_size > self._offset:
            with self.path.open('r+b') as stream:
                stream.truncate(self._offset)
                os.fsync(stream.fileno())

    def append(self, row: dict[str, Any]) -> None:
        """Append one line; it is on disk on return."""
        line = json.dumps(row, ensure_ascii=False, allow_nan=False) + '\n'
        fresh = not self.path.exists()
        # One write call: a killed process leaves the whole line or nothing of it.
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, line.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        if fresh:
            sync_folder(self.path.parent)
        self.refresh()
