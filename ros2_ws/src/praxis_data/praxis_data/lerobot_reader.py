# SPDX-License-Identifier: Apache-2.0
"""Read LeRobot v2.1 datasets, ours and others', episode by episode."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from praxis_core.contract import Contract, load_contract

from praxis_data import layout, video
from praxis_data.durable import JsonLines
from praxis_data.features import IMAGE_PREFIX, numpy_column
from praxis_data.layout import DatasetError


@dataclass(frozen=True)
class Episode:
    """One saved episode.

    Attributes:
        root: Dataset folder.
        index: Its number.
        length: Rows, and frames of every video.
        tasks: Instructions.
        metadata: What the writer kept beside it.
        deleted: It has a tombstone.
        data_path: Parquet file.
        video_paths: Video file by camera.
    """

    root: Path
    index: int
    length: int
    tasks: tuple[str, ...]
    metadata: dict[str, Any]
    deleted: bool
    data_path: Path
    video_paths: dict[str, Path] = field(default_factory=dict)

    @property
    def episode_uuid(self) -> str:
        """UUID, empty in datasets of other writers."""
        return self.metadata.get('episode_uuid', '')

    @property
    def cameras(self) -> list[str]:
        """Cameras that have a video."""
        return list(self.video_paths)

    @cached_property
    def table(self) -> pa.Table:
        """All columns.

        Raises:
            DatasetError: The parquet file is missing or damaged.
        """
        try:
            return pq.read_table(self.data_path)
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(f'{self.data_path}: {error}') from error

    def column(self, name: str) -> np.ndarray:
        """Return a column as [N] or [N, D]."""
        if name not in self.table.column_names:
            raise DatasetError(f'{self.data_path}: has no column {name!r}')
        return numpy_column(self.table, name)

    def frames(self, camera: str) -> Iterator[np.ndarray]:
        """Decode the video of a camera: uint8[H, W, 3] RGB, one a row."""
        return video.read_frames(self._video(camera))

    def frames_at(self, camera: str, rows: list[int]) -> list[np.ndarray]:
        """Decode the frames of some rows only."""
        return video.pick_frames(self._video(camera), rows)

    def _video(self, camera: str) -> Path:
        if camera not in self.video_paths:
            raise DatasetError(
                f'{self.root}: episode {self.index} has no camera {camera!r}, but {self.cameras}'
            )
        return self.video_paths[camera]


class LeRobotReader:
    """A dataset on disk.

    Args:
        root: Dataset folder.

    Raises:
        DatasetError: No dataset, or one of another version of the format.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        try:
            self.info = json.loads((self.root / layout.INFO).read_text('utf-8'))
        except FileNotFoundError:
            raise DatasetError(f'{self.root}: has no {layout.INFO}') from None
        except ValueError as error:
            raise DatasetError(f'{self.root}: {layout.INFO} is damaged: {error}') from error
        version = self.info.get('codebase_version')
        if version != layout.CODEBASE_VERSION:
            raise DatasetError(
                f'{self.root}: codebase_version is {version!r}, not {layout.CODEBASE_VERSION!r}'
            )
        self._episodes = JsonLines(self.root / layout.EPISODES)
        self._tombstones = JsonLines(self.root / layout.TOMBSTONES)

    @property
    def features(self) -> dict[str, Any]:
        """Features of `info.json`."""
        return self.info['features']

    @property
    def fps(self) -> float:
        """Rows per second."""
        return self.info['fps']

    @property
    def cameras(self) -> list[str]:
        """Names of the video features, without their prefix."""
        return [
            name.removeprefix(IMAGE_PREFIX)
            for name, feature in self.features.items()
            if feature['dtype'] == 'video'
        ]

    @cached_property
    def tasks(self) -> dict[int, str]:
        """Instruction by task index."""
        rows = JsonLines(self.root / layout.TASKS).refresh()
        return {row['task_index']: row['task'] for row in rows}

    def contract(self, episode: Episode | None = None) -> Contract:
        """Load the contract that an episode was recorded under, by default the newest one's.

        Raises:
            DatasetError: None is stored.
        """
        episode = episode or next(reversed(self.episodes(deleted=True)), None)
        name = episode.metadata.get('contract') if episode is not None else None
        stored = sorted((self.root / layout.CONTRACTS).glob('*.yaml'))
        path = self.root / name if name else (stored[0] if stored else None)
        if path is None or not path.is_file():
            raise DatasetError(f'{self.root}: has no stored contract')
        return load_contract(path)

    def episodes(self, deleted: bool = False) -> list[Episode]:
        """Return the episodes in order, those with a tombstone only on request."""
        gone = {row['episode_index'] for row in self._tombstones.refresh()}
        found = [self._episode(row, gone) for row in self._episodes.refresh()]
        return [episode for episode in found if deleted or not episode.deleted]

    def _episode(self, row: dict[str, Any], gone: set[int]) -> Episode:
        index, size = row['episode_index'], self.info['chunks_size']
        return Episode(
            self.root,
            index,
            row['length'],
            tuple(row['tasks']),
            row.get('metadata', {}),
            index in gone,
            self.root / layout.data_file(index, size, self.info['data_path']),
            {
                camera: self.root
                / layout.video_file(index, self._key(camera), size, self.info['video_path'])
                for camera in self.cameras
            },
        )

    def _key(self, camera: str) -> str:
        prefixed = IMAGE_PREFIX + camera
        return prefixed if prefixed in self.features else camera

    def episode(self, key: int | str) -> Episode:
        """Return an episode by index or UUID, deleted ones included.

        Raises:
            DatasetError: There is none.
        """
        found = [
            episode
            for episode in self.episodes(deleted=True)
            if key in (episode.index, episode.episode_uuid)
        ]
        if not found:
            raise DatasetError(f'{self.root}: has no episode {key}')
        return min(found, key=lambda episode: episode.deleted)

    def problems(self) -> list[str]:
        """Read everything and return what is wrong with it, one line a fault."""
        lines = []
        for episode in self.episodes(deleted=True):
            try:
                lines += self._problems(episode)
            except (DatasetError, video.VideoError) as error:
                lines.append(str(error))
        return lines

    def _problems(self, episode: Episode) -> list[str]:
        lines, where = [], f'episode {episode.index}'
        scalars = [n for n, f in self.features.items() if f['dtype'] != 'video']
        if episode.table.column_names != scalars:
            lines.append(f'{where}: columns {episode.table.column_names} are not {scalars}')
        if episode.table.num_rows != episode.length:
            lines.append(f'{where}: {episode.table.num_rows} rows, its line says {episode.length}')
        if set(episode.column('episode_index').tolist()) != {episode.index}:
            lines.append(f'{where}: its rows carry another episode_index')
        if episode.column('frame_index').tolist() != list(range(episode.length)):
            lines.append(f'{where}: frame_index is not contiguous from 0')
        for camera, path in episode.video_paths.items():
            frames = video.count_frames(path)
            if frames != episode.length:
                lines.append(f'{where}: {camera} has {frames} frames for {episode.length} rows')
        return lines
