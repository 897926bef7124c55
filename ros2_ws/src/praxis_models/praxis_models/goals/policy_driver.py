# SPDX-License-Identifier: Apache-2.0
"""Closes the loop of one run: observations in, inferences out, chunks in, commands out.

Observations drive it, and so do the chunks that one waits for. Imports no rclpy; ``now`` is a
steady clock in s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from praxis_core.errors import ErrorCode

from praxis_models.goals.policy_run import PolicyRun
from praxis_models.inference_statistics import InferenceStatistics
from praxis_models.model_link import Inferred, ModelLink, Stale, Trouble
from praxis_models.observation.assembly import Assembler, Snapshot
from praxis_models.observation.plan import StaleError
from praxis_models.playback.action_layout import ActionLayout
from praxis_models.playback.resampling import resample
from praxis_models.playback.timeline import Chunk, Playback, Step, Timeline
from praxis_models.transport.outcome import Ticket

RETRY_S = 0.2
"""Pause after a failed request before the next."""

AUTOMATIC = -1


@dataclass(frozen=True)
class Pace:
    """Rates and counts of the playback; steps are the model's.

    Attributes:
        policy_hz: Of the model's steps, Hz.
        command_hz: Of the ticks, Hz.
        execute_steps: Of each chunk, 0: all.
        prefetch_steps: Steps before the end of a chunk at which the next inference begins;
            `AUTOMATIC`: as many as inferences took lately, in lockstep none.
        resample: Convert steps at ``policy_hz`` to commands at ``command_hz``.
        lockstep: Simulated time waits for the answer to each observation.
        reaction_ticks: Latest commands that an observation does not show yet, for which the
            robot was still to do them when it was made.
    """

    policy_hz: float
    command_hz: float
    execute_steps: int = 0
    prefetch_steps: int = AUTOMATIC
    resample: bool = True
    lockstep: bool = False
    reaction_ticks: int = 0

    def ticks(self, steps: int) -> int:
        """Ticks that so many steps take."""
        if not self.resample:
            return steps
        return round(steps * self.command_hz / self.policy_hz)

    def prefetch_ticks(self, statistics: InferenceStatistics) -> int:
        """Ticks before the end of a chunk at which the next inference begins."""
        if self.prefetch_steps != AUTOMATIC:
            return self.ticks(self.prefetch_steps)
        if self.lockstep or not statistics.count:
            return 0
        return statistics.ticks(self.command_hz)


class Observed(NamedTuple):
    """A state as it arrived.

    Attributes:
        message: ``StateVector``.
        stamp_ns: Its header stamp, ns.
        received: Steady s of its arrival.
    """

    message: Any
    stamp_ns: int
    received: float


class Output(Protocol):
    """What a driver does to the world."""

    def command(self, step: Step, values: np.ndarray, observed: Observed) -> None:
        """Request a command, in answer to this observation."""

    def chunk(self, chunk_id: str, inferred: Inferred) -> None:
        """A chunk is in hand."""

    def chunk_id(self) -> str:
        """Name for a new chunk."""


@dataclass
class _Waiting:
    """An inference under way: its request, and the position of its observation.

    Of the commands before that position so many were still to be done.
    """

    ticket: Ticket
    origin: int
    undone: int


class PolicyDriver:
    """Drives one run; after the run's end it does nothing more."""

    def __init__(
        self,
        run: PolicyRun,
        link: ModelLink,
        assembler: Assembler,
        instruction: str,
        pace: Pace,
        playback: Playback,
        limits: tuple[np.ndarray, np.ndarray] | None,
        output: Output,
        statistics: InferenceStatistics,
        clock: Callable[[], float],
    ) -> None:
        """Prepare a run.

        Args:
            run: Its state.
            link: The model.
            assembler: Collects what the model asks for.
            instruction: What is to be done.
            pace: Rates and counts.
            playback: How chunks are combined, in ticks.
            limits: Least and greatest action float64[A] to clip to, None: not clipped.
            output: Where commands and chunks go.
            statistics: Of inferences, also earlier ones.
            clock: Steady clock, s.
        """
        self.run = run
        self.timeline = Timeline(link.layout, playback)
        self._link = link
        self._assembler = assembler
        self._instruction = instruction
        self._pace = pace
        self._limits = limits
        self._output = output
        self._statistics = statistics
        self._now = clock
        self._layout: ActionLayout = link.layout
        self._state: Observed | None = None
        self._state_position = 0
        self._state_undone = 0
        self._answered = -1
        self._latest: deque[int] = deque(maxlen=pace.reaction_ticks)
        self._asked = -1
        self._waiting: _Waiting | None = None
        self._patient_for: int | None = None
        self._retry_at = 0.0
        self._prepared = 0
        self._preparing: Ticket | None = None
        self._session = ''
        self._first_stamp_ns: int | None = None

    @property
    def session_id(self) -> str:
        """Session at the model, empty where it has none."""
        return self._session

    @property
    def queue_depth(self) -> int:
        """Commands not yet sent."""
        return self.timeline.remaining

    # What happens

    def observe(self, observed: Observed) -> None:
        """Take in a state and answer it if there is something to command."""
        now = observed.received
        if not self.run.observe(observed.message.episode_uuid, now):
            return
        if self._first_stamp_ns is None:
            self._first_stamp_ns = observed.stamp_ns
        self._state = observed
        self._state_position = self.timeline.position
        since = _seq(observed) - self._pace.reaction_ticks
        self._state_undone = sum(each >= since for each in self._latest)
        self.drive(now)

    def part_arrived(self, now: float) -> None:
        """Another message than a state arrived, which one may have waited for."""
        if self._patient_for is not None:
            self.drive(now)

    def check(self, now: float) -> None:
        """Look at what takes too long, and try again what failed."""
        run, state = self.run, self._state
        trouble = self._link.trouble
        if trouble is not None and run.end is None and self._waiting is None:
            run.model_failed(trouble.kind, trouble.message, now)
        if self._pace.lockstep and state is not None and self._is_unanswered(state):
            run.standing(now)
        elapsed = None
        if self._pace.lockstep:
            first = self._first_stamp_ns
            elapsed = 0.0 if first is None or state is None else (state.stamp_ns - first) / 1e9
        run.check(now, elapsed)
        self.drive(now)

    def drive(self, now: float) -> None:
        """Begin the inference that is due; answer the newest state, once."""
        run, state = self.run, self._state
        if not run.is_bound or state is None:
            return
        if self._pace.lockstep and run.awaits_verdict(_seq(state), now):
            return
        # An observation that is answered is past, unless its images are only now arriving.
        present = self._is_unanswered(state) or self._patient_for == _seq(state)
        if present and self._asked != _seq(state) and self._is_due():
            begun = self._prepare(now) and self._begin(state, now)
            if not begun and self._pace.lockstep:
                return  # time stands still until the inference can begin
        if not self._is_unanswered(state):
            return
        waiting = self._waiting
        if waiting and self._pace.lockstep and self.timeline.awaits(waiting.origin):
            return
        step = self.timeline.step()
        if step is None:
            if waiting is None:
                run.played_out()
            return
        self._answered = _seq(state)
        self._latest.append(self._answered)
        run.commands += 1
        self._output.command(step, self._clipped(step.values), state)

    def _is_unanswered(self, state: Observed) -> bool:
        return _seq(state) != self._answered

    def _clipped(self, values: np.ndarray) -> np.ndarray:
        return values if self._limits is None else np.clip(values, *self._limits)

    # The model's memory

    def _prepare(self, now: float) -> bool:
        """Whether the model was told that an episode begins; after a reconnection again."""
        link = self._link
        if link.trouble is not None or now < self._retry_at:
            return False
        if self._prepared == link.generation:
            return True
        if not link.takes_calls:
            self._prepared = link.generation
            return True
        if self._preparing is None:
            assert link.meta is not None
            if link.meta.uses_sessions:
                self._preparing = link.call('session.register', self._registered)
            else:
                self._preparing = link.call('reset', self._was_reset)
        return False

    def _registered(self, reply: dict[str, Any] | Trouble) -> None:
        self._preparing = None
        session = reply.get('session_id') if isinstance(reply, dict) else None
        if isinstance(session, str):
            self._session = session
            self._ready()
        else:
            self._not_prepared(reply)

    def _was_reset(self, reply: dict[str, Any] | Trouble) -> None:
        self._preparing = None
        if isinstance(reply, dict):
            self._ready()
        else:
            self._not_prepared(reply)

    def _ready(self) -> None:
        self._prepared = self._link.generation
        self.drive(self._now())

    def _not_prepared(self, reply: dict[str, Any] | Trouble) -> None:
        now = self._now()
        trouble = reply if isinstance(reply, Trouble) else Trouble('invalid', 'no session_id')
        self._retry_at = now + RETRY_S
        if self.run.end is None:
            self.run.model_failed(trouble.kind, trouble.message, now)

    # Inferences

    def _is_due(self) -> bool:
        self.timeline.take_over()
        # When a chunk came must not matter where it is used at a given tick.
        if self._waiting is not None or self.timeline.has_early or not self.run.wants_chunks:
            return False
        ahead = self._pace.prefetch_ticks(self._statistics)
        return self.timeline.remaining <= ahead

    def _begin(self, state: Observed, now: float) -> bool:
        """Begin the inference from this state; False where it cannot begin yet."""
        seq = _seq(state)
        if not self._assembler.is_whole(state.message, state.stamp_ns):
            # Images of this observation may be on their way; in real time for one tick.
            first = self._patient_for is None or self._patient_for == seq
            if self._pace.lockstep or first:
                self._patient_for = seq
                if self._pace.lockstep:
                    self._snapshot(state, now)
                return False
        snapshot = self._snapshot(state, now)
        if snapshot is None:
            self._patient_for = seq
            return False
        self._patient_for = None
        self.run.fresh()
        ticket = self._link.predict(snapshot, self._instruction, self._session, self._received)
        self._waiting = _Waiting(ticket, self._state_position, self._state_undone)
        self._asked = seq  # once, or a chunk that is due at its own tick would be asked for again
        return True

    def _snapshot(self, state: Observed, now: float) -> Snapshot | None:
        try:
            return self._assembler.snapshot(*state)
        except StaleError as error:
            # In lockstep its parts are on their way, and only their absence over time is a fault.
            self.run.stale(str(error), now, counts=not self._pace.lockstep)
            return None

    def _received(self, answer: Inferred | Trouble | Stale | None) -> None:
        waiting, self._waiting = self._waiting, None
        run = self.run
        if run.end is not None or waiting is None or answer is None:
            return
        now = self._now()
        if not isinstance(answer, Inferred):
            self._asked = -1
        if isinstance(answer, Stale):
            self._retry_at = now + RETRY_S
            run.stale(answer.message, now)
        elif isinstance(answer, Trouble):
            self._retry_at = now + RETRY_S
            self._statistics.failures += 1
            if answer.kind == 'refused':
                run.model_refused(answer.message, now)
            else:
                run.model_failed(answer.kind, answer.message, now)
        else:
            run.model_answered()
            self._statistics.add(answer.model_ms, answer.latency_ms)
            self._add(answer, waiting.origin, waiting.undone)
        self.drive(now)

    def _add(self, inferred: Inferred, origin: int, undone: int) -> None:
        pace = self._pace
        actions, steps = inferred.actions, np.arange(len(inferred.actions))
        if pace.resample:
            actions, steps = resample(actions, pace.policy_hz, pace.command_hz, self._layout)
        # The chunk begins with what the robot was yet to do; a short one is not used up by that.
        origin -= max(0, min(undone, len(actions) - 1 - (self.timeline.position - origin)))
        chunk_id = self._output.chunk_id()
        if self.timeline.add(Chunk(chunk_id, actions, steps, origin)):
            self.run.chunks += 1
            self._output.chunk(chunk_id, inferred)
        else:
            self._asked = -1

    # End

    def close(self) -> None:
        """Drop what is queued and what is under way; the session ends."""
        if self.run.end is None:
            self.run.abort('internal', ErrorCode.INTERNAL, 'closed while running')
        for ticket in (self._preparing, self._waiting.ticket if self._waiting else None):
            if ticket is not None:
                ticket.cancel()
        self.timeline.clear()
        if self._session and self._link.trouble is None:
            self._link.call('session.close', lambda _: None, session_id=self._session)
        self._session = ''


def _seq(state: Observed) -> int:
    return int(state.message.observation_seq)
