# SPDX-License-Identifier: Apache-2.0
import contextlib
import socket
import struct
import threading

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from praxis_sim.platform import CameraModel, Marker, Pose, Rendering, Task
from praxis_sim.remote_protocol import (
    MAX_MESSAGE,
    Arena,
    Channel,
    ConnectionLostError,
    ProtocolError,
    decode,
    encode,
)

DTYPES = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(),
    npst.unsigned_integer_dtypes(),
    npst.floating_dtypes(sizes=(16, 32, 64)),
)
ARRAYS = npst.arrays(DTYPES, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=40))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary()
    | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.fixture(scope='module')
def arena():
    arena = Arena(size=1 << 20)
    yield arena
    arena.close()


@given(VALUES)
def test_a_message_decodes_to_what_was_encoded(value):
    assert same(value, decode(encode(value)))


@given(VALUES)
def test_a_message_decodes_to_what_was_encoded_through_an_arena(arena, value):
    arena.clear()
    assert same(value, decode(encode(value, arena), arena))


@given(st.binary(max_size=200))
@settings(max_examples=400)
def test_arbitrary_bytes_are_a_message_or_a_protocol_error(arena, data):
    with contextlib.suppress(ProtocolError):
        decode(data, arena)


@given(VALUES, st.data())
def test_a_truncated_message_is_a_protocol_error(value, data):
    whole = encode(value)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ProtocolError):
        decode(whole[:cut])


@given(
    st.integers(-(2**40), 2**40), st.lists(st.integers(-5, 2**40), max_size=3), st.text(max_size=4)
)
def test_a_forged_array_never_reads_outside_the_arena(arena, offset, shape, dtype):
    body = msgpack.packb([dtype or '<f8', shape, offset])
    try:
        array = decode(msgpack.packb(msgpack.ExtType(2, body)), arena)
    except ProtocolError:
        return
    assert offset >= 0 and offset + array.nbytes <= 1 << 20


def test_arrays_of_objects_are_refused():
    with pytest.raises(ProtocolError, match='object'):
        encode(np.array([print]))
    body = msgpack.packb(['|O', [1], b'\0' * 8])
    with pytest.raises(ProtocolError, match='no array'):
        decode(msgpack.packb(msgpack.ExtType(1, body)))


def test_only_the_interface_types_are_made():
    with pytest.raises(ProtocolError, match='unknown type'):
        decode(msgpack.packb({'__type__': 'Popen', 'args': ['true']}))
    with pytest.raises(ProtocolError, match='cannot decode'):
        decode(msgpack.packb({'__type__': 'Task', 'nonsense': 1}))
    with pytest.raises(ProtocolError, match='reserved'):
        encode({'__type__': 'Task'})


def test_the_interface_types_survive():
    pose = Pose(np.arange(3.0), np.array([0.0, 0.0, 0.0, 1.0]))
    model = CameraModel(2, 1, np.eye(3), pose, 'hand')
    view = Rendering(model, np.zeros((1, 2, 3), np.uint8), None, None, ('bowl', 'bowl'))
    task = Task('suite/0', 'suite', 'do', 50, 1000)
    marker = Marker('bowl_1', 'box', pose, (1.0, 2.0, 3.0), (0.0, 0.0, 0.0, 1.0))
    got = decode(encode([view, task, marker]))
    assert got[1] == task
    assert (got[2].name, got[2].size, got[0].labels) == ('bowl_1', (1.0, 2.0, 3.0), view.labels)
    assert got[0].depth is None and got[0].camera.parent == 'hand'
    np.testing.assert_array_equal(got[0].camera.pose.position, pose.position)


def test_large_arrays_leave_the_message(arena):
    image = np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8)
    arena.clear()
    data = encode(image, arena)
    assert len(data) < 100
    np.testing.assert_array_equal(decode(data, arena), image)


def test_an_arena_that_is_full_is_no_obstacle(arena):
    images = [np.full((700, 700), value, np.uint8) for value in range(4)]
    arena.clear()
    for image, got in zip(images, decode(encode(images, arena), arena), strict=True):
        np.testing.assert_array_equal(got, image)


@pytest.fixture
def pair():
    a, b = socket.socketpair()
    yield a, b
    a.close()
    b.close()


@given(chunks=st.lists(st.integers(1, 50), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_frames_survive_any_fragmentation(chunks):
    a, b = socket.socketpair()
    messages = [{'k': i, 'text': 'x' * i} for i in range(10)]
    data = b''.join(struct.pack('>I', len(encode(m))) + encode(m) for m in messages)

    def write():
        position, turn = 0, 0
        while position < len(data):
            size = chunks[turn % len(chunks)]
            a.sendall(data[position : position + size])
            position, turn = position + size, turn + 1
        a.close()

    writer = threading.Thread(target=write)
    writer.start()
    channel = Channel(b)
    try:
        assert [channel.receive(5.0) for _ in messages] == messages
        with pytest.raises(ConnectionLostError):
            channel.receive(5.0)
    finally:
        writer.join()
        channel.close()


def test_a_length_over_the_limit_is_refused_without_reading_it(pair):
    pair[0].sendall(struct.pack('>I', MAX_MESSAGE + 1))
    with pytest.raises(ProtocolError, match='exceeds'):
        Channel(pair[1]).receive(1.0)


def test_a_message_over_the_limit_is_not_sent(pair):
    with pytest.raises(ProtocolError, match='exceeds'):
        Channel(pair[0]).send(b'x' * (MAX_MESSAGE + 1), 1.0)


def test_half_a_message_times_out(pair):
    pair[0].sendall(struct.pack('>I', 10) + b'abc')
    with pytest.raises(TimeoutError):
        Channel(pair[1]).receive(0.05)


def test_a_reader_that_does_not_read_times_out(pair):
    with pytest.raises(TimeoutError):
        Channel(pair[0]).send(b'x' * (8 * 1024 * 1024), 0.05)


def test_a_closed_peer_is_noticed_by_both_directions(pair):
    pair[0].close()
    channel = Channel(pair[1])
    with pytest.raises(ConnectionLostError):
        channel.receive(1.0)
    with pytest.raises(ConnectionLostError):
        channel.send('hello', 1.0)
