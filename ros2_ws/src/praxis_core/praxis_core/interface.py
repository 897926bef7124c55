# SPDX-License-Identifier: Apache-2.0
"""The interface part of a contract: what a model is trained on. Imports no rclpy."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from praxis_core.schema import (
    Count,
    Flag,
    FrozenDict,
    FrozenMap,
    Model,
    Name,
    Names,
    Number,
    Positive,
    Problem,
    refuse,
    repeated,
)

_ACTION_SPACE = re.compile(r'[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.v\d+')


def _versioned(name: str) -> str:
    if not _ACTION_SPACE.fullmatch(name):
        raise ValueError('must be a versioned name such as robot.osc_pose.delta.v1')
    return name


ActionSpace = Annotated[Name, AfterValidator(_versioned)]
"""Versioned name; it stands for units, frame, scaling, gripper convention and rate."""


class Gripper(Model):
    """Which action is the gripper's, and what its ends mean; ``action`` None: there is none."""

    action: Name | None = None
    open: Number = -1.0
    close: Number = 1.0


class Vector(Model):
    """Names and units of a vector, in its order."""

    names: Annotated[Names, Field(min_length=1)]
    units: tuple[Name, ...]

    @model_validator(mode='after')
    def _consistent(self) -> Vector:
        problems = repeated(self.names, 'names')
        if len(self.units) != len(self.names):
            problems.append(
                Problem('units', f'must have {len(self.names)} entries as names has', self.units)
            )
        refuse(problems)
        return self


class CameraShape(Model):
    """What a model sees of a camera; width and height in pixels."""

    role: Name
    width: Count
    height: Count
    channels: Literal[3] = 3
    depth: Flag = False


class Interface(Model):
    """What a model and every dataset of the embodiment agree on."""

    embodiment: Name
    robot_type: Name
    policy_hz: Positive
    action_space: ActionSpace
    action_kind: Literal['delta', 'absolute']
    action_horizon: Count | None = None
    gripper: Gripper = Gripper()
    state: Vector
    action: Vector
    cameras: FrozenMap[CameraShape] = FrozenDict()

    @model_validator(mode='after')
    def _consistent(self) -> Interface:
        gripper = self.gripper
        if gripper.action is not None:
            if gripper.action not in self.action.names:
                refuse([Problem('gripper.action', 'is not in action.names', gripper.action)])
            if gripper.open == gripper.close:
                refuse([Problem('gripper.close', 'equals gripper.open', gripper.close)])
        return self
