# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_sim.camera_schedule import CameraSchedule


def test_every_camera_is_captured_at_the_reset():
    assert CameraSchedule({'a': 20, 'b': 1}, 20).due(0) == ['a', 'b']


def test_a_camera_at_half_rate_is_captured_every_other_step():
    schedule = CameraSchedule({'a': 20.0, 'b': 10.0}, 20.0)
    assert [schedule.due(k) for k in range(1, 5)] == [['a'], ['a', 'b'], ['a'], ['a', 'b']]


def test_a_camera_faster_than_control_is_captured_at_every_step():
    schedule = CameraSchedule({'a': 60.0}, 20.0)
    assert all(schedule.due(k) == ['a'] for k in range(50))


@given(st.floats(0.5, 60), st.sampled_from([10.0, 20.0, 29.97, 30.0, 50.0]))
def test_captures_per_second_are_the_rate(rate, hertz):
    schedule = CameraSchedule({'a': rate}, hertz)
    steps = round(10 * hertz)
    captured = sum(bool(schedule.due(k)) for k in range(1, steps + 1))
    assert captured == pytest.approx(min(rate, hertz) * steps / hertz, abs=1)
