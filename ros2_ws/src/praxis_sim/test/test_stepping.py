# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_sim.stepping import Advance, LateReaders, Lockstep, RealTime

ACTION = np.ones(7)
EPISODE = 'e' * 32


def observed(stepping, seq=1, now=0.0, episode=EPISODE):
    stepping.observed(seq, episode, now)
    return stepping


def test_lockstep_stands_still_without_a_command():
    stepping = observed(Lockstep())
    assert stepping.poll(1000.0) is None
    assert stepping.waiting_for(1000.0) == ()


def test_lockstep_steps_once_for_the_command_of_its_observation():
    stepping = observed(Lockstep())
    assert stepping.command(1, ACTION, 0.1)
    assert stepping.poll(0.1).values is ACTION
    assert stepping.poll(0.2) is None
    assert not stepping.command(1, ACTION, 0.3)


@pytest.mark.parametrize('seq', [0, 4, 6])
def test_lockstep_ignores_commands_for_another_observation(seq):
    stepping = observed(Lockstep(), 5)
    assert not stepping.command(seq, ACTION, 0.1)
    assert stepping.poll(0.1) is None


def test_lockstep_takes_the_first_of_two_commands():
    stepping = observed(Lockstep())
    stepping.command(1, ACTION, 0.0)
    assert not stepping.command(1, -ACTION, 0.0)
    assert stepping.poll(0.0).values is ACTION


def test_lockstep_waits_for_every_participant_and_names_the_missing():
    stepping = observed(Lockstep(['recorder', 'probe'], stall=2.0))
    stepping.command(1, ACTION, 0.0)
    stepping.acknowledge('recorder', 1, EPISODE)
    assert stepping.poll(1.0) is None
    assert stepping.waiting_for(1.0) == ()
    assert stepping.waiting_for(2.0) == ['probe']
    stepping.acknowledge('probe', 1, EPISODE)
    assert stepping.poll(2.0) is not None


def test_lockstep_acknowledgement_may_come_before_the_command():
    stepping = observed(Lockstep(['recorder']))
    stepping.acknowledge('recorder', 1, EPISODE)
    stepping.command(1, ACTION, 0.0)
    assert stepping.poll(0.0) is not None


@pytest.mark.parametrize(
    'acknowledgement',
    [('recorder', 0, EPISODE), ('recorder', 1, 'other'), ('stranger', 1, EPISODE)],
)
def test_lockstep_ignores_acknowledgements_of_something_else(acknowledgement):
    stepping = observed(Lockstep(['recorder']))
    stepping.command(1, ACTION, 0.0)
    stepping.acknowledge(*acknowledgement)
    assert stepping.poll(10.0) is None


def test_lockstep_reset_drops_the_pending_command():
    stepping = observed(Lockstep(['recorder']))
    stepping.command(1, ACTION, 0.0)
    observed(stepping, 2, 0.1, 'f' * 32)
    stepping.acknowledge('recorder', 2, 'f' * 32)
    assert stepping.poll(0.2) is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just('command'), st.integers(-2, 2)),
            st.tuples(st.just('ack'), st.integers(-2, 2)),
            st.tuples(st.just('poll'), st.just(0)),
        ),
        max_size=60,
    )
)
def test_lockstep_never_steps_without_both_and_never_twice(events):
    stepping = observed(Lockstep(['recorder']), 10)
    seq, commanded, acknowledged = 10, False, False
    for kind, offset in events:
        if kind == 'command':
            stepping.command(seq + offset, ACTION, 0.0)
            commanded |= offset == 0
        elif kind == 'ack':
            stepping.acknowledge('recorder', seq + offset, EPISODE)
            acknowledged |= offset == 0
        else:
            stepped = stepping.poll(0.0) is not None
            assert stepped == (commanded and acknowledged)
            if stepped:
                seq, commanded, acknowledged = seq + 1, False, False
                observed(stepping, seq)


def test_realtime_steps_once_a_period():
    stepping = observed(RealTime(0.05))
    assert stepping.poll(0.049) is None
    assert stepping.wait(0.02) == pytest.approx(0.03)
    assert stepping.poll(0.051) == Advance(None)
    assert stepping.poll(0.099) is None
    assert stepping.poll(0.1) == Advance(None)


def test_realtime_holds_after_two_ticks_without_a_command():
    stepping = observed(RealTime(0.05))
    stepping.command(1, ACTION, 0.0)
    values = [stepping.poll(0.05 * k + 1e-9).values for k in (1, 2, 3, 4)]
    assert values[0] is ACTION
    assert values[1] is ACTION
    assert values[2:] == [None, None]
    stepping.command(5, -ACTION, 0.21)
    assert stepping.poll(0.26).values[0] == -1


def test_realtime_uses_the_newest_command():
    stepping = observed(RealTime(0.05))
    stepping.command(1, ACTION, 0.0)
    stepping.command(1, -ACTION, 0.01)
    assert stepping.poll(0.05).values[0] == -1


def test_realtime_reset_forgets_the_last_command():
    stepping = observed(RealTime(0.05))
    stepping.command(1, ACTION, 0.0)
    observed(stepping, 2, 0.01, 'f' * 32)
    assert stepping.poll(0.07) == Advance(None)


def test_realtime_does_not_catch_up_in_a_burst():
    stepping = observed(RealTime(0.05))
    assert stepping.poll(1.0) is not None
    assert stepping.poll(1.0) is not None
    assert stepping.poll(1.001) is None


def test_realtime_factor_tells_a_slow_simulation():
    stepping = observed(RealTime(0.05))
    now = 0.0
    for _ in range(20):
        now += 0.1
        stepping.poll(now)
    assert stepping.factor(now) == pytest.approx(0.5, abs=0.05)


def test_a_late_reader_gets_the_observation_again_and_once_more():
    readers = LateReaders(settle=0.3)
    assert readers.due(2, 0.0)
    assert not readers.due(2, 0.1)
    assert readers.due(2, 0.3)
    assert not readers.due(2, 9.0)
    assert not readers.due(1, 9.1)
    assert readers.due(2, 9.2)
