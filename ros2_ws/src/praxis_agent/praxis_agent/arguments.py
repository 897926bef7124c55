# SPDX-License-Identifier: Apache-2.0
"""Arguments of the planner's tools, as the agent reference gives them for LIBERO."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Vector = Annotated[list[float], Field(min_length=3, max_length=3)]
Span = Annotated[list[int], Field(min_length=2, max_length=2)]
Grip = Annotated[float, Field(ge=-1.0, le=1.0, description='-1 open, +1 close, held throughout')]
Steps = Annotated[int, Field(ge=1, le=1000, description='control periods')]


class Arguments(BaseModel):
    """Base of all tool arguments: no unknown keys, no conversions, only finite numbers."""

    model_config = ConfigDict(extra='forbid', strict=True, allow_inf_nan=False)


class ViewEnvState(Arguments):
    """End effector, gripper, joints and camera images at the newest observation."""

    step: int = Field(-1, description='-1: the newest; nothing older is kept')


class MoveTo(Arguments):
    """Move the end effector to a point, optionally turning the wrist on the way."""

    xyz: Vector = Field(description='m, base frame; at most 0.30 m away in x and y together')
    gripper: Grip = -1.0
    tol: float = Field(0.012, gt=0, description='m')
    step_clip: float = Field(0.025, gt=0, le=0.1, description='m per control period')
    max_steps: Steps = 80
    action_scale: float = Field(0.05, gt=0, description='m per unit of action')
    target_yaw: float | None = Field(None, description='rad, atan2(R10, R00)')
    yaw_step_clip: float = Field(0.10, gt=0, le=0.5, description='rad per control period')


class MovePose(Arguments):
    """Move the end effector to a position, pitch and yaw together."""

    xyz: Vector = Field(description='m, base frame; at most 0.30 m away in x and y together')
    target_pitch: float = Field(description='rad, atan2(R12, -R22); 0 is straight down')
    target_yaw: float = Field(description='rad, atan2(R10, R00)')
    gripper: Grip = -1.0
    step_clip: float = Field(0.02, gt=0, le=0.1, description='m per control period')
    pitch_step: float = Field(0.08, gt=0, le=0.5, description='rad per control period')
    yaw_step: float = Field(0.08, gt=0, le=0.5, description='rad per control period')
    tol: float = Field(0.012, gt=0, description='m')
    ori_tol: float = Field(0.05, gt=0, description='rad')
    action_scale: float = Field(0.05, gt=0, description='m per unit of action')
    max_steps: Steps = 150


class RotateWrist(Arguments):
    """Turn the wrist about the vertical axis; give target_yaw or delta_yaw."""

    target_yaw: float | None = Field(None, description='rad, atan2(R10, R00)')
    delta_yaw: float | None = Field(None, description='rad')
    gripper: Grip = 1.0
    max_steps: Steps = 40
    tol: float = Field(0.02, gt=0, description='rad')
    step_clip: float = Field(0.10, gt=0, le=0.5, description='rad per control period')

    @model_validator(mode='after')
    def _one(self) -> RotateWrist:
        return _exactly_one(self, 'target_yaw', 'delta_yaw')


class RotatePitch(Arguments):
    """Pitch the hand; give target_pitch or delta_pitch."""

    target_pitch: float | None = Field(None, description='rad, atan2(R12, -R22)')
    delta_pitch: float | None = Field(None, description='rad')
    gripper: Grip = 1.0
    max_steps: Steps = 40
    tol: float = Field(0.02, gt=0, description='rad')
    step_clip: float = Field(0.10, gt=0, le=0.5, description='rad per control period')

    @model_validator(mode='after')
    def _one(self) -> RotatePitch:
        return _exactly_one(self, 'target_pitch', 'delta_pitch')


class SetGripper(Arguments):
    """Command the gripper for a number of control periods; the hand stays where it is."""

    gripper: Grip = -1.0
    steps: Steps = 5


class Release(Arguments):
    """Open the gripper until it has stopped opening."""

    max_steps: Steps = 20


Camera = Annotated[str, Field(min_length=1, description='agentview or wrist')]


class SegmentArguments(Arguments):
    """Find objects in a camera image by a noun phrase or by a point; give exactly one."""

    prompt: str | None = Field(None, min_length=1, description='noun phrase')
    point: Span | None = Field(None, description='[row, col] in pixels of the resolution')
    camera: Camera = 'agentview'
    step: int = Field(-1, description='-1: the newest; nothing older is kept')
    min_score: float = Field(0.2, ge=0, le=1)
    resolution: Literal['high', 'low'] = Field('high', description='high 1024, low 256 pixels')

    @model_validator(mode='after')
    def _one(self) -> SegmentArguments:
        return _exactly_one(self, 'prompt', 'point')


class BackProject(Arguments):
    """World points of a pixel, of a rectangle of pixels, or of a mask that segment returned."""

    row: int | None = None
    col: int | None = None
    row_range: Span | None = Field(None, description='[first, last), pixels')
    col_range: Span | None = Field(None, description='[first, last), pixels')
    mask: str | None = Field(None, description='mask_id of a segment result')
    step: int = Field(-1, description='-1: the newest; nothing older is kept')
    camera: Camera = 'agentview'
    resolution: Literal['high', 'low'] = Field('high', description='high 1024, low 256 pixels')
    z_min: float = Field(-1000.0, description='m, world; points below do not count')
    z_max: float = Field(1000.0, description='m, world; points above do not count')

    @model_validator(mode='after')
    def _one(self) -> BackProject:
        pixel = (self.row is not None, self.col is not None)
        ranges = (self.row_range is not None, self.col_range is not None)
        ways = [any(pixel), any(ranges), self.mask is not None]
        if sum(ways) != 1 or any(pixel) != all(pixel) or any(ranges) != all(ranges):
            raise ValueError('give row and col, or row_range and col_range, or mask')
        return self


class ViewCameraMeta(Arguments):
    """Intrinsics and pose of a camera."""

    camera: Camera = 'agentview'
    step: int = Field(-1, description='-1: the newest; nothing older is kept')


class Finish(Arguments):
    """End the run. The verdict on the task is not yours: it comes from the task's own check."""

    status: Literal['success', 'failure', 'stuck']
    summary: str = Field(min_length=1, max_length=4000)


def _exactly_one(model: Any, first: str, second: str) -> Any:
    if (getattr(model, first) is None) == (getattr(model, second) is None):
        raise ValueError(f'give exactly one of {first} and {second}')
    return model
