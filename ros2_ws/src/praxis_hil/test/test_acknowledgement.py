# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st
from praxis_hil.acknowledgement import Observation, ObservationTracker


def test_state_after_its_images_completes_at_once():
    tracker = ObservationTracker()
    assert tracker.image('top', 5) == []
    assert tracker.state(1, 'e', 5, ['top']) == [Observation(1, 'e')]


def test_state_waits_for_a_late_image_of_the_same_stamp():
    tracker = ObservationTracker()
    tracker.image('top', 4)
    assert tracker.state(1, 'e', 5, ['top', 'wrist']) == []
    assert tracker.image('wrist', 5) == []
    assert tracker.image('top', 5) == [Observation(1, 'e')]


def test_state_without_cameras_completes_while_another_waits():
    tracker = ObservationTracker()
    assert tracker.state(1, 'e', 5, ['top']) == []
    assert tracker.state(2, 'e', 6, []) == [Observation(2, 'e')]


@given(st.permutations([('s', k) for k in range(8)] + [('i', k) for k in range(8)]))
def test_every_observation_completes_once_in_any_order(order):
    tracker = ObservationTracker()
    done = []
    for kind, k in order:
        done += tracker.image('top', k) if kind == 'i' else tracker.state(k, 'e', k, ['top'])
    assert sorted(o.seq for o in done) == list(range(8))


def test_images_that_never_come_are_counted_and_memory_is_bounded():
    tracker = ObservationTracker(depth=4)
    for k in range(10):
        tracker.state(k, 'e', k, ['top'])
    assert tracker.lost_images == {'top': 6}


def test_gaps_in_the_sequence_of_states_are_counted():
    tracker = ObservationTracker()
    for seq in (3, 4, 7):
        tracker.state(seq, 'e', seq, [])
    assert tracker.lost_states == 2
