# SPDX-License-Identifier: Apache-2.0
"""Who commands the robot, and with what. Imports no rclpy.

The arbiter is driven by `receive_state`, `receive_request`, `tick` and the operator's calls; each
returns the command to publish, or None. ``now`` is a steady clock in s. Real time runs in
`praxis_control.slots`; in lockstep every answer to the newest observation executes at once.
"""

from __future__ import annotations

from praxis_core.errors import ErrorCode

from praxis_control.answers import Answers
from praxis_control.command import ARBITER, Executed, Options, Reply, Request, Status
from praxis_control.events import Events
from praxis_control.freshness import Observation, ObservationWatch
from praxis_control.gate import ControlSpec, Gate, Refusal
from praxis_control.lease import Lease, LeaseHolder, lease_refusal
from praxis_control.modes import Actor, Mode, Reason, transition_refusal
from praxis_control.setpoint import Setpoint
from praxis_control.slots import SlotEnd, Slots
from praxis_control.takeover import Takeover

_LOOKAHEAD = 16
"""Observations by which a request may be ahead of the state, which takes another way here."""

_STOPPED_BY = {Mode.TELEOP: Reason.TAKEOVER, Mode.ESTOP: Reason.ESTOP}
_LATE = (Reason.STALE_REQUEST, Reason.WRONG_EPISODE)


class Arbiter:
    """The one that decides."""

    def __init__(self, spec: ControlSpec, options: Options, now: float) -> None:
        self.spec = spec
        self.options = options
        self._gate = Gate(spec)
        self._watch = ObservationWatch(
            spec, lockstep=options.lockstep, watch_cameras=options.watch_cameras
        )
        self._answers = Answers(options, spec.max_request_age)
        self._setpoint = Setpoint(spec)
        self._slots = Slots(1.0 / spec.command_hz, now)
        self._leases = LeaseHolder()
        self._mode = Mode.AUTONOMOUS if options.enable else Mode.HOLD
        self._takeover = Takeover(options.rearm_s)
        self._early: dict[str, Request] = {}
        self._last_source = ARBITER
        self._empty_slots = 0
        self._publishers = 1
        self._state_at = now
        self._events = Events(options.reason_s, now)

    @property
    def deadline(self) -> float:
        """Steady time in s at which `tick` is due."""
        return self._slots.deadline

    @property
    def mode(self) -> Mode:
        """Mode in force."""
        return self._mode

    @property
    def observed(self) -> bool:
        """Whether any valid state has come."""
        return self._watch.newest is not None

    @property
    def lease(self) -> Lease | None:
        """Lease in force."""
        return self._leases.current

    def status(self, now: float) -> Status:
        """What there is to say about control."""
        reason, text = self._world_fault(now) or self._events.newest
        lease, newest, source = self._leases.current, self._watch.newest, self._active_source()
        return Status(
            mode=self._mode,
            active_source=source,
            lease_id=lease.lease_id if lease else '',
            episode_uuid=newest.episode_uuid if newest else '',
            holding=self._last_source == ARBITER or not source,
            reason=reason,
            text=text,
            model_control_enabled=self._mode is Mode.AUTONOMOUS and self._publishers <= 1,
            refused_total=self._events.refused,
            clamped_total=self._events.clamped,
        )

    def _active_source(self) -> str:
        if self._mode is Mode.TELEOP:
            return self._takeover.human
        lease = self._leases.current
        return lease.source if lease is not None and self._mode is Mode.AUTONOMOUS else ''

    # The world

    def receive_state(self, observation: Observation, now: float) -> Executed | None:
        """Take in a state; executes a request that was ahead of it."""
        before = self._watch.newest
        reset = self._watch.receive(observation, now)
        newest = self._watch.newest
        if newest is before:
            return None
        self._state_at = now
        if before is None:
            self._setpoint.adopt(newest.values, keep_gripper=False)
        if reset:
            self._reset(newest, now)
        executed = None
        for source, request in list(self._early.items()):
            if request.observation_seq <= newest.seq:
                del self._early[source]
                executed = self._decide(request, now) or executed
        return executed or (self._hold_now() if reset else None)

    def _reset(self, newest: Observation, now: float) -> None:
        self._answers.reset(newest.seq)
        self._setpoint.adopt(newest.values, keep_gripper=False)
        self._early = {
            s: r for s, r in self._early.items() if r.episode_uuid == newest.episode_uuid
        }
        self._slots.drop()
        if self._leases.end(Reason.RESET) is not None:
            episode = newest.episode_uuid[:8] or 'of a restarted publisher'
            self._events.note(Refusal(Reason.RESET, f'episode {episode} began'), now)

    def set_publishers(self, count: int, now: float) -> Executed | None:
        """Tell how many publish the command topic, the arbiter included."""
        was, self._publishers = self._publishers, count
        if count > 1 and was <= 1:
            self._drop(self._publisher_fault(), now)
            return self._hold_now()
        return None

    def _publisher_fault(self) -> Refusal | None:
        if self._publishers <= 1:
            return None
        return Refusal(
            Reason.SECOND_PUBLISHER,
            f'{self._publishers} publishers on the command topic, where the arbiter must be alone',
        )

    def _world_fault(self, now: float) -> Refusal | None:
        if self._mode is Mode.ESTOP:
            return Refusal(Reason.ESTOP, self._events.newest.text or 'emergency stop')
        fault = self._publisher_fault() or self._watch.state_fault(now)
        # A human sees the robot; a camera that stalls blinds a source that does not.
        if fault is None and self._mode is not Mode.TELEOP:
            fault = self._watch.camera_fault()
        return fault

    # Requests

    def receive_request(self, request: Request, now: float) -> Executed | None:
        """Judge a request; execute it, keep it for the next slot, or refuse it."""
        taken = request.source in self.options.human_sources and self._takes_over(request, now)
        newest = self._watch.newest
        ahead = 0 if newest is None else request.observation_seq - newest.seq
        if 0 < ahead <= _LOOKAHEAD:
            self._early[request.source] = request
            executed = None
        else:
            executed = self._decide(request, now)
        return executed or (self._hold_now() if taken else None)

    def _takes_over(self, request: Request, now: float) -> bool:
        takeover = self._takeover
        takeover.requested(now)
        if self._mode is Mode.ESTOP or (self._mode is not Mode.TELEOP and not takeover.armed):
            return False
        takeover.human = request.source
        if self._mode is Mode.TELEOP:
            return False
        self._enter(Mode.TELEOP, Refusal(Reason.TAKEOVER, f'{request.source} took over'), now)
        return True

    def _decide(self, request: Request, now: float) -> Executed | None:
        refusal = self._may_command(request, now)
        if refusal is not None:
            self._events.refuse(request.source, refusal, now)
            return None
        late = self._answers.refusal(request, self._watch, now)
        refusal = (
            self._gate.check(request.values, request.interface_hash, request.action_space)
            or self._world_fault(now)
            or late
        )
        if refusal is None:
            return self._accept(request, now)
        self._events.refuse(request.source, refusal, now)
        if refusal.reason in _LATE or (self.options.lockstep and late is not None):
            return None
        self._slots.drop()
        return self._hold() if self.options.lockstep else self._hold_now()

    def _may_command(self, request: Request, now: float) -> Refusal | None:
        source = request.source
        if self._mode is Mode.ESTOP:
            return Refusal(Reason.ESTOP, f'{source} refused: emergency stop')
        if source in self.options.human_sources:
            if self._mode is Mode.TELEOP:
                return None
            return Refusal(
                Reason.OPERATOR,
                f'{source} refused: control was given back; it takes over again after a pause '
                f'of {self.options.rearm_s:g} s',
            )
        if self._mode is Mode.TELEOP:
            return Refusal(
                Reason.TAKEOVER, f'{source} refused: {self._takeover.human} has control'
            )
        if self._mode is Mode.HOLD:
            return Refusal(Reason.OPERATOR, f'{source} refused: model control is not enabled')
        self._expire(now)
        return self._leases.refusal(request.lease_id, source)

    def _accept(self, request: Request, now: float) -> Executed | None:
        self._answers.accepted(request)
        if self._mode is Mode.AUTONOMOUS:
            self._leases.renew(now)
        if self.options.lockstep or self._slots.offer(request, self._last_source, now):
            return self._execute(request, now)
        return None

    def _execute(self, request: Request, now: float) -> Executed:
        values, clamped = self._gate.limit(request.values, self._setpoint.last)
        self._setpoint.executed(values)
        self._answers.executed(request.observation_seq)
        self._empty_slots = 0
        self._last_source = request.source
        self._events.executed(clamped, now)
        return Executed(
            source=request.source,
            lease_id=request.lease_id,
            episode_uuid=request.episode_uuid,
            observation_seq=request.observation_seq,
            observation_stamp_ns=request.observation_stamp_ns,
            values=values,
            requested=request.values,
            hold=False,
            clamped=clamped,
            chunk_id=request.chunk_id,
            chunk_index=request.chunk_index,
        )

    # Time

    def tick(self, now: float) -> Executed | None:
        """End a slot (real time), or look whether anything is overdue (lockstep)."""
        end = self._slots.end(now)
        self._expire(now)
        if self.options.lockstep:
            return self._idle(now)
        fault = self._world_fault(now)
        if fault is not None:
            if self._active_source() and self._last_source != ARBITER:
                self._events.note(fault, now)
            self._slots.drop()
            return self._hold()
        if isinstance(end, Request) and self._may_command(end, now) is None:
            return self._execute(end, now)
        if end is SlotEnd.USED:
            return None
        self._count_silence(now)
        return self._hold()

    def _count_silence(self, now: float) -> None:
        source, lease = self._active_source(), self._leases.current
        if not source or (lease is not None and not lease.used):
            return
        self._empty_slots += 1
        if self._empty_slots == self.options.silent_ticks:
            text = f'{source} has sent nothing to execute for {self._empty_slots} ticks'
            self._events.note(Refusal(Reason.SOURCE_SILENT, text), now)

    def _idle(self, now: float) -> Executed | None:
        newest, limit = self._watch.newest, self.options.idle_hold_s
        waited = now - self._state_at
        if newest is None or self._leases.current is not None or limit <= 0.0 or waited < limit:
            return None
        source = self._active_source()
        if source and not self._answers.answered(newest.seq):
            text = f'{source} has sent nothing for {waited:.1f} s'
            self._events.note(Refusal(Reason.SOURCE_SILENT, text), now)
        return self._hold()

    def _expire(self, now: float) -> None:
        if not self._leases.expired(now):
            return
        lease = self._leases.end(Reason.LEASE_EXPIRED)
        self._slots.drop()
        text = (
            f'{lease.source} has sent nothing for {now - lease.renewed_at:.3f} s, '
            f'its lease of {lease.duration:g} s expired'
        )
        self._events.note(Refusal(Reason.SOURCE_SILENT, text), now)

    # Holding

    def _drop(self, why: Refusal, now: float) -> None:
        """End the lease and forget what was queued."""
        self._leases.end(why.reason)
        self._early.clear()
        self._slots.drop()
        self._empty_slots = 0
        self._events.note(why, now)

    def _hold_now(self) -> Executed | None:
        """Stop at once in real time; in lockstep the robot stands until it is answered."""
        if self.options.lockstep or self._last_source == ARBITER:
            return None
        return self._hold()

    def _hold(self) -> Executed | None:
        newest, values = self._watch.newest, self._setpoint.hold()
        if newest is None or values is None:
            return None
        if self.options.lockstep and self._answers.answered(newest.seq):
            return None
        self._last_source = ARBITER
        self._answers.executed(newest.seq)
        self._setpoint.executed(values)
        return Executed(
            source=ARBITER,
            lease_id='',
            episode_uuid=newest.episode_uuid,
            observation_seq=newest.seq,
            observation_stamp_ns=newest.stamp_ns,
            values=values,
            requested=values,
            hold=True,
            clamped=False,
        )

    # Operator and leases

    def actor(self, source: str) -> Actor:
        """What kind of asker a name belongs to."""
        if source == Actor.OPERATOR.value:
            return Actor.OPERATOR
        return Actor.AUTONOMOUS if source in self.options.sources else Actor.HUMAN

    def set_mode(
        self, wanted: Mode, source: str, why: str, now: float
    ) -> tuple[Reply, Executed | None]:
        """Change the mode by request of an operator, a human's device or a source."""
        refusal = transition_refusal(self._mode, wanted, self.actor(source))
        if refusal is not None:
            code = ErrorCode.ESTOPPED if self._mode is Mode.ESTOP else ErrorCode.WRONG_MODE
            return Reply(code, refusal), None
        if wanted is self._mode:
            return Reply(ErrorCode.NONE), None
        text = f'{source or "an unnamed caller"} set {wanted.name.lower()}'
        if wanted is Mode.TELEOP:
            humans = self.options.human_sources
            known = source in humans or not humans
            self._takeover.human = source if known else humans[0]
        reason = _STOPPED_BY.get(wanted, Reason.OPERATOR)
        self._enter(wanted, Refusal(reason, f'{text}: {why}' if why else text), now)
        if self.options.lockstep and wanted is Mode.AUTONOMOUS:
            # Only an answer brings the fresh observation that sources have to wait for.
            return Reply(ErrorCode.NONE), self._hold()
        return Reply(ErrorCode.NONE), self._hold_now()

    def _enter(self, mode: Mode, why: Refusal, now: float) -> None:
        left, self._mode = self._mode, mode
        newest = self._watch.newest
        if left is Mode.TELEOP or mode is Mode.HOLD:
            self._takeover.disarm()
        if left is Mode.ESTOP and newest is not None:
            self._setpoint.adopt(newest.values, keep_gripper=True)
        if mode is Mode.AUTONOMOUS and newest is not None:
            self._answers.require_after(newest.seq)
        self._drop(why, now)

    def acquire(
        self, source: str, lease_id: str, interface_hash: str, duration: float, now: float
    ) -> Reply:
        """Grant a lease to an autonomous source; asking again for one's own renews it."""
        self._expire(now)
        reply = lease_refusal(
            self.options, self.spec.interface_hash, source, lease_id, interface_hash, duration
        )
        if reply is not None:
            return reply
        if self._mode is Mode.ESTOP:
            return Reply(ErrorCode.ESTOPPED, self._events.newest.text or 'emergency stop')
        if self._mode is not Mode.AUTONOMOUS:
            why = self._events.newest.text or 'model control is not enabled'
            return Reply(ErrorCode.WRONG_MODE, f'mode is {self._mode.name.lower()}: {why}')
        fault = self._publisher_fault()
        if fault is not None:
            return Reply(ErrorCode.SECOND_PUBLISHER, fault.text)
        newest, current = self._watch.newest, self._leases.current
        if newest is None:
            return Reply(ErrorCode.NOT_ACTIVE, 'no state received yet')
        if current is not None and (current.lease_id, current.source) != (lease_id, source):
            text = f'{current.source} holds lease {current.lease_id}'
            return Reply(ErrorCode.LEASE_TAKEN, text)
        self._leases.grant(
            Lease(lease_id, source, newest.episode_uuid, duration or self.options.lease_s, now)
        )
        self._empty_slots = 0
        return Reply(ErrorCode.NONE)

    def release(self, lease_id: str, now: float) -> tuple[Reply, Executed | None]:
        """Give a lease back."""
        current = self._leases.current
        if current is None or current.lease_id != lease_id:
            ended = self._leases.why_ended(lease_id)
            if ended is not None:
                text = f'lease {lease_id} ended by {ended.name.lower()}'
                return Reply(ErrorCode.LEASE_LOST, text), None
            return Reply(ErrorCode.LEASE_UNKNOWN, f'no lease {lease_id!r}'), None
        self._drop(Refusal(Reason.RELEASED, f'{current.source} released its lease'), now)
        return Reply(ErrorCode.NONE), self._hold_now()
