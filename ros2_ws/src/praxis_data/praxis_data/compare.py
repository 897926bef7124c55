# SPDX-License-Identifier: Apache-2.0
"""Compare two episodes row for row and pixel for pixel."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from praxis_data.lerobot_reader import Episode, LeRobotReader

# Where an episode stands in its dataset says nothing about its content.
POSITION = frozenset(('episode_index', 'index', 'task_index'))


@dataclass
class Comparison:
    """Outcome of `compare_episodes`.

    Attributes:
        equal: Same rows, same pixels, same task.
        rows: Rows of a and b.
        frames: Decoded frames of a and b by camera.
        rows_equal: Every column of every row is the same, to the bit.
        pixels_equal: Every decoded frame is the same, to the bit.
        video_bytes_equal: The video files are the same bytes.
        differences: One line each, the first ones.
    """

    rows: tuple[int, int]
    frames: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows_equal: bool = True
    pixels_equal: bool = True
    video_bytes_equal: bool = True
    differences: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Nothing differs."""
        return not self.differences

    def asdict(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        return {'equal': self.equal, **asdict(self)}


def episode_digest(dataset: str | os.PathLike[str], index: int | str) -> str:
    """SHA-256 (hex) over states, executed actions and decoded pixels of an episode.

    When and where it was recorded does not count, so two closed loops of the same platform, task
    and seed have one digest.

    Raises:
        DatasetError: The episode is missing or damaged.
    """
    episode = LeRobotReader(dataset).episode(index)
    digest = hashlib.sha256()
    for name in ('observation.state', 'action'):
        digest.update(np.ascontiguousarray(episode.column(name)).tobytes())
    for camera in episode.cameras:
        for rgb in episode.frames(camera):
            digest.update(np.ascontiguousarray(rgb).tobytes())
    return digest.hexdigest()


def compare_episodes(
    dataset_a: str | os.PathLike[str],
    index_a: int | str,
    dataset_b: str | os.PathLike[str],
    index_b: int | str,
) -> Comparison:
    """Compare two episodes by everything but their place in their datasets.

    Args:
        dataset_a: Dataset folder.
        index_a: Episode index or UUID.
        dataset_b: As a.
        index_b: As a.

    Raises:
        DatasetError: An episode is missing or damaged.
    """
    a, b = LeRobotReader(dataset_a).episode(index_a), LeRobotReader(dataset_b).episode(index_b)
    result = Comparison((a.table.num_rows, b.table.num_rows))
    _compare_rows(a, b, result)
    for camera in [*a.cameras, *(c for c in b.cameras if c not in a.cameras)]:
        _compare_frames(a, b, camera, result)
    if a.tasks != b.tasks:
        result.differences.append(f'tasks: {list(a.tasks)} and {list(b.tasks)}')
    return result


def _compare_rows(a: Episode, b: Episode, result: Comparison) -> None:
    before = len(result.differences)
    names_a, names_b = a.table.column_names, b.table.column_names
    if names_a != names_b:
        result.differences.append(f'columns: {names_a} and {names_b}')
    if result.rows[0] != result.rows[1]:
        result.differences.append(f'rows: {result.rows[0]} and {result.rows[1]}')
    count = min(result.rows)
    for name in names_a:
        if name in POSITION or name not in names_b:
            continue
        left, right = a.column(name)[:count], b.column(name)[:count]
        if left.dtype != right.dtype or left.shape != right.shape:
            result.differences.append(
                f'{name}: {left.dtype}{left.shape} and {right.dtype}{right.shape}'
            )
            continue
        same = left.reshape(count, -1) == right.reshape(count, -1)
        wrong = np.flatnonzero(~same.all(axis=1))
        if wrong.size:
            k = int(wrong[0])
            result.differences.append(
                f'{name}: {wrong.size} rows differ, first row {k}: {left[k]} and {right[k]}'
            )
    result.rows_equal = len(result.differences) == before


def _compare_frames(a: Episode, b: Episode, camera: str, result: Comparison) -> None:
    if camera not in a.video_paths or camera not in b.video_paths:
        result.differences.append(f'{camera}: only in {"a" if camera in a.video_paths else "b"}')
        result.pixels_equal = result.video_bytes_equal = False
        return
    if a.video_paths[camera].read_bytes() != b.video_paths[camera].read_bytes():
        result.video_bytes_equal = False
    count_a = count_b = 0
    wrong: list[tuple[int, int]] = []
    for number, (left, right) in enumerate(zip_longest(a.frames(camera), b.frames(camera))):
        count_a += left is not None
        count_b += right is not None
        if left is None or right is None:
            continue
        if left.shape != right.shape:
            wrong.append((number, 255))
        elif not np.array_equal(left, right):
            wrong.append((number, int(np.abs(left.astype(np.int16) - right).max())))
    result.frames[camera] = (count_a, count_b)
    if count_a != count_b:
        result.differences.append(f'{camera}: {count_a} and {count_b} frames')
    if wrong:
        worst = max(level for _, level in wrong)
        result.differences.append(
            f'{camera}: {len(wrong)} frames differ, first {wrong[0][0]}, by up to {worst} levels'
        )
    if count_a != count_b or wrong:
        result.pixels_equal = False
