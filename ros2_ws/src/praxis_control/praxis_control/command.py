# SPDX-License-Identifier: Apache-2.0
"""Requests, executed commands and the arbiter's status as plain data. Imports no rclpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from praxis_control.modes import Mode, Reason

ARBITER = 'arbiter'
"""Source of a hold."""


@dataclass(frozen=True)
class Request:
    """What a source wants; fields as in Command.msg.

    Attributes:
        source: Name of the topic it came on, not what the message claims.
        values: float64[N].
        observation_stamp_ns: Stamp of the observation it answers.
    """

    source: str
    lease_id: str
    episode_uuid: str
    observation_seq: int
    observation_stamp_ns: int
    interface_hash: str
    action_space: str
    values: np.ndarray
    chunk_id: str = ''
    chunk_index: int = -1


@dataclass(frozen=True)
class Executed:
    """What the robot must do.

    Attributes:
        values: float64[A] to execute.
        requested: float64[A] before limits.
        hold: The arbiter holds; `source` is then ``arbiter``.
        clamped: `values` differ from `requested`.
    """

    source: str
    lease_id: str
    episode_uuid: str
    observation_seq: int
    observation_stamp_ns: int
    values: np.ndarray
    requested: np.ndarray
    hold: bool
    clamped: bool
    chunk_id: str = ''
    chunk_index: int = -1


@dataclass(frozen=True)
class Status:
    """What ControlStatus says."""

    mode: Mode
    active_source: str
    lease_id: str
    episode_uuid: str
    holding: bool
    reason: Reason
    text: str
    model_control_enabled: bool
    refused_total: int
    clamped_total: int

    @property
    def intervention(self) -> bool:
        """A human commands the robot."""
        return self.mode is Mode.TELEOP

    def key(self) -> tuple:
        """What must differ for a status to be published ahead of its time."""
        return (
            self.mode,
            self.active_source,
            self.lease_id,
            self.episode_uuid,
            self.holding,
            self.reason,
            self.model_control_enabled,
        )


@dataclass(frozen=True)
class Reply:
    """Answer to a service call; `code` is a `praxis_core.errors.ErrorCode`, 0 for success."""

    code: int
    message: str = ''

    @property
    def success(self) -> bool:
        """Whether it was done."""
        return self.code == 0


@dataclass(frozen=True)
class Options:
    """How the arbiter behaves; see docs/control.md.

    Attributes:
        lockstep: Event-driven instead of ticking.
        sources: Autonomous sources; they need a lease.
        human_sources: Sources whose requests take over.
        enable: Start in autonomous rather than in hold.
        lease_s: Default silence in s after which a lease ends.
        max_lease_s: Longest that a source may ask for.
        silent_ticks: Ticks without a request before the active source counts as silent.
        rearm_s: Pause in s after which human requests may take over again.
        idle_hold_s: Lockstep: steady s before a hold step if nobody requests, 0 never.
        watch_cameras: Hold autonomous sources while a camera is stalled.
        reason_s: Steady s for which a refusal stays on the status while requests are executed.
    """

    lockstep: bool = False
    sources: tuple[str, ...] = ('policy', 'primitive', 'demonstrator')
    human_sources: tuple[str, ...] = ('teleop',)
    enable: bool = True
    lease_s: float = 1.0
    max_lease_s: float = 120.0
    silent_ticks: int = 2
    rearm_s: float = 0.5
    idle_hold_s: float = 10.0
    watch_cameras: bool = True
    reason_s: float = 1.0
