# SPDX-License-Identifier: Apache-2.0
"""Random sequences of requests, modes, faults and time: what must never be executed."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

sys.path.insert(0, str(Path(__file__).parent))

from arbiter_rig import HASH, PERIOD, Rig, make_spec
from praxis_control.modes import TRANSITIONS, Actor, Mode

VALUE = st.one_of(
    st.floats(-1.0, 1.0),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([float('nan'), float('inf'), -float('inf'), 1e308, 10.0, -1.0, 1.0]),
)
VALUES = st.one_of(st.tuples(VALUE, VALUE, VALUE), st.lists(VALUE, max_size=5))
GOOD = (0.3, 0.1, 1.0)
SOURCES = st.sampled_from(['policy', 'primitive', 'teleop'])


class ArbiterMachine(RuleBasedStateMachine):
    """Keeps its own account of leases and takeovers, from the calls alone."""

    @initialize(delta=st.booleans(), lockstep=st.booleans(), enable=st.booleans())
    def start(self, delta, lockstep, enable):
        self.rig = Rig(make_spec(delta=delta), lockstep=lockstep, enable=enable, lease_s=0.5)
        self.lockstep = lockstep
        self.rig.on_publish = self.check
        self.leases = 0
        self.granted = None
        self.used_at = 0.0
        self.dead = set()
        self.give_back_seq = -1
        self.executed_at = {}

    def another_lease(self):
        self.leases += 1
        return f'{self.leases:032x}'

    def lose_lease(self):
        if self.granted is not None:
            self.dead.add(self.granted[0])
        self.granted = None

    @rule(ticks=st.integers(0, 30), part=st.floats(0.0, 1.0), states=st.booleans())
    def time_passes(self, ticks, part, states):
        self.rig.wait((ticks + part) * PERIOD, states=states and not self.lockstep)

    @rule(
        values=st.sampled_from([(0.1, 0.2, 0.04), (0.0, 0.0, 0.0), (np.nan, 0.0, 0.0)]),
        advance=st.booleans(),
        cameras=st.sampled_from([('front',), ()]),
        interface_hash=st.sampled_from([HASH, HASH, HASH, 'b' * 64]),
    )
    def state_arrives(self, **fields):
        self.rig.state(**fields)

    @rule()
    def robot_is_reset(self):
        self.rig.reset()
        self.lose_lease()

    @rule(source=SOURCES, duration=st.sampled_from([0.0, 0.1, 5.0]), again=st.booleans())
    def source_acquires(self, source, duration, again):
        lease_id = sorted(self.dead)[0] if again and self.dead else self.another_lease()
        reply = self.rig.arbiter.acquire(source, lease_id, HASH, duration, self.rig.now)
        if reply.success:
            self.granted = (lease_id, source, duration or 0.5)
            self.used_at = self.rig.now
            self.dead.discard(lease_id)

    @precondition(lambda self: self.granted is not None)
    @rule()
    def lease_is_released(self):
        reply, executed = self.rig.arbiter.release(self.granted[0], self.rig.now)
        self.rig._keep(executed)
        if reply.success:
            self.lose_lease()

    def ask(self, source, lease_id, **fields):
        """Send one request and keep account of the lease it renews or ends."""
        refused = self.rig.status.refused_total
        self.rig.request(source, lease_id=lease_id, **fields)
        accepted = self.rig.status.refused_total == refused
        if self.rig.arbiter.mode is Mode.TELEOP:
            self.lose_lease()
        if accepted and self.granted and (lease_id, source) == self.granted[:2]:
            self.used_at = self.rig.now

    def tick(self):
        if self.lockstep:
            self.rig.now += PERIOD
            self.rig.state()
        else:
            self.rig.wait(PERIOD)

    @rule(
        source=SOURCES,
        fault=st.sampled_from(['none', 'values', 'lease', 'hash', 'space', 'late', 'dead lease']),
        values=VALUES,
        behind=st.integers(-3, 8),
        repeats=st.integers(1, 3),
        fresh=st.booleans(),
    )
    def source_requests(self, source, fault, values, behind, repeats, fresh):
        if fresh:
            self.tick()
        lease_id = self.granted[0] if self.granted else 'f' * 32
        if fault == 'lease':
            lease_id = 'e' * 32
        if fault == 'dead lease' and self.dead:
            lease_id = sorted(self.dead)[-1]
        fields = {'values': values if fault == 'values' else GOOD}
        if fault == 'hash':
            fields['interface_hash'] = 'b' * 64
        if fault == 'space':
            fields['action_space'] = 'x.v1'
        for _ in range(repeats):
            seq = self.rig.seq - (behind if fault == 'late' else 0)
            self.ask(source, lease_id, observation_seq=seq, **fields)

    def be_autonomous(self):
        if self.rig.arbiter.mode is not Mode.AUTONOMOUS:
            self.mode_is_asked_for('operator', Mode.HOLD)
            self.mode_is_asked_for('operator', Mode.AUTONOMOUS)
        self.tick()

    @rule(
        source=st.sampled_from(['policy', 'primitive']),
        ticks=st.integers(1, 4),
        last=st.one_of(st.just(GOOD), VALUES),
    )
    def source_works(self, source, ticks, last):
        self.be_autonomous()
        if self.rig.arbiter.lease is None:
            self.source_acquires(source, 0.0, False)
        for values in [*([GOOD] * ticks), last]:
            self.tick()
            if self.granted is not None:
                self.ask(self.granted[1], self.granted[0], values=values)

    @rule(moves=st.integers(1, 3))
    def holder_answers_in_a_burst(self, moves):
        for _ in range(moves):
            self.rig.state()
            self.rig.now += PERIOD / 8
            if self.granted is not None:
                self.ask(self.granted[1], self.granted[0], values=GOOD)

    @precondition(lambda self: self.granted is not None)
    @rule(ticks=st.integers(8, 15))
    def holder_comes_back_after_a_pause(self, ticks):
        for _ in range(ticks):
            self.tick()
        self.ask(self.granted[1], self.granted[0], values=GOOD)

    @rule(source=st.sampled_from(['policy', 'primitive']))
    def source_answers_what_it_saw_before_the_give_back(self, source):
        self.tick()
        self.mode_is_asked_for('operator', Mode.HOLD)
        self.mode_is_asked_for('operator', Mode.AUTONOMOUS)
        self.source_acquires(source, 0.0, False)
        if self.granted is not None:
            self.ask(self.granted[1], self.granted[0], values=GOOD)

    @rule(source=st.sampled_from(['policy', 'primitive']))
    def source_without_a_lease_works(self, source):
        self.be_autonomous()
        self.ask(source, 'f' * 32)

    @rule(ticks=st.integers(1, 4))
    def human_works(self, ticks):
        for _ in range(ticks):
            self.tick()
            self.ask('teleop', '', values=(-0.3, 0.1, 1.0))

    @rule(
        source=st.sampled_from(['policy', 'teleop', 'operator', '']), wanted=st.sampled_from(Mode)
    )
    def mode_is_asked_for(self, source, wanted):
        before = self.rig.arbiter.mode
        actor = self.rig.arbiter.actor(source)
        allowed = wanted is before or actor in TRANSITIONS.get((before, wanted), ())
        assert self.rig.mode(wanted, source) == allowed
        if allowed and wanted is not before:
            self.lose_lease()
            if wanted is Mode.AUTONOMOUS:
                self.give_back_seq = self.rig.seq

    @rule(ticks=st.integers(0, 3))
    def second_publisher_comes_and_goes(self, ticks):
        self.rig.publishers(2)
        self.lose_lease()
        mark = len(self.rig.published)
        for _ in range(ticks):
            self.tick()
            self.ask('teleop', '')
        assert all(e.hold for _, e in self.rig.published[mark:])
        self.rig.publishers(1)

    def check(self, at, executed):
        values = executed.values
        assert np.isfinite(values).all()
        assert (values >= self.rig.spec.minimum - 1e-9).all()
        assert (values <= self.rig.spec.maximum + 1e-9).all()
        if executed.hold:
            assert not (self.rig.spec.delta and values[:2].any()), 'a hold does not move'
        elif executed.source != 'teleop':
            self.check_autonomous(at, executed)
        else:
            assert self.rig.arbiter.mode is Mode.TELEOP
        assert executed.clamped or np.array_equal(values, executed.requested)
        self.check_rate(at, executed)

    def check_autonomous(self, at, executed):
        assert self.rig.arbiter.mode is Mode.AUTONOMOUS, 'never after a takeover or a stop'
        assert self.granted is not None, 'never without a lease'
        assert (executed.lease_id, executed.source) == self.granted[:2]
        assert at <= self.used_at + self.granted[2] + 1e-6, 'never under an expired lease'
        assert executed.observation_seq > self.give_back_seq
        assert executed.episode_uuid == self.rig.episode

    def check_rate(self, at, executed):
        if executed.hold or self.lockstep:
            return
        times = self.executed_at.setdefault(executed.source, [])
        times.append(at)
        assert len(times) < 4 or times[-1] - times[-4] > 1.4 * PERIOD, 'the rate is bounded'


ArbiterMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestArbiterMachine = ArbiterMachine.TestCase


def test_every_transition_is_between_different_modes_and_names_who():
    for (origin, to), actors in TRANSITIONS.items():
        assert origin is not to and actors and Actor.OPERATOR in actors


def test_numbers_of_modes_and_reasons_are_the_messages():
    interfaces = pytest.importorskip('praxis_interfaces.msg')
    from praxis_control.modes import Reason

    status = interfaces.ControlStatus
    for mode in Mode:
        assert getattr(status, f'MODE_{mode.name}') == mode
    for reason in Reason:
        assert getattr(status, f'REASON_{reason.name}') == reason
    constants = [name for name in dir(status) if name.startswith('REASON_')]
    assert len(constants) == len(Reason)
