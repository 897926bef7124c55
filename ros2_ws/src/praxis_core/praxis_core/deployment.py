# SPDX-License-Identifier: Apache-2.0
"""The deployment part of a contract: how one machine realises it. Imports no rclpy."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field, model_validator

from praxis_core.adapter import FieldAdapter
from praxis_core.schema import (
    Frame,
    FrozenDict,
    FrozenMap,
    Model,
    Names,
    Number,
    Positive,
    Problem,
    Text,
    Topic,
    has_length,
    refuse,
    repeated,
    shared,
)


class Topics(Model):
    """Topic names, relative to the robot's namespace."""

    state: Topic = 'state'
    joint_states: Topic = 'joint_states'
    command: Topic = 'command'
    command_request: Topic = 'command_request'
    control_status: Topic = 'control_status'
    task_status: Topic = 'task_status'
    cameras: Topic = 'cameras'
    observation_ack: Topic = 'observation_ack'
    episode_status: Topic = 'episode_status'
    action_chunk: Topic = 'action_chunk'
    privileged_state: Topic = 'privileged_state'
    robot_description: Topic = 'robot_description'
    scene_markers: Topic = 'scene_markers'


class Arm(Model):
    """One arm: frame and pose topic of its end effector, its joints in order from the base."""

    eef_frame: Frame
    pose_topic: Topic
    joints: Names = ()
    gripper_joints: Names = ()

    @model_validator(mode='after')
    def _distinct(self) -> Arm:
        refuse(repeated(self.joints, 'joints') + repeated(self.gripper_joints, 'gripper_joints'))
        return self


class Extrinsics(Model):
    """Pose of a camera's optical frame in a parent frame: m, quaternion x y z w."""

    parent: Frame
    position: Annotated[tuple[Number, ...], has_length(3)]
    quaternion: Annotated[tuple[Number, ...], has_length(4)]

    @model_validator(mode='after')
    def _normalised(self) -> Extrinsics:
        norm = math.sqrt(sum(part * part for part in self.quaternion))
        if abs(norm - 1.0) > 1e-3:
            refuse([Problem('quaternion', f'must have norm 1, has {norm:.4g}', self.quaternion)])
        return self


class CameraStream(Model):
    """How a camera delivers: rate in Hz, optical frame, age in s after which it is stale."""

    fps: Positive
    frame: Frame
    max_age: Positive
    topic: Topic | None = None
    extrinsics: Extrinsics | None = None

    @model_validator(mode='after')
    def _period(self) -> CameraStream:
        if self.max_age * self.fps < 1.0:
            reason = f'is shorter than the period {1.0 / self.fps:.4g} s of {self.fps:g} fps'
            refuse([Problem('max_age', reason, self.max_age)])
        return self


class Limit(Model):
    """Limits of one action, in its unit.

    Attributes:
        min: A command below is refused.
        max: A command above is refused.
        max_step: Largest change per command tick; more is clamped.
        max_velocity: Largest change per second, or None; more is clamped.
    """

    min: Number
    max: Number
    max_step: Positive
    max_velocity: Positive | None = None

    @model_validator(mode='after')
    def _ordered(self) -> Limit:
        if self.min > self.max:
            refuse([Problem('min', f'is above max {self.max:g}', self.min)])
        return self


class MaxAge(Model):
    """Ages in s beyond which a state or a request is stale."""

    state: Positive
    request: Positive


class Deployment(Model):
    """How one machine, simulated or real, realises the interface."""

    base_frame: Frame
    command_hz: Positive
    record_hz: Positive
    topics: Topics = Topics()
    arms: FrozenMap[Arm] = FrozenDict()
    cameras: FrozenMap[CameraStream] = FrozenDict()
    limits: FrozenMap[Limit]
    max_age: MaxAge
    kinematic_model: Annotated[Text, Field(min_length=1)] | None = None
    home: tuple[Number, ...] | None = None
    adapter: FieldAdapter | None = None

    @property
    def joints(self) -> tuple[str, ...]:
        """Joints of every arm, arms sorted by name; the order of ``home``."""
        return tuple(joint for name in sorted(self.arms) for joint in self.arms[name].joints)

    @model_validator(mode='after')
    def _consistent(self) -> Deployment:
        problems = shared(
            [(f'topics.{key}', getattr(self.topics, key)) for key in Topics.model_fields]
            + [(f'arms.{name}.pose_topic', arm.pose_topic) for name, arm in self.arms.items()]
            + [
                (
                    f'cameras.{name}.topic',
                    camera.topic or f'{self.topics.cameras}/{name}/image_raw',
                )
                for name, camera in self.cameras.items()
            ]
        )
        problems += shared(
            (f'cameras.{name}.frame', camera.frame) for name, camera in self.cameras.items()
        )
        problems += shared(
            (f'arms.{name}.{key}[{index}]', joint)
            for name, arm in self.arms.items()
            for key in ('joints', 'gripper_joints')
            for index, joint in enumerate(getattr(arm, key))
        )
        if self.home is not None and len(self.home) != len(self.joints):
            reason = f'must have {len(self.joints)} entries, one for each joint of arms'
            problems.append(Problem('home', reason, self.home))
        refuse(problems)
        return self
