# SPDX-License-Identifier: Apache-2.0
"""Write LeRobot v2.1 datasets: rows stream to disk, a finished episode is durable."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid as uuids
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from praxis_core.contract import Contract, interface_dict, interface_difference

from praxis_data import durable, features, layout
from praxis_data.layout import DatasetError, EmptyEpisodeError, MismatchError
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


class LeRobotWriter:
    """Create or extend a dataset.

    Opening finishes what an earlier crash interrupted and removes the leftovers of writers that
    are gone. Several writers, in several processes, may extend one dataset.

    Args:
        root: Dataset folder; made where it is missing.
        contract: Names, shapes and `record_hz`.
        settings: Video encoding.
        queue_frames: Frames per camera that may wait for its encoder.

    Raises:
        MismatchError: The dataset has another interface or other features.
        DatasetError: The folder holds something else.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        contract: Contract,
        settings: VideoSettings | None = None,
        *,
        queue_frames: int = 16,
    ) -> None:
        self.root = Path(root)
        self.contract = contract
        self.settings = settings or VideoSettings()
        self.queue_frames = queue_frames
        hz = contract.deployment.record_hz
        self.fps = int(hz) if float(hz).is_integer() else float(hz)
        self.columns = features.columns(contract)
        self.features = features.features(contract, self.settings.info(self.fps))
        info = self.root / layout.INFO
        if not info.exists() and self.root.is_dir():
            foreign = [p.name for p in self.root.iterdir() if p.name not in ('meta', '.staging')]
            if foreign:
                raise DatasetError(f'{self.root}: is no dataset, and holds {sorted(foreign)[:5]}')
        durable.make_folder(self.root / 'meta')
        durable.make_folder(self.root / layout.STAGING)
        self.index = DatasetIndex(self.root)
        with self.index.lock():
            if info.exists():
                self._check(self.index.read_info())
            else:
                durable.write_json(info, self._new_info())
            self._store_contract()
            self.index.repair()

    def _new_info(self) -> dict[str, Any]:
        return {
            'codebase_version': layout.CODEBASE_VERSION,
            'robot_type': self.contract.interface.robot_type,
            'total_episodes': 0,
            'total_frames': 0,
            'total_tasks': 0,
            'total_videos': 0,
            'total_chunks': 0,
            'chunks_size': layout.CHUNK_SIZE,
            'fps': self.fps,
            'splits': {'train': '0:0'},
            'data_path': layout.DATA_PATH,
            'video_path': layout.VIDEO_PATH,
            'features': self.features,
            'praxis': {
                'contract': self.contract.name,
                'interface_hash': self.contract.interface_hash,
                'interface': interface_dict(self.contract),
                'video': self.settings.asdict(),
            },
        }

    def _check(self, info: Mapping[str, Any]) -> None:
        ours, theirs = 'the contract', 'the dataset'
        lines = []
        own = info.get('praxis', {})
        if info.get('codebase_version') != layout.CODEBASE_VERSION:
            lines.append(
                f'codebase_version: {info.get("codebase_version")!r} in {theirs}, '
                f'{layout.CODEBASE_VERSION!r} here'
            )
        if own.get('interface_hash') != self.contract.interface_hash:
            lines += interface_difference(
                own.get('interface', {}), interface_dict(self.contract)
            ) or [
                f'interface_hash: {own.get("interface_hash")!r} in {theirs}, '
                f'{self.contract.interface_hash!r} in {ours}'
            ]
        if info.get('fps') != self.fps:
            lines.append(f'fps: {info.get("fps")!r} in {theirs}, {self.fps!r} in {ours}')
        lines += features.difference(info.get('features', {}), self.features, theirs, ours)
        if lines:
            raise MismatchError(
                f'{self.root}: cannot be extended with contract {self.contract.name}:', lines
            )

    @property
    def contract_file(self) -> str:
        """Contract as stored in the dataset, relative to it."""
        parts = self.contract.interface_hash[:12], self.contract.deployment_hash[:12]
        return f'{layout.CONTRACTS}/{"-".join(parts)}.yaml'

    def _store_contract(self) -> None:
        path = self.root / self.contract_file
        source = self.contract.path
        if not path.exists() and source is not None and source.exists():
            durable.make_folder(path.parent)
            durable.write_text(path, source.read_text('utf-8'))

    def begin(
        self,
        task: str,
        episode_uuid: str = '',
        metadata: Mapping[str, Any] | None = None,
    ) -> EpisodeWriter:
        """Start an episode.

        Args:
            task: Instruction, not empty.
            episode_uuid: Made where it is empty.
            metadata: Stored in the episode's line of `meta/episodes.jsonl`.

        Raises:
            DatasetError: No task, or the dataset has an episode of that UUID.
        """
        if not task.strip():
            raise DatasetError(f'{self.root}: an episode needs a task')
        episode_uuid = episode_uuid or str(uuids.uuid4())
        self._refuse_twin(episode_uuid)
        return EpisodeWriter(self, task, episode_uuid, dict(metadata or {}))

    def _refuse_twin(self, episode_uuid: str) -> None:
        self.index.refresh()
        twin = self.index.find(episode_uuid)
        if twin is not None:
            raise DatasetError(
                f'{self.root}: episode {episode_uuid} is there already, '
                f'as number {twin["episode_index"]}'
            )

    def tombstone(self, episode: str | int, reason: str = '') -> int:
        """Mark an episode as deleted; its files and all indices stay.

        Args:
            episode: UUID or index.
            reason: Kept with the mark.

        Returns:
            Its index.

        Raises:
            KeyError: There is no such episode, or it is deleted already.
        """
        with self.index.lock():
            self.index.refresh()
            if isinstance(episode, int):
                rows = [r for r in self.index.episodes.rows if r['episode_index'] == episode]
                row = rows[0] if rows and episode not in self.index.deleted else None
            else:
                row = self.index.find(episode)
            if row is None:
                raise KeyError(f'{self.root}: no episode {episode}')
            self.index.tombstones.append(
                {
                    'episode_index': row['episode_index'],
                    'episode_uuid': row.get('metadata', {}).get('episode_uuid', ''),
                    'reason': reason,
                    'time': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
                }
            )
        return row['episode_index']


class EpisodeWriter:
    """One episode being written; made by `LeRobotWriter.begin`.

    Numeric columns go to a file every 32 rows, images to the encoder threads, so memory stays
    bounded however long the episode is.

    Attributes:
        rows: Rows added so far.
    """

    def __init__(
        self, dataset: LeRobotWriter, task: str, episode_uuid: str, metadata: dict[str, Any]
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
            dataset._refuse_twin(self.episode_uuid)
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
            fixed = {
                'episode_index': np.full(self.rows, number),
                'task_index': np.full(self.rows, task_index),
                'index': np.arange(first, first + self.rows),
            }
            for name, values in fixed.items():
                at = table.schema.get_field_index(name)
                table = table.set_column(at, self._schema.field(at), pa.array(values, pa.int64()))
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


def numpy_column(table: pa.Table, name: str) -> np.ndarray:
    """Return a column as [N] or [N, D]."""
    column = table.column(name).combine_chunks()
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def segments(flags: np.ndarray) -> list[dict[str, int]]:
    """Return the runs of True as frame ranges, both ends inclusive."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return [
        {'start_frame_index': int(start), 'end_frame_index': int(end) - 1}
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]
