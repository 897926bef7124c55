# SPDX-License-Identifier: Apache-2.0
"""What the tools act on: a robot and its perception. Imports no rclpy.

There is deliberately no way here to learn whether the task has succeeded, nor any ground truth
of the scene: both stay on topics that no tool reads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


class RobotError(RuntimeError):
    """A call that could not be carried out; carries the error code of the result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class CancelledError(RuntimeError):
    """The run was cancelled while a call was under way."""


class CancelToken:
    """Tells calls on other threads that the run is over."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason = ''

    def cancel(self, reason: str) -> None:
        """Ask for the end; the first reason counts."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    @property
    def cancelled(self) -> bool:
        """The end has been asked for."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise once cancelled.

        Raises:
            CancelledError: With the reason.
        """
        if self._event.is_set():
            raise CancelledError(self.reason)

    def wait(self, timeout: float) -> bool:
        """Sleep until cancelled or for ``timeout`` s; True if cancelled."""
        return self._event.wait(timeout)


@dataclass(frozen=True)
class RobotState:
    """Newest observation of the robot.

    Attributes:
        observation_seq: Its number.
        episode_uuid: Episode it belongs to.
        position: float64[3], end effector, m, base frame.
        yaw: rad, atan2(R10, R00).
        pitch: rad, atan2(R12, -R22).
        gripper_opening: m.
        joints: rad or m by joint name.
        cameras: Contract names of the cameras.
        images: uint8[H, W, 3] RGB by camera, where one has arrived.
    """

    observation_seq: int
    episode_uuid: str
    position: np.ndarray
    yaw: float
    pitch: float
    gripper_opening: float
    joints: Mapping[str, float] = field(default_factory=dict)
    cameras: Sequence[str] = ()
    images: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Motion:
    """Result of one primitive.

    Attributes:
        error_code: 0 where it ended as defined.
        error_msg: Particulars.
        termination_reason: reached, max_steps, cancelled, lease_lost, ...
        reached: Within the tolerances.
        steps: Control periods used.
        position: float64[3], m.
        error: m, or rad for rotations.
        gripper_opening: m.
    """

    error_code: int
    error_msg: str
    termination_reason: str
    reached: bool
    steps: int
    position: np.ndarray
    error: float
    gripper_opening: float


@dataclass(frozen=True)
class Segment:
    """One object in an image.

    Attributes:
        label: Category.
        score: 0 to 1.
        box: row_min, col_min, row_max, col_max, pixels, maxima exclusive.
        centroid: Row, column, pixels.
        area: Pixels.
        mask: bool[H, W].
    """

    label: str
    score: float
    box: tuple[int, int, int, int]
    centroid: tuple[float, float]
    area: int
    mask: np.ndarray


@dataclass(frozen=True)
class Segmentation:
    """Objects found in an image; ``reason`` says why there is none."""

    backend: str
    observation_seq: int
    segments: Sequence[Segment]
    reason: str = ''
    known_labels: Sequence[str] = ()


@dataclass(frozen=True)
class Points:
    """Back-projected pixels.

    Attributes:
        backend: Source of the depth.
        observation_seq: Observation.
        frame_id: Frame of the points.
        points: float64[N, 3], m, NaN where depth is unknown.
        valid: Points that count.
        centroid: float64[3], median, m.
        minimum: float64[3], 2nd percentile, m.
        maximum: float64[3], 98th percentile, m.
    """

    backend: str
    observation_seq: int
    frame_id: str
    points: np.ndarray
    valid: int
    centroid: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray


@dataclass(frozen=True)
class CameraMeta:
    """Camera calibration at one observation.

    Attributes:
        width: Pixels.
        height: Pixels.
        intrinsics: float64[3, 3], pixels.
        frame_id: Optical frame.
        cam_to_world: float64[4, 4], optical frame in the world, or None where TF lacks it.
    """

    width: int
    height: int
    intrinsics: np.ndarray
    frame_id: str
    cam_to_world: np.ndarray | None


class Robot(Protocol):
    """Calls block, on worker threads; they raise `RobotError` and `CancelledError`."""

    def state(self) -> RobotState:
        """Newest observation."""

    def move(self, primitive: str, goal: Mapping[str, Any], cancel: CancelToken) -> Motion:
        """Carry out one primitive with the fields of its action goal."""

    def segment(
        self,
        camera: str,
        prompt: str,
        point: tuple[int, int] | None,
        size: int,
        min_score: float,
        cancel: CancelToken,
    ) -> Segmentation:
        """Find objects; ``size`` is the image's height in pixels, 0 for the contract's."""

    def back_project(
        self,
        camera: str,
        size: int,
        pixels: np.ndarray,
        z_min: float,
        z_max: float,
        cancel: CancelToken,
    ) -> Points:
        """Points of pixels int[N, 2] (row, column)."""

    def camera_meta(self, camera: str) -> CameraMeta:
        """Calibration of a camera."""
