# SPDX-License-Identifier: Apache-2.0
"""Safety gate: what values must satisfy, and how they are limited. Imports no rclpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from praxis_control.modes import Reason

_TOLERANCE = 1e-9


class Refusal(NamedTuple):
    """Why something is refused, with the values concerned."""

    reason: Reason
    text: str


@dataclass(frozen=True)
class ControlSpec:
    """What the arbiter needs to know of a contract.

    Attributes:
        interface_hash: SHA-256 (hex) of the contract's interface part.
        action_space: Versioned name.
        delta: True: zero is no motion; False: values are setpoints.
        action_names: A names.
        state_names: S names.
        minimum: float64[A], -inf where unlimited.
        maximum: float64[A], inf where unlimited.
        max_step: float64[A], largest change per tick, inf where unlimited.
        max_rate: float64[A], largest motion per tick that a velocity limit allows, inf where none.
        gripper_index: Index of the gripper in the action, None if there is none.
        gripper_open: Value that opens it.
        command_hz: Commands per s.
        max_state_age: s.
        max_request_age: s.
        camera_max_age: s by camera name.
    """

    interface_hash: str
    action_space: str
    delta: bool
    action_names: Sequence[str]
    state_names: Sequence[str]
    minimum: np.ndarray
    maximum: np.ndarray
    max_step: np.ndarray
    max_rate: np.ndarray
    gripper_index: int | None
    gripper_open: float
    command_hz: float
    max_state_age: float
    max_request_age: float
    camera_max_age: Mapping[str, float]

    @classmethod
    def from_contract(cls, contract: Any) -> ControlSpec:
        """Read the limits, ages and conventions of a `praxis_core.contract.Contract`."""
        interface, deployment = contract.interface, contract.deployment
        names = list(interface.action.names)
        command_hz = float(deployment.command_hz)

        def column(key: str, absent: float) -> np.ndarray:
            found = []
            for name in names:
                limit = deployment.limits.get(name)
                value = getattr(limit, key, None)
                found.append(absent if value is None else float(value))
            return np.asarray(found, dtype=np.float64)

        gripper = interface.gripper
        return cls(
            interface_hash=contract.interface_hash,
            action_space=interface.action_space,
            delta=interface.action_kind == 'delta',
            action_names=names,
            state_names=list(interface.state.names),
            minimum=column('min', -np.inf),
            maximum=column('max', np.inf),
            max_step=column('max_step', np.inf),
            max_rate=column('max_velocity', np.inf) / command_hz,
            gripper_index=contract.gripper_index,
            gripper_open=float(gripper.open) if gripper is not None else 0.0,
            command_hz=command_hz,
            max_state_age=float(deployment.max_age.state),
            max_request_age=float(deployment.max_age.request),
            camera_max_age={name: float(c.max_age) for name, c in deployment.cameras.items()},
        )


class Gate:
    """Checks and limits values against a spec."""

    def __init__(self, spec: ControlSpec) -> None:
        self._spec = spec
        self._finite_min = np.nan_to_num(spec.minimum, neginf=-np.finfo(np.float64).max)
        self._finite_max = np.nan_to_num(spec.maximum, posinf=np.finfo(np.float64).max)

    def check(self, values: np.ndarray, interface_hash: str, action_space: str) -> Refusal | None:
        """Say why values may not be executed; None where they may.

        Args:
            values: float64[N].
            interface_hash: As the request states it.
            action_space: As the request states it.
        """
        spec = self._spec
        if interface_hash != spec.interface_hash:
            return Refusal(
                Reason.WRONG_HASH,
                f'interface hash {_short(interface_hash)}, the robot has '
                f'{_short(spec.interface_hash)}',
            )
        if action_space != spec.action_space:
            return Refusal(
                Reason.WRONG_ACTION_SPACE,
                f'action space {action_space!r}, the robot executes {spec.action_space!r}',
            )
        if values.shape != spec.minimum.shape:
            return Refusal(
                Reason.WRONG_SHAPE,
                f'{values.size} values, the contract has {len(spec.action_names)}',
            )
        if not np.isfinite(values).all():
            index = int(np.flatnonzero(~np.isfinite(values))[0])
            return Refusal(Reason.NON_FINITE, f'{spec.action_names[index]} is {values[index]}')
        outside = (values < self._finite_min - _TOLERANCE) | (
            values > self._finite_max + _TOLERANCE
        )
        if outside.any():
            index = int(np.flatnonzero(outside)[0])
            return Refusal(
                Reason.SOFT_LIMIT,
                f'{spec.action_names[index]} is {values[index]:.6g}, allowed '
                f'{spec.minimum[index]:.6g} to {spec.maximum[index]:.6g}',
            )
        return None

    def limit(self, values: np.ndarray, last: np.ndarray | None) -> tuple[np.ndarray, bool]:
        """Limit the change from the last executed command, and the velocity.

        Args:
            values: float64[A], checked.
            last: float64[A] executed before, None if there is none.

        Returns:
            float64[A] to execute, and whether it differs from `values`.
        """
        spec = self._spec
        limited = values
        if last is not None:
            step = spec.max_step if spec.delta else np.minimum(spec.max_step, spec.max_rate)
            limited = np.clip(limited, last - step, last + step)
        if spec.delta:
            limited = np.clip(limited, -spec.max_rate, spec.max_rate)
        clamped = bool((np.abs(limited - values) > _TOLERANCE).any())
        return (limited if clamped else values), clamped


def _short(digest: str) -> str:
    return f'{digest[:12]}…' if len(digest) > 12 else repr(digest)
