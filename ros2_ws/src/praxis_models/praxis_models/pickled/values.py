# SPDX-License-Identifier: Apache-2.0
"""What a pickle may build: arrays, scalars and tensors, first as what stands for them.

A pickle names a tensor's storage before its bytes come, and an array before its shape; what is
made here is finished once everything was read. The layouts of tensors follow
``torch/_utils.py`` (_rebuild_tensor_v2) of pytorch 2.13.0, those of arrays ``ndarray.__reduce__``
of NumPy 1 and 2.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

MAX_DIMS = 32

STORAGES = {
    'DoubleStorage': 'float64',
    'FloatStorage': 'float32',
    'HalfStorage': 'float16',
    'BFloat16Storage': 'bfloat16',
    'LongStorage': 'int64',
    'IntStorage': 'int32',
    'ShortStorage': 'int16',
    'CharStorage': 'int8',
    'ByteStorage': 'uint8',
    'BoolStorage': 'bool',
}
"""PyTorch's kinds of storage and what their elements are."""

_DTYPE = re.compile(r'[<>=|]?(?:[iuf][1248]|b1|\?)')


class PickledError(ValueError):
    """A file that is damaged or asks for more than data; its text says what and where."""


class Tensor(NamedTuple):
    """An array and the name of the type it had; bfloat16 is widened to float32, exactly."""

    values: np.ndarray
    dtype: str


class Name(NamedTuple):
    """A name in a pickle: a label, never looked up."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f'{self.module}.{self.attribute}'


@dataclass
class Storage:
    """Elements of one or more tensors, and their bytes once those were read."""

    dtype: str
    length: int
    data: bytes | None = None

    @property
    def item_size(self) -> int:
        """Bytes of an element."""
        return 2 if self.dtype == 'bfloat16' else np.dtype(self.dtype).itemsize

    def elements(self) -> np.ndarray:
        """Flat array of all; bfloat16 as float32, of which it is the upper half."""
        if self.data is None or len(self.data) < self.length * self.item_size:
            raise PickledError(f'a storage of {self.length} {self.dtype} is not all there')
        if self.dtype == 'bfloat16':
            halves = np.frombuffer(self.data, '<u2', self.length).astype(np.uint32)
            return (halves << np.uint32(16)).view(np.float32)
        return np.frombuffer(self.data, np.dtype(self.dtype).newbyteorder('<'), self.length)


@dataclass
class View:
    """A tensor: a window into a storage, in elements."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def finish(self) -> Tensor:
        """Copy what the window shows."""
        elements = self.storage.elements()
        count = math.prod(self.size)
        reach = self.offset + sum(
            (n - 1) * step for n, step in zip(self.size, self.stride, strict=True)
        )
        # a view that repeats elements could be of any size
        if count and (reach >= len(elements) or count > len(elements)):
            raise PickledError(f'a tensor {list(self.size)} reaches beyond its storage')
        if not count:
            return Tensor(np.zeros(self.size, elements.dtype), self.storage.dtype)
        steps = [step * elements.itemsize for step in self.stride]
        view = np.lib.stride_tricks.as_strided(elements[self.offset :], self.size, steps)
        return Tensor(np.array(view), self.storage.dtype)


@dataclass
class Dtype:
    """NumPy's type of numbers."""

    code: str
    order: str = '='

    def finish(self) -> np.dtype:
        """Look it up; only numbers and booleans are permitted."""
        if not _DTYPE.fullmatch(self.code):
            raise PickledError(f'an array of dtype {self.code!r:.40} is not permitted')
        try:
            return np.dtype(self.code).newbyteorder(self.order)
        except TypeError:
            raise PickledError(f'unknown dtype {self.code!r:.40}') from None


@dataclass
class Array:
    """A NumPy array; empty until its state comes."""

    shape: tuple[int, ...] | None = None
    dtype: Dtype | None = None
    fortran: bool = False
    data: bytes = b''

    def finish(self) -> np.ndarray:
        """Read the bytes."""
        if self.shape is None or self.dtype is None:
            raise PickledError('an array without its contents')
        dtype = self.dtype.finish()
        if math.prod(self.shape) * dtype.itemsize != len(self.data):
            raise PickledError(
                f'{len(self.data)} bytes do not hold an array {dtype}{list(self.shape)}'
            )
        flat = np.frombuffer(self.data, dtype)
        return flat.reshape(self.shape, order='F' if self.fortran else 'C')


@dataclass
class Scalar:
    """A NumPy scalar."""

    dtype: Dtype
    data: bytes

    def finish(self) -> Any:
        """Read the bytes, as a number of Python."""
        dtype = self.dtype.finish()
        if len(self.data) != dtype.itemsize:
            raise PickledError('a scalar that is not of its dtype')
        return np.frombuffer(self.data, dtype)[0].item()


def make_array(kind: Any, _shape: Any, _code: Any) -> Array:
    """Stand for ``numpy._core.multiarray._reconstruct``."""
    if kind != Name('numpy', 'ndarray'):
        raise PickledError(f'an array of the class {kind} is not permitted')
    return Array()


def make_dtype(code: Any, *_: Any) -> Dtype:
    """Stand for ``numpy.dtype``."""
    return Dtype(taken(code, str, 'a dtype'))


def make_scalar(dtype: Any, data: Any = b'') -> Scalar:
    """Stand for ``numpy._core.multiarray.scalar``."""
    return Scalar(taken(dtype, Dtype, 'a scalar'), taken(data, bytes, 'a scalar'))


def array_from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> Array:
    """Stand for ``numpy._core.numeric._frombuffer``."""
    return Array(
        sizes(shape), taken(dtype, Dtype, 'an array'), order == 'F', taken(data, bytes, 'an array')
    )


def make_view(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, *_: Any
) -> View:
    """Stand for ``torch._utils._rebuild_tensor_v2``."""
    size, stride = sizes(size), sizes(stride)
    if len(size) != len(stride) or len(size) > MAX_DIMS:
        raise PickledError(f'a tensor of size {size} and stride {stride}')
    return View(taken(storage, Storage, 'a tensor'), sizes((offset,))[0], size, stride)


def make_mapping(pairs: Any = ()) -> dict[Any, Any]:
    """Stand for ``collections.OrderedDict``."""
    try:
        return dict(pairs)
    except (TypeError, ValueError):
        raise PickledError('a mapping of what are no pairs') from None


def bytes_of_text(text: Any, codec: Any) -> bytes:
    """Stand for ``_codecs.encode``, by which old pickles write bytes."""
    if codec not in ('latin1', 'latin-1'):
        raise PickledError(f'the codec {codec!r:.40} is not permitted')
    try:
        return taken(text, str, 'bytes').encode('latin-1')
    except UnicodeEncodeError:
        raise PickledError('bytes that are none') from None


def taken(value: Any, kind: type, what: str) -> Any:
    """Give a value back if it is of a type.

    Raises:
        PickledError: It is not.
    """
    if kind is bytes and isinstance(value, bytearray):
        return bytes(value)
    if not isinstance(value, kind):
        raise PickledError(f'{what} made of {type(value).__name__.lstrip("_").lower()}')
    return value


def sizes(value: Any) -> tuple[int, ...]:
    """Give a tuple of sizes back if it is one.

    Raises:
        PickledError: It is not.
    """
    if not isinstance(value, tuple) or any(type(n) is not int or n < 0 for n in value):
        raise PickledError('a size that is not made of numbers')
    return value
