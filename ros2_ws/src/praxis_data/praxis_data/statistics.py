# SPDX-License-Identifier: Apache-2.0
"""Statistics of one episode, as `meta/episodes_stats.jsonl` has them."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

MAX_IMAGES = 100
_TARGET_PIXELS = 150


def column_statistics(values: np.ndarray) -> dict[str, list]:
    """Return min, max, mean, std over axis 0 and count of [N] or [N, D] values."""
    block = np.asarray(values)
    if block.ndim == 1:
        block = block[:, None]
    if block.dtype == bool:
        low, high = block.min(axis=0), block.max(axis=0)
        block = block.astype(np.float64)
    else:
        low, high = block.min(axis=0), block.max(axis=0)
    # Stamps in ns need all 53 bits of a double after their offset is taken off.
    offset = low.astype(np.float64)
    centred = (block - low).astype(np.float64) if block.dtype.kind == 'i' else block - offset
    return {
        'min': low.tolist(),
        'max': high.tolist(),
        'mean': (offset + centred.mean(axis=0)).tolist(),
        'std': centred.std(axis=0).tolist(),
        'count': [len(block)],
    }


class ImageStatistics:
    """Per-channel statistics over at most 100 evenly spaced frames of an unknown number.

    Every `stride`-th frame counts; when more than 100 have been taken, every second one of them
    is forgotten and the stride doubles. Frames are sampled on a pixel grid.
    """

    def __init__(self) -> None:
        self._stride = 1
        self._seen = 0
        self._frames: list[np.ndarray] = []

    def add(self, rgb: np.ndarray) -> None:
        """Take in the next frame, uint8[H, W, 3]."""
        number, self._seen = self._seen, self._seen + 1
        if number % self._stride:
            return
        step = max(1, min(rgb.shape[:2]) // _TARGET_PIXELS)
        pixels = np.ascontiguousarray(rgb[::step, ::step])
        mean, std = (value.ravel() / 255.0 for value in cv2.meanStdDev(pixels))
        ends = [cv2.minMaxLoc(plane)[:2] for plane in cv2.split(pixels)]
        low, high = np.transpose(ends) / 255.0
        self._frames.append(np.stack([low, high, mean, np.square(mean) + np.square(std)]))
        if len(self._frames) > MAX_IMAGES:
            self._frames = self._frames[::2]
            self._stride *= 2

    def result(self) -> dict[str, Any]:
        """Return the statistics, values in 0 to 1, each of shape [3, 1, 1]."""
        block = np.stack(self._frames)
        mean = block[:, 2].mean(axis=0)
        variance = np.maximum(block[:, 3].mean(axis=0) - np.square(mean), 0.0)

        def shaped(values: np.ndarray) -> list:
            return values.astype(np.float64).reshape(3, 1, 1).tolist()

        return {
            'min': shaped(block[:, 0].min(axis=0)),
            'max': shaped(block[:, 1].max(axis=0)),
            'mean': shaped(mean),
            'std': shaped(np.sqrt(variance)),
            'count': [len(self._frames)],
        }
