# SPDX-License-Identifier: Apache-2.0
"""MessagePack frames with numpy arrays, as OpenPI writes them. Imports no rclpy.

An array is the map ``{b'__ndarray__': True, b'data': bytes, b'dtype': str, b'shape': [int]}``, a
numpy scalar ``{b'__npgeneric__': True, b'data': value, b'dtype': str}``, keys as bytes. Only
booleans, numbers and fixed-length bytes or text are let through: no object can be smuggled in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from praxis_models.transport.arrays import array_of

MAX_FRAME = 64 * 1024 * 1024
"""Bytes of the largest frame that is read by default."""

MAX_ITEMS = 200_000
"""Entries of all lists and dictionaries of a frame together; bulk data travels in arrays."""

_KINDS = 'biufSU'
_DTYPE = re.compile(
    r'[<>|=]?(\?|b1|[iu][1248]|f[248]|[SU][1-9]\d{0,8})|bool|u?int(8|16|32|64)|float(16|32|64)',
    re.ASCII,
)
_SCALARS = {'b': (bool,), 'i': (int,), 'u': (int,), 'f': (float, int), 'S': (bytes,), 'U': (str,)}
_MAX_CODE_POINT = 0x10FFFF
_ARRAY, _GENERIC = b'__ndarray__', b'__npgeneric__'


class WireError(ValueError):
    """A frame that is not what it must be."""


def pack(value: Any) -> bytes:
    """Write a frame.

    Raises:
        WireError: A value that has no place in a frame, such as an array of objects.
    """
    try:
        return msgpack.packb(value, default=_encode)
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        raise WireError(f'cannot be sent: {error}') from None


def unpack(frame: bytes | bytearray | memoryview) -> Any:
    """Read a frame; arrays are read-only views of it where their alignment allows.

    Raises:
        WireError: Not one whole MessagePack value, or an array that is not what it says.
    """
    try:
        budget = _Budget()
        return msgpack.unpackb(
            frame,
            object_hook=budget.decode,
            list_hook=budget.count,
            ext_hook=_no_extension,
            timestamp=1,
            strict_map_key=False,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
        )
    except WireError:
        raise
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise WireError(f'not a MessagePack frame: {reason}') from None


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        _check_kind(value.dtype)
        contiguous = np.ascontiguousarray(value)
        return {
            _ARRAY: True,
            b'data': contiguous.data if contiguous.size and value.ndim else value.tobytes(),
            b'dtype': value.dtype.str,
            b'shape': value.shape,
        }
    if isinstance(value, np.generic):
        _check_kind(value.dtype)
        return {_GENERIC: True, b'data': value.item(), b'dtype': value.dtype.str}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f'{type(value).__name__} has no form in a frame')


class _Budget:
    """Counts what a frame makes: one byte of it may become a container of a hundred."""

    def __init__(self) -> None:
        self._left = MAX_ITEMS

    def count(self, found: Any) -> Any:
        self._left -= 1 + len(found)
        if self._left < 0:
            raise WireError(f'more than {MAX_ITEMS} entries in lists and dictionaries')
        return found

    def decode(self, found: dict[Any, Any]) -> Any:
        return _decode(self.count(found))


def _decode(found: dict[Any, Any]) -> Any:
    if _ARRAY in found:
        return _array(found)
    if _GENERIC in found:
        return _scalar(_dtype(found.get(b'dtype')), found.get(b'data'))
    return found


def _no_extension(code: int, data: bytes) -> Any:
    raise WireError(f'extension type {code} is not permitted')


def _scalar(dtype: np.dtype, value: Any) -> np.generic:
    if type(value) not in _SCALARS[dtype.kind]:
        raise WireError(f'numpy scalar: {type(value).__name__} is no {dtype}')
    if dtype.kind in 'iu':
        info = np.iinfo(dtype)
        if not info.min <= value <= info.max:
            raise WireError(f'numpy scalar: {value} is no {dtype}')
    return dtype.type(value)


def _array(found: dict[Any, Any]) -> np.ndarray:
    data, shape = found.get(b'data'), found.get(b'shape')
    dtype = _dtype(found.get(b'dtype'))
    if not isinstance(data, bytes):
        raise WireError(f'array: data must be bytes (got {type(data).__name__})')
    try:
        array = array_of(data, dtype, shape)
    except ValueError as error:
        raise WireError(str(error)) from None
    if dtype.kind == 'U' and array.size:
        points = np.frombuffer(data, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if points.max() > _MAX_CODE_POINT:
            raise WireError('array: text that is no Unicode')
    return array


def _dtype(text: Any) -> np.dtype:
    if isinstance(text, bytes):
        text = text.decode('ascii', 'replace')
    # numpy evaluates some texts, and gives those of no length one byte an element
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise WireError(f'array: dtype {text!r:.60} is not permitted')
    try:
        return np.dtype(text)
    except (TypeError, ValueError):
        raise WireError(f'array: unknown dtype {text!r}') from None


def _check_kind(dtype: np.dtype) -> None:
    long_double = dtype.kind == 'f' and dtype.itemsize > 8  # differs between machines
    if dtype.kind not in _KINDS or long_double:
        raise TypeError(f'dtype {dtype} is not permitted')
