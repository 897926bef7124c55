# SPDX-License-Identifier: Apache-2.0
"""How a staged episode becomes part of a dataset: written ahead, applied idempotently.

A staging folder with a `commit.json` is durable: whatever the moment of a crash, the next writer
finishes its publication. One without is the leftover of an episode that was never finished.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from praxis_data import durable, layout
from praxis_data.durable import JsonLines
from praxis_data.layout import DatasetError

COMMIT = 'commit.json'
ALIVE = 'alive'


class DatasetIndex:
    """The meta files of a dataset; every change happens under `lock`.

    Args:
        root: Dataset folder, with `meta/` in it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.episodes = JsonLines(root / layout.EPISODES)
        self.tasks = JsonLines(root / layout.TASKS)
        self.tombstones = JsonLines(root / layout.TOMBSTONES)
        self._statistics = root / layout.STATISTICS

    def lock(self) -> Any:
        """Hold the dataset against other writers."""
        return durable.locked(self.root / layout.LOCK)

    def refresh(self) -> None:
        """Take in what other writers published."""
        self.episodes.refresh()
        self.tasks.refresh()
        self.tombstones.refresh()

    @property
    def next_episode(self) -> int:
        """Index that no episode, deleted ones included, has ever had."""
        return 1 + max((row['episode_index'] for row in self.episodes.rows), default=-1)

    @property
    def total_frames(self) -> int:
        """Rows of all episodes, deleted ones included: their global index is never reused."""
        return sum(row['length'] for row in self.episodes.rows)

    @property
    def deleted(self) -> set[int]:
        """Indices of tombstoned episodes."""
        return {row['episode_index'] for row in self.tombstones.rows}

    def find(self, episode_uuid: str) -> dict[str, Any] | None:
        """Return the line of an episode that is not deleted."""
        deleted = self.deleted
        for row in reversed(self.episodes.rows):
            uuid = row.get('metadata', {}).get('episode_uuid')
            if uuid == episode_uuid and row['episode_index'] not in deleted:
                return row
        return None

    def task_index(self, task: str) -> int:
        """Return the index of a task, the next free one where it is not listed."""
        for row in self.tasks.rows:
            if row['task'] == task:
                return row['task_index']
        return 1 + max((row['task_index'] for row in self.tasks.rows), default=-1)

    def read_info(self) -> dict[str, Any]:
        """Return `info.json`."""
        return json.loads((self.root / layout.INFO).read_text('utf-8'))

    def write_info(self) -> None:
        """Bring the totals of `info.json` up to the index lines."""
        info = self.read_info()
        episodes = self.next_episode
        cameras = sum(f['dtype'] == 'video' for f in info['features'].values())
        totals = {
            'total_episodes': episodes,
            'total_frames': self.total_frames,
            'total_tasks': len(self.tasks.rows),
            'total_videos': episodes * cameras,
            'total_chunks': -(-episodes // info['chunks_size']),
            'splits': {'train': f'0:{episodes}'},
        }
        if any(info.get(key) != value for key, value in totals.items()):
            durable.write_json(self.root / layout.INFO, {**info, **totals})

    def repair(self) -> None:
        """Finish what a crash interrupted. Call it under `lock`."""
        for lines in (self.episodes, self.tasks, self.tombstones, JsonLines(self._statistics)):
            lines.repair()
        self.finish_commits()
        self.remove_leftovers()
        self.write_info()

    def finish_commits(self) -> None:
        """Publish episodes that were durable but not yet published. Call it under `lock`."""
        for commit in sorted((self.root / layout.STAGING).glob(f'*/{COMMIT}')):
            self.apply(commit.parent)

    def remove_leftovers(self) -> None:
        """Remove staging folders whose writer is gone."""
        staging = self.root / layout.STAGING
        for folder in sorted(staging.iterdir()) if staging.is_dir() else []:
            if (folder / COMMIT).exists():
                continue
            alive = durable.try_lock(folder / ALIVE)
            if alive is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(alive)

    def commit(self, staging: Path, record: dict[str, Any]) -> None:
        """Make a staged episode durable, then publish it. Call it under `lock`.

        Args:
            staging: Folder with the episode's files.
            record: `files` {staged name: final path}, `task`, `episode`, `statistics`, `expert`.
        """
        for name in record['files']:
            durable.sync_file(staging / name)
        durable.write_json(staging / COMMIT, record)
        durable.sync_folder(staging.parent)
        self.apply(staging)

    def apply(self, staging: Path) -> None:
        """Publish a committed episode; doing it again, or half of it again, does no harm."""
        record = json.loads((staging / COMMIT).read_text('utf-8'))
        folders = set()
        for name, path in record['files'].items():
            target = self.root / path
            if (staging / name).exists():
                durable.make_folder(target.parent)
                os.replace(staging / name, target)
            elif not target.exists():
                raise DatasetError(f'{self.root}: {path} is neither staged nor published')
            folders.add(target.parent)
        for folder in sorted(folders):
            durable.sync_folder(folder)
        self.refresh()
        index = record['episode']['episode_index']
        task = record['task']
        if all(row['task_index'] != task['task_index'] for row in self.tasks.rows):
            self.tasks.append(task)
        if _last_index(self._statistics) < index:
            JsonLines(self._statistics).append(record['statistics'])
        self._write_expert(index, record['expert'])
        # The index line last: whoever finds it finds everything it names.
        if index >= self.next_episode:
            self.episodes.append(record['episode'])
        self.write_info()
        shutil.rmtree(staging)

    def _write_expert(self, index: int, segments: list[dict[str, int]]) -> None:
        path = self.root / layout.EXPERT
        value = json.loads(path.read_text('utf-8')) if path.exists() else {'episodes': []}
        others = [entry for entry in value['episodes'] if entry['episode_index'] != index]
        entry = {'episode_index': index, 'segments': segments}
        durable.write_json(path, {'episodes': [*others, entry]})


def _last_index(path: Path) -> int:
    """Return the episode index of the last line without reading the others."""
    try:
        with path.open('rb') as stream:
            size = stream.seek(0, os.SEEK_END)
            block = b''
            while size and block.count(b'\n') < 2:
                step = min(size, 1 << 16)
                size -= step
                stream.seek(size)
                block = stream.read(step) + block
    except FileNotFoundError:
        return -1
    lines = [line for line in block.splitlines() if line.strip()]
    return json.loads(lines[-1])['episode_index'] if lines else -1
