# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st
from praxis_data import messages
from praxis_hil.log_time import LogClock, header_stamp_ns

times = st.integers(0, 2**31 * 10**9 - 1)


@given(st.lists(st.tuples(times, times)))
def test_log_time_never_decreases_and_covers_clock_and_stamps(entries):
    clock, last = LogClock(), 0
    for now, stamp in entries:
        log = clock.advance(now, stamp)
        assert log >= max(last, now, stamp)
        last = log


@given(times)
def test_stamp_is_read_without_decoding(ns):
    typename = 'praxis_interfaces/msg/StateVector'
    header = {'stamp': messages.time_fields(ns), 'frame_id': 'world'}
    data = messages.encode(typename, messages.make(typename, header=header))
    assert header_stamp_ns(data) == ns
