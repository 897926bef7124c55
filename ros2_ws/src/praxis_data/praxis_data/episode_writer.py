# SPDX-License-Identifier: Apache-2.0
"""Write one episode of a LeRobot v2.1 dataset: rows stream to disk, finished it is durable."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid as uuids
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from praxis_core.contract import Contract

from praxis_data import durable, features, layout
from praxis_data.features import numpy_column
from praxis_data.layout import DatasetError, EmptyEpisodeError
from praxis_data.publication import ALIVE, DatasetIndex
from praxis_data.row import Row
from praxis_data.statistics import column_statistics
from praxis_data.video import EncoderThread, VideoEncoder, VideoSettings

OUTCOMES = {0: 'unknown', 1: 'success', 2: 'failure'}
_BATCH_ROWS = 32


@dataclass(frozen=True)
class SavedEpisode:
    """A durable episode.

    Attributes:
        index: Its place in the dataset; never changes.
        episode_uuid: Its UUID.
        length: Rows, and frames of every video.
        dataset_path: Root of the dataset.
        videos: Video file by camera.
    """

    index: int
    episode_uuid: str
    length: int
    dataset_path: Path
    videos: dict[str, Path]


class OpenDataset(Protocol):
    """What an episode needs of the dataset that it is written into."""

    root: Path
    contract: Contract
    contract_file: str
    columns: list[features.Column]
    fps: float
    settings: VideoSettings
    queue_frames: int
    index: DatasetIndex

    def refuse_twin(self, episode_uuid: str) -> None:
        """Refuse an episode that is in the dataset already."""


class EpisodeWriter:
    """One episode being written; made by `LeRobotWriter.begin`.

    Numeric columns go to a file every 32 rows, images to the encoder threads, so memory stays
    bounded however long the episode is.

    Attributes:
        rows: Rows added so far.
    """

    def __init__(
        self, dataset: OpenDataset, task: str, episode_uuid: str, metadata: dict[str, Any]
    ) -> None:
        self._dataset = dataset
        self.task = task
        self.episode_uuid = episode_uuid
        self.metadata = metadata
        self.rows = 0
        self._pending: list[dict[str, Any]] = []
        self._open = True
        name = f'{uuids.uuid4().hex[:8]}-{os.getpid()}'
        self.staging = dataset.root / layout.STAGING / name
        # Under the lock, or another process' clean-up takes the folder for a leftover.
        with dataset.index.lock():
            self.staging.mkdir()
            self._alive = durable.try_lock(self.staging / ALIVE)
        self._encoders: dict[str, EncoderThread] = {}
        self._schema = features.schema(dataset.columns)
        self._rows_path = self.staging / 'rows.arrow'
        self._sink = pa.OSFile(str(self._rows_path), 'wb')
        self._stream = pa.ipc.new_stream(self._sink, self._schema)
        try:
            for camera, shape in dataset.contract.interface.cameras.items():
                encoder = VideoEncoder(
                    self.staging / f'{camera}.mp4',
                    shape.width,
                    shape.height,
                    dataset.fps,
                    dataset.settings,
                )
                self._encoders[camera] = EncoderThread(encoder, dataset.queue_frames)
        except Exception:
            self.abort()
            raise

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.abort()

    def add(self, row: Row) -> None:
        """Append the next row; blocks while an encoder is behind.

        Raises:
            DatasetError: The row is not the next one, or the episode is finished.
            VideoError: A frame could not be encoded.
            OSError: The disk is full or failing.
        """
        if not self._open:
            raise DatasetError(f'episode {self.episode_uuid} is finished')
        if row.index != self.rows:
            raise DatasetError(f'row {row.index} follows row {self.rows - 1}')
        for camera, encoder in self._encoders.items():
            encoder.put(row.images[camera])
        self._pending.append(features.row_values(row, self._dataset.fps))
        self.rows += 1
        if len(self._pending) >= _BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            arrays = [
                column.array([row[column.name] for row in self._pending])
                for column in self._dataset.columns
            ]
            self._stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            self._pending.clear()

    def finish(
        self,
        outcome: int | str = 0,
        note: str = '',
        metadata: Mapping[str, Any] | None = None,
    ) -> SavedEpisode:
        """Make the episode durable and part of the dataset.

        Args:
            outcome: 0 or `unknown`, 1 or `success`, 2 or `failure`.
            note: Free text.
            metadata: Added to that given at the start.

        Raises:
            EmptyEpisodeError: It has no row; it is removed.
            DatasetError, VideoError, OSError: It could not be saved; its staged files stay until
                `abort`.
        """
        if not self._open:
            raise DatasetError(f'episode {self.episode_uuid} is finished')
        if not self.rows:
            self.abort()
            raise EmptyEpisodeError(f'{self._dataset.root}: the episode has no rows')
        self._flush()
        self._stream.close()
        self._sink.close()
        for camera, encoder in self._encoders.items():
            frames = encoder.finish()
            if frames != self.rows:
                raise DatasetError(f'{camera}: video has {frames} frames for {self.rows} rows')
        self.metadata.update(metadata or {})
        self.metadata.update(
            {
                'episode_uuid': self.episode_uuid,
                'outcome': OUTCOMES.get(outcome, outcome),
                'note': note,
                'contract': self._dataset.contract_file,
                'deployment_hash': self._dataset.contract.deployment_hash,
            }
        )
        dataset = self._dataset
        with dataset.index.lock():
            dataset.index.refresh()
            dataset.index.finish_commits()
            dataset.refuse_twin(self.episode_uuid)
            record = self._record()
            dataset.index.commit(self.staging, record)
        self._open = False
        os.close(self._alive)
        number = record['episode']['episode_index']
        videos = {
            camera: dataset.root / layout.video_file(number, features.IMAGE_PREFIX + camera)
            for camera in self._encoders
        }
        return SavedEpisode(number, self.episode_uuid, self.rows, dataset.root, videos)

    def _record(self) -> dict[str, Any]:
        """Write the parquet file and return what the commit has to publish."""
        index = self._dataset.index
        number, task_index = index.next_episode, index.task_index(self.task)
        with pa.memory_map(str(self._rows_path)) as source:
            table = pa.ipc.open_stream(source).read_all()
            first = index.total_frames
            position = {
                'episode_index': np.full(self.rows, number),
                'task_index': np.full(self.rows, task_index),
                'index': np.arange(first, first + self.rows),
            }
            table = features.replace_columns(table, position)
            table = table.replace_schema_metadata(self._schema.metadata).combine_chunks()
            pq.write_table(table, self.staging / 'rows.parquet')
            statistics = {
                column.name: column_statistics(numpy_column(table, column.name))
                for column in self._dataset.columns
            }
            expert = segments(numpy_column(table, 'intervention'))
        files = {'rows.parquet': str(layout.data_file(number))}
        for camera, encoder in self._encoders.items():
            key = features.IMAGE_PREFIX + camera
            files[f'{camera}.mp4'] = str(layout.video_file(number, key))
            statistics[key] = encoder.statistics.result()
        return {
            'files': files,
            'task': {'task_index': task_index, 'task': self.task},
            'episode': {
                'episode_index': number,
                'tasks': [self.task],
                'length': self.rows,
                'metadata': self.metadata,
            },
            'statistics': {'episode_index': number, 'stats': statistics},
            'expert': expert,
        }

    def abort(self) -> None:
        """Drop the episode; nothing of it was in the dataset. After `finish`, do nothing."""
        if not self._open:
            return
        self._open = False
        for encoder in self._encoders.values():
            encoder.abort()
        with contextlib.suppress(Exception):
            self._stream.close()
            self._sink.close()
        # A commit that failed half-way is finished by the next writer.
        if not (self.staging / 'commit.json').exists():
            shutil.rmtree(self.staging, ignore_errors=True)
        os.close(self._alive)


def segments(flags: np.ndarray) -> list[dict[str, int]]:
    """Return the runs of True as frame ranges, both ends inclusive."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return [
        {'start_frame_index': int(start), 'end_frame_index': int(end) - 1}
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]
