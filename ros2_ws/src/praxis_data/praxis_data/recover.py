# SPDX-License-Identifier: Apache-2.0
"""Rebuild a bag that was never closed, beside the original."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from praxis_data import durable
from praxis_data.bag_format import METADATA_FILE, BagError
from praxis_data.bag_reader import BagReader
from praxis_data.bag_writer import BagWriter

if TYPE_CHECKING:
    from praxis_data.convert import Conversion

SUFFIX = '_recovered'
RECOVERED_KEY = 'praxis.recovered_from'


@dataclass(frozen=True)
class Recovery:
    """Result of `recover_bag`.

    Attributes:
        path: The rebuilt bag.
        messages: Messages in it.
        start_ns: Log time of the first.
        end_ns: Log time of the last.
        damaged_chunks: Chunks with a wrong checksum, left out.
        custom_data: Of the original.
    """

    path: Path
    messages: int
    start_ns: int
    end_ns: int
    damaged_chunks: int
    custom_data: dict[str, str]


class UnsavedMark:
    """A file in a bag's folder that says: not in the dataset yet.

    It is locked while its recorder lives, so that others tell a crash from a recording.

    Args:
        bag: Folder of the bag.
    """

    NAME = 'unsaved'

    def __init__(self, bag: Path) -> None:
        self._path = bag / self.NAME
        self._lock = durable.try_lock(self._path)

    def remove(self) -> None:
        """The episode is in the dataset, or is not to be."""
        self._path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Let go of it; the bag counts as unfinished."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def is_unfinished(path: Path) -> bool:
    """Tell whether a bag was never closed or never became an episode, and nobody is at it."""
    if not path.is_dir():
        return False
    mark = path / UnsavedMark.NAME
    if mark.exists():
        lock = durable.try_lock(mark)
        if lock is None:
            return False
        os.close(lock)
    elif (path / METADATA_FILE).exists():
        return False
    copy = path.with_name(path.name + SUFFIX)
    if (copy / METADATA_FILE).exists() and not (copy / UnsavedMark.NAME).exists():
        return False
    return any(file.suffix in ('.mcap', '.db3') for file in path.iterdir())


def unfinished_bags(root: str | os.PathLike[str]) -> list[Path]:
    """Return the unfinished bags directly under a folder, by name."""
    folder = Path(root)
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if not p.name.endswith(SUFFIX) and is_unfinished(p))


def is_saved(bag_path: str | os.PathLike[str], dataset_root: str | os.PathLike[str]) -> bool:
    """Tell whether a bag's episode is in the dataset; its mark, if a crash left it, is removed."""
    from praxis_data.publication import DatasetIndex

    uuid = BagReader(bag_path).custom_data.get('praxis.episode_uuid')
    index = DatasetIndex(Path(dataset_root))
    index.refresh()
    if not uuid or index.find(uuid) is None:
        return False
    (Path(bag_path) / UnsavedMark.NAME).unlink(missing_ok=True)
    return True


def recover_episode(
    bag_path: str | os.PathLike[str],
    dataset_root: str | os.PathLike[str],
    **options: Any,
) -> Conversion:
    """Bring an unfinished episode into its dataset: rebuild its bag where needed, and convert it.

    What an earlier recovery achieved is not done again.

    Args:
        bag_path: Bag folder that the recorder named.
        dataset_root: Dataset folder.
        options: Of `praxis_data.convert.convert_bag`.

    Raises:
        BagError: The path is no bag.
        praxis_data.layout.DatasetError: The episode is there already, or has no rows.
    """
    from praxis_data.convert import convert_bag
    from praxis_data.layout import DatasetError

    source = Path(bag_path)
    if is_saved(source, dataset_root):
        raise DatasetError(f'{source}: its episode is in {dataset_root} already')
    whole = source
    if not BagReader(source).closed:
        whole = source.with_name(source.name + SUFFIX)
        if not (whole / METADATA_FILE).exists():
            recover_bag(source, whole)
            (whole / UnsavedMark.NAME).touch()
    conversion = convert_bag(whole, dataset_root, **options)
    (whole / UnsavedMark.NAME).unlink(missing_ok=True)
    return conversion


def recover_bag(
    path: str | os.PathLike[str], dest: str | os.PathLike[str] | None = None
) -> Recovery:
    """Copy every readable message of an unfinished bag into a whole one.

    The original is only read. Type definitions, QoS profiles, custom data, order and times are
    kept. A recovery that was itself interrupted is begun again.

    Args:
        path: Bag folder, or its single storage file.
        dest: Folder to create; `PATH_recovered` by default.

    Raises:
        BagError: The path is no bag, the bag is closed already, or `dest` is a whole bag.
    """
    source = Path(path)
    reader = BagReader(source)
    if reader.closed:
        raise BagError(f'{source}: is closed already, nothing to recover')
    if dest is None:
        base = source if source.is_dir() else source.with_suffix('')
        dest = base.with_name(base.name + SUFFIX)
    target = Path(dest)
    if (target / METADATA_FILE).exists():
        raise BagError(f'{target}: exists already')
    if target.exists():
        if any(file.suffix not in ('.mcap', '.db3') for file in _leftovers(target)):
            raise BagError(f'{target}: exists and is not an interrupted recovery')
        shutil.rmtree(target)
    start = end = None
    metadata = {**reader.custom_data, RECOVERED_KEY: source.name}
    with BagWriter(target, reader.storage, reader.topics.values(), metadata) as writer:
        known = set(reader.topics)
        for topic, _, data, log_time_ns in reader:
            if topic not in known:
                writer.add_topic(reader.topics[topic])
                known.add(topic)
            writer.write(topic, data, log_time_ns)
            start = log_time_ns if start is None else start
            end = log_time_ns
    return Recovery(
        target,
        writer.message_count,
        start or 0,
        end or 0,
        reader.damaged_chunks,
        dict(reader.custom_data),
    )


def _leftovers(target: Path) -> list[Path]:
    return [f for f in target.iterdir() if not f.name.endswith(('-wal', '-shm', '-journal'))]
