# SPDX-License-Identifier: Apache-2.0
"""Predicted frames, shown as the chunk that they belong to is played. Imports no rclpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from praxis_models.model_link import Inferred

KEPT = 4
"""Chunks whose frames are kept; more than play at one time."""

Publish = Callable[[str, np.ndarray, int], None]


class _Film:
    def __init__(
        self, frames: Mapping[str, np.ndarray], steps: int, stamp_ns: int, policy_hz: float
    ) -> None:
        self.frames, self.steps = frames, steps
        self.stamp_ns, self.policy_hz = stamp_ns, policy_hz
        self.shown = -1


class FutureFrames:
    """Frames of the newest chunks.

    Args:
        publish: Called with role, uint8[H, W, 3] and the stamp in ns that it is predicted for.
    """

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._films: dict[str, _Film] = {}

    def add(self, chunk_id: str, inferred: Inferred, policy_hz: float) -> bool:
        """Keep the frames of a chunk; False where it has none."""
        frames = inferred.prediction.future_observation
        if not frames:
            return False
        film = _Film(frames, len(inferred.actions), inferred.snapshot.stamp_ns, policy_hz)
        self._films[chunk_id] = film
        while len(self._films) > KEPT:
            del self._films[next(iter(self._films))]
        return True

    def show(self, chunk_id: str, step: int) -> bool:
        """Publish the frames of a step, unless they are shown already.

        The first step shows the first frame, the last step the last, however many there are.

        Returns:
            Whether there are later steps.
        """
        film = self._films.get(chunk_id)
        if film is None or step >= film.steps:
            return False
        if step > film.shown:
            film.shown = step
            stamp_ns = film.stamp_ns + round(step * 1e9 / film.policy_hz)
            share = step / max(1, film.steps - 1)
            for role, frames in film.frames.items():
                self._publish(role, frames[round(share * (len(frames) - 1))], stamp_ns)
        return step + 1 < film.steps
