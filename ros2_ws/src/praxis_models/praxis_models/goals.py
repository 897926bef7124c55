# SPDX-License-Identifier: Apache-2.0
"""Goals of the node `action_model`, each from its acceptance to its end. Imports no rclpy.

One at a time, since there is one model. Whatever happens is passed to the goal; the first end
counts, and is announced once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from praxis_core.errors import ErrorCode

from praxis_models.assembly import Assembler
from praxis_models.inference_statistics import InferenceStatistics
from praxis_models.lease_client import LeaseClient
from praxis_models.model_link import Inferred, ModelLink, Stale, Trouble
from praxis_models.observation_plan import StaleError
from praxis_models.outcome import Ticket
from praxis_models.policy_driver import Observed, Pace, PolicyDriver
from praxis_models.policy_run import FAULTS, End, Limits, PolicyRun
from praxis_models.timeline import Playback, Step


class World(Protocol):
    """What a goal needs of the node.

    Attributes:
        link: The model.
        assembler: Of what the model wants to see, None until it is known.
        observed: Newest state, None before the first.
        statistics: Of inferences.
    """

    link: ModelLink
    assembler: Assembler | None
    observed: Observed | None
    statistics: InferenceStatistics

    def publish_command(
        self, lease_id: str, step: Step, values: np.ndarray, observed: Observed
    ) -> None:
        """Request a command."""

    def publish_chunk(self, chunk_id: str, inferred: Inferred) -> Any:
        """Publish a chunk, and give its message."""


class Goal(ABC):
    """A goal in progress.

    Attributes:
        goal_id: 32 hex digits.
        end: Why it ended, None while it has not.
    """

    def __init__(self, world: World, goal_id: str, instruction: str) -> None:
        self.goal_id = goal_id
        self._world = world
        self._instruction = instruction
        self._on_end: Callable[[], None] | None = None
        self._closed = False
        self.started = time.monotonic()

    @property
    @abstractmethod
    def end(self) -> End | None:
        """Why it ended, None while it has not."""

    @abstractmethod
    def stop(self, end: End) -> None:
        """End from outside."""

    @abstractmethod
    def observe(self, observed: Observed) -> None:
        """A state arrived."""

    @abstractmethod
    def part_arrived(self, now: float) -> None:
        """A message of another stream arrived."""

    @abstractmethod
    def check(self, now: float) -> None:
        """Some time has passed, or the state of the model has changed."""

    @abstractmethod
    def model_replaced(self) -> None:
        """The model that answers wants to see something else than before."""

    @abstractmethod
    def control(self, lease_id: str, reason_name: str, reason: str, now: float) -> None:
        """The arbiter said something."""

    @abstractmethod
    def verdict(self, *, episode: str, success: bool, terminated: bool, truncated: bool) -> None:
        """The task was judged."""

    @abstractmethod
    def _close(self) -> None:
        """Drop what is under way."""

    def abort(self, reason: str, code: ErrorCode, message: str) -> None:
        """End because it cannot go on."""
        self.stop(End('aborted', reason, code, message))

    def cancel(self) -> None:
        """End because the client wants it."""
        self.stop(End('canceled', 'cancelled', ErrorCode.CANCELLED, 'cancelled by the client'))

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call once it has ended, at once if it has."""
        self._on_end = call
        if self._closed:
            call()
        else:
            self.settle()

    def settle(self) -> None:
        """Close and announce it if it has ended."""
        if self.end is None or self._closed:
            return
        self._closed = True
        self._close()
        if self._on_end is not None:
            self._on_end()


@dataclass(frozen=True)
class RunOptions:
    """How a policy is run.

    Attributes:
        limits: When it is over.
        pace: Rates and counts for a model, by its metadata.
        playback: Combination of chunks at that pace.
        clip: Least and greatest action, None: not clipped.
    """

    limits: Limits
    pace: Callable[[Any], Pace]
    playback: Callable[[Pace], Playback]
    clip: tuple[np.ndarray, np.ndarray] | None


class PolicyGoal(Goal):
    """A goal of `run_policy`: a lease, and a driver as soon as there is a model."""

    def __init__(self, world: World, goal_id: str, instruction: str, options: RunOptions) -> None:
        super().__init__(world, goal_id, instruction)
        self.run = PolicyRun(goal_id, options.limits, self.started)
        self.lease: LeaseClient | None = None
        self.inference_ms = 0.0
        self._options = options
        self._driver: PolicyDriver | None = None
        self._verdict: dict[str, Any] | None = None
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

    def begin(self, lease: LeaseClient, verdict: dict[str, Any] | None) -> None:
        """Ask for the lease.

        Args:
            lease: Its client, which reports to `granted` and `refused`.
            verdict: What was said of the task before, see `verdict`.
        """
        self.lease, self._verdict = lease, verdict
        if self.end is None:
            self.check(time.monotonic())

    def granted(self, episode_uuid: str) -> None:
        """The arbiter granted or renewed the lease."""
        run, first = self.run, not self.run.is_bound
        run.bind(episode_uuid, time.monotonic())
        if first and self._verdict is not None:
            judged = self._verdict
            ended = judged['terminated'] or judged['truncated']
            run.judged_before(episode=judged['episode'], success=judged['success'], ended=ended)
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

    def verdict(self, *, episode: str, success: bool, terminated: bool, truncated: bool) -> None:
        """See `Goal`."""
        self._verdict = {
            'episode': episode, 'success': success, 'terminated': terminated,
            'truncated': truncated,
        }  # fmt: skip
        self.run.task(**self._verdict)
        self.settle()

    def check(self, now: float) -> None:
        """See `Goal`."""
        if self.end is not None:
            return
        if self.lease is not None:
            self.lease.look(now)
        world = self._world
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


class ChunkGoal(Goal):
    """A goal of `predict_chunk`: one inference, as soon as there is a fresh observation."""

    def __init__(
        self,
        world: World,
        goal_id: str,
        instruction: str,
        *,
        patience_s: float,
        max_age_s: float | None,
    ) -> None:
        """Begin.

        Args:
            world: The node.
            goal_id: 32 hex digits.
            instruction: What is to be done.
            patience_s: Steady s without a fresh observation until it is given up.
            max_age_s: Steady s after its arrival at which a state is stale, None: never.
        """
        super().__init__(world, goal_id, instruction)
        self.message: Any = None
        self._patience_s = patience_s
        self._max_age_s = max_age_s
        self._end: End | None = None
        self._ticket: Ticket | None = None
        self._stale = 'no state received yet'
        if not instruction.strip():
            self.abort('refused', ErrorCode.INVALID_REQUEST, 'instruction must not be empty')
        self._try(self.started)

    @property
    def end(self) -> End | None:
        """See `Goal`."""
        return self._end

    def stop(self, end: End) -> None:
        """See `Goal`."""
        if self._end is None:
            self._end = end
        self.settle()

    def observe(self, observed: Observed) -> None:
        """See `Goal`."""
        self._try(observed.received)

    def part_arrived(self, now: float) -> None:
        """See `Goal`."""
        self._try(now)

    def check(self, now: float) -> None:
        """See `Goal`."""
        self._try(now)
        if self._end is None and self._ticket is None and now > self.started + self._patience_s:
            self.abort('stale_observation', ErrorCode.STALE_OBSERVATION, self._stale)

    def _try(self, now: float) -> None:
        if self._end is not None or self._ticket is not None:
            return
        world = self._world
        trouble, observed = world.link.trouble, world.observed
        if trouble is not None:
            self._fail(trouble)
        elif observed is not None and world.assembler is not None:
            age = now - observed.received
            if self._max_age_s is not None and age > self._max_age_s:
                self._stale = f'the newest state is {age:.2f} s old, limit {self._max_age_s:g} s'
                return
            try:
                snapshot = world.assembler.snapshot(*observed)
            except StaleError as error:
                self._stale = str(error)
                return
            self._ticket = world.link.predict(snapshot, self._instruction, '', self._answered)

    def _fail(self, trouble: Trouble) -> None:
        self.abort(*FAULTS[trouble.kind], trouble.message)

    def _answered(self, answer: Inferred | Trouble | Stale | None) -> None:
        if self._end is not None or answer is None:
            return
        if isinstance(answer, Stale):
            self.abort('stale_observation', ErrorCode.STALE_OBSERVATION, answer.message)
        elif isinstance(answer, Trouble):
            self._world.statistics.failures += 1
            self._fail(answer)
        else:
            self._world.statistics.add(answer.model_ms, answer.latency_ms)
            self.message = self._world.publish_chunk(f'{self.goal_id[:8]}-1', answer)
            self.stop(End('succeeded', 'finished'))

    def _close(self) -> None:
        if self._ticket is not None:
            self._ticket.cancel()

    # What one inference has nothing to do with

    def model_replaced(self) -> None:
        """See `Goal`."""

    def control(self, lease_id: str, reason_name: str, reason: str, now: float) -> None:
        """See `Goal`."""

    def verdict(self, *, episode: str, success: bool, terminated: bool, truncated: bool) -> None:
        """See `Goal`."""
