# SPDX-License-Identifier: Apache-2.0
"""Arrays in JSON, as the reference's HTTP calls carry them. Imports no rclpy.

An array is ``{"__ndarray__": BASE64, "dtype": "float32", "shape": [2, 7]}``, its bytes in C order
and this machine's byte order; a numpy scalar is ``{"__npscalar__": 0.5, "dtype": "float32"}``.
Only booleans and numbers are let through.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from praxis_models.transport.arrays import array_of

_KINDS = 'biuf'
_ARRAY, _SCALAR = '__ndarray__', '__npscalar__'


class CodecError(ValueError):
    """A body that is not what it must be."""


def loads(body: bytes) -> Any:
    """Read a body; arrays are writable copies.

    Raises:
        CodecError: It is no JSON, or an array in it is not what it says.
    """
    try:
        return _decode(json.loads(body))
    except CodecError:
        raise
    except (ValueError, RecursionError) as error:
        raise CodecError(f'not JSON: {str(error) or type(error).__name__}') from None


def dumps(value: Any) -> bytes:
    """Write a body; tuples become lists.

    Raises:
        CodecError: A value that has no form in JSON.
    """
    try:
        return json.dumps(value, default=_encode, separators=(',', ':')).encode('utf-8')
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f'cannot be sent: {error}') from None


def _encode(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in _KINDS:
            raise TypeError(f'dtype {value.dtype} is not permitted')
        native = value.astype(value.dtype.newbyteorder('='), copy=False)
        if isinstance(value, np.generic):
            return {_SCALAR: native.item(), 'dtype': str(native.dtype)}
        data = base64.b64encode(np.ascontiguousarray(native)).decode('ascii')
        return {_ARRAY: data, 'dtype': str(native.dtype), 'shape': list(value.shape)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f'{type(value).__name__} has no form in JSON')


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value and set(value) <= {_ARRAY, 'dtype', 'shape'}:
            return _array(value)
        if _SCALAR in value and set(value) <= {_SCALAR, 'dtype'}:
            return _scalar(value)
        return {key: _decode(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_decode(part) for part in value]
    return value


def _array(found: dict[str, Any]) -> np.ndarray:
    dtype = _dtype(found.get('dtype', 'float64'))
    try:
        data = base64.b64decode(found[_ARRAY], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise CodecError(f'array: not base64: {error}') from None
    shape = found.get('shape', [len(data) // dtype.itemsize])
    try:
        return array_of(data, dtype, shape).copy()
    except ValueError as error:
        raise CodecError(str(error)) from None


def _scalar(found: dict[str, Any]) -> np.generic:
    dtype, value = _dtype(found.get('dtype')), found[_SCALAR]
    if not isinstance(value, (bool, int, float)):
        raise CodecError(f'scalar: must be a number (got {value!r:.60})')
    if dtype.kind in 'iu':
        limits = np.iinfo(dtype)
        if not isinstance(value, int) or not limits.min <= value <= limits.max:
            raise CodecError(f'scalar: {value!r:.60} is no {dtype}')
    try:
        with np.errstate(over='ignore'):
            return np.array(value, dtype)[()]
    except (TypeError, ValueError, OverflowError) as error:
        raise CodecError(f'scalar: {error}') from None


def _dtype(text: Any) -> np.dtype:
    if not isinstance(text, str) or not 0 < len(text) <= 10:
        raise CodecError(f'dtype must be a short text (got {text!r:.60})')
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError, SyntaxError):
        raise CodecError(f'unknown dtype {text!r}') from None
    if dtype.kind not in _KINDS or dtype.subdtype is not None or dtype.fields is not None:
        raise CodecError(f'dtype {text!r} is not permitted')
    return dtype
