# SPDX-License-Identifier: Apache-2.0
"""Where the files of a LeRobot v2.1 dataset are."""

from __future__ import annotations

from pathlib import Path

CODEBASE_VERSION = 'v2.1'
CHUNK_SIZE = 1000
DATA_PATH = 'data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet'
VIDEO_PATH = 'videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4'

INFO = 'meta/info.json'
TASKS = 'meta/tasks.jsonl'
EPISODES = 'meta/episodes.jsonl'
STATISTICS = 'meta/episodes_stats.jsonl'
EXPERT = 'meta/expert_frame_index.json'
TOMBSTONES = 'meta/tombstones.jsonl'
CONTRACTS = 'meta/contracts'
LOCK = 'meta/.lock'
STAGING = '.staging'


class DatasetError(RuntimeError):
    """A dataset cannot be read, written or extended; the message names it and the reason."""


class EmptyEpisodeError(DatasetError):
    """An episode without a single row cannot be saved."""


class MismatchError(DatasetError):
    """A dataset holds other features, or another interface, than it is to be extended by.

    Attributes:
        differences: One line a field.
    """

    def __init__(self, message: str, differences: list[str]) -> None:
        super().__init__('\n  '.join([message, *differences]))
        self.differences = differences


def data_file(episode_index: int, chunk_size: int = CHUNK_SIZE, template: str = DATA_PATH) -> Path:
    """Return the parquet file of an episode, relative to the dataset."""
    chunk = episode_index // chunk_size
    return Path(template.format(episode_chunk=chunk, episode_index=episode_index))


def video_file(
    episode_index: int,
    video_key: str,
    chunk_size: int = CHUNK_SIZE,
    template: str = VIDEO_PATH,
) -> Path:
    """Return the video of an episode and camera feature, relative to the dataset."""
    chunk = episode_index // chunk_size
    return Path(
        template.format(episode_chunk=chunk, episode_index=episode_index, video_key=video_key)
    )
