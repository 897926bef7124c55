# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st
from praxis_data import messages
from praxis_data.log_time import MAX_LEAD_NS, LogClock, header_stamp_ns

times = st.integers(1, 2**31 * 10**9 - 1)
WALL, SIMULATED, SECOND = 1_700_000_000 * 10**9, 100 * 10**9, 10**9


@given(st.booleans(), st.lists(st.tuples(times, times, st.booleans())))
def test_log_time_never_decreases_and_covers_every_accepted_stamp(by_stamps, entries):
    clock, last = LogClock(by_stamps), 0
    for now, stamp, is_state in entries:
        clock.tick(now)
        accepted = clock.accept(stamp, is_state)
        assert clock.now >= last
        if accepted and clock.now:
            assert clock.now >= stamp
        if not by_stamps:
            assert clock.now >= now
        last = clock.now


@given(times)
def test_stamp_is_read_without_decoding(ns):
    typename = 'praxis_interfaces/msg/StateVector'
    header = {'stamp': messages.time_fields(ns), 'frame_id': 'world'}
    data = messages.encode(typename, messages.make(typename, header=header))
    assert header_stamp_ns(data) == ns


def test_stamps_ahead_of_a_lagging_clock_advance_the_log_time():
    clock = LogClock()
    clock.judge(SIMULATED, SIMULATED + SECOND)
    clock.begin()
    clock.tick(SIMULATED)
    assert clock.accept(SIMULATED + SECOND)
    assert (clock.by_stamps, clock.now) == (False, SIMULATED + SECOND)


def test_log_time_follows_the_stamps_where_the_clock_is_of_another_base():
    clock = LogClock()
    clock.judge(WALL, SIMULATED)
    clock.begin()
    clock.tick(WALL)
    assert (clock.by_stamps, clock.now) == (True, SIMULATED)
    assert clock.accept(SIMULATED + SECOND)
    assert clock.now == SIMULATED + SECOND


def test_one_state_with_a_wrong_stamp_changes_no_time_base():
    clock = LogClock()
    clock.judge(WALL, WALL)
    clock.judge(WALL, WALL + 3600 * SECOND)
    assert not clock.by_stamps
    clock.judge(WALL, WALL)
    clock.judge(WALL, SIMULATED)
    clock.judge(WALL, SIMULATED + SECOND)
    assert clock.by_stamps


def test_stamp_far_ahead_is_refused_until_a_second_state_confirms_it():
    clock = LogClock(by_stamps=True)
    clock.accept(SIMULATED, is_state=True)
    far = SIMULATED + MAX_LEAD_NS + SECOND
    for _ in range(3):
        assert not clock.accept(far)
    assert not clock.accept(far, is_state=True)
    assert clock.accept(SIMULATED + 1, is_state=True)
    assert not clock.accept(far, is_state=True)
    assert clock.now == SIMULATED + 1
    assert clock.accept(far + 1, is_state=True)
    assert clock.now == far + 1
