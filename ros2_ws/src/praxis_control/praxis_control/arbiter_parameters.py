# SPDX-License-Identifier: Apache-2.0
"""Parameters of the arbiter node."""

from __future__ import annotations

from typing import Literal

from praxis_core.parameters import ParameterModel
from pydantic import Field, model_validator

from praxis_control.command import Options

_READ_ONLY = {'read_only': True}


class ArbiterParameters(ParameterModel):
    """See docs/control.md."""

    contract: str = Field(
        description='Path of the robot contract (YAML).', json_schema_extra=_READ_ONLY
    )
    stepping: Literal['realtime', 'lockstep'] = Field(
        'realtime',
        description='realtime: tick at command_hz; lockstep: one command per observation.',
        json_schema_extra=_READ_ONLY,
    )
    sources: list[str] = Field(
        ['policy', 'primitive', 'demonstrator'],
        description='Autonomous sources; they need a lease.',
        json_schema_extra=_READ_ONLY,
    )
    human_sources: list[str] = Field(
        ['teleop'],
        description='Sources whose requests take over from autonomous ones.',
        json_schema_extra=_READ_ONLY,
    )
    enable: bool = Field(
        True,
        description='Start in mode autonomous, so that sources may take leases; false: in hold.',
        json_schema_extra=_READ_ONLY,
    )
    lease_s: float = Field(
        0.0,
        ge=0.0,
        le=600.0,
        description='Silence (s) that ends a lease; 0: 1 s in real time, 30 s in lockstep.',
        json_schema_extra=_READ_ONLY,
    )
    max_lease_s: float = Field(
        600.0,
        gt=0.0,
        le=3600.0,
        description='Longest silence (s) a source may ask for.',
        json_schema_extra=_READ_ONLY,
    )
    source_timeout_ticks: int = Field(
        2,
        ge=1,
        le=100,
        description='Empty ticks after which the active source is reported silent.',
        json_schema_extra=_READ_ONLY,
    )
    takeover_rearm_s: float = Field(
        0.5,
        ge=0.0,
        le=60.0,
        description='Pause (s) of human requests after which they may take over again.',
        json_schema_extra=_READ_ONLY,
    )
    idle_hold_s: float = Field(
        10.0,
        ge=0.0,
        le=3600.0,
        description='Lockstep: hold step after so long (s) without any request; 0: never.',
        json_schema_extra=_READ_ONLY,
    )
    watch_cameras: bool = Field(
        True,
        description='Hold autonomous sources while a camera has not captured for its max_age.',
        json_schema_extra=_READ_ONLY,
    )

    @model_validator(mode='after')
    def _sources_apart(self) -> ArbiterParameters:
        both = set(self.sources) & set(self.human_sources)
        if both:
            raise ValueError(f'{sorted(both)} cannot be both in sources and in human_sources')
        if self.lease_s > self.max_lease_s:
            raise ValueError('lease_s is longer than max_lease_s')
        return self

    def options(self) -> Options:
        """Give the arbiter's own options."""
        lockstep = self.stepping == 'lockstep'
        lease_s = self.lease_s or min(30.0 if lockstep else 1.0, self.max_lease_s)
        return Options(
            lockstep=lockstep,
            sources=tuple(self.sources),
            human_sources=tuple(self.human_sources),
            enable=self.enable,
            lease_s=lease_s,
            max_lease_s=self.max_lease_s,
            silent_ticks=self.source_timeout_ticks,
            rearm_s=self.takeover_rearm_s,
            idle_hold_s=self.idle_hold_s,
            watch_cameras=self.watch_cameras,
        )
