# SPDX-License-Identifier: Apache-2.0
"""Copy a dataset without its deleted episodes."""

from __future__ import annotations

import json
import os
import shutil
import uuid as uuids
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from praxis_data import durable, layout
from praxis_data.durable import JsonLines
from praxis_data.features import IMAGE_PREFIX, numpy_column, replace_columns
from praxis_data.layout import DatasetError
from praxis_data.lerobot_reader import Episode, LeRobotReader
from praxis_data.publication import DatasetIndex
from praxis_data.statistics import column_statistics

MAP = 'meta/compaction.json'


def compact(src: str | os.PathLike[str], dst: str | os.PathLike[str]) -> dict[int, int]:
    """Write a dataset that has the episodes of `src` without a tombstone, numbered from 0.

    `src` is only read. `dst` appears whole or not at all. Episode UUIDs stay, and
    `meta/compaction.json` maps old numbers to those of `dst`, for labels kept by index.

    Returns:
        Number in `dst` by number in `src`.

    Raises:
        DatasetError: `dst` exists, or an episode of `src` is damaged.
    """
    source = LeRobotReader(src)
    target = Path(dst)
    if target.exists():
        raise DatasetError(f'{target}: exists')
    durable.make_folder(target.parent)
    staging = target.with_name(f'.{target.name}.{uuids.uuid4().hex[:8]}.tmp')
    try:
        mapping = _copy(source, staging)
        os.rename(staging, target)
        durable.sync_folder(target.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return mapping


def _copy(source: LeRobotReader, target: Path) -> dict[int, int]:
    durable.make_folder(target / 'meta')
    durable.write_json(target / layout.INFO, source.info)
    for name in (layout.CONTRACTS, layout.TASKS):
        path = source.root / name
        if path.is_dir():
            shutil.copytree(path, target / name)
        elif path.exists():
            shutil.copyfile(path, target / name)
    expert_path = source.root / layout.EXPERT
    expert = json.loads(expert_path.read_text('utf-8')) if expert_path.exists() else None
    statistics = {
        row['episode_index']: row for row in JsonLines(source.root / layout.STATISTICS).refresh()
    }
    rows: dict[str, list[dict[str, Any]]] = {layout.EPISODES: [], layout.STATISTICS: []}
    mapping: dict[int, int] = {}
    segments, first = [], 0
    for number, episode in enumerate(source.episodes()):
        mapping[episode.index] = number
        files = _copy_files(episode, target, number, first)
        rows[layout.EPISODES].append(
            {
                'episode_index': number,
                'tasks': list(episode.tasks),
                'length': episode.length,
                'metadata': {**episode.metadata, 'source_episode_index': episode.index},
            }
        )
        if episode.index in statistics:
            row = statistics[episode.index]
            stats = {**row['stats'], **_position_statistics(files)}
            rows[layout.STATISTICS].append({'episode_index': number, 'stats': stats})
        if expert is not None:
            segments += [
                {**entry, 'episode_index': number}
                for entry in expert['episodes']
                if entry['episode_index'] == episode.index
            ]
        first += episode.length
    for name, lines in rows.items():
        text = ''.join(json.dumps(line, ensure_ascii=False) + '\n' for line in lines)
        durable.write_text(target / name, text)
    if expert is not None:
        durable.write_json(target / layout.EXPERT, {'episodes': segments})
    durable.write_json(
        target / MAP,
        {'source': str(source.root), 'episodes': {str(a): b for a, b in mapping.items()}},
    )
    index = DatasetIndex(target)
    index.refresh()
    index.write_info()
    for folder, _, names in os.walk(target):
        for name in names:
            durable.sync_file(Path(folder) / name)
        durable.sync_folder(Path(folder))
    return mapping


def _copy_files(episode: Episode, target: Path, number: int, first: int) -> pa.Table:
    position = {
        'episode_index': np.full(episode.length, number),
        'index': np.arange(first, first + episode.length),
    }
    table = replace_columns(episode.table, position)
    path = target / layout.data_file(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    for camera, video in episode.video_paths.items():
        key = IMAGE_PREFIX + camera
        path = target / layout.video_file(number, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(video, path)
    return table


def _position_statistics(table: pa.Table) -> dict[str, Any]:
    return {
        name: column_statistics(numpy_column(table, name)) for name in ('episode_index', 'index')
    }
