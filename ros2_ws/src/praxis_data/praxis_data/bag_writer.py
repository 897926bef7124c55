# SPDX-License-Identifier: Apache-2.0
"""Write rosbag2 bags so that a crash loses less than a second."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from praxis_data import durable
from praxis_data.bag_format import (
    DISTRO,
    METADATA_FILE,
    METADATA_VERSION,
    SUFFIX,
    BagError,
    BagTopic,
)
from praxis_data.bag_storage import STORAGES, Storage


class BagWriter:
    """Write one bag folder: `NAME/NAME_0.mcap` or `.db3`, and `metadata.yaml` at close.

    Messages keep the order in which they are written. What is written reaches the file within
    `flush_period_s` and the disk shortly after; `close` returns when all of it is durable. A
    folder without `metadata.yaml` is a bag that was never closed: see `praxis_data.recover`.

    Args:
        path: Folder to create.
        storage: `mcap` or `sqlite3`.
        topics: Topics known at the start; `add_topic` adds others.
        metadata: Custom data, by rosbag2's `custom_data`; Praxis' keys begin with `praxis.`.
        flush_period_s: Longest time that a written message stays in this process.

    Raises:
        BagError: The folder exists, or the storage or a type is unknown.
        OSError: From the file system; raised by the next call when it struck in the background.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage: str = 'mcap',
        topics: Iterable[BagTopic] = (),
        metadata: Mapping[str, str] | None = None,
        flush_period_s: float = 0.4,
    ) -> None:
        if storage not in STORAGES:
            raise BagError(f'{path}: storage is mcap or sqlite3, not {storage!r}')
        self.path = Path(path)
        self.storage = storage
        self.metadata = dict(metadata or {})
        for key, value in self.metadata.items():
            if not isinstance(value, str):
                raise BagError(f'{path}: custom data {key!r} is no string (got {value!r})')
        self.message_count = 0
        self.data_bytes = 0
        self._counts: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._topics: dict[str, BagTopic] = {}
        self._first_ns: int | None = None
        self._last_ns = 0
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._closed = False
        self._stop = threading.Event()
        self._flush_period_s = flush_period_s
        resolved = [topic.resolved() for topic in topics]
        durable.make_folder(self.path.parent)
        try:
            self.path.mkdir()
        except FileExistsError:
            raise BagError(f'{self.path}: exists already') from None
        self.file = self.path / f'{self.path.name}_0{SUFFIX[storage]}'
        self._storage: Storage = STORAGES[storage](self.file, self.metadata)
        for topic in resolved:
            self._add(topic)
        self._next_flush = time.monotonic() + flush_period_s
        self._thread = threading.Thread(target=self._flush_loop, name='bag-flush', daemon=True)
        self._thread.start()

    def __enter__(self) -> BagWriter:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @property
    def topics(self) -> tuple[BagTopic, ...]:
        """Topics of the bag, in the order they were added."""
        return tuple(self._topics.values())

    def add_topic(self, topic: BagTopic) -> None:
        """Declare a topic; the same topic again is ignored.

        Raises:
            BagError: The topic exists with another type, or its type is unknown.
        """
        known = self._topics.get(topic.name)
        if known is not None:
            if known.typename != topic.typename:
                raise BagError(f'{topic.name}: is {known.typename}, not {topic.typename}')
            return
        resolved = topic.resolved()
        with self._lock:
            self._add(resolved)

    def _add(self, topic: BagTopic) -> None:
        self._keys[topic.name] = self._storage.add_topic(topic)
        self._topics[topic.name] = topic
        self._counts[topic.name] = 0

    def write(
        self,
        topic: str,
        data: bytes | memoryview,
        log_time_ns: int,
        publish_time_ns: int | None = None,
    ) -> None:
        """Append one serialized message (CDR with encapsulation header).

        Args:
            topic: Name of a declared topic.
            data: Serialized message.
            log_time_ns: Time base of the bag; never decreasing keeps readers that sort in order.
            publish_time_ns: Kept by MCAP only; `log_time_ns` by default.
        """
        with self._lock:
            self._check()
            key = self._keys.get(topic)
            if key is None:
                raise BagError(f'{self.path}: topic {topic!r} is not declared')
            self._storage.write(
                key, data, log_time_ns, log_time_ns if publish_time_ns is None else publish_time_ns
            )
            self._counts[topic] += 1
            self.message_count += 1
            self.data_bytes += len(data)
            if self._first_ns is None or log_time_ns < self._first_ns:
                self._first_ns = log_time_ns
            self._last_ns = max(self._last_ns, log_time_ns)
            # A busy writer can starve the background thread of the lock.
            if time.monotonic() >= self._next_flush:
                self._flush()

    def flush(self) -> None:
        """Hand everything written so far to the operating system and the disk."""
        with self._lock:
            self._check()
            self._flush()
        self._storage.sync()

    def _flush(self) -> None:
        self._next_flush = time.monotonic() + self._flush_period_s
        self._storage.flush()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise BagError(f'{self.path}: is closed')

    def _flush_loop(self) -> None:
        named = False
        while not self._stop.wait(self._flush_period_s):
            try:
                if not named:
                    # Here, because a start must not wait for the disk.
                    durable.sync_folder(self.path)
                    durable.sync_folder(self.path.parent)
                    named = True
                with self._lock:
                    self._storage.flush()
                    self._next_flush = time.monotonic() + self._flush_period_s
                self._storage.sync()
            except Exception as error:
                self._error = error
                return

    def _information(self) -> dict[str, Any]:
        start = self._first_ns or 0
        duration = {'nanoseconds': max(0, self._last_ns - start)}
        starting = {'nanoseconds_since_epoch': start}
        return {
            'version': METADATA_VERSION,
            'storage_identifier': self.storage,
            'duration': duration,
            'starting_time': starting,
            'message_count': self.message_count,
            'topics_with_message_count': [
                {
                    'topic_metadata': {
                        'name': topic.name,
                        'type': topic.typename,
                        'serialization_format': 'cdr',
                        'offered_qos_profiles': topic.qos,
                        'type_description_hash': topic.type_hash,
                    },
                    'message_count': self._counts[topic.name],
                }
                for topic in self._topics.values()
            ],
            'compression_format': '',
            'compression_mode': '',
            'relative_file_paths': [self.file.name],
            'files': [
                {
                    'path': self.file.name,
                    'starting_time': dict(starting),
                    'duration': dict(duration),
                    'message_count': self.message_count,
                }
            ],
            'custom_data': self.metadata or None,
            'ros_distro': DISTRO,
        }

    def _end(self) -> bool:
        """Take no more messages; False if that was so already."""
        if self._closed:
            return False
        self._stop.set()
        self._thread.join()
        with self._lock:
            self._closed = True
        return True

    def abort(self) -> None:
        """Leave the bag unclosed, as a crash would; what was written stays recoverable."""
        if self._end():
            with contextlib.suppress(Exception):
                self._storage.flush()
            self._storage.abort()

    def close(self, metadata: Mapping[str, str] | None = None) -> None:
        """Write the summary and `metadata.yaml`; returns when both are durable.

        Args:
            metadata: Custom data known only at the end, added to that of the start.
        """
        if self._end():
            if self._error is not None:
                raise self._error
            self.metadata.update(metadata or {})
            information = self._information()
            self._storage.close(yaml.safe_dump(information, sort_keys=False).strip())
            durable.sync_folder(self.path)
            durable.sync_folder(self.path.parent)
            # Last, so that its presence says that the bag is whole.
            durable.write_text(
                self.path / METADATA_FILE,
                yaml.safe_dump({'rosbag2_bagfile_information': information}, sort_keys=False),
            )
