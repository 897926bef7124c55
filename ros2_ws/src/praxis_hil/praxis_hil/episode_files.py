# SPDX-License-Identifier: Apache-2.0
"""Open the bag and the dataset episode of a recording."""

from __future__ import annotations

import hashlib
import json
import subprocess
import uuid as uuids
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from praxis_core.contract import Contract
from praxis_data.assembler import Assembler
from praxis_data.bag import BagWriter
from praxis_data.recover import UnsavedMark

from praxis_hil.dataset import Dataset
from praxis_hil.dataset_sink import DatasetSink
from praxis_hil.session import Session


def git_commit(folder: Path | None = None) -> str:
    """Return the commit of the sources, `-dirty` appended when they differ, or `unknown`."""
    where = folder or Path(__file__).resolve().parent
    try:
        commit = _git(where, 'rev-parse', 'HEAD')
        return f'{commit}-dirty' if _git(where, 'status', '--porcelain', '-uno') else commit
    except (OSError, subprocess.SubprocessError):
        return 'unknown'


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ['git', *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
    ).stdout.strip()


@dataclass
class EpisodeFiles:
    """Where and how episodes are written.

    Attributes:
        contract: Of the robot.
        bag_root: Folder of the bags.
        bag_storage: `mcap` or `sqlite3`.
        dataset: That is extended; None records bags only.
        dataset_root: Its folder.
        watermark_s: Of the assembler.
        namespace: The node's, which topic names begin with.
        configuration: Parameters that decide the data, for the hash.
        commit: Of the sources.
        max_waiting_bytes: Of the dataset's queue.
        keep_discarded_bags: A discarded episode keeps its bag.
    """

    contract: Contract
    bag_root: Path
    bag_storage: str
    dataset: Dataset | None
    dataset_root: Path
    watermark_s: float
    namespace: str
    configuration: dict[str, Any]
    commit: str
    max_waiting_bytes: int = 256 << 20
    keep_discarded_bags: bool = False

    def open(self, uuid: str, task: str, metadata: str) -> Session:
        """Open an episode's files.

        Args:
            uuid: Of the episode.
            task: Instruction.
            metadata: JSON object or empty.

        Raises:
            ValueError: `uuid` is none or taken, or `metadata` is no JSON object.
            OSError: Files cannot be made.
        """
        uuid = str(uuids.UUID(uuid))
        if self.dataset is not None and self.dataset.has(uuid):
            raise ValueError(f'episode {uuid} is in {self.dataset_root} already')
        custom = self.custom_data(uuid, task, _json_object(metadata))
        name = f'{datetime.now():%Y%m%d_%H%M%S}_{uuid[:8]}'
        bag = BagWriter(self.bag_root / name, self.bag_storage, (), custom)
        sink = None
        if self.dataset is not None:
            dataset = self.dataset
            assembler = Assembler(self.contract, self.watermark_s, namespace=self.namespace)
            sink = DatasetSink(
                assembler,
                lambda: dataset.begin(uuid, task, custom, assembler),
                self.max_waiting_bytes,
            )
        return Session(
            uuid,
            task,
            bag,
            sink,
            str(self.dataset_root) if sink is not None else '',
            keep_discarded_bag=self.keep_discarded_bags,
            mark=UnsavedMark(bag.path),
        )

    def custom_data(self, uuid: str, task: str, metadata: str) -> dict[str, str]:
        """Return what the bag says of itself."""
        configuration = json.dumps(self.configuration, sort_keys=True)
        path = self.contract.path
        text = path.read_text(encoding='utf-8') if path is not None else ''
        digest = hashlib.sha256(f'{text}\n{configuration}'.encode()).hexdigest()
        return {
            'praxis.contract': text,
            'praxis.interface_hash': self.contract.interface_hash,
            'praxis.deployment_hash': self.contract.deployment_hash,
            'praxis.task': task,
            'praxis.episode_uuid': uuid,
            'praxis.configuration': configuration,
            'praxis.config_hash': digest,
            'praxis.git_commit': self.commit,
            'praxis.watermark_s': repr(self.watermark_s),
            'praxis.namespace': self.namespace,
            'praxis.metadata': metadata,
            'praxis.started_at': datetime.now(timezone.utc).isoformat(timespec='milliseconds'),
        }


def _json_object(text: str) -> str:
    if not text.strip():
        return '{}'
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f'metadata is no JSON: {error}') from None
    if not isinstance(value, dict):
        raise ValueError(f'metadata is no JSON object (got {text[:80]!r})')
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
