# SPDX-License-Identifier: Apache-2.0
"""Parameters of the node ``simulator``."""

from typing import Literal

from praxis_core.parameters import ParameterModel
from pydantic import Field

_FIXED = {'read_only': True}


class SimulatorParameters(ParameterModel):
    """Parameters of the node."""

    contract: str = Field(
        description='path of the contract of the robot that is simulated', json_schema_extra=_FIXED
    )
    platform: str = Field(
        default='tabletop',
        description='name of the platform, an entry point of praxis_sim.platforms',
        json_schema_extra=_FIXED,
    )
    platform_process: str = Field(
        default='',
        description='Python executable of an environment that the platform runs in; empty: here',
        json_schema_extra=_FIXED,
    )
    platform_options: str = Field(
        default='', description='JSON object of options of the platform', json_schema_extra=_FIXED
    )
    stepping: Literal['realtime', 'lockstep'] = Field(
        default='realtime',
        description='step by the steady clock, or once for each command',
        json_schema_extra=_FIXED,
    )
    lockstep_participants: list[str] = Field(
        default=[],
        description='who must acknowledge an observation before the next step, such as recorder',
        json_schema_extra=_FIXED,
    )
    stall_warning_s: float = Field(
        default=2.0, ge=0.1, description='s without an acknowledgement until a warning names it'
    )
    render_quality: Literal['fast', 'reference'] = Field(
        default='fast',
        description='fast: without shadows, reflections and multisampling',
        json_schema_extra=_FIXED,
    )
    task: str = Field(
        default='', description='first task, as listed by list_tasks; empty: the first listed'
    )
    seed: int = Field(default=0, ge=0, description='seed of the first episode')
    init_state: int = Field(
        default=-1, ge=-1, description='stored initial state of the first episode, -1: by seed'
    )
    depth: bool = Field(
        default=False,
        description='publish depth always; otherwise only while somebody subscribes',
        json_schema_extra=_FIXED,
    )
    frame_prefix: str = Field(
        default='',
        description='in front of every TF frame but world, such as robot_1/',
        json_schema_extra=_FIXED,
    )
    gui: bool = Field(
        default=False, description="open MuJoCo's viewer window", json_schema_extra=_FIXED
    )
