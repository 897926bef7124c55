# SPDX-License-Identifier: Apache-2.0
"""Joins state, end-effector pose and joint states of one observation by their common stamp."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ObservationPairing:
    """Completes observations as their parts arrive, in whatever order.

    Attributes:
        parts: Names of the streams an observation needs.
        capacity: Incomplete observations kept; the oldest goes first.
    """

    parts: frozenset[str]
    capacity: int = 20
    _pending: OrderedDict[int, dict[str, Any]] = field(default_factory=OrderedDict, repr=False)
    _newest: int = field(default=-1, repr=False)

    def add(self, part: str, stamp_ns: int, value: Any) -> dict[str, Any] | None:
        """Take in one part.

        Args:
            part: One of ``parts``.
            stamp_ns: Header stamp in ns.
            value: Kept as it is.

        Returns:
            All parts of the observation that this one completes, or None. Observations are
            returned in the order of their stamps; one that completes after a newer one is dropped.
        """
        if part not in self.parts:
            raise KeyError(part)
        if stamp_ns <= self._newest:
            return None
        slot = self._pending.setdefault(stamp_ns, {})
        slot[part] = value
        if len(slot) == len(self.parts):
            self._newest = stamp_ns
            for stamp in [s for s in self._pending if s <= stamp_ns]:
                del self._pending[stamp]
            return slot
        while len(self._pending) > self.capacity:
            self._pending.popitem(last=False)
        return None

    def clear(self) -> None:
        """Forget everything, for a clock that went back."""
        self._pending.clear()
        self._newest = -1
