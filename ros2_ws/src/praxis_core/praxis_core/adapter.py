# SPDX-License-Identifier: Apache-2.0
"""How a robot's own messages map to state and action. Imports no rclpy.

Field paths are ``a.b[2].c``; where a list of them is given, the first that can be read or written
is used.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from praxis_core.schema import (
    Flag,
    FrozenDict,
    FrozenMap,
    Model,
    Name,
    Path,
    Topic,
    as_list,
    refuse,
    shared,
)

Paths = Annotated[tuple[Path, ...], BeforeValidator(as_list), Field(min_length=1)]


class Condition(Model):
    """Holds where the value at the first readable path equals a value."""

    path: Paths
    equals: Any


class ImageSource(Model):
    """Topic that a camera's images come from; ``resize`` allows scaling to the contract's size."""

    topic: Topic
    message_type: Name
    resize: Flag = False


class ModeController(Model):
    """What changes the robot's control mode: ``module:factory`` and its options."""

    factory: Name
    options: dict[str, Any] = Field(default_factory=FrozenDict)

    @field_validator('options', mode='after')
    @classmethod
    def _freeze(cls, options: dict[str, Any]) -> FrozenDict:
        return FrozenDict(options)


class FieldAdapter(Model):
    """Topics, message types (``module:attr``) and field paths of a robot's own interface."""

    status_topic: Topic
    status_message_type: Name
    command_topic: Topic
    command_message_type: Name
    reset_request_topic: Topic
    change_control_mode_topic: Topic
    header_stamp_path: Path | None = None
    header_frame_id_path: Path | None = None
    state_sources: FrozenMap[Paths]
    observed_sources: FrozenMap[Paths]
    command_targets: FrozenMap[Paths]
    control_mode: Paths
    intervention: Condition
    model_control_enabled: Annotated[tuple[Condition, ...], Field(min_length=1)]
    cameras: FrozenMap[ImageSource]
    mode_controller: ModeController

    @model_validator(mode='after')
    def _distinct(self) -> FieldAdapter:
        refuse(
            shared(
                (f'command_targets.{name}', path)
                for name, paths in self.command_targets.items()
                for path in paths
            )
            + shared(
                (f'cameras.{name}.topic', image.topic) for name, image in self.cameras.items()
            )
        )
        return self
