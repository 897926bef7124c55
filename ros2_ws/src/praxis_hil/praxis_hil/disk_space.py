# SPDX-License-Identifier: Apache-2.0
"""Refuse to fill the disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

GIB = 1 << 30


class DiskGuard:
    """Watch the free space of the volumes that are written to.

    Args:
        paths: Folders; of one that does not exist yet, the nearest parent counts.
        min_free_gb: GiB that must stay free.
        usage: `shutil.disk_usage`, or a stand-in.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        min_free_gb: float,
        usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage,
    ) -> None:
        self._paths = list(paths)
        self.min_free_gb = min_free_gb
        self._usage = usage

    def free_bytes(self) -> int:
        """Return the least free space among the volumes."""
        return min(self._usage(_existing(path))[2] for path in self._paths)

    def shortage(self) -> str:
        """Return why nothing more may be written, empty when there is space."""
        for path in self._paths:
            free = self._usage(_existing(path))[2]
            if free < self.min_free_gb * GIB:
                return (
                    f'{path}: {free / GIB:.2f} GiB free, '
                    f'less than min_free_gb = {self.min_free_gb:g}'
                )
        return ''


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
