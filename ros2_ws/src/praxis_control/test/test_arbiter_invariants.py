# SPDX-License-Identifier: Apache-2.0
"""Random sequences of requests, modes, faults and time: what must never be executed."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

sys.path.insert(0, str(Path(__file__).parent))

from arbiter_rig import HASH, PERIOD, SPACE, Rig, make_spec
from praxis_control.modes import TRANSITIONS, Actor, Mode

VALUE = st.one_of(
    st.floats(-1.0, 1.0),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([float('nan'), float('inf'), -float('inf'), 1e308, 10.0, -1.0, 1.0]),
)
VALUES = st.one_of(
    st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3), st.lists(VALUE, max_size=5)
)
SOURCES = st.sampled_from(['policy', 'primitive', 'teleop'])


class ArbiterMachine(RuleBasedStateMachine):
    """Keeps its own account of leases and takeovers, from the calls alone."""

    @initialize(delta=st.booleans(), lockstep=st.booleans(), enable=st.booleans())
    def start(self, delta, lockstep, enable):
        self.rig = Rig(make_spec(delta=delta), lockstep=lockstep, enable=enable, lease_s=0.5)
        self.lockstep = lockstep
        self.seen = 0
        self.granted = None
        self.used_at = 0.0
        self.dead = set()
        self.give_back_seq = -1
        self.last = None
        self.executed_at = {}

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
        lease_id = sorted(self.dead)[0] if again and self.dead else f'{self.seen + 1:032x}'
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

    @rule(
        source=SOURCES,
        values=VALUES,
        behind=st.integers(-3, 8),
        lease=st.sampled_from(['own', 'dead', '', 'f' * 32]),
        interface_hash=st.sampled_from([HASH, HASH, HASH, 'b' * 64]),
        action_space=st.sampled_from([SPACE, SPACE, SPACE, 'x.v1']),
        repeats=st.integers(1, 3),
    )
    def source_requests(
        self, source, values, behind, lease, interface_hash, action_space, repeats
    ):
        lease_id = {
            'own': self.granted[0] if self.granted else '',
            'dead': sorted(self.dead)[0] if self.dead else '',
        }.get(lease, lease)
        refused = self.rig.status.refused_total
        for _ in range(repeats):
            self.rig.request(
                source,
                values=values,
                observation_seq=self.rig.seq - behind,
                lease_id=lease_id,
                interface_hash=interface_hash,
                action_space=action_space,
            )
        accepted = self.rig.status.refused_total < refused + repeats
        if accepted and self.granted and (lease_id, source) == self.granted[:2]:
            self.used_at = self.rig.now
        if self.rig.arbiter.mode is Mode.TELEOP:
            self.lose_lease()

    @rule(
        source=st.sampled_from(['policy', 'teleop', 'operator', '']), wanted=st.sampled_from(Mode)
    )
    def mode_is_asked_for(self, source, wanted):
        before = self.rig.arbiter.mode
        done = self.rig.mode(wanted, source)
        actor = self.rig.arbiter.actor(source)
        allowed = wanted is before or actor in TRANSITIONS.get((before, wanted), ())
        assert done == allowed
        if done and wanted is not before:
            self.lose_lease()
            if wanted is Mode.AUTONOMOUS:
                self.give_back_seq = self.rig.seq

    @rule(count=st.sampled_from([1, 1, 2]))
    def publishers_change(self, count):
        self.rig.publishers(count)
        if count > 1:
            self.lose_lease()

    @invariant()
    def what_is_executed_is_allowed(self):
        rig = getattr(self, 'rig', None)
        if rig is None:
            return
        for at, executed in rig.published[self.seen :]:
            self.check(at, executed)
        self.seen = len(rig.published)

    def check(self, at, executed):
        values = executed.values
        assert np.isfinite(values).all()
        assert (values >= self.rig.spec.minimum - 1e-9).all()
        assert (values <= self.rig.spec.maximum + 1e-9).all()
        if executed.hold:
            if self.rig.spec.delta:
                assert not values[:2].any()
            elif self.last is not None and self.last[1] == executed.episode_uuid:
                assert self.rig.status.mode is Mode.ESTOP or np.isfinite(values).all()
        elif executed.source != 'teleop':
            self.check_autonomous(at, executed)
        else:
            assert self.rig.arbiter.mode is Mode.TELEOP
        if not executed.hold and self.last is not None and not executed.clamped:
            np.testing.assert_array_equal(values, executed.requested)
        self.check_rate(at, executed)
        self.last = (values, executed.episode_uuid)

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
    max_examples=200,
    stateful_step_count=40,
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
