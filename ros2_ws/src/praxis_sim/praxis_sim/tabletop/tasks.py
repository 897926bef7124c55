# SPDX-License-Identifier: Apache-2.0
"""Tasks of the tabletop: where things lie, and when a task is done."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from praxis_sim.platform import PlatformError, Task
from praxis_sim.tabletop import scene

TASKS = (
    Task('tabletop/reach', 'tabletop', 'reach the red cube', 0, 200),
    Task('tabletop/pick', 'tabletop', 'pick up the red cube', 0, 300),
    Task('tabletop/place', 'tabletop', 'put the red cube in the bowl', 0, 400),
)

WORKSPACE = ((0.36, 0.60), (-0.22, 0.22))
"""x and y ranges in which objects start, m."""

REACH_DISTANCE = 0.04
LIFT_HEIGHT = 0.06
_GAP = 0.035
_HOLD_STEPS = 5


@dataclass(frozen=True)
class Layout:
    """Initial condition of an episode.

    Attributes:
        poses: (x, y, yaw) of each item, m and rad.
        colours: Colour name of each cube, by body name.
        arm_noise: float64[7] added to the home pose, rad.
    """

    poses: Mapping[str, tuple[float, float, float]]
    colours: Mapping[str, str]
    arm_noise: np.ndarray


def find(task_id: str) -> Task:
    """Look a task up; raises `PlatformError` that names the known ones."""
    for task in TASKS:
        if task.task_id == task_id:
            return task
    known = ', '.join(task.task_id for task in TASKS)
    raise PlatformError(f'unknown task {task_id!r}; tabletop has {known}')


def layout(task_id: str, seed: int, fixed: Mapping[str, tuple[float, float, float]]) -> Layout:
    """Draw an initial condition.

    Args:
        task_id: Of the task; each has its own stream of random numbers.
        seed: Non-negative.
        fixed: (x, y, yaw) of items whose place is given.
    """
    rng = np.random.default_rng([seed, zlib.crc32(task_id.encode())])
    poses = dict(fixed)
    # The bowl first: it needs most room.
    for item in sorted(scene.ITEMS, key=lambda item: -item.radius):
        yaw = float(rng.uniform(-np.pi / 4, np.pi / 4))
        for _ in range(2000):
            x, y = (float(rng.uniform(*span)) for span in WORKSPACE)
            if item.name in poses:
                break
            if all(
                np.hypot(x - poses[other.name][0], y - poses[other.name][1])
                > item.radius + other.radius + _GAP
                for other in scene.ITEMS
                if other.name in poses
            ):
                poses[item.name] = (x, y, yaw)
                break
        else:
            raise PlatformError(f'no room left for {item.name} with the poses asked for')
    others = [colour for colour in scene.COLOURS if colour != 'red']
    first, second = rng.choice(len(others), 2, replace=False)
    colours = {'red_cube': 'red', 'cube_1': others[first], 'cube_2': others[second]}
    return Layout(poses, colours, rng.uniform(-0.02, 0.02, 7))


class Verdict:
    """Success of the episode in progress, from geometry and contact; latched.

    Args:
        task_id: Of the task.
        model: Compiled scene.
        data: Its state.
    """

    def __init__(self, task_id: str, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self._model, self._data = model, data
        self._check: Callable[[], tuple[bool, float]] = {
            'tabletop/reach': self._reach,
            'tabletop/pick': self._pick,
            'tabletop/place': self._place,
        }[task_id]
        self._tcp = model.site('tcp').id
        self._cube = model.body('red_cube').id
        self._bowl = model.body('bowl').id
        self._fingers = [model.body(name).id for name in ('finger_left', 'finger_right')]
        self._start = self._distance()
        self._height = float(data.xpos[self._cube][2])
        self._run = 0
        self.success = False
        self.progress = 0.0

    def update(self) -> None:
        """Judge the present state; once per control period."""
        reached, progress = self._check()
        self._run = self._run + 1 if reached else 0
        self.success = self.success or self._run >= _HOLD_STEPS
        self.progress = 1.0 if self.success else float(np.clip(progress, 0.0, 1.0))

    def digest(self) -> bytes:
        """Bytes of the latches."""
        return bytes([self.success, self._run & 0xFF])

    def _distance(self) -> float:
        return float(np.linalg.norm(self._data.site_xpos[self._tcp] - self._data.xpos[self._cube]))

    def _reach(self) -> tuple[bool, float]:
        distance = self._distance()
        span = max(self._start - REACH_DISTANCE, 1e-6)
        return distance < REACH_DISTANCE, 1 - (distance - REACH_DISTANCE) / span

    def _lift(self) -> float:
        return float(self._data.xpos[self._cube][2]) - self._height

    def _pick(self) -> tuple[bool, float]:
        grasped = all(self._touching(self._cube, finger) for finger in self._fingers)
        lift = self._lift()
        near = 1 - min(self._distance() / max(self._start, 1e-6), 1)
        progress = (
            0.4 * near + 0.2 * grasped + (0.4 * max(lift, 0) / LIFT_HEIGHT if grasped else 0)
        )
        return grasped and lift > LIFT_HEIGHT, progress

    def _place(self) -> tuple[bool, float]:
        cube, bowl = self._data.xpos[self._cube], self._data.xpos[self._bowl]
        upright = float(self._data.xmat[self._bowl][8]) > 0.9
        offset = float(np.hypot(*(cube - bowl)[:2]))
        inside = offset < scene.BOWL_RADIUS - 0.015 and 0 < cube[2] - bowl[2] < scene.BOWL_HEIGHT
        free = not any(self._touching(self._cube, finger) for finger in self._fingers)
        rests = self._touching(self._cube, self._bowl)
        _, picked = self._pick()
        progress = 0.5 * picked + 0.5 * max(0.0, 1 - offset / 0.3) * (self._lift() > 0.01)
        return inside and free and rests and upright, progress

    def _touching(self, first: int, second: int) -> bool:
        contacts = self._data.contact
        if not len(contacts.geom1):
            return False
        one = self._model.geom_bodyid[contacts.geom1]
        two = self._model.geom_bodyid[contacts.geom2]
        return bool(
            np.any(((one == first) & (two == second)) | ((one == second) & (two == first)))
        )
