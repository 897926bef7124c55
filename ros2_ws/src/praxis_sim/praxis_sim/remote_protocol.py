# SPDX-License-Identifier: Apache-2.0
"""Messages between `praxis_sim.remote` and its worker: framed msgpack, large arrays in an arena.

A frame is a big-endian 32-bit length and that many bytes of msgpack. Only the platform
interface's dataclasses, arrays of numbers, and msgpack's own types have an encoding; nothing that
arrives can name code.
"""

from __future__ import annotations

import math
import mmap
import os
import socket
import struct
import tempfile
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgpack
import numpy as np

from praxis_sim.platform import CameraModel, Marker, Observation, Pose, Rendering, Task

VERSION = 1
MAX_MESSAGE = 16 * 1024 * 1024
# Colour, depth and segmentation of the largest image that platforms render.
ARENA_SIZE = 4096 * 4096 * (3 + 4 + 2) + 4096

_TYPES = {
    kind.__name__: kind for kind in (CameraModel, Marker, Observation, Pose, Rendering, Task)
}
_KEY = '__type__'
_ARRAY, _SHARED = 1, 2
_KINDS = 'biuf'
_HEADER = struct.Struct('>I')
_ALIGNMENT = 64
# Below this an array travels within the message.
_INLINE = 4096


class ProtocolError(ValueError):
    """Bytes that are no message, or a value that has no encoding."""


class ConnectionLostError(ConnectionError):
    """The other side closed, or died."""


class Arena:
    """Memory shared with the other process, for the arrays of the message under way.

    It has no name in any file system, so nothing is left behind whoever dies.

    Args:
        descriptor: Of the other side's arena, or -1 to create one.
        size: Bytes.
    """

    def __init__(self, descriptor: int = -1, size: int = ARENA_SIZE) -> None:
        if descriptor < 0:
            descriptor = _anonymous_file()
            os.ftruncate(descriptor, size)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, size)
        self._size = size
        self._used = 0

    def clear(self) -> None:
        """Begin another message."""
        self._used = 0

    def put(self, array: np.ndarray) -> int | None:
        """Copy an array in and return its offset, None where it does not fit."""
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        if start + array.nbytes > self._size:
            return None
        self._view(start, array.dtype, array.shape)[...] = array
        self._used = start + array.nbytes
        return start

    def take(self, offset: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Copy an array out.

        Raises:
            ProtocolError: It would reach beyond the arena.
        """
        if offset < 0 or offset + dtype.itemsize * math.prod(shape) > self._size:
            raise ProtocolError(f'array {shape} at {offset} is outside the arena')
        return self._view(offset, dtype, shape).copy()

    def close(self) -> None:
        """Unmap the memory and close the descriptor."""
        self._memory.close()
        os.close(self.descriptor)

    def _view(self, offset: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        return np.ndarray(shape, dtype, self._memory, offset)


class Channel:
    """Framed messages over a connected stream socket.

    Args:
        stream: Connected stream socket; owned by the channel.
        arena: Where large arrays go, None to keep them within messages.
    """

    def __init__(self, stream: socket.socket, arena: Arena | None = None) -> None:
        self._stream = stream
        self._arena = arena

    def send(self, message: Any, timeout: float | None = None) -> None:
        """Send a message.

        Raises:
            ProtocolError: A part has no encoding, or the message is too long.
            ConnectionLostError: Nobody reads.
            TimeoutError: The other side did not take it within `timeout` seconds.
        """
        if self._arena is not None:
            self._arena.clear()
        data = encode(message, self._arena)
        if len(data) > MAX_MESSAGE:
            raise ProtocolError(f'message of {len(data)} bytes exceeds {MAX_MESSAGE}')
        self._stream.settimeout(timeout)
        try:
            self._stream.sendall(_HEADER.pack(len(data)) + data)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLostError(str(error)) from error

    def receive(self, timeout: float | None = None) -> Any:
        """Wait for a message.

        Raises:
            ProtocolError: What arrived is no message.
            ConnectionLostError: The other side is gone.
            TimeoutError: No whole message arrived within `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        (length,) = _HEADER.unpack(self._exactly(_HEADER.size, deadline))
        if length > MAX_MESSAGE:
            raise ProtocolError(f'message of {length} bytes exceeds {MAX_MESSAGE}')
        return decode(self._exactly(length, deadline), self._arena)

    def close(self) -> None:
        """Close the socket."""
        self._stream.close()

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        data = bytearray(count)
        view, filled = memoryview(data), 0
        while filled < count:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError('no message in time')
            self._stream.settimeout(left)
            try:
                size = self._stream.recv_into(view[filled:])
            except TimeoutError:
                raise TimeoutError('no message in time') from None
            except OSError as error:
                raise ConnectionLostError(str(error)) from error
            if size == 0:
                raise ConnectionLostError('the other side closed')
            filled += size
        return bytes(data)


def encode(message: Any, arena: Arena | None = None) -> bytes:
    """Encode a message.

    Raises:
        ProtocolError: A part has no encoding.
    """
    try:
        return msgpack.packb(_plain(message, arena), use_bin_type=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f'cannot encode: {error}') from error


def decode(data: bytes, arena: Arena | None = None) -> Any:
    """Decode a message; the inverse of `encode`, with lists for tuples.

    Raises:
        ProtocolError: It is not one.
    """
    try:
        return msgpack.unpackb(
            data,
            raw=False,
            object_hook=_object,
            ext_hook=lambda code, body: _extension(code, body, arena),
        )
    except ProtocolError:
        raise
    # Hostile bytes reach many of msgpack's and NumPy's own errors.
    except Exception as error:
        raise ProtocolError(f'cannot decode: {type(error).__name__}: {error}') from error


def _plain(value: Any, arena: Arena | None) -> Any:
    if isinstance(value, np.ndarray):
        return _packed_array(value, arena)
    if isinstance(value, np.generic):
        return value.item()
    name = type(value).__name__
    if _TYPES.get(name) is type(value):
        encoded = {
            field.name: _plain(getattr(value, field.name), arena) for field in fields(value)
        }
        return {_KEY: name, **encoded}
    if isinstance(value, Mapping):
        if _KEY in value:
            raise ProtocolError(f'key {_KEY!r} is reserved')
        return {key: _plain(item, arena) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, arena) for item in value]
    return value


def _packed_array(array: np.ndarray, arena: Arena | None) -> msgpack.ExtType:
    if array.dtype.kind not in _KINDS:
        raise ProtocolError(f'arrays of {array.dtype} have no encoding')
    head = [array.dtype.str, list(array.shape)]
    if arena is not None and array.nbytes > _INLINE:
        offset = arena.put(array)
        if offset is not None:
            return msgpack.ExtType(_SHARED, msgpack.packb([*head, offset]))
    return msgpack.ExtType(_ARRAY, msgpack.packb([*head, array.tobytes()]))


def _extension(code: int, body: bytes, arena: Arena | None) -> np.ndarray:
    if code not in (_ARRAY, _SHARED):
        raise ProtocolError(f'unknown extension {code}')
    name, shape, content = msgpack.unpackb(body)
    dtype = np.dtype(name)
    if dtype.kind not in _KINDS or any(not isinstance(n, int) or n < 0 for n in shape):
        raise ProtocolError(f'no array: {name} {shape}')
    if code == _ARRAY:
        return np.frombuffer(content, dtype).reshape(shape).copy()
    if arena is None or not isinstance(content, int):
        raise ProtocolError('a shared array, but no arena')
    return arena.take(content, dtype, tuple(shape))


def _object(value: dict) -> Any:
    name = value.pop(_KEY, None)
    if name is None:
        return value
    kind = _TYPES.get(name)
    if kind is None:
        raise ProtocolError(f'unknown type {name!r}')
    sequences = {key: tuple(item) for key, item in value.items() if isinstance(item, list)}
    return kind(**{**value, **sequences})


def _anonymous_file() -> int:
    if hasattr(os, 'memfd_create'):
        return os.memfd_create('praxis_arena')
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
