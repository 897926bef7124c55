# SPDX-License-Identifier: Apache-2.0
"""Read rosbag2 bags in arrival order, whole or cut off by a crash."""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import yaml
from mcap.data_stream import ReadDataStream
from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk, Metadata, Schema

from praxis_data.bag_format import (
    MCAP_METADATA,
    METADATA_FILE,
    ROSBAG2_METADATA,
    SUFFIX,
    BagError,
    BagTopic,
)

MAGIC = b'\x89MCAP0\r\n'
_MESSAGE = struct.Struct('<HIQQ')
_RECORD = struct.Struct('<BQ')
# message_start_time, message_end_time, uncompressed_size, uncompressed_crc, len(compression)
_CHUNK = struct.Struct('<QQQII')


class Message(NamedTuple):
    """One message of a bag: serialized, with its time of arrival."""

    topic: str
    typename: str
    data: bytes
    log_time_ns: int


@dataclass
class BagInfo:
    """Contents of a bag.

    Attributes:
        path: As given.
        storage: `mcap` or `sqlite3`.
        closed: The bag was closed; `praxis bag recover` rebuilds one that was not.
        message_count: Messages that can be read.
        start_ns: Log time of the first, 0 for an empty bag.
        duration_s: Between first and last.
        bytes: Size of its files.
        damaged_chunks: Chunks whose checksum is wrong, left out.
        counts: Messages by topic.
        types: Message type by topic.
        custom_data: As given to the writer.
    """

    path: Path
    storage: str
    closed: bool
    message_count: int = 0
    start_ns: int = 0
    duration_s: float = 0.0
    bytes: int = 0
    damaged_chunks: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    custom_data: dict[str, str] = field(default_factory=dict)


class BagReader:
    """Iterate over the messages of a bag in the order in which they were written.

    A bag that was never closed, or is cut off anywhere, yields every message that is wholly in
    the file. Files are only read, never changed, and may grow meanwhile.

    Args:
        path: Bag folder, or a single `.mcap` or `.db3` file.

    Attributes:
        storage: `mcap` or `sqlite3`.
        closed: `metadata.yaml` is there (for a single file: it has its end).
        custom_data: The writer's `metadata`.
        damaged_chunks: Chunks left out so far; in a closed bag they raise.

    Raises:
        BagError: No bag, a foreign storage, or a compression of whole files or messages.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.custom_data: dict[str, str] = {}
        self.damaged_chunks = 0
        self._topics: dict[str, BagTopic] = {}
        information = self._find_files()
        self.custom_data.update(information.get('custom_data') or {})
        for entry in information.get('topics_with_message_count') or []:
            meta = entry['topic_metadata']
            qos = meta.get('offered_qos_profiles') or ''
            self._topics[meta['name']] = BagTopic(
                meta['name'],
                meta['type'],
                qos if isinstance(qos, str) else yaml.safe_dump(qos),
                type_hash=meta.get('type_description_hash', ''),
            )
        # The definitions of the types come first in the files.
        for _ in self._messages(headers_only=True):
            break

    def _find_files(self) -> dict[str, Any]:
        information: dict[str, Any] = {}
        if self.path.is_dir():
            metadata = self.path / METADATA_FILE
            self.closed = metadata.is_file()
            if self.closed:
                try:
                    information = yaml.safe_load(metadata.read_text('utf-8'))[
                        'rosbag2_bagfile_information'
                    ]
                    names = information['relative_file_paths']
                    self.storage = information['storage_identifier']
                except (yaml.YAMLError, KeyError, TypeError) as error:
                    raise BagError(f'{metadata}: is no bag metadata ({error!r})') from error
                if information.get('compression_mode', '').lower() not in ('', 'none'):
                    raise BagError(
                        f'{self.path}: files or messages are compressed; '
                        'decompress with `ros2 bag convert`'
                    )
                self.files = [self.path / PurePath(name).name for name in names]
                missing = [str(file) for file in self.files if not file.is_file()]
                if missing:
                    raise BagError(f'{self.path}: lacks {missing}')
            else:
                self.files = sorted(
                    (f for f in self.path.iterdir() if f.suffix in SUFFIX.values()), key=_number
                )
        elif self.path.is_file():
            self.files = [self.path]
            self.closed = self.path.suffix != '.mcap' or _has_end(self.path)
        else:
            raise BagError(f'{self.path}: does not exist')
        if not self.files:
            raise BagError(f'{self.path}: holds no .mcap and no .db3 file')
        if not information:
            suffix = self.files[0].suffix
            self.storage = next((k for k, v in SUFFIX.items() if v == suffix), suffix)
        if self.storage not in SUFFIX:
            found = (
                f'storage {self.storage!r}' if information else f'a {suffix or "nameless"} file'
            )
            raise BagError(f'{self.path}: is no bag: {found}, not mcap or sqlite3')
        return information

    @property
    def topics(self) -> dict[str, BagTopic]:
        """Topics seen so far by name; complete after one iteration of an unclosed bag."""
        return dict(self._topics)

    @property
    def definitions(self) -> dict[str, str]:
        """ros2msg text by message type, as the bag embeds it."""
        return {t.typename: t.definition for t in self._topics.values() if t.definition}

    def __iter__(self) -> Iterator[Message]:
        self.damaged_chunks = 0
        return self._messages()

    def _messages(self, headers_only: bool = False) -> Iterator[Message]:
        for file in self.files:
            if self.storage == 'mcap':
                yield from self._read_mcap(file)
            else:
                yield from self._read_sqlite(file, headers_only)

    def _learn(self, topic: BagTopic) -> None:
        known = self._topics.get(topic.name)
        if known is None or not known.definition:
            self._topics[topic.name] = topic

    def _read_mcap(self, file: Path) -> Iterator[Message]:
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        with file.open('rb') as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                if self.closed:
                    raise BagError(f'{file}: is no MCAP file')
                return
            while True:
                head = stream.read(_RECORD.size)
                if len(head) < _RECORD.size:
                    return
                opcode, length = _RECORD.unpack(head)
                if opcode in (Opcode.DATA_END, Opcode.FOOTER) or not 0 < opcode < 0x80:
                    return
                if opcode not in _WANTED:
                    stream.seek(length, os.SEEK_CUR)
                    continue
                left = os.fstat(stream.fileno()).st_size - stream.tell()
                body = stream.read(min(length, max(0, left)))
                whole = len(body) == length
                if opcode == Opcode.CHUNK:
                    records = self._open_chunk(file, body, whole)
                elif whole:
                    records = memoryview(head + body)
                else:
                    return
                try:
                    yield from self._read_records(records, schemas, channels)
                except (KeyError, ValueError, struct.error, EndOfFile) as error:
                    if self.closed:
                        raise BagError(f'{file}: damaged record ({error!r})') from error
                    self.damaged_chunks += 1
                if not whole:
                    return

    def _open_chunk(self, file: Path, body: bytes, whole: bool) -> memoryview:
        """Return the records of a chunk; of a cut one those that are there, if uncompressed."""
        nothing = memoryview(b'')
        if not whole:
            if len(body) < _CHUNK.size:
                return nothing
            size = _CHUNK.unpack_from(body)[4]
            return nothing if size else memoryview(body)[_CHUNK.size + 8 :]
        try:
            chunk = Chunk.read(ReadDataStream(io.BytesIO(body)))
            data = _decompress(chunk, file) if chunk.compression else chunk.data
            if chunk.uncompressed_crc and zlib.crc32(data) != chunk.uncompressed_crc:
                raise ValueError('checksum differs')
        except BagError:
            raise
        except Exception as error:
            if self.closed:
                raise BagError(f'{file}: damaged chunk ({error})') from error
            self.damaged_chunks += 1
            return nothing
        return memoryview(data)

    def _read_records(
        self, data: memoryview, schemas: dict[int, Schema], channels: dict[int, Channel]
    ) -> Iterator[Message]:
        offset, end = 0, len(data)
        while offset + _RECORD.size <= end:
            opcode, length = _RECORD.unpack_from(data, offset)
            offset += _RECORD.size
            if offset + length > end:
                return
            body = data[offset : offset + length]
            offset += length
            if opcode == Opcode.MESSAGE:
                channel_id, _, log_time, _ = _MESSAGE.unpack_from(body)
                channel = channels.get(channel_id)
                if channel is not None:
                    typename = schemas[channel.schema_id].name
                    yield Message(channel.topic, typename, bytes(body[_MESSAGE.size :]), log_time)
            elif opcode == Opcode.SCHEMA:
                schema = Schema.read(ReadDataStream(io.BytesIO(body)))
                schemas[schema.id] = schema
            elif opcode == Opcode.CHANNEL:
                channel = Channel.read(ReadDataStream(io.BytesIO(body)))
                channels[channel.id] = channel
                schema = schemas[channel.schema_id]
                self._learn(
                    BagTopic(
                        channel.topic,
                        schema.name,
                        channel.metadata.get('offered_qos_profiles', ''),
                        schema.data.decode() if schema.encoding == 'ros2msg' else '',
                        channel.metadata.get('topic_type_hash', ''),
                    )
                )
            elif opcode == Opcode.METADATA:
                record = Metadata.read(ReadDataStream(io.BytesIO(body)))
                if record.name == MCAP_METADATA:
                    self.custom_data = {**record.metadata, **self.custom_data}
                elif record.name == ROSBAG2_METADATA and not self.custom_data:
                    text = record.metadata.get('serialized_metadata', '')
                    self.custom_data.update((yaml.safe_load(text) or {}).get('custom_data') or {})

    def _read_sqlite(self, file: Path, headers_only: bool) -> Iterator[Message]:
        wal = file.with_name(f'{file.name}-wal')
        if not (wal.is_file() and wal.stat().st_size):
            yield from self._query(file, 'immutable=1', headers_only)
            return
        # Reading through a WAL writes an index beside the file: read a copy.
        with tempfile.TemporaryDirectory(prefix='praxis_bag_') as folder:
            copy = Path(folder) / file.name
            shutil.copyfile(file, copy)
            shutil.copyfile(wal, f'{copy}-wal')
            yield from self._query(copy, 'mode=rw', headers_only)

    def _query(self, file: Path, mode: str, headers_only: bool) -> Iterator[Message]:
        db = sqlite3.connect(f'{file.absolute().as_uri()}?{mode}', uri=True)
        try:
            topics = self._query_topics(db)
            if headers_only:
                return
            rows = db.execute('SELECT topic_id, timestamp, data FROM messages ORDER BY id')
            for key, log_time, data in rows:
                topic = topics.get(key)
                if topic is not None:
                    yield Message(topic.name, topic.typename, bytes(data), log_time)
        except sqlite3.DatabaseError as error:
            if self.closed:
                raise BagError(f'{file}: {error}') from error
        finally:
            db.close()

    def _query_topics(self, db: sqlite3.Connection) -> dict[int, BagTopic]:
        def columns(table: str) -> set[str]:
            return {row[1] for row in db.execute(f'PRAGMA table_info({table})')}

        definitions = {}
        if columns('message_definitions'):
            definitions = dict(
                db.execute(
                    'SELECT topic_type, encoded_message_definition FROM message_definitions'
                )
            )
        have = columns('topics')
        qos = 'offered_qos_profiles' if 'offered_qos_profiles' in have else "''"
        digest = 'type_description_hash' if 'type_description_hash' in have else "''"
        topics = {}
        for key, *values in db.execute(f'SELECT id, name, type, {qos}, {digest} FROM topics'):
            name, typename, profiles, type_hash = values
            topics[key] = BagTopic(
                name, typename, profiles, definitions.get(typename, ''), type_hash
            )
            self._learn(topics[key])
        if columns('metadata') and not self.custom_data:
            for (text,) in db.execute('SELECT metadata FROM metadata'):
                self.custom_data.update((yaml.safe_load(text) or {}).get('custom_data') or {})
        return topics


_WANTED = frozenset((Opcode.CHUNK, Opcode.SCHEMA, Opcode.CHANNEL, Opcode.MESSAGE, Opcode.METADATA))


def _number(file: Path) -> tuple[int, str]:
    digits = file.stem.rpartition('_')[2]
    return (int(digits) if digits.isdigit() else -1, file.name)


def _has_end(file: Path) -> bool:
    with file.open('rb') as stream:
        stream.seek(0, os.SEEK_END)
        if stream.tell() < 2 * len(MAGIC):
            return False
        stream.seek(-len(MAGIC), os.SEEK_END)
        return stream.read() == MAGIC


def _decompress(chunk: Chunk, file: Path) -> bytes:
    if chunk.compression == 'lz4':
        import lz4.frame

        return lz4.frame.decompress(chunk.data)
    if chunk.compression == 'zstd':
        try:
            from compression import zstd
        except ImportError:
            from backports import zstd
        return zstd.decompress(chunk.data)
    raise BagError(f'{file}: unknown compression {chunk.compression!r}')


def bag_info(path: str | os.PathLike[str]) -> BagInfo:
    """Read a bag through and return what it holds, closed or not.

    Raises:
        BagError: The path is no bag, or a closed bag is damaged.
    """
    reader = BagReader(path)
    info = BagInfo(reader.path, reader.storage, reader.closed)
    last = 0
    for message in reader:
        if not info.message_count or message.log_time_ns < info.start_ns:
            info.start_ns = message.log_time_ns
        last = max(last, message.log_time_ns)
        info.message_count += 1
        info.counts[message.topic] = info.counts.get(message.topic, 0) + 1
    info.duration_s = (last - info.start_ns) * 1e-9 if info.message_count else 0.0
    info.bytes = sum(file.stat().st_size for file in reader.files)
    info.damaged_chunks = reader.damaged_chunks
    info.custom_data = reader.custom_data
    for topic in reader.topics.values():
        info.types[topic.name] = topic.typename
        info.counts.setdefault(topic.name, 0)
    return info
