# SPDX-License-Identifier: Apache-2.0
"""One episode being recorded: its bag and its dataset episode."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace

from praxis_data.bag import BagTopic, BagWriter
from praxis_data.recover import UnsavedMark

from praxis_hil.dataset_sink import DatasetSink


@dataclass(frozen=True)
class Saved:
    """What became of an episode.

    Attributes:
        uuid: Of the episode.
        index: In the dataset, -1 when it is not in it.
        frames: Rows.
        bag_path: Closed bag, empty when discarded.
        dataset_path: Root of the dataset, empty when the episode is not in it.
        error: Why it could not be saved, empty when it was.
        message: Why it ended, when nobody asked.
    """

    uuid: str
    index: int = -1
    frames: int = 0
    bag_path: str = ''
    dataset_path: str = ''
    error: str = ''
    message: str = ''


@dataclass(frozen=True)
class Progress:
    """Counters of an episode, for its status."""

    frames: int = 0
    dropped: int = 0
    stale: int = 0
    duration: float = 0.0
    bag_bytes: int = 0


@dataclass
class Session:
    """Writes each message to the bag and hands the same bytes to the dataset.

    Attributes:
        uuid: Of the episode.
        task: Instruction.
        bag: Open bag.
        sink: Dataset side, or None to record the bag only.
        dataset_path: Root of the dataset.
        environment_uuid: `episode_uuid` of the first state, None before it.
        dropped: Messages by topic known to be missing.
        message: Why it ends, when nobody asked.
        keep_discarded_bag: A discarded episode keeps its bag.
        mark: Says on disk that the episode is not in the dataset yet.
        write_error: Why the bag takes no more, empty while it does.
    """

    uuid: str
    task: str
    bag: BagWriter
    sink: DatasetSink | None
    dataset_path: str = ''
    environment_uuid: str | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    message: str = ''
    keep_discarded_bag: bool = False
    mark: UnsavedMark | None = None
    write_error: str = ''
    _declared: set[str] = field(default_factory=set)
    _first_ns: int | None = None
    _last_ns: int = 0

    def drop(self, topic: str, count: int = 1) -> None:
        """Count messages that are missing."""
        self.dropped[topic] = self.dropped.get(topic, 0) + count

    def ingest(self, topic: BagTopic, data: bytes, log_time_ns: int) -> None:
        """Write one message.

        Raises:
            OSError: The bag could not be written; the session keeps what it has.
        """
        if self.write_error:
            self.drop(topic.name)
            return
        try:
            if topic.name not in self._declared:
                self.bag.add_topic(topic)
                self._declared.add(topic.name)
            self.bag.write(topic.name, data, log_time_ns)
        except (OSError, ValueError) as error:
            self.write_error = f'{self.bag.path}: {error}'
            self.drop(topic.name)
            raise
        if self._first_ns is None:
            self._first_ns = log_time_ns
        self._last_ns = log_time_ns
        if self.sink is not None:
            self.sink.put(topic.name, topic.typename, data, log_time_ns)

    @property
    def lagging(self) -> bool:
        """The dataset is behind; a lockstep source should wait."""
        return self.sink is not None and self.sink.lagging

    def progress(self) -> Progress:
        """Return the counters so far."""
        sink = self.sink
        return Progress(
            frames=sink.rows if sink else 0,
            dropped=sum(self.dropped.values()),
            stale=sink.stale if sink else 0,
            duration=(self._last_ns - (self._first_ns or 0)) * 1e-9 if self._last_ns else 0.0,
            bag_bytes=self.bag.data_bytes,
        )

    def finish(self, outcome: int, note: str) -> Saved:
        """Make bag and dataset episode durable, and say what became of them.

        The bag is closed first: whatever the dataset runs into, the episode can be made from it.
        """
        saved = Saved(self.uuid, bag_path=str(self.bag.path), message=self.message)
        error = self.write_error
        try:
            self.bag.close(
                {
                    'praxis.outcome': str(outcome),
                    'praxis.note': note,
                    'praxis.message': self.message,
                }
            )
        except Exception as problem:
            self.bag.abort()
            error = error or f'{self.bag.path}: {problem}'
        if self.sink is None:
            self._unmark(not error)
            return replace(saved, error=error)
        try:
            self.sink.close()
            index = self.sink.writer.finish(outcome, note, self.message)
        except Exception as problem:
            self.sink.abort()
            self._unmark(False)
            command = f'praxis bag recover {self.bag.path} --dataset {self.dataset_path}'
            hint = f'the bag is kept: `{command}`'
            return replace(saved, error=f'{error or problem}; {hint}')
        self._unmark(not error)
        return replace(
            saved,
            index=index,
            frames=self.sink.rows,
            dataset_path=self.dataset_path,
            error=error,
        )

    def _unmark(self, saved: bool) -> None:
        if self.mark is not None:
            if saved:
                self.mark.remove()
            else:
                self.mark.release()

    def discard(self) -> Saved:
        """Drop the dataset episode, and the bag unless it is to be kept."""
        if self.sink is not None:
            self.sink.abort()
        if self.keep_discarded_bag:
            self.bag.close({'praxis.discarded': self.message})
            self._unmark(True)
            return Saved(self.uuid, bag_path=str(self.bag.path), message=self.message)
        self.bag.abort()
        self._unmark(False)
        shutil.rmtree(self.bag.path, ignore_errors=True)
        return Saved(self.uuid, message=self.message)
