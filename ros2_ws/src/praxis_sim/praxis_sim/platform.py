# SPDX-License-Identifier: Apache-2.0
"""What a simulator must offer to be a Praxis platform. Imports no rclpy.

A platform is a class named by an entry point of the group ``praxis_sim.platforms``. It is created,
stepped, rendered and closed on one thread. The simulator node owns time, topics and lockstep; a
platform owns physics, scene and task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

ENTRY_POINTS = 'praxis_sim.platforms'
"""Group of the entry points that declare platforms."""


class PlatformError(RuntimeError):
    """A request that the platform cannot carry out; the message names what and why."""


@dataclass(frozen=True)
class Task:
    """One task of a platform.

    Attributes:
        task_id: Unique, for example ``libero_spatial/0`` or ``tabletop/reach``.
        suite: Group it belongs to.
        instruction: The task in words.
        init_states: Number of stored initial states, 0 where the seed alone decides.
        max_steps: Control periods before truncation.
    """

    task_id: str
    suite: str
    instruction: str
    init_states: int
    max_steps: int


@dataclass(frozen=True)
class Pose:
    """Position in m and quaternion x y z w."""

    position: np.ndarray
    quaternion: np.ndarray


@dataclass(frozen=True)
class Observation:
    """State of robot and task after a reset or a step; images are rendered on request.

    Attributes:
        state: float64[S] in contract order.
        joint_names: Names of all robot joints, fingers included.
        joint_positions: float64[J], rad or m.
        joint_velocities: float64[J], rad/s or m/s.
        eef: Pose of each arm's end effector in the world, by arm name.
        reward: Of the last step.
        success: The platform's own check, latched within an episode.
        terminated: The task ended by itself.
        progress: 0 to 1, NaN where the task defines none.
    """

    state: np.ndarray
    joint_names: Sequence[str]
    joint_positions: np.ndarray
    joint_velocities: np.ndarray
    eef: Mapping[str, Pose]
    reward: float = 0.0
    success: bool = False
    terminated: bool = False
    progress: float = float('nan')


@dataclass(frozen=True)
class CameraModel:
    """Intrinsics and pose of one camera at one size.

    Attributes:
        width: Pixels.
        height: Pixels.
        intrinsics: float64[3, 3], pixels.
        pose: Optical frame (z forward, x right, y down) in the world.
        parent: Frame the camera is fixed to: ``world`` or a robot link.
    """

    width: int
    height: int
    intrinsics: np.ndarray
    pose: Pose
    parent: str = 'world'


@dataclass(frozen=True)
class Rendering:
    """One rendered view; arrays are C-contiguous, row 0 at the top.

    Attributes:
        camera: Model at the rendered size.
        rgb: uint8[H, W, 3] or None.
        depth: float32[H, W], m along the optical axis, NaN where nothing is hit, or None.
        segmentation: uint16[H, W], 0 background, i + 1 for ``labels[i]``, or None.
        labels: Category name of each segment.
    """

    camera: CameraModel
    rgb: np.ndarray | None = None
    depth: np.ndarray | None = None
    segmentation: np.ndarray | None = None
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Marker:
    """A scene object for rviz: a primitive at a pose.

    Attributes:
        name: Unique within the scene.
        shape: ``box``, ``sphere`` or ``cylinder``.
        pose: In the world.
        size: Full extents in m.
        rgba: 0 to 1.
    """

    name: str
    shape: str
    pose: Pose
    size: Sequence[float]
    rgba: Sequence[float]


@dataclass(frozen=True)
class PlatformOptions:
    """What a platform is created with.

    Attributes:
        contract: ``praxis_core.contract.Contract`` of the robot.
        render_quality: ``reference`` (as the benchmark renders) or ``fast`` (shadows, reflections
            and multisampling off).
        extra: Platform's own options, as in its parameter file.
    """

    contract: Any
    render_quality: str = 'fast'
    extra: Mapping[str, Any] = field(default_factory=dict)


class Platform(Protocol):
    """A simulator behind the simulator node. Every method is called on one thread."""

    control_period: float
    """Seconds of simulated time that one step advances."""

    def __init__(self, options: PlatformOptions) -> None: ...

    def tasks(self) -> Sequence[Task]:
        """List every task, without building any scene."""

    def reset(
        self, task_id: str, seed: int, init_state: int, options: Mapping[str, Any]
    ) -> Observation:
        """Build the scene of a task and settle it.

        Args:
            task_id: As listed by `tasks`.
            seed: Decides everything random of the episode.
            init_state: Stored initial state, or -1 to let the seed choose.
            options: Platform's own, from the request's JSON.

        Raises:
            PlatformError: Unknown task, init state or option.
        """

    def step(self, action: np.ndarray) -> Observation:
        """Advance one control period with an action float64[A] in contract order."""

    def render(
        self,
        camera: str,
        width: int,
        height: int,
        *,
        rgb: bool = True,
        depth: bool = False,
        segmentation: bool = False,
    ) -> Rendering:
        """Render one camera of the contract at the present state."""

    def camera_model(self, camera: str, width: int, height: int) -> CameraModel:
        """Intrinsics and present pose of a camera, without rendering."""

    def link_poses(self) -> Mapping[str, Pose]:
        """World poses of the robot's links, for TF."""

    def robot_description(self) -> str:
        """URDF of the robot, empty where there is none."""

    def markers(self) -> Sequence[Marker]:
        """Scene objects for rviz."""

    def privileged(self) -> Mapping[str, Pose]:
        """Ground-truth poses of the scene's objects, for the scripted teacher only."""

    def hold_action(self) -> np.ndarray:
        """Action that keeps the robot where it is, in contract order."""

    def state_digest(self) -> bytes:
        """Bytes of the full physics state, for the test of repeatability."""

    def close(self) -> None:
        """Free the renderer and the scene."""
