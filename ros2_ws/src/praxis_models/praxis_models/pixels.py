# SPDX-License-Identifier: Apache-2.0
"""Images as models want them: flips, crops, resizes and layouts, exact to the pixel.

An image is uint8[H, W, C] with its origin at the top left. `resize` computes what Pillow's
``Image.resize`` does (``Resample.c``; every pixel is that of 11.3.0 and 12.0.0), because the data
sets and evaluations of the models were made with it: a filter that widens as the image shrinks,
first along the rows and then along the columns, each pass in fixed point with 22 bits and rounded
to 8. Pillow 13 swaps the passes where the height shrinks more than the width. OpenCV's and
PyTorch's filters give other pixels. Imports no rclpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

Filter = Literal['bilinear', 'bicubic']

_BITS = 22
_SUPPORT = {'bilinear': 1.0, 'bicubic': 2.0}
_CUBIC_A = -0.5


def flip_horizontal(image: np.ndarray) -> np.ndarray:
    """Left becomes right: ``out[y, x] = image[y, W - 1 - x]``."""
    return np.ascontiguousarray(_checked(image)[:, ::-1])


def flip_vertical(image: np.ndarray) -> np.ndarray:
    """Top becomes bottom: ``out[y, x] = image[H - 1 - y, x]``."""
    return np.ascontiguousarray(_checked(image)[::-1])


def rotate_180(image: np.ndarray) -> np.ndarray:
    """Both flips."""
    return np.ascontiguousarray(_checked(image)[::-1, ::-1])


def crop(image: np.ndarray, top: int, left: int, height: int, width: int) -> np.ndarray:
    """Part of an image.

    Raises:
        ValueError: It reaches beyond the image.
    """
    image = _checked(image)
    rows, columns = image.shape[:2]
    if top < 0 or left < 0 or top + height > rows or left + width > columns:
        raise ValueError(
            f'a crop of {height}x{width} at {top}, {left} reaches beyond {rows}x{columns}'
        )
    return np.ascontiguousarray(image[top : top + height, left : left + width])


def centre_crop(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Middle of an image; where the margin is odd, its smaller half is at the top and left."""
    rows, columns = _checked(image).shape[:2]
    return crop(image, (rows - height) // 2, (columns - width) // 2, height, width)


def resize(image: np.ndarray, height: int, width: int, kind: Filter = 'bilinear') -> np.ndarray:
    """Scale to a size whatever the aspect, as Pillow's ``Image.resize``.

    Args:
        image: uint8[H, W, C].
        height: Rows of the result.
        width: Columns of the result.
        kind: Filter; ``bicubic`` has a = -0.5.
    """
    image = _checked(image)
    if height < 1 or width < 1:
        raise ValueError(f'a size must be at least 1x1, not {height}x{width}')
    if image.shape[1] != width:
        image = _resample(image.swapaxes(0, 1), width, kind).swapaxes(0, 1)
    if image.shape[0] != height:
        image = _resample(image, height, kind)
    return np.ascontiguousarray(image)


def crop_resize(
    image: np.ndarray, height: int, width: int, kind: Filter = 'bilinear'
) -> np.ndarray:
    """Scale until the image covers the size, then take the middle.

    The scaled size is rounded half to even, as Python's ``round`` does.
    """
    rows, columns = _checked(image).shape[:2]
    scale = max(width / columns, height / rows)
    scaled = resize(image, round(rows * scale), round(columns * scale), kind)
    return centre_crop(scaled, height, width)


def resize_with_pad(
    image: np.ndarray, height: int, width: int, kind: Filter = 'bilinear'
) -> np.ndarray:
    """Scale, keeping the aspect, until the image fits, and put it in the middle of black.

    The scaled size is rounded down; where the margin is odd, its smaller half is at the top and
    left: ``resize_with_pad`` of openpi-client 0.1.2.
    """
    rows, columns = _checked(image).shape[:2]
    if (rows, columns) == (height, width):
        return np.ascontiguousarray(image)
    ratio = max(columns / width, rows / height)
    scaled = resize(image, max(1, int(rows / ratio)), max(1, int(columns / ratio)), kind)
    top, left = (height - scaled.shape[0]) // 2, (width - scaled.shape[1]) // 2
    out = np.zeros((height, width, image.shape[2]), np.uint8)
    out[top : top + scaled.shape[0], left : left + scaled.shape[1]] = scaled
    return out


def shrink_with_mirror(
    image: np.ndarray, height: int, width: int, kind: Filter = 'bicubic'
) -> np.ndarray:
    """Scale down, keeping the aspect, until the image fits, and mirror it below and to the right.

    An image that is small enough is not scaled up. The scaled size is rounded half up. The mirror
    leaves the edge row out; where the margin is as large as the image its edge is repeated
    instead: ``reflection_pad_to_target`` of NVIDIA/cosmos-framework 5eee9ed5.
    """
    rows, columns = _checked(image).shape[:2]
    scale = min(width / columns, height / rows, 1.0)
    scaled_rows = max(1, min(int(scale * rows + 0.5), height))
    scaled_columns = max(1, min(int(scale * columns + 0.5), width))
    scaled = resize(image, scaled_rows, scaled_columns, kind)
    below, right = height - scaled_rows, width - scaled_columns
    fits = below < scaled_rows and right < scaled_columns
    return np.pad(scaled, ((0, below), (0, right), (0, 0)), mode='reflect' if fits else 'edge')


def beside(images: Sequence[np.ndarray]) -> np.ndarray:
    """Images of one height, from left to right."""
    return _joined(images, axis=1)


def stacked(images: Sequence[np.ndarray]) -> np.ndarray:
    """Images of one width, from top to bottom."""
    return _joined(images, axis=0)


def signed_unit(image: np.ndarray) -> np.ndarray:
    """Pixels to -1 ... 1: float32, p * (2 / 255) - 1."""
    return _checked(image).astype(np.float32) * np.float32(2.0 / 255.0) - np.float32(1.0)


def channels_first(image: np.ndarray) -> np.ndarray:
    """[H, W, C] to [C, H, W]."""
    return np.ascontiguousarray(np.moveaxis(image, -1, 0))


def _checked(image: np.ndarray) -> np.ndarray:
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.ndim != 3 or 0 in image.shape:
        raise ValueError(f'an image must be uint8[H, W, C], not {image.dtype}{list(image.shape)}')
    return image


def _joined(images: Sequence[np.ndarray], axis: int) -> np.ndarray:
    images = [_checked(image) for image in images]
    sizes = {image.shape[1 - axis] for image in images}
    if len(sizes) != 1:
        shapes = ', '.join('x'.join(map(str, image.shape)) for image in images)
        raise ValueError(f'images to join must be of one {("width", "height")[axis]}: {shapes}')
    return np.concatenate(images, axis=axis)


def _resample(image: np.ndarray, size: int, kind: Filter) -> np.ndarray:
    """Scale the first axis."""
    taps, weights = _weights(image.shape[0], size, kind)
    # int32 as in Pillow: the weights of a pixel sum to 2^22, and their sizes to less than 2^23
    total = np.full((size, *image.shape[1:]), 1 << (_BITS - 1), np.int32)
    for tap, weight in zip(taps.T, weights.T, strict=True):
        total += image[tap].astype(np.int32) * weight[:, None, None]
    return np.clip(total >> _BITS, 0, 255).astype(np.uint8)


@lru_cache(maxsize=64)
def _weights(source: int, target: int, kind: Filter) -> tuple[np.ndarray, np.ndarray]:
    """Pixels that each of the result is made of, and their weights: int[target, K], int32."""
    scale = source / target
    widened = max(scale, 1.0)
    support = _SUPPORT[kind] * widened
    count = math.ceil(support) * 2 + 1
    taps = np.zeros((target, count), np.intp)
    weights = np.zeros((target, count), np.int32)
    for out in range(target):
        centre = (out + 0.5) * scale
        first = max(int(centre - support + 0.5), 0)
        last = min(int(centre + support + 0.5), source)
        raw = [_filter((at - centre + 0.5) * (1.0 / widened), kind) for at in range(first, last)]
        norm = sum(raw)
        for index, value in enumerate(raw):
            share = value / norm * (1 << _BITS)
            taps[out, index] = first + index
            weights[out, index] = int(share - 0.5 if share < 0.0 else share + 0.5)
    return taps, weights


def _filter(x: float, kind: Filter) -> float:
    x = abs(x)
    if kind == 'bilinear':
        return max(1.0 - x, 0.0)
    a = _CUBIC_A
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    return (((x - 5.0) * x + 8.0) * x - 4.0) * a if x < 2.0 else 0.0
