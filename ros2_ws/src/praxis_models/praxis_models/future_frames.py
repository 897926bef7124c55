# SPDX-License-Identifier: Apache-2.0
"""Predicted frames on topics, as the chunk that they belong to is played. Imports no rclpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from praxis_core import qos
from sensor_msgs.msg import Image

from praxis_models.model_link import Inferred
from praxis_models.model_messages import frame_message

KEPT = 4
"""Chunks whose frames are kept; more than play at one time."""


class _Film:
    def __init__(
        self, frames: Mapping[str, np.ndarray], steps: int, stamp_ns: int, policy_hz: float
    ) -> None:
        self.frames, self.steps = frames, steps
        self.stamp_ns, self.policy_hz = stamp_ns, policy_hz
        self.shown = -1


class FutureFrames:
    """Frames of the newest chunks, on ``future/ROLE/image_raw``.

    Args:
        node: Owner of publishers and timer.
        clock: Steady clock of the node's.
        frame_of: Frame of a role's camera.
    """

    def __init__(self, node: Any, clock: Any, frame_of: Callable[[str], str]) -> None:
        self._node = node
        self._clock = clock
        self._frame_of = frame_of
        self._films: dict[str, _Film] = {}
        self._publishers: dict[str, Any] = {}
        self._timer: Any = None

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

    def _publish(self, role: str, pixels: np.ndarray, stamp_ns: int) -> None:
        publisher = self._publishers.get(role)
        if publisher is None:
            topic = f'future/{role}/image_raw'
            publisher = self._node.create_publisher(Image, topic, qos.SENSOR_PUBLISH)
            self._publishers[role] = publisher
        publisher.publish(frame_message(pixels, stamp_ns, self._frame_of(role)))

    def play(self, chunk_id: str) -> None:
        """Show all of them at the model's rate, where no commands pace them."""
        self.stop()
        film = self._films.get(chunk_id)
        if film is None:
            return

        def show_next() -> None:
            if not self.show(chunk_id, film.shown + 1):
                self.stop()

        self._timer = self._node.create_timer(1.0 / film.policy_hz, show_next, clock=self._clock)
        show_next()

    def stop(self) -> None:
        """Play no further."""
        if self._timer is not None:
            self._node.destroy_timer(self._timer)
            self._timer = None

    def close(self) -> None:
        """Stop, and remove the topics."""
        self.stop()
        self._films.clear()
        while self._publishers:
            self._node.destroy_publisher(self._publishers.popitem()[1])
