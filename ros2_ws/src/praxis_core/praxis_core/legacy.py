# SPDX-License-Identifier: Apache-2.0
"""Contracts of schema 1, read unchanged. Imports no rclpy.

What schema 1 does not state gets a value that changes nothing: units are ``unspecified``, a
camera's role is its name, one tick may cross the whole range of an action.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from praxis_core.adapter import Condition, ModeController, Paths
from praxis_core.schema import (
    Count,
    Flag,
    FrozenMap,
    Model,
    Name,
    Names,
    Number,
    Path,
    Positive,
    Problem,
    Topic,
    key_problems,
    refuse,
    repeated,
    shared,
)

RECORD_HZ = 30.0
"""Schema 1 has no key for it: its recorder and cameras run at 30 Hz."""
MAX_AGE = 0.25
"""Age in s beyond which its policy bridge takes a status or an image for stale."""


class _Robot(Model):
    robot_type: Name
    status_topic: Topic
    command_topic: Topic
    reset_request_topic: Topic
    change_control_mode_topic: Topic
    status_message_type: Name
    command_message_type: Name
    header_stamp_path: Path | None = None
    header_frame_id_path: Path | None = None


class _State(Model):
    dimension: Count
    order: Annotated[Names, Field(min_length=1)]
    sources: FrozenMap[Paths]

    @model_validator(mode='after')
    def _consistent(self) -> _State:
        refuse(_order_problems(self.dimension, self.order))
        refuse(key_problems(self.sources, self.order, 'sources'))
        return self


class _Range(Model):
    min: Number
    max: Number

    @model_validator(mode='after')
    def _ordered(self) -> _Range:
        if self.min > self.max:
            refuse([Problem('min', f'is above max {self.max:g}', self.min)])
        return self


class _Action(Model):
    dimension: Count
    order: Annotated[Names, Field(min_length=1)]
    observed_sources: FrozenMap[Paths]
    command_targets: FrozenMap[Paths]
    limits: FrozenMap[_Range]

    @model_validator(mode='after')
    def _consistent(self) -> _Action:
        refuse(_order_problems(self.dimension, self.order))
        refuse(
            key_problems(self.observed_sources, self.order, 'observed_sources')
            + key_problems(self.command_targets, self.order, 'command_targets')
            + key_problems(self.limits, self.order, 'limits')
        )
        refuse(
            shared(
                (f'command_targets.{name}', path)
                for name, paths in self.command_targets.items()
                for path in paths
            )
        )
        return self


class _Status(Model):
    control_mode: Paths
    intervention: Condition
    model_control_enabled: Annotated[tuple[Condition, ...], Field(min_length=1)]


class _Image(Model):
    topic: Topic
    message_type: Name
    width: Count
    height: Count
    channels: Literal[3]
    resize: Flag = False


class _Inference(Model):
    action_horizon: Count
    model_hz: Positive
    command_hz: Positive


class LegacyContract(Model):
    """A file of schema 1 as it is written."""

    schema_version: Literal[1]
    name: Name
    robot: _Robot
    state: _State
    action: _Action
    status: _Status
    images: FrozenMap[_Image]
    inference: _Inference
    mode_controller: ModeController

    @model_validator(mode='after')
    def _distinct(self) -> LegacyContract:
        refuse(
            shared((f'images.{name}.topic', image.topic) for name, image in self.images.items())
        )
        return self

    def upgraded(self) -> dict[str, Any]:
        """Say the same in the form of schema 2."""
        robot, action = self.robot.model_dump(), self.action
        robot_type = robot.pop('robot_type')
        return {
            'schema_version': 2,
            'name': self.name,
            'interface': {
                'embodiment': self.name,
                'robot_type': robot_type,
                'policy_hz': self.inference.model_hz,
                'action_space': f'{self.name}.command.absolute.v1',
                'action_kind': 'absolute',
                'action_horizon': self.inference.action_horizon,
                'state': _vector(self.state.order),
                'action': _vector(action.order),
                'cameras': {
                    name: {'role': name, 'width': image.width, 'height': image.height}
                    for name, image in self.images.items()
                },
            },
            'deployment': {
                'base_frame': 'base_link',
                'command_hz': self.inference.command_hz,
                'record_hz': RECORD_HZ,
                'cameras': {
                    name: {
                        'fps': RECORD_HZ,
                        'frame': f'{name}_optical_frame',
                        'max_age': MAX_AGE,
                    }
                    for name in self.images
                },
                'limits': {
                    name: {
                        'min': limit.min,
                        'max': limit.max,
                        'max_step': (limit.max - limit.min) or 1.0,
                    }
                    for name, limit in action.limits.items()
                },
                'max_age': {'state': MAX_AGE, 'request': MAX_AGE},
                'adapter': {
                    **robot,
                    'state_sources': self.state.sources,
                    'observed_sources': action.observed_sources,
                    'command_targets': action.command_targets,
                    **self.status.model_dump(),
                    'cameras': {
                        name: image.model_dump(include={'topic', 'message_type', 'resize'})
                        for name, image in self.images.items()
                    },
                    'mode_controller': self.mode_controller.model_dump(),
                },
            },
        }


def _order_problems(dimension: int, order: Names) -> list[Problem]:
    problems = repeated(order, 'order')
    if len(order) != dimension:
        problems.append(Problem('dimension', f'order has {len(order)} names', dimension))
    return problems


def _vector(names: Names) -> dict[str, Any]:
    return {'names': names, 'units': ['unspecified'] * len(names)}
