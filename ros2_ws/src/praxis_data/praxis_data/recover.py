# SPDX-License-Identifier: Apache-2.0
"""Rebuild a bag that was never closed, beside the original."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from praxis_data.bag_format import METADATA_FILE, BagError
from praxis_data.bag_reader import BagReader
from praxis_data.bag_writer import BagWriter

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


def is_unfinished(path: Path) -> bool:
    """Tell whether a folder is a bag that was never closed and has not been recovered yet."""
    if not path.is_dir() or (path / METADATA_FILE).exists():
        return False
    if (path.with_name(path.name + SUFFIX) / METADATA_FILE).exists():
        return False
    return any(file.suffix in ('.mcap', '.db3') for file in path.iterdir())


def unfinished_bags(root: str | os.PathLike[str]) -> list[Path]:
    """Return the unfinished bags directly under a folder, by name."""
    folder = Path(root)
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if not p.name.endswith(SUFFIX) and is_unfinished(p))


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
