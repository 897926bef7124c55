# SPDX-License-Identifier: Apache-2.0
"""One goal of `run_policy`, from its lease to its end. Imports no rclpy and reads no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from praxis_core.errors import ErrorCode

from praxis_models.faults import AWAY, FAULTS, FINAL, Fault

LEASE_GRACE_S = 0.5
"""Steady s after its grant within which a status may still be from before it."""
ARBITER_SILENCE_S = 3.0
"""Steady s without ``control_status``, which comes ten times a second, that end a run."""

Terminal = Literal['succeeded', 'canceled', 'aborted']
_LEASE_ENDS = {
    'takeover': ('takeover', ErrorCode.LEASE_LOST),
    'operator': ('takeover', ErrorCode.LEASE_LOST),
    'estop': ('estop', ErrorCode.ESTOPPED),
    'reset': ('reset', ErrorCode.EPISODE_CHANGED),
    'second_publisher': ('second_publisher', ErrorCode.SECOND_PUBLISHER),
}


VERDICT_S = 0.5
"""Steady s that the verdict on an observation may come after its state."""


class Verdict(NamedTuple):
    """What ``task_status`` said of an observation."""

    episode: str
    seq: int
    success: bool = False
    terminated: bool = False
    truncated: bool = False


@dataclass(frozen=True)
class End:
    """Why a run ended.

    Attributes:
        status: Terminal state of the goal.
        reason: ``termination_reason``.
        code: `ErrorCode`; NONE where the end is a defined one.
        message: Particulars, empty where there is nothing to add.
    """

    status: Terminal
    reason: str
    code: ErrorCode = ErrorCode.NONE
    message: str = ''


@dataclass(frozen=True)
class Limits:
    """When a run is over.

    Attributes:
        max_chunks: Chunks executed; 0: no limit.
        timeout_s: Of the clock of the observations or of the steady clock; 0: none.
        model_patience_s: Steady s without a usable answer of a model that is away or fails.
        observation_patience_s: Steady s without a usable observation.
    """

    max_chunks: int = 0
    timeout_s: float = 0.0
    model_patience_s: float = 10.0
    observation_patience_s: float = 1.0


class PolicyRun:
    """What happened in a run; once `end` is set, nothing more is commanded.

    Times are of a steady clock, in s, passed in as ``now``.
    """

    def __init__(self, lease_id: str, limits: Limits, now: float) -> None:
        self.lease_id = lease_id
        self.limits = limits
        self.end: End | None = None
        self.outcome = 'unknown'
        self.chunks = 0
        self.commands = 0
        self.stale_observations = 0
        self.elapsed = 0.0
        self._started = now
        self._episode: str | None = None
        self._bound: float | None = None
        self._seen = False
        self._lease_seen = False
        self._arbiter_heard = now
        self._observed = now
        self._stale_since: float | None = None
        self._stale = ''
        self._fault_since: float | None = None
        self._fault: tuple[Fault, str] | None = None
        self._judged_before = False
        self._judged_seq: int | None = None
        self._awaited_seq: int | None = None
        self._awaited_since = now

    # Ends

    def stop(self, status: Terminal, reason: str, code: ErrorCode, message: str = '') -> None:
        """End from outside; the first end counts."""
        if self.end is None:
            self.end = End(status, reason, code, message)

    def abort(self, reason: str, code: ErrorCode, message: str = '') -> None:
        """End because it cannot go on."""
        self.stop('aborted', reason, code, message)

    def succeed(self, reason: str, message: str = '') -> None:
        """End as it was meant to, whatever became of the task."""
        self.stop('succeeded', reason, ErrorCode.NONE, message)

    def cancel(self) -> None:
        """End because the client wants it."""
        self.stop('canceled', 'cancelled', ErrorCode.CANCELLED, 'cancelled by the client')

    # Lease

    @property
    def is_bound(self) -> bool:
        """The lease is granted and nothing has ended."""
        return self._bound is not None and self.end is None

    def bind(self, episode_uuid: str, now: float) -> None:
        """Take note of the grant and of the episode it is for; a later grant renews it."""
        if self._bound is None:
            self._episode = episode_uuid
            self._bound = self._observed = now
        elif episode_uuid != self._episode:
            self._episode_changed(episode_uuid)

    def lease_refused(self, code: ErrorCode, message: str) -> None:
        """The arbiter did not grant or renew the lease."""
        if self._bound is None:
            self.abort('lease_refused', code, message)
        else:
            ends = {
                ErrorCode.WRONG_MODE: _LEASE_ENDS['takeover'],
                ErrorCode.ESTOPPED: _LEASE_ENDS['estop'],
                ErrorCode.SECOND_PUBLISHER: _LEASE_ENDS['second_publisher'],
            }
            reason, error = ends.get(code, ('lease_lost', ErrorCode.LEASE_LOST))
            self.abort(reason, error, message)

    def lease_status(self, lease_id: str, reason_name: str, reason: str, now: float) -> None:
        """Take in what ``control_status`` says.

        Args:
            lease_id: In force, empty if none.
            reason_name: Why the arbiter holds: ``takeover``, ``reset``, ...
            reason: The same in words.
            now: Steady s.
        """
        self._arbiter_heard = now
        if self._bound is None:
            return
        if lease_id == self.lease_id:
            self._lease_seen = True
        elif self._lease_seen or now - self._bound > LEASE_GRACE_S:
            name, code = _LEASE_ENDS.get(reason_name, ('lease_lost', ErrorCode.LEASE_LOST))
            self.abort(name, code, reason or 'the arbiter withdrew the lease')

    # Observations

    def observe(self, episode_uuid: str, now: float) -> bool:
        """Take in a state.

        Returns:
            Whether it may be answered: of the run's episode, and nothing has ended.
        """
        if not self.is_bound:
            return False
        if episode_uuid != self._episode:
            if self._seen:
                self._episode_changed(episode_uuid)
            return False
        self._seen = True
        self._observed = now
        return True

    def _episode_changed(self, episode_uuid: str) -> None:
        text = f'episode {self._episode} was replaced by {episode_uuid}'
        self.abort('reset', ErrorCode.EPISODE_CHANGED, text)

    def standing(self, now: float) -> None:
        """No new state is due: in lockstep the last one waits for our answer."""
        self._observed = now

    def stale(self, message: str, now: float, *, counts: bool = True) -> None:
        """An inference was due, and the observation lacked something fresh."""
        self._stale = message
        self.stale_observations += counts
        if self._stale_since is None:
            self._stale_since = now

    def fresh(self) -> None:
        """An observation was whole."""
        self._stale_since = None

    def task(self, verdict: Verdict) -> None:
        """Take in a ``task_status``; what it said before the run began is no end of it."""
        if not self.is_bound or verdict.episode != self._episode:
            return
        self._judged_seq = verdict.seq
        success, terminated, truncated = verdict[2:]
        if success:
            self.outcome = 'success'
        elif terminated or truncated:
            self.outcome = 'failure'
        if self._judged_before:
            return
        if success:
            self.succeed('task_success')
        elif terminated:
            self.succeed('task_failure', 'the task ended without success')
        elif truncated:
            self.succeed('task_failure', 'the step limit of the task was reached')

    def judged_before(self, verdict: Verdict) -> None:
        """What was said of the task before the run began; a verdict from then ends nothing."""
        if verdict.episode != self._episode:
            return
        self._judged_seq = verdict.seq
        if verdict.success or verdict.terminated or verdict.truncated:
            self._judged_before = True
            self.outcome = 'success' if verdict.success else 'failure'

    def awaits_verdict(self, seq: int, now: float) -> bool:
        """Whether the verdict on this observation is on its way.

        Where every observation is judged, in lockstep none is answered before, so that a run ends
        with the very observation that solved the task.
        """
        if self._judged_seq != seq - 1:
            return False
        if self._awaited_seq != seq:
            self._awaited_seq, self._awaited_since = seq, now
        return now - self._awaited_since < VERDICT_S

    # Model

    def model_failed(self, kind: Fault, message: str, now: float) -> None:
        """The model is away or answered wrongly.

        The last fault is the one that is told; but a connection that is lost in the sequel of a
        wrong answer tells less than that answer.
        """
        if self._fault_since is None:
            self._fault_since = now
            self._fault = None
        if self._fault is None or kind not in AWAY or self._fault[0] in AWAY:
            self._fault = (kind, message)
        if kind in FINAL:
            self.abort(*FAULTS[kind], message)

    def model_refused(self, message: str, now: float) -> None:
        """The model turned a request down; where it took none before, the task is not for it."""
        if self.commands == 0:
            self.abort(*FAULTS['refused'], message)
        else:
            self.model_failed('refused', message, now)

    def model_answered(self) -> None:
        """A usable answer; earlier faults are forgiven."""
        self._fault_since = None

    @property
    def wants_chunks(self) -> bool:
        """Another inference is wanted at all."""
        return self.limits.max_chunks == 0 or self.chunks < self.limits.max_chunks

    def played_out(self) -> None:
        """Nothing is left to command."""
        if not self.wants_chunks:
            self.succeed('max_chunks')

    # Time

    def check(self, now: float, elapsed: float | None = None) -> None:
        """End the run if its time is over, or its patience.

        Args:
            now: Steady s.
            elapsed: Time of the run so far in s, None: by the steady clock.
        """
        self.elapsed = now - self._started if elapsed is None else elapsed
        limits = self.limits
        if limits.timeout_s and self.elapsed >= limits.timeout_s:
            self.succeed('timeout', f'{limits.timeout_s:g} s have passed')
        if self._fault_since is not None and self._fault is not None:
            away = now - self._fault_since
            if away > limits.model_patience_s:
                kind, message = self._fault
                self.abort(*FAULTS[kind], f'{message} (for {away:.1f} s)')
        silence = now - self._arbiter_heard
        if self._lease_seen and silence > ARBITER_SILENCE_S:
            text = f'no control_status for {silence:.1f} s (limit {ARBITER_SILENCE_S:g} s)'
            self.abort('lease_lost', ErrorCode.LEASE_LOST, text)
        patience = limits.observation_patience_s
        if self._bound is not None and now - self._observed > patience:
            silence = now - self._observed
            self._abort_stale(f'no state for {silence:.2f} s (limit {patience:g} s)')
        if self._stale_since is not None and now - self._stale_since > patience:
            self._abort_stale(f'{self._stale} (for {now - self._stale_since:.2f} s)')

    def _abort_stale(self, message: str) -> None:
        self.abort('stale_observation', ErrorCode.STALE_OBSERVATION, message)
