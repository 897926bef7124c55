# SPDX-License-Identifier: Apache-2.0
"""Where each sensor and state that a model asks for comes from. Imports no rclpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from praxis_core.contract import Contract
from praxis_core.exchange_error import ExchangeError
from praxis_core.model_meta import ModelMeta

from praxis_models.rotations import axis_angle_to_quaternion

PRIVILEGED = 'privileged.'


class StaleError(Exception):
    """An observation lacks something, or something fresh; names the stream."""


class Stream(NamedTuple):
    """A topic: ``state``, ``joints``, ``privileged``, or a named ``camera`` or ``pose``."""

    kind: str
    name: str = ''

    def __str__(self) -> str:
        words = {'joints': 'joint_states', 'privileged': 'privileged_state'}
        return f'{words.get(self.kind, self.kind)} {self.name}'.strip()


Messages = Mapping[Stream, Any]
Reader = Callable[[Messages], Sequence[float] | np.ndarray]

STATE, JOINTS, PRIVILEGED_STATE = Stream('state'), Stream('joints'), Stream('privileged')


class _Source(NamedTuple):
    read: Reader
    size: int
    stream: Stream


@dataclass(frozen=True)
class ObservationPlan:
    """What to subscribe to, and how to read it.

    Attributes:
        cameras: Role -> contract name of the camera.
        states: Name of a physical state -> how to read it.
        streams: Every stream that is needed besides the state.
    """

    cameras: Mapping[str, str]
    states: Mapping[str, Reader]
    streams: tuple[Stream, ...]

    @property
    def wanted(self) -> tuple[frozenset[tuple[str, str]], tuple[str, ...]]:
        """What is to be seen, which for one robot says also how it is read."""
        return frozenset(self.cameras.items()), tuple(self.states)


def plan_observation(meta: ModelMeta, contract: Contract) -> ObservationPlan:
    """Plan what a model asks for.

    Raises:
        ExchangeError: The robot lacks a camera's role, or a state in the length that is asked for.
    """
    cameras = {role: _camera(role, contract) for role in meta.camera_roles}
    states: dict[str, Reader] = {}
    streams = [Stream('camera', camera) for camera in cameras.values()]
    for name, size in meta.state_schema.items():
        source = _state(name, contract)
        if source is None:
            known = ', '.join(_known_states(contract))
            raise ExchangeError(f'state_schema.{name}', f'one of {known}', f'{name!r}')
        if source.size != size:
            expected = f'{source.size} values, as {contract.name} has'
            raise ExchangeError(f'state_schema.{name}', expected, str(size))
        states[name] = source.read
        if source.stream != STATE and source.stream not in streams:
            streams.append(source.stream)
    return ObservationPlan(cameras, states, tuple(streams))


def _camera(role: str, contract: Contract) -> str:
    cameras = contract.interface.cameras
    for name, shape in cameras.items():
        if shape.role == role:
            return name
    roles = ', '.join(sorted(shape.role for shape in cameras.values())) or 'none'
    raise ExchangeError('camera_roles', f'roles of {contract.name}: {roles}', f'{role!r}')


def _known_states(contract: Contract) -> list[str]:
    arms = contract.deployment.arms
    fixed = ('state', 'eef_position', 'eef_quaternion_xyzw', 'gripper_qpos', 'gripper_qvel')
    joints = ('joint_positions', 'joint_velocities')
    names = [name for name in (*fixed, *joints) if _state(name, contract) is not None]
    return [*names, *(f'{arm}_eef_pose' for arm in arms), *contract.interface.state.names]


def _state(name: str, contract: Contract) -> _Source | None:
    """Source of a physical state; the state vector before any other topic."""
    names = contract.interface.state.names
    if name == 'state':
        return _Source(_whole_state, len(names), STATE)
    if name.startswith(PRIVILEGED):
        return _Source(_privileged_pose(name.removeprefix(PRIVILEGED)), 7, PRIVILEGED_STATE)
    special = _SPECIAL.get(name)
    if special is not None:
        source = special(contract)
        if source is not None:
            return source
    return _numbered(name, names) or _arm_pose(name, contract)


def _numbered(name: str, names: Sequence[str]) -> _Source | None:
    """A state NAME of one value, or NAME_0, NAME_1, ... of several."""
    if name in names:
        return _picked([name], names)
    parts = [f'{name}_{index}' for index in range(len(names))]
    return _picked([part for part in parts if part in names], names)


def _picked(wanted: Sequence[str], names: Sequence[str]) -> _Source | None:
    """Named values of the state vector, None if it lacks one."""
    if not wanted or any(name not in names for name in wanted):
        return None
    indices = [names.index(name) for name in wanted]

    def read(messages: Messages) -> np.ndarray:
        return _whole_state(messages)[indices]

    return _Source(read, len(indices), STATE)


def _whole_state(messages: Messages) -> np.ndarray:
    return np.asarray(messages[STATE].values, dtype=float)


# What is asked for by a name of its own


def _eef_position(contract: Contract) -> _Source | None:
    names = contract.interface.state.names
    return _picked(['eef_x', 'eef_y', 'eef_z'], names) or _of_only_arm(contract, slice(0, 3), 3)


def _eef_quaternion(contract: Contract) -> _Source | None:
    source = _picked(['eef_ax', 'eef_ay', 'eef_az'], contract.interface.state.names)
    if source is None:
        return _of_only_arm(contract, slice(3, 7), 4)
    return _Source(lambda messages: axis_angle_to_quaternion(source.read(messages)), 4, STATE)


def _gripper_positions(contract: Contract) -> _Source | None:
    names = contract.interface.state.names
    fingers = _fingers(contract)
    source = _picked(['gripper_left', 'gripper_right'], names) or _picked(fingers, names)
    return source or _joints(fingers, 'position')


def _gripper_velocities(contract: Contract) -> _Source | None:
    return _joints(_fingers(contract), 'velocity')


def _joint_positions(contract: Contract) -> _Source | None:
    joints = contract.deployment.joints
    return _picked(joints, contract.interface.state.names) or _joints(joints, 'position')


def _joint_velocities(contract: Contract) -> _Source | None:
    return _joints(contract.deployment.joints, 'velocity')


_SPECIAL: Mapping[str, Callable[[Contract], _Source | None]] = {
    'eef_position': _eef_position,
    'eef_quaternion_xyzw': _eef_quaternion,
    'gripper_qpos': _gripper_positions,
    'gripper_qvel': _gripper_velocities,
    'joint_positions': _joint_positions,
    'joint_velocities': _joint_velocities,
}


def _fingers(contract: Contract) -> tuple[str, ...]:
    arms = contract.deployment.arms
    return tuple(joint for name in sorted(arms) for joint in arms[name].gripper_joints)


def _joints(wanted: Sequence[str], quantity: str) -> _Source | None:
    """Positions or velocities of joints, read by name."""
    if not wanted:
        return None

    def read(messages: Messages) -> list[float]:
        message = messages[JOINTS]
        values = dict(zip(message.name, getattr(message, quantity), strict=False))
        missing = [name for name in wanted if name not in values]
        if missing:
            raise StaleError(f'joint_states: no {quantity} of {", ".join(missing)}')
        return [values[name] for name in wanted]

    return _Source(read, len(wanted), JOINTS)


def _of_only_arm(contract: Contract, part: slice, size: int) -> _Source | None:
    arms = list(contract.deployment.arms)
    if len(arms) != 1:
        return None
    whole = _pose(arms[0])
    return _Source(lambda messages: whole.read(messages)[part], size, whole.stream)


def _arm_pose(name: str, contract: Contract) -> _Source | None:
    arm = name.removesuffix('_eef_pose')
    return _pose(arm) if arm != name and arm in contract.deployment.arms else None


def _pose(arm: str) -> _Source:
    stream = Stream('pose', arm)
    return _Source(lambda messages: pose_values(messages[stream].pose), 7, stream)


def _privileged_pose(body: str) -> Reader:
    def read(messages: Messages) -> list[float]:
        message = messages[PRIVILEGED_STATE]
        if body not in message.names:
            known = ', '.join(message.names)
            raise StaleError(f'privileged_state: no body {body!r}, there are {known}')
        return pose_values(message.poses[list(message.names).index(body)])

    return read


def pose_values(pose: Any) -> list[float]:
    """Position (m) and quaternion x y z w of a ``geometry_msgs/Pose``."""
    p, q = pose.position, pose.orientation
    return [p.x, p.y, p.z, q.x, q.y, q.z, q.w]
