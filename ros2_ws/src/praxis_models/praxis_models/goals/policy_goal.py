# SPDX-License-Identifier: Apache-2.0
"""A goal of `run_policy`. Imports no rclpy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from praxis_core.errors import ErrorCode

from praxis_models.goals.goal import Goal, World
from praxis_models.goals.lease_client import LeaseClient
from praxis_models.goals.policy_driver import Observed, Pace, PolicyDriver
from praxis_models.goals.policy_run import End, Limits, PolicyRun, Verdict
from praxis_models.model_link import Inferred
from praxis_models.observation.assembly import Assembler
from praxis_models.observation.plan import StaleError
from praxis_models.playback.timeline import Playback, Step


@dataclass(frozen=True)
class RunOptions:
    """How a policy is run.

    Attributes:
        limits: When it is over.
        pace: Rates and counts for a model, by its metadata.
        playback: Combination of chunks at that pace.
        clip: Least and greatest action, None: not clipped.
        lockstep: Simulated time waits for the holder of the lease.
    """

    limits: Limits
    pace: Callable[[Any], Pace]
    playback: Callable[[Pace], Playback]
    clip: tuple[np.ndarray, np.ndarray] | None
    lockstep: bool


class PolicyGoal(Goal):
    """A goal of `run_policy`: a lease, and a driver as soon as there is a model."""

    def __init__(self, world: World, goal_id: str, instruction: str, options: RunOptions) -> None:
        super().__init__(world, goal_id, instruction)
        self.run = PolicyRun(goal_id, options.limits, self.started)
        self.lease: LeaseClient | None = None
        self.inference_ms = 0.0
        self._options = options
        self._driver: PolicyDriver | None = None
        self._verdict: Verdict | None = None
        self._chunk_number = 0
        if not instruction.strip():
            self.run.abort('refused', ErrorCode.INVALID_REQUEST, 'instruction must not be empty')
        if not (np.isfinite(options.limits.timeout_s) and options.limits.timeout_s >= 0.0):
            text = f'timeout must be 0 or more (got {options.limits.timeout_s:g})'
            self.run.abort('refused', ErrorCode.INVALID_REQUEST, text)

    @property
    def end(self) -> End | None:
        """See `Goal`."""
        return self.run.end

    @property
    def queue_depth(self) -> int:
        """Commands not yet sent."""
        return self._driver.queue_depth if self._driver is not None else 0

    def begin(self, lease: LeaseClient, verdict: Verdict | None) -> None:
        """Ask for the lease.

        Args:
            lease: Its client, which reports to `granted` and `refused`.
            verdict: What was said of the task before, None: nothing.
        """
        self.lease, self._verdict = lease, verdict
        if self.end is None:
            self.check(time.monotonic())

    def granted(self, episode_uuid: str) -> None:
        """The arbiter granted or renewed the lease."""
        run, first = self.run, not self.run.is_bound
        run.bind(episode_uuid, time.monotonic())
        if first and self._verdict is not None:
            run.judged_before(self._verdict)
        observed = self._world.observed
        if first and self._driver is not None and observed is not None:
            self._driver.observe(observed._replace(received=time.monotonic()))
        self.settle()

    def refused(self, code: ErrorCode, message: str) -> None:
        """The arbiter refused the lease, or does not answer."""
        self.run.lease_refused(code, message)
        self.settle()

    def stop(self, end: End) -> None:
        """See `Goal`."""
        self.run.stop(end.status, end.reason, end.code, end.message)
        self.settle()

    def observe(self, observed: Observed) -> None:
        """See `Goal`."""
        if self._driver is not None:
            self._driver.observe(observed)
            self.settle()

    def part_arrived(self, now: float) -> None:
        """See `Goal`."""
        if self._driver is not None:
            self._driver.part_arrived(now)
            self.settle()

    def control(self, lease_id: str, reason_name: str, reason: str, now: float) -> None:
        """See `Goal`."""
        self.run.lease_status(lease_id, reason_name, reason, now)
        self.settle()

    def verdict(self, verdict: Verdict) -> None:
        """See `Goal`."""
        self._verdict = verdict
        self.run.task(verdict)
        if self._driver is not None:
            self._driver.drive(time.monotonic())
        self.settle()

    def check(self, now: float) -> None:
        """See `Goal`."""
        if self.end is not None:
            return
        world = self._world
        if self.lease is not None and (self.lease.granted or self._may_begin(now)):
            self.lease.look(now)
        if self._driver is None:
            trouble = world.link.trouble
            if trouble is not None:
                self.run.model_failed(trouble.kind, trouble.message, now)
            elif world.assembler is not None:
                self._start_driver(world.assembler)
            self.run.standing(now)
            self.run.check(now)
        else:
            self._driver.check(now)
        self.settle()

    def _may_begin(self, now: float) -> bool:
        """Whether the lease may be asked for.

        In lockstep time stands still for the holder of a lease. Whoever had not subscribed yet
        when the present observation was published would wait for it in vain; without a lease
        the arbiter brings the next one.
        """
        if not self._options.lockstep:
            return True
        observed, assembler = self._world.observed, self._world.assembler
        if assembler is None:
            return False
        if observed is None:
            self.run.stale('no state received yet', now, counts=False)
            return False
        if assembler.is_whole(observed.message, observed.stamp_ns):
            self.run.fresh()
            return True
        try:
            assembler.snapshot(*observed)
        except StaleError as error:
            self.run.stale(str(error), now, counts=False)
        return False

    def _start_driver(self, assembler: Assembler) -> None:
        world, options = self._world, self._options
        pace = options.pace(world.link.meta)
        self._driver = PolicyDriver(
            self.run,
            world.link,
            assembler,
            self._instruction,
            pace,
            options.playback(pace),
            options.clip,
            self,
            world.statistics,
            time.monotonic,
        )
        self.run.model_answered()
        if self.run.is_bound and world.observed is not None:
            self._driver.observe(world.observed._replace(received=time.monotonic()))

    def model_replaced(self) -> None:
        """See `Goal`."""
        if self._driver is not None:
            text = 'another model answers, which wants to see something else'
            self.abort('model_lost', ErrorCode.MODEL_LOST, text)

    # Output of the driver

    def command(self, step: Step, values: np.ndarray, observed: Observed) -> None:
        """See `Output`."""
        self._world.publish_command(self.goal_id, step, values, observed)
        if self.lease is not None:
            self.lease.used(time.monotonic())

    def chunk(self, chunk_id: str, inferred: Inferred) -> None:
        """See `Output`."""
        self.inference_ms = inferred.latency_ms
        self._world.publish_chunk(chunk_id, inferred)

    def chunk_id(self) -> str:
        """See `Output`."""
        self._chunk_number += 1
        return f'{self.goal_id[:8]}-{self._chunk_number}'

    def _close(self) -> None:
        if self._driver is not None:
            self._driver.close()
