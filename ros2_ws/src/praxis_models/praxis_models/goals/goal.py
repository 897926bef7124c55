# SPDX-License-Identifier: Apache-2.0
"""A goal of the node `action_model`, from its acceptance to its end. Imports no rclpy.

One at a time, since there is one model. Whatever happens is passed to the goal; the first end
counts, and is announced once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from praxis_core.errors import ErrorCode

from praxis_models.goals.policy_driver import Observed
from praxis_models.goals.policy_run import End, Verdict
from praxis_models.inference_statistics import InferenceStatistics
from praxis_models.model_link import Inferred, ModelLink
from praxis_models.observation.assembly import Assembler
from praxis_models.playback.timeline import Step


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
    def verdict(self, verdict: Verdict) -> None:
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
