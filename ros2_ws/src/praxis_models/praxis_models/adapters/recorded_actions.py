# SPDX-License-Identifier: Apache-2.0
"""Recorded actions of a ``.npz`` file or a LeRobot v2.1 dataset, cut to chunks."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CODEBASE_VERSION = 'v2.1'
_ACTION = 'action'


class RecordingError(ValueError):
    """A recording cannot be used; its text is one line."""


@dataclass(frozen=True)
class Recording:
    """Actions of one episode.

    Attributes:
        actions: float32[N, A], or float32[K, H, A] where whole chunks were recorded.
        names: Of the A fields, empty where the file has none.
        hz: Rows per second, None where the file has none.
    """

    actions: np.ndarray
    names: tuple[str, ...] = ()
    hz: float | None = None


def read_npz(path: Path) -> Recording:
    """Read ``actions`` and, where they are there, ``action_names`` and ``policy_hz``.

    Raises:
        RecordingError: No such file, another format, or other shapes.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if 'actions' not in file.files:
                found = ', '.join(file.files)
                raise RecordingError(f'{path}: has no array actions, only {found or "nothing"}')
            actions = file['actions']
            names = file['action_names'] if 'action_names' in file.files else np.array([], 'U1')
            hz = float(file['policy_hz']) if 'policy_hz' in file.files else None
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, RecordingError):
            raise
        raise RecordingError(f'{path}: {error}') from None
    return Recording(_checked(path, actions), tuple(str(name) for name in names), hz)


def read_dataset(root: Path, episode: int) -> Recording:
    """Read the column ``action`` of an episode.

    Raises:
        RecordingError: No dataset of version 2.1, or no such episode.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise RecordingError(f'a dataset is read with pyarrow: {error}') from None

    info = _info(root)
    feature = info.get('features', {}).get(_ACTION)
    if feature is None:
        raise RecordingError(f'{root}: has no feature {_ACTION!r}')
    try:
        path = root / info['data_path'].format(
            episode_chunk=episode // int(info.get('chunks_size', 1000)), episode_index=episode
        )
        hz = float(info['fps'])
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise RecordingError(f'{root}: meta/info.json: {error!r}') from None
    if not path.is_file():
        count = info.get('total_episodes')
        raise RecordingError(f'{root}: has no episode {episode}; it has {count}, counted from 0')
    try:
        column = pq.read_table(path, columns=[_ACTION]).column(_ACTION)
        actions = np.array(column.to_pylist(), dtype=np.float32)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise RecordingError(f'{path}: {error}') from None
    if actions.ndim != 2:
        raise RecordingError(f'{path}: {_ACTION} has the shape {actions.shape}, not [N, A]')
    return Recording(_checked(path, actions), _names(feature.get('names')), hz)


def _info(root: Path) -> dict[str, Any]:
    path = root / 'meta' / 'info.json'
    try:
        info = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise RecordingError(f'{path}: {error}') from None
    version = info.get('codebase_version') if isinstance(info, dict) else None
    if version != CODEBASE_VERSION:
        raise RecordingError(f'{root}: codebase_version is {version!r}, not {CODEBASE_VERSION!r}')
    return info


def _names(names: Any) -> tuple[str, ...]:
    """Names of a feature: a list, or as LeRobot also writes it, lists by the part of the robot."""
    if isinstance(names, dict):
        parts = [part if isinstance(part, list) else [part] for part in names.values()]
        names = [name for part in parts for name in part]
    return tuple(str(name) for name in names or ())


def _checked(path: Path, actions: np.ndarray) -> np.ndarray:
    if actions.dtype.kind not in 'iuf' or actions.ndim not in (2, 3) or 0 in actions.shape:
        shape = f'{actions.dtype}{list(actions.shape)}'
        raise RecordingError(f'{path}: actions must be numbers [N, A] or [K, H, A] (got {shape})')
    actions = np.asarray(actions, dtype=np.float32)
    if not np.isfinite(actions).all():
        row = int(np.argwhere(~np.isfinite(actions))[0][0])
        raise RecordingError(f'{path}: actions[{row}] is not finite')
    return actions


class Chunks:
    """A recording as chunks of one length.

    Rows past the end hold: zeros but for the gripper's last value in a delta space, else the last
    row again.

    Args:
        recording: What to cut.
        length: Steps H of a chunk of a recording of rows.
        advance: Rows from one chunk to the next.
        fields: Names of the A fields of an action.
        is_delta: Zeros are no motion.
    """

    def __init__(
        self,
        recording: Recording,
        length: int,
        advance: int,
        fields: Sequence[str],
        is_delta: bool,
    ) -> None:
        self._actions = recording.actions
        self._whole = recording.actions.ndim == 3
        self.length = recording.actions.shape[1] if self._whole else length
        self._advance = advance
        last = recording.actions.reshape(-1, recording.actions.shape[-1])[-1]
        self._rest = last.copy()
        if is_delta:
            self._rest[[index for index, name in enumerate(fields) if 'gripper' not in name]] = 0

    @property
    def count(self) -> int:
        """Chunks that begin before the end."""
        rows = len(self._actions)
        return rows if self._whole else -(-rows // self._advance)

    def chunk(self, index: int) -> np.ndarray:
        """Chunk float32[H, A] by its number; past the end it holds."""
        chunk = np.tile(self._rest, (self.length, 1))
        if self._whole:
            return self._actions[index].copy() if index < len(self._actions) else chunk
        rows = self._actions[index * self._advance :][: self.length]
        chunk[: len(rows)] = rows
        return chunk
