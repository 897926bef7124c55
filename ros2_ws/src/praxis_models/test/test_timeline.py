# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_models.playback.action_layout import ActionLayout
from praxis_models.playback.timeline import Chunk, Playback, Timeline

LAYOUT = ActionLayout(('x', 'gripper'), delta=False, grippers=(1,))


def chunk(name, origin, values, gripper=1.0):
    """A chunk whose x are the values."""
    actions = np.column_stack([np.asarray(values, dtype=float), np.full(len(values), gripper)])
    return Chunk(name, actions, np.arange(len(values)), origin)


def ramp(name, origin, length=10, offset=0.0):
    """A chunk that says which position each of its steps is for."""
    return chunk(name, origin, np.arange(origin, origin + length) + offset)


def play(timeline, count):
    """Values of x of the next steps, None where there was none."""
    steps = [timeline.step() for _ in range(count)]
    return [None if step is None else step.values[0] for step in steps]


def test_a_chunk_is_played_once_in_order_and_then_nothing():
    timeline = Timeline(LAYOUT, Playback())
    assert timeline.step() is None
    assert timeline.add(ramp('a', 0, 3))
    assert timeline.remaining == 3
    steps = [timeline.step() for _ in range(4)]
    assert [(s.values[0], s.chunk_id, s.chunk_index) for s in steps[:3]] == [
        (0.0, 'a', 0),
        (1.0, 'a', 1),
        (2.0, 'a', 2),
    ]
    assert steps[3] is None and timeline.remaining == 0


def test_only_the_first_steps_are_executed_where_so_many_are_wanted():
    timeline = Timeline(LAYOUT, Playback(execute=4))
    timeline.add(ramp('a', 0))
    assert play(timeline, 5) == [0.0, 1.0, 2.0, 3.0, None]


def test_steps_that_passed_while_the_model_thought_are_skipped():
    timeline = Timeline(LAYOUT, Playback())
    timeline.add(ramp('a', 0))
    assert play(timeline, 6) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    # Its observation was taken at position 4, and two steps were commanded since.
    assert timeline.add(ramp('b', 4, offset=0.5))
    step = timeline.step()
    assert (step.values[0], step.chunk_id, step.chunk_index) == (6.5, 'b', 2)


def test_nothing_passes_while_nothing_is_commanded():
    timeline = Timeline(LAYOUT, Playback())
    assert play(timeline, 5) == [None] * 5
    timeline.add(ramp('a', 0, 2))
    assert play(timeline, 4) == [0.0, 1.0, None, None]
    timeline.add(ramp('b', 2, 2))
    assert timeline.step().chunk_index == 0


def test_a_late_chunk_executes_its_number_of_steps_from_where_it_takes_over():
    timeline = Timeline(LAYOUT, Playback(execute=4))
    timeline.add(ramp('a', 0))
    play(timeline, 3)
    timeline.add(ramp('b', 1))
    assert play(timeline, 5) == [3.0, 4.0, 5.0, 6.0, None]


def test_a_chunk_whose_steps_have_all_passed_is_dropped():
    timeline = Timeline(LAYOUT, Playback())
    timeline.add(ramp('a', 0))
    play(timeline, 5)
    assert not timeline.add(ramp('b', 1, 4))
    assert play(timeline, 1) == [5.0]


def test_a_chunk_that_comes_out_of_order_does_not_replace_a_newer_one():
    timeline = Timeline(LAYOUT, Playback())
    timeline.add(ramp('a', 0))
    play(timeline, 4)
    timeline.add(ramp('c', 4, offset=0.5))
    play(timeline, 1)
    assert not timeline.add(ramp('b', 2, offset=0.25))
    assert play(timeline, 1) == [5.5]


def test_a_shorter_chunk_ends_sooner_and_the_old_one_does_not_come_back():
    timeline = Timeline(LAYOUT, Playback())
    timeline.add(ramp('a', 0, 10))
    play(timeline, 3)
    timeline.add(ramp('b', 3, 2, offset=0.5))
    assert play(timeline, 3) == [3.5, 4.5, None]


def test_a_chunk_waits_for_its_latency_while_another_plays():
    timeline = Timeline(LAYOUT, Playback(latency=3))
    timeline.add(ramp('a', 0))
    assert play(timeline, 2) == [0.0, 1.0]
    timeline.add(ramp('b', 2, offset=0.5))
    assert play(timeline, 4) == [2.0, 3.0, 4.0, 5.5]


def test_latency_never_leaves_a_gap():
    timeline = Timeline(LAYOUT, Playback(execute=4, latency=3))
    timeline.add(ramp('a', 0))
    play(timeline, 3)
    timeline.add(ramp('b', 3, offset=0.5))
    assert play(timeline, 2) == [3.0, 4.5]


def test_the_chunk_under_way_is_due_at_its_latency_or_when_nothing_is_left():
    timeline = Timeline(LAYOUT, Playback(execute=4, latency=2))
    assert timeline.awaits(0)
    timeline.add(ramp('a', 0))
    assert not timeline.awaits(0)
    play(timeline, 2)
    assert timeline.awaits(0)
    assert not timeline.awaits(1)
    play(timeline, 2)
    assert timeline.awaits(3)


def test_cross_fade_goes_from_the_old_chunk_to_the_new_in_even_parts():
    timeline = Timeline(LAYOUT, Playback(blending='linear', fade=3))
    timeline.add(chunk('a', 0, [0.0] * 10))
    play(timeline, 2)
    timeline.add(chunk('b', 2, [4.0] * 10))
    assert play(timeline, 5) == pytest.approx([1.0, 2.0, 3.0, 4.0, 4.0])


def test_cross_fade_that_is_overtaken_goes_on_from_where_it_is():
    timeline = Timeline(LAYOUT, Playback(blending='linear', fade=3))
    timeline.add(chunk('a', 0, [0.0] * 10))
    play(timeline, 1)
    timeline.add(chunk('b', 1, [4.0] * 10))
    assert play(timeline, 1) == pytest.approx([1.0])
    timeline.add(chunk('c', 2, [8.0] * 10))
    # b is at 2/4 of its fade: 2.0; c at 1/4 over it: 0.75 * 2 + 0.25 * 8
    assert play(timeline, 1) == pytest.approx([3.5])


def test_ensemble_of_every_chunk_that_covers_the_tick():
    timeline = Timeline(LAYOUT, Playback(execute=1, blending='exponential', ensemble_m=np.log(2)))
    values = []
    for origin, value in enumerate([0.0, 7.0, 14.0]):
        timeline.add(chunk(f'c{origin}', origin, [value] * 3))
        values += play(timeline, 1)
    # Weights 1; 2/3, 1/3; 4/7, 2/7, 1/7, the oldest first.
    assert values == pytest.approx([0.0, 7.0 / 3.0, 4.0])
    timeline.add(chunk('c3', 3, [21.0] * 3))
    # The first one ended: 7, 14, 21 remain.
    assert play(timeline, 1) == pytest.approx([(4 * 7 + 2 * 14 + 21) / 7])


def test_a_chunk_out_of_order_joins_the_ensemble_by_its_age():
    timeline = Timeline(LAYOUT, Playback(blending='exponential', ensemble_m=np.log(2)))
    timeline.add(chunk('a', 0, [0.0] * 9))
    play(timeline, 2)
    timeline.add(chunk('c', 2, [14.0] * 9))
    play(timeline, 1)
    assert timeline.add(chunk('b', 1, [7.0] * 9))
    step = timeline.step()
    assert step.values[0] == pytest.approx((4 * 0 + 2 * 7 + 14) / 7)
    assert step.chunk_id == 'c'


def test_a_gripper_switches_once_in_a_cross_fade():
    timeline = Timeline(LAYOUT, Playback(blending='linear', fade=4))
    timeline.add(chunk('a', 0, [0.0] * 10, gripper=-1.0))
    play(timeline, 1)
    timeline.add(chunk('b', 1, [1.0] * 10, gripper=1.0))
    grippers = [timeline.step().values[1] for _ in range(5)]
    assert grippers == [-1.0, -1.0, 1.0, 1.0, 1.0]


def test_clearing_leaves_nothing_to_play_or_to_blend_with():
    timeline = Timeline(LAYOUT, Playback(blending='linear', fade=3, latency=2))
    timeline.add(ramp('a', 0))
    play(timeline, 2)
    timeline.add(ramp('b', 2))
    timeline.clear()
    assert timeline.remaining == 0 and timeline.step() is None
    timeline.add(chunk('c', timeline.position, [9.0] * 3))
    assert play(timeline, 1) == [9.0]


events = st.lists(
    st.one_of(
        st.just('tick'),
        st.tuples(st.integers(0, 6), st.integers(1, 12)),  # lateness, length
    ),
    max_size=60,
)


@given(
    events,
    st.sampled_from(['none', 'linear', 'exponential']),
    st.integers(0, 5),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_whatever_arrives_each_step_is_played_for_its_own_position(
    events, blending, execute, fade, latency
):
    """Chunks that agree on where to be at each position must be followed exactly."""
    timeline = Timeline(LAYOUT, Playback(execute, blending, fade, 0.3, latency))
    commanded = 0
    for event in events:
        if event == 'tick':
            before, left = timeline.position, timeline.remaining
            step = timeline.step()
            assert (step is not None) == (left > 0)
            if step is None:
                assert timeline.position == before
                continue
            commanded += 1
            assert timeline.position == before + 1
            assert step.values[0] == pytest.approx(before)
        else:
            lateness, length = event
            origin = max(0, timeline.position - lateness)
            timeline.add(ramp(f'{origin}', origin, length))
    assert timeline.position == commanded


@given(events, st.integers(0, 4))
def test_blending_does_not_change_when_steps_are_played(events, latency):
    """Only values are blended: which chunk is active at a tick is the same for all three."""
    timelines = [
        Timeline(LAYOUT, Playback(4, blending, 3, 0.1, latency))
        for blending in ('none', 'linear', 'exponential')
    ]
    for number, event in enumerate(events):
        if event == 'tick':
            steps = [timeline.step() for timeline in timelines]
            names = {None if s is None else (s.chunk_id, s.chunk_index) for s in steps}
            assert len(names) == 1
        else:
            lateness, length = event
            for timeline in timelines:
                origin = max(0, timeline.position - lateness)
                timeline.add(ramp(f'{number}', origin, length))
