# SPDX-License-Identifier: Apache-2.0
"""A goal of `predict_chunk`. Imports no rclpy."""

from __future__ import annotations

from typing import Any

from praxis_core.errors import ErrorCode

from praxis_models.faults import FAULTS
from praxis_models.goals.goal import Goal, World
from praxis_models.goals.policy_driver import Observed
from praxis_models.goals.policy_run import End, Verdict
from praxis_models.model_link import Inferred, Stale, Trouble
from praxis_models.observation.plan import StaleError
from praxis_models.transport.outcome import Ticket


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

    def verdict(self, verdict: Verdict) -> None:
        """See `Goal`."""
