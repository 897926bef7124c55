# SPDX-License-Identifier: Apache-2.0
"""Make a dataset episode from a bag, by the same ingest path as the live recorder."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from praxis_core.contract import Contract, load_contract

from praxis_data.assembler import Assembler
from praxis_data.bag import BagReader
from praxis_data.layout import DatasetError, EmptyEpisodeError
from praxis_data.lerobot_writer import LeRobotWriter
from praxis_data.messages import Codec
from praxis_data.video import VideoSettings

CONTRACT = 'praxis.contract'
TASK = 'praxis.task'
EPISODE_UUID = 'praxis.episode_uuid'
WATERMARK = 'praxis.watermark_s'
NAMESPACE = 'praxis.namespace'
OUTCOME = 'praxis.outcome'
NOTE = 'praxis.note'
DEFAULT_WATERMARK_S = 0.2

Progress = Callable[[int, int], None]


@dataclass
class Conversion:
    """Outcome of `convert_bag`.

    Attributes:
        bag_path: As given.
        dataset_path: Root of the dataset.
        episode_index: Place in the dataset.
        episode_uuid: Of the recording.
        task: Instruction.
        messages: Messages read.
        rows: Rows written, and frames of every video.
        seconds: Wall time.
        assembly: `Assembler.statistics`.
    """

    bag_path: str
    dataset_path: str
    episode_index: int
    episode_uuid: str
    task: str
    messages: int
    rows: int
    seconds: float
    assembly: dict[str, Any] = field(default_factory=dict)

    def asdict(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        return asdict(self)


def contract_of(bag: BagReader) -> Contract | None:
    """Return the contract that a bag carries, None where it carries none.

    Raises:
        praxis_core.contract.ContractError: It is not valid.
    """
    text = bag.custom_data.get(CONTRACT)
    if not text:
        return None
    with tempfile.TemporaryDirectory(prefix='praxis_contract_') as folder:
        path = Path(folder) / 'contract.yaml'
        path.write_text(text, encoding='utf-8')
        return load_contract(path)


def namespace_of(bag: BagReader, contract: Contract) -> str:
    """Return the namespace under which a bag has the contract's topics.

    Raises:
        DatasetError: The state of several robots is in the bag.
    """
    if NAMESPACE in bag.custom_data:
        return bag.custom_data[NAMESPACE]
    state = contract.deployment.topics.state.strip('/')
    found = {
        name.strip('/').removesuffix(state).strip('/')
        for name, topic in bag.topics.items()
        if topic.typename.endswith('/StateVector') and f'/{name.strip("/")}'.endswith(f'/{state}')
    }
    if len(found) > 1:
        raise DatasetError(f'{bag.path}: has several robots, name one of {sorted(found)}')
    return found.pop() if found else ''


def convert_bag(
    bag_path: str | os.PathLike[str],
    dataset_root: str | os.PathLike[str],
    *,
    contract: Contract | None = None,
    task: str = '',
    episode_uuid: str = '',
    namespace: str | None = None,
    watermark_s: float | None = None,
    stamp_time: bool | None = None,
    settings: VideoSettings | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Convert one bag to one episode of a dataset, which is made where it is missing.

    What is not given is taken from the bag. A bag of `ros2 bag record` needs `contract` and
    `task`; it ends at the first reset of the environment.

    Args:
        bag_path: Bag folder or file.
        dataset_root: Dataset folder.
        contract: Names, rates and topics.
        task: Instruction.
        episode_uuid: UUID of the episode.
        namespace: Robot namespace of the topics.
        watermark_s: As the recorder's, s.
        stamp_time: Take the newest header stamp for the log time. By default so for bags that
            Praxis did not record, whose log time may be wall time while stamps are simulated.
        settings: Video encoding.
        progress: Called with messages read and rows made, about ten times a second.

    Raises:
        DatasetError: Contract or task is missing, the episode is there already, or no rows.
        praxis_data.bag.BagError: The bag cannot be read.
    """
    started = time.monotonic()
    bag = BagReader(bag_path)
    custom = bag.custom_data
    contract = contract or contract_of(bag)
    if contract is None:
        raise DatasetError(f'{bag_path}: carries no contract; give one')
    task = task or custom.get(TASK, '')
    if not task:
        raise DatasetError(f'{bag_path}: carries no task; give one')
    if watermark_s is None:
        watermark_s = float(custom.get(WATERMARK) or DEFAULT_WATERMARK_S)
    if stamp_time is None:
        stamp_time = EPISODE_UUID not in custom
    assembler = Assembler(
        contract,
        watermark_s,
        message_codec=Codec(bag.definitions),
        namespace=namespace_of(bag, contract) if namespace is None else namespace,
    )
    writer = LeRobotWriter(dataset_root, contract, settings)
    metadata = {
        'bag': str(bag_path),
        **{key: value for key, value in custom.items() if key not in (CONTRACT, TASK)},
    }
    messages, reported = 0, started
    with writer.begin(task, episode_uuid or custom.get(EPISODE_UUID, ''), metadata) as episode:
        for topic, typename, data, log_time_ns in bag:
            messages += 1
            for row in assembler.ingest(
                topic, typename, data, None if stamp_time else log_time_ns
            ):
                episode.add(row)
            if assembler.ended:
                break
            if progress is not None and time.monotonic() - reported > 0.1:
                reported = time.monotonic()
                progress(messages, episode.rows)
        for row in assembler.close():
            episode.add(row)
        if progress is not None:
            progress(messages, episode.rows)
        outcome = custom.get(OUTCOME, '0')
        try:
            saved = episode.finish(
                int(outcome) if outcome.isdigit() else outcome,
                custom.get(NOTE, ''),
                {'assembly': assembler.statistics()},
            )
        except EmptyEpisodeError:
            missing = ', '.join(assembler.waiting_for) or assembler.message
            raise DatasetError(f'{bag_path}: gives no row: {missing}') from None
    return Conversion(
        str(bag_path),
        str(writer.root),
        saved.index,
        saved.episode_uuid,
        task,
        messages,
        saved.length,
        time.monotonic() - started,
        assembler.statistics(),
    )
