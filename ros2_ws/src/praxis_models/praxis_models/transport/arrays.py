# SPDX-License-Identifier: Apache-2.0
"""Arrays out of the bytes of a peer. Imports no rclpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

MAX_DIMS = 8


def array_of(data: bytes, dtype: np.dtype, shape: Any) -> np.ndarray:
    """View bytes as an array of the shape that came with them; nothing larger is allocated.

    Raises:
        ValueError: The shape is none, or the bytes do not fill it.
    """
    if (
        not isinstance(shape, (list, tuple))
        or len(shape) > MAX_DIMS
        or any(type(size) is not int or size < 0 for size in shape)
    ):
        raise ValueError(f'array: shape must be at most {MAX_DIMS} sizes (got {shape!r:.60})')
    if dtype.itemsize * math.prod(shape) != len(data):
        raise ValueError(f'array: {len(data)} bytes do not hold {dtype}{list(shape)}')
    return np.frombuffer(data, dtype).reshape(shape) if data else np.zeros(shape, dtype)
