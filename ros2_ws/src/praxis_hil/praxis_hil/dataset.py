# SPDX-License-Identifier: Apache-2.0
"""The recorder's side of the LeRobot dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from praxis_core.contract import Contract
from praxis_data.assembler import Assembler
from praxis_data.episode_writer import EpisodeWriter
from praxis_data.lerobot_writer import LeRobotWriter

_KEPT = ('started_at', 'git_commit', 'config_hash')


class DatasetEpisode:
    """An episode being written, with the assembler that makes its rows.

    Args:
        writer: From `LeRobotWriter.begin`.
        assembler: Its statistics become metadata of the episode.
    """

    def __init__(self, writer: EpisodeWriter, assembler: Assembler) -> None:
        self._writer = writer
        self._assembler = assembler
        self.add = writer.add
        self.abort = writer.abort

    def finish(self, outcome: int, note: str, message: str) -> int:
        """Make the episode durable and return its index."""
        metadata = {'message': message, 'assembly': self._assembler.statistics()}
        return self._writer.finish(outcome, note, metadata).index


def episode_metadata(custom: dict[str, str]) -> dict[str, Any]:
    """Return an episode's metadata in the dataset from the custom data of its bag."""
    kept = {key: custom.get(f'praxis.{key}', '') for key in _KEPT}
    return {**json.loads(custom.get('praxis.metadata') or '{}'), **kept}


class Dataset:
    """Open a dataset for recording.

    Args:
        root: Folder; made where it is missing.
        contract: Of the robot.

    Raises:
        DatasetError: The folder holds something else, or a dataset of another interface.
    """

    def __init__(self, root: Path, contract: Contract) -> None:
        self._dataset = LeRobotWriter(root, contract)

    def has(self, uuid: str) -> bool:
        """Tell whether an episode of that UUID is saved."""
        index = self._dataset.index
        index.refresh()
        return index.find(uuid) is not None

    def begin(
        self, uuid: str, task: str, custom: dict[str, str], assembler: Assembler
    ) -> DatasetEpisode:
        """Begin an episode whose rows `assembler` makes."""
        writer = self._dataset.begin(task, uuid, episode_metadata(custom))
        return DatasetEpisode(writer, assembler)

    def tombstone(self, uuid: str, reason: str) -> None:
        """Mark a saved episode as deleted.

        Raises:
            KeyError: There is none of that UUID.
        """
        self._dataset.tombstone(uuid, reason)
