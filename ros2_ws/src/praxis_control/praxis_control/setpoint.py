# SPDX-License-Identifier: Apache-2.0
"""What a hold commands: no motion, or the setpoint at entry. Imports no rclpy."""

from __future__ import annotations

import numpy as np

from praxis_control.gate import ControlSpec


class Setpoint:
    """Last executed values and the hold that follows from them.

    In delta spaces a hold is zero with the last gripper value. In absolute spaces it is the last
    setpoint; before the first command and after a reset it is the measured state of the same
    names. The gripper counts as open until something was commanded.
    """

    def __init__(self, spec: ControlSpec) -> None:
        self._spec = spec
        self._last: np.ndarray | None = None
        self._state_index = _state_indices(spec)

    @property
    def last(self) -> np.ndarray | None:
        """float64[A] executed last, None before the first."""
        return self._last

    def executed(self, values: np.ndarray) -> None:
        """Remember what was executed, float64[A]."""
        self._last = values

    def adopt(self, state: np.ndarray, *, keep_gripper: bool) -> None:
        """Take the measured state as the setpoint.

        Args:
            state: float64[S] in contract order.
            keep_gripper: False after a reset, where the gripper is open.
        """
        spec = self._spec
        if spec.delta:
            values = np.zeros(len(spec.action_names))
        elif self._state_index is None:
            self._last = None
            return
        else:
            values = np.asarray(state, dtype=np.float64)[self._state_index].copy()
        if spec.gripper_index is not None:
            kept = keep_gripper and self._last is not None
            values[spec.gripper_index] = (
                self._last[spec.gripper_index] if kept else spec.gripper_open
            )
        self._last = values

    def hold(self) -> np.ndarray | None:
        """float64[A] that holds; None where an absolute setpoint is not known yet."""
        spec = self._spec
        if self._last is None:
            return None
        if not spec.delta:
            return self._last
        values = np.zeros(len(spec.action_names))
        if spec.gripper_index is not None:
            values[spec.gripper_index] = self._last[spec.gripper_index]
        return values


def _state_indices(spec: ControlSpec) -> np.ndarray | None:
    """Index of each action's state; 0 stands in for the gripper. None if one has no state."""
    names = list(spec.state_names)
    found = []
    for index, name in enumerate(spec.action_names):
        if index == spec.gripper_index:
            found.append(0)
        elif name in names:
            found.append(names.index(name))
        else:
            return None
    return np.asarray(found, dtype=np.intp)
