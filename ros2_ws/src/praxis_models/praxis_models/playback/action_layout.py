# SPDX-License-Identifier: Apache-2.0
"""How the fields of an action may be combined: add up, interpolate, or only be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from praxis_core.contract import Contract


@dataclass(frozen=True)
class ActionLayout:
    """Kinds of the A fields of an action.

    Attributes:
        names: Fields in order.
        delta: The fields that are no gripper's are offsets, which add up over time.
        grippers: Indices of grippers, which open or close: never in between by arithmetic.
        gripper_middle: Value between open and closed.
        quaternions: Indices of the four parts of each quaternion, in any order of the parts.
    """

    names: tuple[str, ...]
    delta: bool
    grippers: tuple[int, ...] = ()
    gripper_middle: float = 0.0
    quaternions: tuple[tuple[int, ...], ...] = field(default=())

    @property
    def size(self) -> int:
        """Length A."""
        return len(self.names)

    @property
    def motions(self) -> list[int]:
        """Indices of the fields that are no gripper's."""
        return [index for index in range(self.size) if index not in self.grippers]

    def aligned(self, actions: np.ndarray) -> np.ndarray:
        """Copy with each quaternion in the hemisphere of the one in the row before.

        Args:
            actions: float64[N, A].
        """
        actions = np.array(actions, dtype=float)
        for part in self.quaternions:
            for row in range(1, len(actions)):
                if np.dot(actions[row, part], actions[row - 1, part]) < 0.0:
                    actions[row, part] *= -1.0
        return actions

    def normalised(self, actions: np.ndarray) -> np.ndarray:
        """Copy with each quaternion of norm 1; one of norm 0 stays as it is.

        Args:
            actions: float64[..., A].
        """
        actions = np.array(actions, dtype=float)
        for part in self.quaternions:
            norm = np.linalg.norm(actions[..., part], axis=-1, keepdims=True)
            actions[..., part] /= np.where(norm > 0.0, norm, 1.0)
        return actions


def layout_of(contract: Contract) -> ActionLayout:
    """Layout of a robot's actions, from its contract and the names of its fields."""
    interface = contract.interface
    names, gripper = interface.action.names, interface.gripper
    return ActionLayout(
        names=tuple(names),
        delta=interface.action_kind == 'delta',
        grippers=tuple(
            index
            for index, name in enumerate(names)
            if name == gripper.action or name.endswith('gripper')
        ),
        gripper_middle=(gripper.open + gripper.close) / 2.0,
        quaternions=tuple(_quaternions(names)),
    )


def _quaternions(names: Sequence[str]) -> list[tuple[int, ...]]:
    """Fields PREFIXqw, PREFIXqx, PREFIXqy, PREFIXqz belong together."""
    return [
        tuple(names.index(f'{prefix}q{part}') for part in 'wxyz')
        for prefix in (name[:-2] for name in names if name.endswith('qw'))
        if all(f'{prefix}q{part}' in names for part in 'xyz')
    ]
