# SPDX-License-Identifier: Apache-2.0
"""What a model's actions are: ordered fields in a versioned action space. Imports no rclpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from praxis_core.interface import ActionSpace
from praxis_core.schema import Model, Name, Names, refuse, repeated

if TYPE_CHECKING:  # needs PyYAML, which a model's environment may lack
    from praxis_core.contract import Contract


class NativeControl(Model):
    """Control that a platform executes without a conversion.

    Attributes:
        embodiment: Robot that the actions are for, such as ``libero_7d``.
        action_space: Versioned name; stands for units, frame, scaling, gripper convention, rate.
        action_schema: Names of the A fields of one action, in order.
        action_type: Mode of the platform's step, None where it has one only.
    """

    embodiment: Name
    action_space: ActionSpace
    action_schema: Annotated[Names, Field(min_length=1)]
    action_type: Name | None = None

    @model_validator(mode='after')
    def _distinct(self) -> NativeControl:
        refuse(repeated(self.action_schema, 'action_schema'))
        return self

    @property
    def action_dim(self) -> int:
        """Length A of one action."""
        return len(self.action_schema)


LIBERO_7D = NativeControl(
    embodiment='libero_7d',
    action_space='libero.osc_pose.delta.v1',
    action_schema=(
        *(f'delta_{axis}' for axis in 'xyz'),
        *(f'delta_axis_angle_{axis}' for axis in 'xyz'),
        'gripper',
    ),
)
"""LIBERO's Panda; gripper -1 open, +1 close."""

ROBOTWIN_QPOS14 = NativeControl(
    embodiment='robotwin_qpos14',
    action_space='robotwin.joint_action.qpos14.v1',
    action_schema=tuple(f'joint_action_{index}' for index in range(14)),
    action_type='qpos',
)
"""RoboTwin's two arms: six joints (rad) and gripper (0 close, 1 open), left arm first."""

ROBOTWIN_EEF16 = NativeControl(
    embodiment='robotwin_eef16',
    action_space='robotwin.eef_pose.absolute.v1',
    action_schema=tuple(
        f'{side}_{part}'
        for side in ('left', 'right')
        for part in ('x', 'y', 'z', 'qw', 'qx', 'qy', 'qz', 'gripper')
    ),
    action_type='ee',
)
"""RoboTwin's two end effectors: m, quaternion w x y z, gripper 0 close, 1 open."""


def control_of(contract: Contract) -> NativeControl:
    """Control that a robot's contract states."""
    interface = contract.interface
    return NativeControl(
        embodiment=interface.embodiment,
        action_space=interface.action_space,
        action_schema=interface.action.names,
    )
