# SPDX-License-Identifier: Apache-2.0
"""Files of rosbag2 bags being written, MCAP or SQLite."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import mcap.writer
import yaml

from praxis_data import durable
from praxis_data.bag_format import (
    DISTRO,
    MCAP_METADATA,
    METADATA_VERSION,
    ROSBAG2_METADATA,
    BagTopic,
)

CHUNK_BYTES = 1 << 20


class Storage(Protocol):
    """A storage file, made at `path` with the bag's custom data in front."""

    def __init__(self, path: Path, custom: Mapping[str, str]) -> None: ...

    def add_topic(self, topic: BagTopic) -> int:
        """Declare a resolved topic and return the key to write it by."""

    def write(self, key: int, data: bytes, log_time_ns: int, publish_time_ns: int) -> None:
        """Append a message."""

    def flush(self) -> None:
        """Hand what was written to the operating system, readable after a crash of the process."""

    def sync(self) -> None:
        """Return when what was flushed is on disk; may run beside `write`."""

    def close(self, metadata: str) -> None:
        """Finish the file with the bag's metadata, YAML; durable on return."""

    def abort(self) -> None:
        """Let go of the file as it is."""


class _McapStorage(Storage):
    """One MCAP file, uncompressed, in chunks of 1 MiB."""

    def __init__(self, path: Path, custom: Mapping[str, str]) -> None:
        self._stream = path.open('xb', buffering=CHUNK_BYTES)
        self._writer = mcap.writer.Writer(
            self._stream, chunk_size=CHUNK_BYTES, compression=mcap.writer.CompressionType.NONE
        )
        self._writer.start('ros2', f'praxis {mcap.writer.LIBRARY_IDENTIFIER}')
        self._writer.add_metadata(MCAP_METADATA, dict(custom))
        self._schemas: dict[str, int] = {}
        self.flush()

    def add_topic(self, topic: BagTopic) -> int:
        schema = self._schemas.get(topic.typename)
        if schema is None:
            schema = self._schemas[topic.typename] = self._writer.register_schema(
                topic.typename, 'ros2msg', topic.definition.encode()
            )
        return self._writer.register_channel(
            topic.name,
            'cdr',
            schema,
            {'offered_qos_profiles': topic.qos, 'topic_type_hash': topic.type_hash},
        )

    def write(self, key: int, data: bytes, log_time_ns: int, publish_time_ns: int) -> None:
        self._writer.add_message(key, log_time_ns, data, publish_time_ns)

    def flush(self) -> None:
        self._writer.flush()

    def sync(self) -> None:
        os.fdatasync(self._stream.fileno())

    def close(self, metadata: str) -> None:
        self._writer.flush()
        self._writer.add_metadata(ROSBAG2_METADATA, {'serialized_metadata': metadata})
        self._writer.finish()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()


class _SqliteStorage(Storage):
    """One SQLite file, with a write-ahead log until it is closed."""

    SCHEMA = """
    CREATE TABLE schema(schema_version INTEGER PRIMARY KEY, ros_distro TEXT NOT NULL);
    CREATE TABLE metadata(id INTEGER PRIMARY KEY, metadata_version INTEGER NOT NULL,
      metadata TEXT NOT NULL);
    CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
      serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL,
      type_description_hash TEXT NOT NULL);
    CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT NOT NULL,
      encoding TEXT NOT NULL, encoded_message_definition TEXT NOT NULL,
      type_description_hash TEXT NOT NULL);
    CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL,
      timestamp INTEGER NOT NULL, data BLOB NOT NULL);
    CREATE INDEX timestamp_idx ON messages (timestamp ASC);
    """

    def __init__(self, path: Path, custom: Mapping[str, str]) -> None:
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute('PRAGMA journal_mode=WAL')
        self._db.execute('PRAGMA synchronous=NORMAL')
        self._db.executescript(self.SCHEMA)
        self._db.execute('BEGIN')
        self._db.execute('INSERT INTO schema VALUES(4, ?)', (DISTRO,))
        self._db.execute(
            'INSERT INTO metadata(metadata_version, metadata) VALUES(?, ?)',
            (METADATA_VERSION, yaml.safe_dump({'custom_data': dict(custom)})),
        )
        self._types: set[str] = set()
        self._topics = 0
        self.flush()
        self._wal = os.open(f'{path}-wal', os.O_RDONLY)

    def add_topic(self, topic: BagTopic) -> int:
        if topic.typename not in self._types:
            self._types.add(topic.typename)
            self._db.execute(
                'INSERT INTO message_definitions(topic_type, encoding, '
                'encoded_message_definition, type_description_hash) VALUES(?, ?, ?, ?)',
                (topic.typename, 'ros2msg', topic.definition, topic.type_hash),
            )
        self._topics += 1
        self._db.execute(
            'INSERT INTO topics VALUES(?, ?, ?, ?, ?, ?)',
            (self._topics, topic.name, topic.typename, 'cdr', topic.qos, topic.type_hash),
        )
        return self._topics

    def write(self, key: int, data: bytes, log_time_ns: int, publish_time_ns: int) -> None:
        self._db.execute(
            'INSERT INTO messages(topic_id, timestamp, data) VALUES(?, ?, ?)',
            (key, log_time_ns, data),
        )

    def flush(self) -> None:
        self._db.execute('COMMIT')
        self._db.execute('BEGIN')

    def sync(self) -> None:
        os.fdatasync(self._wal)

    def close(self, metadata: str) -> None:
        self._db.execute(
            'UPDATE metadata SET metadata_version = ?, metadata = ?', (METADATA_VERSION, metadata)
        )
        self._db.execute('COMMIT')
        self._db.execute('PRAGMA wal_checkpoint(TRUNCATE)')
        # A closed bag is one file: readers that open it as immutable would miss the WAL.
        self._db.execute('PRAGMA journal_mode=DELETE')
        self._db.close()
        os.close(self._wal)
        durable.sync_file(self._path)

    def abort(self) -> None:
        # A connection that closes in order would fold the WAL in, and fail on a full disk.
        os.close(self._wal)
        self._db.close()


STORAGES: dict[str, type[Storage]] = {'mcap': _McapStorage, 'sqlite3': _SqliteStorage}
