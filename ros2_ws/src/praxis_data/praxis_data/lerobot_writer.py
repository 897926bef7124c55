# SPDX-License-Identifier: Apache-2.0
"""Create and extend LeRobot v2.1 datasets."""

from __future__ import annotations

import os
import time
import uuid as uuids
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from praxis_core.contract import Contract, interface_dict, interface_difference

from praxis_data import durable, features, layout
from praxis_data.episode_writer import EpisodeWriter
from praxis_data.layout import DatasetError, MismatchError
from praxis_data.publication import DatasetIndex
from praxis_data.video import VideoSettings


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
        self.refuse_twin(episode_uuid)
        return EpisodeWriter(self, task, episode_uuid, dict(metadata or {}))

    def refuse_twin(self, episode_uuid: str) -> None:
        """Refuse an episode that is in the dataset already.

        Raises:
            DatasetError: It is.
        """
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
