# SPDX-License-Identifier: Apache-2.0
"""Chooses the object that a relation means, among those that perception has found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from praxis_agent.recipe import Relation


class AnchorError(LookupError):
    """An anchor that is not in view, or not told apart; the message says which and why."""


@dataclass(frozen=True)
class Located:
    """One object as perception saw it last.

    Attributes:
        label: Category.
        centre: float64[3], middle of its top, m.
        top: m, height of its highest visible point.
        bottom: m, height of its lowest visible point.
        size: float64[2], long and short side of its top, m.
        long_axis_yaw: rad within (-pi/2, pi/2].
        pixel: Row and column of its middle in the image.
        area: Pixels.
    """

    label: str
    centre: np.ndarray
    top: float
    bottom: float
    size: np.ndarray
    long_axis_yaw: float
    pixel: tuple[float, float]
    area: int


def choose(
    name: str, relation: Relation, candidates: Sequence[Located], others: Mapping[str, Located]
) -> Located:
    """The candidate that the relation means.

    Args:
        name: Of the anchor, for messages.
        relation: Between it and other anchors.
        candidates: Objects with the right name.
        others: Anchors located before, among them all that the relation refers to.

    Raises:
        AnchorError: None fits, or ``only`` and there are several.
    """
    references = [others[other] for other in relation.references]
    kind = relation.kind
    # An object is never its own neighbour.
    pool = [c for c in candidates if not any(_same(c, reference) for reference in references)]
    if not pool:
        raise AnchorError(f'{name}: nothing in view fits')
    if kind == 'only':
        if len(pool) > 1:
            where = ', '.join(f'{c.label} at pixel {_pixel(c)}' for c in pool)
            raise AnchorError(f'{name}: meant as the only one, but there are {len(pool)}: {where}')
        return pool[0]
    if kind == 'between':
        return min(pool, key=lambda c: _off_segment(c.centre, *(r.centre for r in references)))
    if kind == 'nearest_to':
        return min(pool, key=lambda c: _planar(c, references[0]))
    if kind == 'farthest_from':
        return max(pool, key=lambda c: _planar(c, references[0]))
    if kind == 'on_top_of':
        return _on_top(name, pool, references[0])
    if kind in ('left_of', 'right_of', 'in_front_of', 'behind'):
        return _beside(name, kind, pool, references[0])
    if kind == 'leftmost':
        return min(pool, key=lambda c: c.pixel[1])
    if kind == 'rightmost':
        return max(pool, key=lambda c: c.pixel[1])
    if kind == 'largest':
        return max(pool, key=lambda c: float(np.prod(c.size)))
    raise AssertionError(kind)


def _on_top(name: str, pool: Sequence[Located], base: Located) -> Located:
    reach = float(base.size.max()) / 2
    above = [c for c in pool if _planar(c, base) <= reach and c.top > base.top]
    if not above:
        raise AnchorError(f'{name}: nothing stands on the {base.label}')
    return min(above, key=lambda c: _planar(c, base))


def _beside(name: str, kind: str, pool: Sequence[Located], reference: Located) -> Located:
    axis = 1 if kind in ('left_of', 'right_of') else 0
    sign = 1 if kind in ('right_of', 'in_front_of') else -1
    on_side = [c for c in pool if sign * (c.pixel[axis] - reference.pixel[axis]) > 0]
    if not on_side:
        raise AnchorError(f'{name}: nothing is {kind.replace("_", " ")} the {reference.label}')
    # Rather straight that way than near by and hardly to that side.
    straight = [
        c
        for c in on_side
        if sign * (c.pixel[axis] - reference.pixel[axis])
        >= abs(c.pixel[1 - axis] - reference.pixel[1 - axis])
    ]
    return min(straight or on_side, key=lambda c: math.dist(c.pixel, reference.pixel))


def stands_over(upper: Located, lower: Located, within: float) -> bool:
    """Whether one object is over another: centres within ``within`` m, and not below it."""
    return _planar(upper, lower) <= within and upper.top >= lower.bottom


def _planar(first: Located, second: Located) -> float:
    return float(np.linalg.norm((first.centre - second.centre)[:2]))


def _same(first: Located, second: Located) -> bool:
    return first.label == second.label and math.dist(first.pixel, second.pixel) < 1.0


def _off_segment(point: np.ndarray, start: np.ndarray, end: np.ndarray) -> float:
    """Planar distance of a point to the middle half of a segment, m."""
    p, a, b = point[:2], start[:2], end[:2]
    along = b - a
    length = float(along @ along)
    share = float((p - a) @ along) / length if length > 1e-12 else 0.5
    foot = a + min(0.75, max(0.25, share)) * along
    return float(np.linalg.norm(p - foot))


def _pixel(located: Located) -> str:
    return f'[{located.pixel[0]:.0f}, {located.pixel[1]:.0f}]'
