# SPDX-License-Identifier: Apache-2.0
"""Which cameras are captured at which control period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction


class CameraSchedule:
    """Captures each camera at its own rate, every one at the first observation of an episode.

    Args:
        rates: Frames per s of each camera, by contract name, in the order of capture.
        control_hz: Control periods per s; a faster camera is captured at every period.
    """

    def __init__(self, rates: Mapping[str, float], control_hz: float) -> None:
        hz = Fraction(control_hz).limit_denominator(10**6)
        self._per_step = {
            name: min(Fraction(rate).limit_denominator(10**6) / hz, Fraction(1))
            for name, rate in rates.items()
        }

    def due(self, step: int) -> Sequence[str]:
        """Cameras captured ``step`` control periods after the reset."""
        return [
            name
            for name, share in self._per_step.items()
            if step == 0 or int(step * share) > int((step - 1) * share)
        ]
