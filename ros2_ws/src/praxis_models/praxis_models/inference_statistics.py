# SPDX-License-Identifier: Apache-2.0
"""How long inferences take. Imports no rclpy."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

WINDOW = 200


@dataclass
class InferenceStatistics:
    """Times of the last inferences.

    Attributes:
        count: Inferences in all.
        failures: Requests that ended without a usable reply.
        model_ms: What the model took, as the server says, else the round trip.
        latency_ms: From the newest message of the observation to the chunk in hand.
    """

    count: int = 0
    failures: int = 0
    model_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    latency_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, model_ms: float, latency_ms: float) -> None:
        """Take note of one inference."""
        self.count += 1
        self.model_ms.append(model_ms)
        self.latency_ms.append(latency_ms)

    def values(self) -> dict[str, str | int]:
        """For diagnostics."""
        values: dict[str, str | int] = {'inferences': self.count, 'failures': self.failures}
        for name, times in (('inference', self.model_ms), ('latency', self.latency_ms)):
            if times:
                for percent in (50, 95):
                    key = f'{name}_ms_p{percent}'
                    values[key] = f'{np.percentile(times, percent):.2f}'
        return values

    def ticks(self, command_hz: float, newest: int = 10) -> int:
        """Ticks that the slowest of the newest inferences took.

        One that takes less than half a tick takes none: its chunk is there in time for the
        command that answers its own observation, see the arbiter's slots.
        """
        times = list(self.latency_ms)[-newest:]
        return max(0, int(np.ceil(max(times, default=0.0) * command_hz / 1e3 - 0.5)))
