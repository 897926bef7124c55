# SPDX-License-Identifier: Apache-2.0
"""What a perception back end must offer. Imports no rclpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from praxis_perception.instances import Instance
from praxis_perception.projection import Camera


class PerceptionError(RuntimeError):
    """A view that cannot be had; carries the error code of the result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class View:
    """One camera at one observation.

    Attributes:
        observation_seq: Observation it shows.
        frame_id: Frame of the camera's pose and of back-projected points.
        camera: Model at the size of the arrays.
        depth: float32[H, W], m, or None.
        segmentation: uint16[H, W], or None.
        labels: Category of each segment.
    """

    observation_seq: int
    frame_id: str
    camera: Camera
    depth: np.ndarray | None = None
    segmentation: np.ndarray | None = None
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Finding:
    """Objects found in an image.

    Attributes:
        instances: Best first.
        reason: Why there is none, empty otherwise.
        observation_seq: Observation it was found in.
        known_labels: What could have been found, empty where the back end cannot tell.
    """

    instances: Sequence[Instance]
    reason: str
    observation_seq: int
    known_labels: Sequence[str] = ()


class Backend(Protocol):
    """A source of segmentation and depth, chosen by the parameter ``backend``."""

    name: str
    """Appears in every output, so that no one takes an oracle for a detector."""

    async def find(
        self,
        camera: str,
        width: int,
        height: int,
        *,
        prompt: str,
        point: tuple[int, int] | None,
        min_score: float,
    ) -> Finding:
        """Find objects by words or by a point; exactly one of the two is given."""

    async def depth(self, camera: str, width: int, height: int) -> View:
        """Metric depth of a camera."""
