# SPDX-License-Identifier: Apache-2.0
"""Samples of one topic in stamp order, and the questions a tick asks of them."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

UNKNOWN = 'unknown'
GAP = 'gap'
FOLLOWED = 'followed'


@dataclass(eq=False)
class Sample:
    """One message of a stream.

    Attributes:
        stamp: Header stamp, ns.
        seq: Sequence number that orders equal stamps; 0 where the message has none.
        value: What the stream carries.
    """

    stamp: int
    seq: int
    value: Any


@dataclass
class Stream:
    """Buffer of samples ordered by (stamp, seq), bounded by `forget_before`.

    Attributes:
        name: `state`, `action`, `control_status`, or a camera.
        period: Longest regular distance of two samples, ns; older than that is stale.
        limit: Longest distance of two samples that may be bridged, ns.
    """

    name: str
    period: int
    limit: int
    samples: list[Sample] = field(default_factory=list)
    _keys: list[tuple[int, int]] = field(default_factory=list)
    _last_seq: int | None = None
    _last_key: tuple[int, int] = (-1, -1)
    dropped: int = 0
    restarts: int = 0

    def add(self, stamp: int, seq: int, value: Any) -> bool:
        """Insert a sample; return False for a duplicate of (stamp, seq)."""
        key = (stamp, seq)
        at = bisect.bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at] == key:
            return False
        self._keys.insert(at, key)
        self.samples.insert(at, Sample(stamp, seq, value))
        return True

    def remove(self, sample: Sample) -> None:
        """Take out a sample that turned out to be unusable."""
        at = self.samples.index(sample)
        del self.samples[at], self._keys[at]

    def newest_before(self, bound: int) -> Sample | None:
        """Return the newest sample with stamp < `bound` ns."""
        at = bisect.bisect_left(self._keys, (bound, -1))
        return self.samples[at - 1] if at else None

    def after(self, sample: Sample, until: int, horizon: int, end: int | None) -> str:
        """Tell whether a sample follows soon enough for the gap to be bridged.

        Args:
            sample: The last sample before the gap.
            until: Time up to which all samples are known to have arrived, ns.
            horizon: Latest stamp that may follow, ns.
            end: Stamps from here on belong to another episode, ns.

        Returns:
            FOLLOWED, GAP, or UNKNOWN while it may still arrive.
        """
        bound = horizon + 1 if end is None else min(horizon + 1, end)
        following = self.newest_before(bound)
        if following is not None and (following.stamp, following.seq) > (sample.stamp, sample.seq):
            return FOLLOWED
        return GAP if until >= bound else UNKNOWN

    def settle(self, bound: int) -> None:
        """Count the sequence numbers missing among samples with stamp < `bound` ns."""
        at = bisect.bisect_left(self._keys, (bound, -1))
        start = bisect.bisect_right(self._keys, self._last_key)
        for sample in self.samples[start:at]:
            if self._last_seq is not None:
                if sample.seq > self._last_seq + 1:
                    self.dropped += sample.seq - self._last_seq - 1
                elif sample.seq < self._last_seq:
                    self.restarts += 1
            self._last_seq = sample.seq
            self._last_key = (sample.stamp, sample.seq)

    def forget_before(self, bound: int) -> None:
        """Drop samples older than the newest one with stamp < `bound` ns."""
        at = bisect.bisect_left(self._keys, (bound, -1)) - 1
        if at > 0:
            del self.samples[:at], self._keys[:at]
