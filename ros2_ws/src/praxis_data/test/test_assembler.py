# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import episode_messages as em
from praxis_data.assembler import RESET, STALE, STOPPED, Assembler

WATERMARK_NS = 200_000_000


@pytest.fixture(scope='session')
def contract(tmp_path_factory):
    return em.contract(tmp_path_factory.mktemp('contract'))


def facts(rows):
    return [
        (
            r.index,
            r.tick_ns,
            r.state.tolist(),
            r.action.tolist(),
            r.requested_action.tolist(),
            r.intervention,
            r.control_mode,
            r.observation_seq,
            sorted(r.stamps.items()),
            sorted(r.stale.items()),
            {name: em.number_in(rgb) for name, rgb in r.images.items()},
        )
        for r in rows
    ]


def without(events, *, topic, ticks, hz=20.0):
    stamps = {em.tick(k, hz) for k in ticks}
    return [e for e in events if not (topic in e.topic and e.stamp in stamps)]


def test_regular_episode_gives_one_row_per_period(contract):
    assembler = Assembler(contract)
    rows = em.ingest(assembler, em.episode(12))
    assert [r.index for r in rows] == list(range(12))
    assert [r.tick_ns for r in rows] == [em.tick(k) for k in range(12)]
    assert [r.observation_seq for r in rows] == list(range(12))
    assert [em.number_in(r.images['top']) for r in rows] == list(range(12))
    assert [em.number_in(r.images['wrist']) for r in rows] == list(range(1000, 1012))
    assert all(r.action[0] == np.sin(k / 5) for k, r in enumerate(rows))
    assert all(r.requested_action[0] == 2 * np.sin(k / 5) for k, r in enumerate(rows))
    assert {r.control_mode for r in rows} == {1}
    assert not any(any(r.stale.values()) for r in rows)
    assert (assembler.ended, assembler.dropped, assembler.stale_rows) == (STOPPED, {}, 0)


def test_rows_close_by_the_watermark_and_not_before(contract):
    assembler = Assembler(contract, watermark_s=0.2)
    events = em.episode(3)
    rows = em.ingest(assembler, events, close=False)
    assert rows == []
    end = em.tick(1) + WATERMARK_NS
    assert assembler.advance(end - 1) == []
    assert [r.index for r in assembler.advance(end)] == [0]


def test_raw_jpeg_and_png_payloads_become_what_they_decode_to(contract):
    from praxis_core.images import decode_image, encode_jpeg

    for encoding in ('raw', 'png', 'jpeg'):
        rows = em.ingest(Assembler(contract), em.episode(3, encoding=encoding))
        for k, row in enumerate(rows):
            wanted = em.picture(k)
            if encoding == 'jpeg':
                wanted = decode_image(encode_jpeg(wanted))
            np.testing.assert_array_equal(row.images['top'], wanted)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_order_of_arrival_within_the_watermark_gives_the_same_rows(contract, data):
    events = em.episode(8)
    gone = data.draw(st.sets(st.integers(1, len(events) - 2), max_size=6), label='lost')
    events = [e for i, e in enumerate(events) if i not in gone]
    delays = data.draw(
        st.lists(st.integers(0, WATERMARK_NS - 1), min_size=len(events), max_size=len(events)),
        label='delays',
    )
    late = [
        em.Event(e.topic, e.typename, e.data, e.stamp, d)
        for e, d in zip(events, delays, strict=True)
    ]
    in_order, shuffled = Assembler(contract), Assembler(contract)
    reference = em.ingest(in_order, events)
    rows = em.ingest(shuffled, sorted(late, key=lambda e: e.arrival))
    assert facts(rows) == facts(reference)
    assert not shuffled.late
    assert shuffled.dropped == in_order.dropped


def test_arrival_beyond_the_watermark_is_counted_and_left_out(contract):
    events = em.episode(12)
    slow = next(e for e in events if 'top' in e.topic and e.stamp == em.tick(3))
    others = [e for e in events if e is not slow]
    late = em.Event(slow.topic, slow.typename, slow.data, slow.stamp, 300_000_000)
    arrivals = sorted([*others, late], key=lambda e: e.arrival)
    assembler = Assembler(contract)
    rows = em.ingest(assembler, arrivals)
    assert assembler.late == {'top': 1}
    assert facts(rows) == facts(em.ingest(Assembler(contract), others))
    assert em.number_in(rows[3].images['top']) == 2


def test_missing_sample_repeats_the_last_and_marks_the_row(contract):
    for topic, stream in (('top', 'top'), ('state', 'state'), ('command', 'action')):
        events = without(em.episode(8), topic=topic, ticks=[4])
        if topic == 'state':
            events = [e for e in events if e.topic != 'state' or e.stamp != em.tick(4)]
        assembler = Assembler(contract)
        rows = em.ingest(assembler, events)
        assert len(rows) == 8
        assert [k for k, r in enumerate(rows) if r.stale[stream]] == [4]
        assert assembler.stale_rows == 1
        assert assembler.stale == {stream: 1}
        if stream == 'top':
            assert rows[4].images['top'] is rows[3].images['top']
        if stream == 'action':
            assert rows[4].action.tolist() == rows[3].action.tolist()


def test_gap_beyond_the_age_limit_ends_the_episode_and_keeps_it(contract):
    events = without(em.episode(20), topic='wrist', ticks=range(6, 20))
    assembler = Assembler(contract)
    rows = em.ingest(assembler, events, close=False)
    assert assembler.ended == STALE
    assert 'wrist' in assembler.message
    assert '0.15' in assembler.message
    assert len(rows) == 6
    assert assembler.close() == []


def test_gap_ends_at_the_same_row_whether_or_not_the_stream_comes_back(contract):
    dead = without(em.episode(30), topic='top', ticks=range(6, 30))
    back = without(em.episode(30), topic='top', ticks=range(6, 12))
    assert facts(em.ingest(Assembler(contract), dead)) == facts(
        em.ingest(Assembler(contract), back)
    )


def test_camera_slower_than_its_contract_is_reported_not_compressed(contract):
    events = without(em.episode(16), topic='top', ticks=range(1, 16, 2))
    assembler = Assembler(contract)
    rows = em.ingest(assembler, events)
    assert len(rows) == 15
    assert [r.stale['top'] for r in rows] == [k % 2 == 1 for k in range(15)]
    assert assembler.stale['top'] == 7
    assert [em.number_in(r.images['top']) for r in rows] == [k - k % 2 for k in range(15)]


def test_camera_at_its_declared_half_rate_is_not_stale(tmp_path):
    half = em.contract(tmp_path, **{'top: {fps: 20.0,': 'top: {fps: 10.0,'})
    events = without(em.episode(12), topic='top', ticks=range(1, 12, 2))
    rows = em.ingest(Assembler(half), events)
    assert len(rows) == 12
    assert not any(r.stale['top'] for r in rows)


def test_reset_ends_the_episode_at_its_last_executed_command(contract):
    events = em.episode(6) + em.episode(6, uuid='episode-b', first=6)
    assembler = Assembler(contract)
    rows = em.ingest(assembler, events, close=False)
    rows += assembler.advance(em.tick(20))
    assert assembler.ended == RESET
    assert assembler.episode_uuid == 'episode-a'
    assert [r.observation_seq for r in rows] == list(range(6))


def test_observation_without_an_action_is_no_row(contract):
    events = em.episode(6)
    assert events[-1].topic == 'command'
    rows = em.ingest(Assembler(contract), events[:-1])
    assert len(rows) == 5


def test_command_sequence_gap_marks_the_episode(contract):
    events = without(em.episode(10), topic='command', ticks=[3, 7])
    assembler = Assembler(contract)
    em.ingest(assembler, events)
    assert assembler.dropped == {'action': 2}
    assert assembler.statistics()['dropped'] == {'action': 2}


def test_mode_is_that_of_the_source_even_where_time_stands_still(contract):
    events = em.episode(4)
    at = em.tick(2)
    where = next(i for i, e in enumerate(events) if e.topic == 'command' and e.stamp == at)
    events[where] = em.command(at, 2, [0.1, 1.0], source='teleop')
    events[where:where] = [em.status(at, 0), em.status(at, 2, 'teleop', intervention=True)]
    events.insert(where + 3, em.status(at, 0))
    rows = em.ingest(Assembler(contract), events)
    assert [(r.control_mode, r.intervention) for r in rows[1:3]] == [(1, False), (2, True)]


def test_ticks_before_every_stream_is_there_are_no_rows(contract):
    events = without(em.episode(8), topic='wrist', ticks=range(3))
    assembler = Assembler(contract)
    rows = em.ingest(assembler, events)
    assert assembler.leading_ticks == 3
    assert [r.index for r in rows] == list(range(5))
    assert [r.observation_seq for r in rows] == list(range(3, 8))


def test_messages_against_the_contract_are_counted_not_used(contract):
    events = em.episode(8)
    wrong = [
        em.state(em.tick(2) + 1_000_000, 2, [1.0, 2.0]),
        em.state(em.tick(2) + 2_000_000, 2, [np.nan, 0.0, 0.0]),
        em.state(em.tick(2) + 3_000_000, 2, [0.0, 0.0, 0.0], interface_hash='0' * 64),
        em.command(em.tick(2) + 1_000_000, 2, [np.inf, 0.0]),
        em.image(em.tick(2) + 1_000_000, 'top', em.picture(0, 32, 32)),
    ]
    broken = em.image(em.tick(2) + 2_000_000, 'wrist', em.picture(0), 'jpeg')
    broken = em.Event(broken.topic, broken.typename, broken.data[:-2000], broken.stamp)
    assembler = Assembler(contract)
    at = next(i for i, e in enumerate(events) if e.stamp > em.tick(2))
    rows = em.ingest(assembler, events[:at] + wrong + [broken] + events[at:])
    assert facts(rows) == facts(em.ingest(Assembler(contract), events))
    assert assembler.invalid == {'state': 3, 'command': 1, 'top': 1, 'wrist': 1}


def test_undecodable_image_counts_as_missing(contract):
    events = em.episode(8, encoding='jpeg')
    at = next(i for i, e in enumerate(events) if 'top' in e.topic and e.stamp == em.tick(4))
    bad = em.image(em.tick(4), 'top', em.picture(4), 'jpeg')
    payload = bytearray(bad.data)
    payload[payload.index(b'\xff\xd8') :] = bytes(len(payload) - payload.index(b'\xff\xd8'))
    events[at] = em.Event(bad.topic, bad.typename, bytes(payload), bad.stamp)
    assembler = Assembler(contract)
    rows = em.ingest(assembler, events)
    assert len(rows) == 8
    assert rows[4].stale['top']
    assert assembler.invalid == {'top': 1}


def test_namespaced_topics_belong_to_their_robot(contract):
    events = [em.Event(f'/robot_a/{e.topic}', e.typename, e.data, e.stamp) for e in em.episode(4)]
    assert len(em.ingest(Assembler(contract, namespace='/robot_a'), events)) == 4
    assert em.ingest(Assembler(contract, namespace='/robot_b'), events) == []


def test_buffers_stay_bounded_without_state(contract):
    assembler = Assembler(contract)
    for k in range(200):
        event = em.image(em.tick(k), 'top', em.picture(k))
        assembler.ingest(event.topic, event.typename, event.data, event.stamp)
    assert len(assembler._cameras['top'].samples) < 12
    assert assembler.waiting_for == ['state', 'action', 'wrist']


def test_jitter_of_stamps_loses_no_sample(contract):
    rng = np.random.default_rng(3)
    events = []
    for e in em.episode(40):
        events.append(e)
    shifted = []
    for k in range(40):
        jitter = int(rng.integers(-5_000_000, 5_000_000)) - 20_000_000
        for camera in ('top', 'wrist'):
            shifted.append(em.image(em.tick(k) + jitter, camera, em.picture(k)))
    events = [e for e in events if 'image' not in e.topic] + shifted
    rows = em.ingest(Assembler(contract), sorted(events, key=lambda e: e.stamp))
    assert [em.number_in(r.images['top']) for r in rows] == list(range(40))
    assert not any(any(r.stale.values()) for r in rows)
