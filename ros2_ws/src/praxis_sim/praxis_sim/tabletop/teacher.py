# SPDX-License-Identifier: Apache-2.0
"""Scripted teacher for end-effector control, from ground truth; solves every tabletop task."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from praxis_sim.platform import Observation, Pose
from praxis_sim.tabletop import control, scene

_OPEN, _CLOSE = -1.0, 1.0
_CLEAR = 0.16
_ARRIVED = 0.006


class Teacher:
    """A waypoint follower; one per episode.

    Args:
        task_id: ``tabletop/reach``, ``tabletop/pick`` or ``tabletop/place``.
    """

    def __init__(self, task_id: str) -> None:
        stages = {
            'tabletop/reach': ('above', 'down'),
            'tabletop/pick': ('above', 'down', 'close', 'lift'),
            'tabletop/place': (
                'above',
                'down',
                'close',
                'lift',
                'carry',
                'lower',
                'open',
                'leave',
            ),
        }
        self._stages = list(stages[task_id])
        self._waited = 0
        self._lift_from: np.ndarray | None = None

    def action(self, observation: Observation, objects: Mapping[str, Pose]) -> np.ndarray:
        """Next action float64[7] of `praxis_sim.tabletop.control.EndEffectorControl`.

        Args:
            observation: Present one.
            objects: Ground truth, from `Platform.privileged`.
        """
        eef = next(iter(observation.eef.values()))
        cube, bowl = objects['red_cube'], objects['bowl']
        stage = self._stages[0]
        goal, gripper, wait = self._waypoint(stage, eef, cube, bowl)
        error = goal - eef.position
        turn = 0.0 if stage not in ('above', 'down') else _turn(eef, cube)
        self._waited += 1
        arrived = np.linalg.norm(error) < _ARRIVED and abs(turn) < 0.05
        if arrived and self._waited > wait and len(self._stages) > 1:
            self._stages.pop(0)
            self._waited = 0
            self._lift_from = eef.position.copy()
        action = np.zeros(7)
        action[:3] = np.clip(0.5 * error / control.POSITION_STEP, -1, 1)
        action[5] = np.clip(0.4 * turn / control.ROTATION_STEP, -1, 1)
        action[6] = gripper
        return action

    def _waypoint(self, stage, eef, cube, bowl) -> tuple[np.ndarray, float, int]:
        start = self._lift_from if self._lift_from is not None else eef.position
        if stage == 'above':
            return _raised(cube, _CLEAR - scene.CUBE), _OPEN, 0
        if stage == 'down':
            return _raised(cube, 0.002), _OPEN, 0
        if stage == 'close':
            return start, _CLOSE, 10
        if stage == 'lift':
            return np.array([start[0], start[1], _CLEAR]), _CLOSE, 0
        over = _raised(bowl, _CLEAR)
        if stage == 'carry':
            return over, _CLOSE, 0
        if stage == 'lower':
            return _raised(bowl, 0.065), _CLOSE, 0
        if stage == 'open':
            return start, _OPEN, 10
        return over, _OPEN, 0


def _turn(eef: Pose, cube: Pose) -> float:
    """Yaw that aligns the fingers with the nearest pair of faces, rad."""
    difference = _yaw(cube.quaternion) - _yaw(eef.quaternion)
    return float((difference + np.pi / 4) % (np.pi / 2) - np.pi / 4)


def _yaw(quaternion: np.ndarray) -> float:
    x, y, z, w = quaternion
    return float(np.arctan2(2 * (x * y + z * w), 1 - 2 * (y * y + z * z)))


def _raised(pose: Pose, height: float) -> np.ndarray:
    return pose.position + np.array([0.0, 0.0, height])
