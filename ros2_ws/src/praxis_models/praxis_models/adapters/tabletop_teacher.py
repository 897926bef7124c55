# SPDX-License-Identifier: Apache-2.0
"""A scripted teacher of the tabletop's tasks: waypoints, followed over a model of the controller.

Which stage an episode is in is judged from what is seen, not from how many steps were asked for:
a client may execute any part of a chunk, drop the cube or begin again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

TASKS = MappingProxyType(
    {
        'reach the red cube': ('above', 'down'),
        'pick up the red cube': ('above', 'down', 'close', 'lift'),
        'put the red cube in the bowl': (
            'above', 'down', 'close', 'lift', 'carry', 'lower', 'open', 'leave',
        ),
    }
)  # fmt: skip
"""Instruction -> stages."""

POSITION_STEP = 0.05
"""Goal change of a full action, m (`tabletop.osc_pose.delta.v1`)."""
ROTATION_STEP = 0.5
"""Goal change of a full action, rad."""

OPEN, CLOSE = -1.0, 1.0

_RESPONSE = 0.57  # part of a goal change that is done after one 50 ms period, as measured
_TURN_RESPONSE = 0.54
_FINGER_STEP = 0.006  # m per period
_FINGER_OPEN = 0.04
_CUBE = 0.02  # half edge, m
_BOWL = 0.05  # horizontal distance within which the cube lies in the bowl, m

_GAIN = 0.8
_CLEAR = 0.16  # height at which nothing is hit, m
_GRASP = 0.002  # of the tool centre above that of the cube, m
_RELEASE = 0.065  # above the bowl's foot, m


@dataclass(frozen=True)
class Scene:
    """What the teacher looks at; m and rad in the world frame.

    Attributes:
        eef: float64[3], tool centre.
        yaw: Of the hand.
        opening: Of each finger, 0 to 0.04.
        cube: float64[3], centre of the red cube.
        cube_yaw: Of the cube.
        bowl: float64[3], centre of the bowl's foot.
    """

    eef: np.ndarray
    yaw: float
    opening: float
    cube: np.ndarray
    cube_yaw: float
    bowl: np.ndarray

    @property
    def between(self) -> bool:
        """The cube is between the fingers, open or closed."""
        return float(np.linalg.norm(self.cube - self.eef)) < 0.03

    @property
    def held(self) -> bool:
        """The fingers are closed around the cube."""
        return self.between and 0.5 * _CUBE < self.opening < _CUBE + 0.002

    @property
    def inside(self) -> bool:
        """The cube lies in the bowl."""
        offset = self.cube - self.bowl
        return math.hypot(offset[0], offset[1]) < _BOWL and offset[2] < _RELEASE + _CUBE

    @property
    def turn(self) -> float:
        """Rotation that aligns the fingers with the nearest pair of the cube's faces."""
        return (self.cube_yaw - self.yaw + math.pi / 4) % (math.pi / 2) - math.pi / 4


def scene(state: Mapping[str, np.ndarray]) -> Scene:
    """Read a physical state with the names of `STATE`."""
    cube, bowl = state['privileged.red_cube'], state['privileged.bowl']
    return Scene(
        eef=np.asarray(state['eef_position'], np.float64),
        yaw=_yaw(state['eef_quaternion_xyzw']),
        opening=float(np.mean(np.abs(state['gripper_qpos']))),
        cube=np.asarray(cube[:3], np.float64),
        cube_yaw=_yaw(cube[3:]),
        bowl=np.asarray(bowl[:3], np.float64),
    )


STATE = MappingProxyType(
    {
        'privileged.red_cube': 7,
        'privileged.bowl': 7,
        'eef_position': 3,
        'eef_quaternion_xyzw': 4,
        'gripper_qpos': 2,
    }
)
"""Physical states that `scene` reads, and their lengths."""


def stage_of(instruction: str, stage: str, seen: Scene) -> str:
    """Stage that an episode is in.

    Args:
        instruction: Key of `TASKS`.
        stage: As of the last look, empty at the beginning.
        seen: Present scene.
    """
    stages = TASKS[instruction]
    if stage not in stages:
        stage = stages[0]
    for _ in range(2 * len(stages)):
        following = _next(stages, stage, seen)
        if following == stage:
            break
        stage = following
    return stage


def chunk(instruction: str, stage: str, seen: Scene, steps: int) -> np.ndarray:
    """Actions float32[steps, 7] from a scene on, by rolling the teacher forward.

    Args:
        instruction: Key of `TASKS`.
        stage: From `stage_of` for this scene.
        seen: Present scene.
        steps: How many.
    """
    actions = np.empty((steps, 7), np.float32)
    stages, stage = TASKS[instruction], stage_of(instruction, stage, seen)
    for index in range(steps):
        following = stage_of(instruction, stage, seen)
        # Whether the cube is held, or was lost, shows only in the next observation.
        if stage != 'close' and stages.index(following) > stages.index(stage):
            stage = following
        actions[index] = _action(stage, seen)
        seen = _after(seen, actions[index])
    return actions


def _next(stages: tuple[str, ...], stage: str, seen: Scene) -> str:
    """Give the stage itself, the one after it, or one to begin again at."""
    placing = 'carry' in stages
    if stage in ('lift', 'carry', 'lower', 'open') and not seen.held:
        if placing and seen.inside and stage != 'lift':
            return 'leave' if seen.opening > _CUBE + 0.015 else 'open'
        if stage != 'open' or seen.opening > _CUBE + 0.015:
            return 'above'
    if stage == 'leave' and not seen.inside:
        return 'above'
    if stage == 'close' and seen.opening < 0.5 * _CUBE:
        return 'above'  # closed on nothing
    if stage in ('above', 'down', 'close') and placing and seen.inside and not seen.held:
        return 'leave' if seen.opening > _CUBE + 0.015 else 'open'
    if stage == 'down' and _across(_goal('down', seen) - seen.eef) > 0.04:
        return 'above'
    if _arrived(stage, seen) and stage != stages[-1]:
        return stages[stages.index(stage) + 1]
    return stage


def _arrived(stage: str, seen: Scene) -> bool:
    error = _goal(stage, seen) - seen.eef
    if stage == 'above':
        # Lower is further on: a chunk may have gone down already.
        slack = 0.015 if error[2] > 0.03 else 0.008
        return _across(error) < slack and error[2] > -0.03 and abs(seen.turn) < 0.08
    if stage == 'down':
        # Fingers that have begun to close are not opened again for a few millimetres.
        slack = 0.012 if seen.opening < _FINGER_OPEN - 0.004 else 0.006
        return seen.held or (float(np.linalg.norm(error)) < slack and abs(seen.turn) < 0.1)
    if stage == 'close':
        return seen.held
    if stage == 'lift':
        return error[2] < 0.01 or _across(seen.bowl - seen.eef) < 0.015
    if stage == 'carry':
        return _across(error) < 0.008
    if stage == 'lower':
        return abs(error[2]) < 0.01
    return False


def _goal(stage: str, seen: Scene) -> np.ndarray:
    if stage == 'above':
        over = np.array([seen.cube[0], seen.cube[1], max(_CLEAR, seen.cube[2] + 0.06)])
        low = seen.eef[2] < over[2] - 0.03
        # First up, then across: nothing is swept off the table.
        if low and _across(over - seen.eef) > 0.015:
            return np.array([*seen.eef[:2], over[2]])
        return over
    if stage == 'down':
        return _raised(seen.cube, _GRASP)
    if stage == 'lift':
        return np.array([seen.eef[0], seen.eef[1], _CLEAR])
    if stage == 'carry' and _across(seen.bowl - seen.eef) < 0.03:
        return _raised(seen.bowl, min(seen.eef[2] - seen.bowl[2], _CLEAR))
    if stage in ('carry', 'leave'):
        return _raised(seen.bowl, _CLEAR)
    if stage == 'lower':
        return _raised(seen.bowl, _RELEASE)
    return seen.eef


def _action(stage: str, seen: Scene) -> np.ndarray:
    action = np.zeros(7)
    error = _goal(stage, seen) - seen.eef
    action[:3] = np.clip(_GAIN * error / POSITION_STEP, -1.0, 1.0)
    if stage in ('above', 'down'):
        action[5] = np.clip(_GAIN * seen.turn / ROTATION_STEP, -1.0, 1.0)
    action[6] = CLOSE if stage in ('close', 'lift', 'carry', 'lower') else OPEN
    return action


def _after(seen: Scene, action: np.ndarray) -> Scene:
    """Scene one period later: the hand follows its goal, the fingers move, the cube sticks."""
    eef = seen.eef + _RESPONSE * POSITION_STEP * action[:3].astype(np.float64)
    yaw = seen.yaw + _TURN_RESPONSE * ROTATION_STEP * float(action[5])
    opening = seen.opening - _FINGER_STEP * math.copysign(1.0, action[6])
    opening = min(max(opening, _CUBE if seen.between else 0.0), _FINGER_OPEN)
    cube, cube_yaw = seen.cube, seen.cube_yaw
    if seen.held:
        cube, cube_yaw = cube + (eef - seen.eef), cube_yaw + (yaw - seen.yaw)
    else:
        cube = np.array([cube[0], cube[1], min(cube[2], _CUBE)])
    return replace(seen, eef=eef, yaw=yaw, opening=opening, cube=cube, cube_yaw=cube_yaw)


def _raised(position: np.ndarray, height: float) -> np.ndarray:
    return position + np.array([0.0, 0.0, height])


def _across(offset: np.ndarray) -> float:
    return math.hypot(offset[0], offset[1])


def _yaw(quaternion: np.ndarray) -> float:
    x, y, z, w = (float(part) for part in quaternion)
    return math.atan2(2 * (x * y + z * w), 1 - 2 * (y * y + z * z))
