# SPDX-License-Identifier: Apache-2.0
"""Serialized ROS 2 messages without rclpy: definitions, decoding, encoding."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

SEPARATOR = '=' * 80
_INTEGERS = {f'{sign}int{bits}' for sign in ('', 'u') for bits in (8, 16, 32, 64)}
_PRIMITIVES = _INTEGERS | {'bool', 'byte', 'char', 'float32', 'float64', 'string', 'wstring'}
_FIELD = re.compile(r'^(?P<type>[A-Za-z][\w/]*)(?:<=\d+)?(?:\[[<=\d]*\])?\s+[A-Za-z]')
_SECTION = re.compile(r'^MSG: (?P<name>\S+)$', re.MULTILINE)


class MessageError(ValueError):
    """A message type is unknown, or bytes do not decode as their type."""


def normalize(typename: str) -> str:
    """Return `package/msg/Name` for `package/Name` and `package/msg/Name`."""
    parts = typename.split('/')
    if len(parts) == 2:
        return f'{parts[0]}/msg/{parts[1]}'
    if len(parts) == 3:
        return typename
    raise MessageError(f'{typename!r} is not a message type name')


def _shares() -> Iterator[Path]:
    """Yield share folders: the ament index first, then those this file is installed beside."""
    for prefix in os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep):
        if prefix:
            yield Path(prefix) / 'share'
    for parent in Path(__file__).resolve().parents:
        yield parent / 'share'


def _definition_file(typename: str) -> Path | None:
    package, kind, name = typename.split('/')
    for share in _shares():
        path = share / package / kind / f'{name}.msg'
        if path.is_file():
            return path
    if package == 'praxis_interfaces':
        for parent in Path(__file__).resolve().parents:
            path = parent / 'msg_defs' / kind / f'{name}.msg'
            if path.is_file():
                return path
    return None


@functools.cache
def _base_store() -> Typestore:
    return get_typestore(Stores.ROS2_JAZZY)


def _own_text(typename: str) -> str:
    path = _definition_file(typename)
    if path is not None:
        return path.read_text(encoding='utf-8').rstrip('\n') + '\n'
    if typename in _base_store().fielddefs:
        return _base_store().gendefhash(typename, {}, ros_version=2)[0]
    raise MessageError(
        f'message type {typename!r} is unknown: no {typename.split("/")[-1]}.msg on '
        'AMENT_PREFIX_PATH; source the workspace that has it'
    )


def _dependencies(typename: str, text: str) -> Iterator[str]:
    package = typename.split('/')[0]
    for line in text.splitlines():
        match = _FIELD.match(line.split('#', 1)[0].strip())
        if match is None or match['type'] in _PRIMITIVES:
            continue
        name = match['type']
        if name == 'Header':
            name = 'std_msgs/Header'
        yield normalize(name if '/' in name else f'{package}/{name}')


@functools.cache
def definition(typename: str) -> str:
    """Return the ros2msg text of a type followed by those it depends on.

    Args:
        typename: For example `sensor_msgs/msg/Image`.

    Raises:
        MessageError: The type is installed nowhere.
    """
    typename = normalize(typename)
    own = _own_text(typename)
    sections, seen, queue = [own], {typename}, list(_dependencies(typename, own))
    while queue:
        name = queue.pop(0)
        if name in seen:
            continue
        seen.add(name)
        text = _own_text(name)
        package, _, short = name.split('/')
        sections.append(f'{SEPARATOR}\nMSG: {package}/{short}\n{text}')
        queue.extend(_dependencies(name, text))
    return ''.join(sections)


def _split_definition(typename: str, text: str) -> dict[str, str]:
    parts = text.split(SEPARATOR + '\n')
    found = {normalize(typename): parts[0]}
    for part in parts[1:]:
        match = _SECTION.match(part)
        if match is None:
            raise MessageError(f'definition of {typename!r} has a section without "MSG:"')
        found[normalize(match['name'])] = part[match.end() :].lstrip('\n')
    return found


class Codec:
    """Decode and encode messages of the types that one bag, or this machine, defines.

    Args:
        definitions: ros2msg texts with dependencies, by type name, as a bag embeds them. A type
            that is defined here is read by this text, whatever is installed.
    """

    def __init__(self, definitions: Mapping[str, str] | None = None) -> None:
        self._store = get_typestore(Stores.ROS2_JAZZY)
        self._known: set[str] = set()
        self._embedded: dict[str, str] = {}
        for typename, text in (definitions or {}).items():
            if text:
                self._embedded.update(_split_definition(typename, text))

    @property
    def store(self) -> Typestore:
        """The underlying type store; holds the types decoded or required so far."""
        return self._store

    def require(self, typename: str) -> str:
        """Make a type known and return its normalized name.

        Raises:
            MessageError: The type is neither embedded nor installed, or does not parse.
        """
        if typename in self._known:
            return typename
        name = normalize(typename)
        embedded = name in self._embedded
        if embedded or name not in self._store.fielddefs:
            self._register(name, embedded)
        self._known.add(name)
        return name

    def _register(self, name: str, embedded: bool) -> None:
        if embedded:
            todo, texts = [name], {}
            while todo:
                typename = todo.pop()
                if typename in texts or typename not in self._embedded:
                    continue
                texts[typename] = self._embedded[typename]
                todo.extend(_dependencies(typename, texts[typename]))
        else:
            texts = _split_definition(name, definition(name))
        types: dict[str, Any] = {}
        try:
            for typename, text in texts.items():
                types.update(get_types_from_msg(text, typename))
        except Exception as error:
            raise MessageError(f'definition of {name!r} does not parse: {error}') from error
        # An embedded layout wins over the built-in one of the same name.
        for typename in types:
            self._store.fielddefs.pop(typename, None)
            self._store.types.pop(typename, None)
        self._store.cache.clear()
        self._store.register(types)

    def decode(self, typename: str, data: bytes | memoryview) -> Any:
        """Return the message; numeric arrays are views into `data`, not copies.

        Raises:
            MessageError: Unknown type, or `data` is not a message of that type.
        """
        view = memoryview(data)
        msgdef = self._store.get_msgdef(self.require(typename))
        if len(view) < 4 or view[0] != 0 or view[1] > 1:
            raise MessageError(f'{len(view)} bytes of {typename} have no CDR header')
        read = msgdef.deserialize_cdr_le if view[1] else msgdef.deserialize_cdr_be
        # rmw_serialize pads behind empty sequences of wide types, so a longer tail is no fault and
        # Typestore.deserialize_cdr, which allows three bytes, would refuse valid messages.
        try:
            return read(view[4:], 0, msgdef.cls, self._store)[0]
        except Exception as error:
            raise MessageError(f'{len(view)} bytes are no {typename}: {error}') from error

    def encode(self, typename: str, message: Any) -> bytes:
        """Return the little-endian CDR bytes of a message made by `make`."""
        return bytes(self._store.serialize_cdr(message, self.require(typename)))

    def make(self, typename: str, **fields: Any) -> Any:
        """Return a message with the given fields, the others zero or empty.

        Nested messages may be given as dicts, numeric arrays as any sequence.
        """
        name = self.require(typename)
        known = dict(self._store.fielddefs[name][1])
        unknown = fields.keys() - known.keys()
        if unknown:
            raise MessageError(f'{typename} has no field {sorted(unknown)}')
        values = {
            field: self._value(desc, fields[field]) if field in fields else self._zero(desc)
            for field, desc in known.items()
        }
        return self._store.types[name](**values)

    def _zero(self, desc: Any) -> Any:
        kind, detail = int(desc[0]), desc[1]
        if kind == 1:
            return {'string': '', 'wstring': '', 'bool': False}.get(
                detail[0], 0.0 if detail[0].startswith('float') else 0
            )
        if kind == 2:
            return self.make(detail)
        return self._value(desc, [self._zero(detail[0])] * detail[1] if kind == 3 else [])

    def _value(self, desc: Any, value: Any) -> Any:
        kind, detail = int(desc[0]), desc[1]
        if kind == 2:
            return self.make(detail, **value) if isinstance(value, Mapping) else value
        if kind in (3, 4):
            inner = detail[0]
            if int(inner[0]) == 1 and inner[1][0] not in ('string', 'wstring'):
                if isinstance(value, (bytes, bytearray, memoryview)):
                    return np.frombuffer(value, dtype=np.uint8)
                dtype = {'byte': 'uint8', 'char': 'uint8'}.get(inner[1][0], inner[1][0])
                return np.asarray(value, dtype=dtype)
            return [self._value(inner, item) for item in value]
        return value


@functools.cache
def codec() -> Codec:
    """Return the codec of the types installed on this machine."""
    return Codec()


def typestore() -> Typestore:
    """Return the rosbags type store with every praxis_interfaces message registered."""
    shared = codec()
    path = _definition_file('praxis_interfaces/msg/StateVector')
    if path is not None:
        for each in sorted(path.parent.glob('*.msg')):
            shared.require(f'praxis_interfaces/msg/{each.stem}')
    return shared.store


def decode(typename: str, data: bytes | memoryview) -> Any:
    """Decode with the types installed on this machine; see `Codec.decode`."""
    return codec().decode(typename, data)


def encode(typename: str, message: Any) -> bytes:
    """Encode with the types installed on this machine; see `Codec.encode`."""
    return codec().encode(typename, message)


def make(typename: str, **fields: Any) -> Any:
    """Make a message of a type installed on this machine; see `Codec.make`."""
    return codec().make(typename, **fields)


def stamp_ns(stamp: Any) -> int:
    """Return builtin_interfaces/Time as integer nanoseconds."""
    return stamp.sec * 1_000_000_000 + stamp.nanosec


def time_fields(ns: int) -> dict[str, int]:
    """Return the fields of builtin_interfaces/Time for integer nanoseconds."""
    sec, nanosec = divmod(int(ns), 1_000_000_000)
    return {'sec': sec, 'nanosec': nanosec}
