# SPDX-License-Identifier: Apache-2.0
"""Instances of a segmentation image: masks, boxes, centroids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from praxis_perception import matching


@dataclass(frozen=True)
class Instance:
    """One object in an image.

    Attributes:
        label: Category.
        score: 0 to 1.
        mask: bool[H, W].
    """

    label: str
    score: float
    mask: np.ndarray

    @property
    def area(self) -> int:
        """Pixels."""
        return int(self.mask.sum())

    @property
    def box(self) -> tuple[int, int, int, int]:
        """row_min, col_min, row_max, col_max; the maxima are exclusive."""
        rows = np.flatnonzero(self.mask.any(axis=1))
        cols = np.flatnonzero(self.mask.any(axis=0))
        return int(rows[0]), int(cols[0]), int(rows[-1]) + 1, int(cols[-1]) + 1

    @property
    def centroid(self) -> tuple[float, float]:
        """Row and column, pixels."""
        rows, cols = np.nonzero(self.mask)
        return float(rows.mean()), float(cols.mean())


def visible_labels(segmentation: np.ndarray, labels: Sequence[str]) -> list[str]:
    """Categories with at least one pixel, in order of their first segment.

    Args:
        segmentation: uint16[H, W], 0 background, i + 1 for ``labels[i]``.
        labels: Category of each segment.
    """
    present = [labels[i - 1] for i in np.unique(segmentation) if 0 < i <= len(labels)]
    return list(dict.fromkeys(present))


def by_prompt(
    segmentation: np.ndarray,
    labels: Sequence[str],
    prompt: str,
    min_score: float = 0.2,
    min_area: int = 4,
) -> list[Instance]:
    """Every instance of the categories a prompt names best, largest first.

    Args:
        segmentation: uint16[H, W], 0 background, i + 1 for ``labels[i]``; one segment is one
            object,
            though something in front may cut it in pieces.
        labels: Category of each segment; instances of one category repeat it.
        prompt: Noun phrase.
        min_score: Of the match of words.
        min_area: Pixels; smaller segments are slivers behind others.
    """
    visible = visible_labels(segmentation, labels)
    found = []
    chosen = matching.best(prompt, visible, min_score)
    for index, label in enumerate(labels):
        if label not in chosen:
            continue
        mask = segmentation == index + 1
        if int(mask.sum()) >= min_area:
            found.append(Instance(label, matching.score(prompt, label), mask))
    return sorted(found, key=lambda instance: -instance.area)


def by_point(
    segmentation: np.ndarray, labels: Sequence[str], row: int, col: int
) -> Instance | None:
    """The instance at a pixel, None on the background.

    Raises:
        ValueError: The pixel is outside the image.
    """
    height, width = segmentation.shape
    if not (0 <= row < height and 0 <= col < width):
        raise ValueError(f'point [{row}, {col}] is outside the image of {height} x {width}')
    index = int(segmentation[row, col])
    if not 0 < index <= len(labels):
        return None
    return Instance(labels[index - 1], 1.0, segmentation == index)
