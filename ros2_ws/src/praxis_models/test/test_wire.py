# SPDX-License-Identifier: Apache-2.0
import math
import struct
import tracemalloc

import msgpack
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from openpi_client import msgpack_numpy as openpi
from praxis_models.transport import wire

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness='?'),
    hnp.unsigned_integer_dtypes(endianness='?'),
    hnp.floating_dtypes(endianness='?', sizes=(16, 32, 64)),
    hnp.byte_string_dtypes(min_len=1, max_len=8),
    hnp.unicode_string_dtypes(endianness='?', min_len=1, max_len=8),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@st.composite
def arrays(draw):
    """Arrays of all permitted types: 0-d, empty, transposed, strided, reversed, big-endian."""
    array = draw(hnp.arrays(draw(DTYPES), draw(SHAPES)))
    if array.ndim and draw(st.booleans()):
        axis = draw(st.integers(0, array.ndim - 1))
        step = draw(st.sampled_from([-1, 2, -2]))
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
    return array.T if draw(st.booleans()) else array


@st.composite
def scalars(draw):
    return draw(hnp.arrays(draw(DTYPES), ()))[()]


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
)
KEYS = st.one_of(st.text(max_size=12), st.integers(0, 9))
VALUES = st.recursive(
    st.one_of(PLAIN, arrays(), scalars()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


def assert_same(found, expected):
    """Equal in type, shape, byte order and every value, NaN included."""
    if isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.dtype.str == expected.dtype.str
        assert found.tobytes() == expected.tobytes()
    elif isinstance(expected, np.generic) and not isinstance(expected, (float, bytes, str)):
        # float64, bytes_ and str_ are Python's own and travel as such
        assert isinstance(found, np.generic)
        assert found.dtype == expected.dtype.newbyteorder('=')
        assert found == expected or (found != found and expected != expected)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        plain = expected.item() if isinstance(expected, np.generic) else expected
        assert type(found) is type(plain)
        assert found == expected or (found != found and expected != expected)


# --- round trips ---


@given(VALUES)
@example({'images': {'primary': np.zeros((2, 2, 3), np.uint8)[:, ::-1]}, 'state': np.float32(1)})
def test_what_is_packed_is_unpacked(value):
    assert_same(wire.unpack(wire.pack(value)), value)


@given(VALUES)
def test_a_frame_is_byte_for_byte_openpis(value):
    assert wire.pack(value) == openpi.packb(value)


@given(VALUES)
def test_openpi_reads_what_we_write(value):
    assert_same(openpi.unpackb(wire.pack(value), strict_map_key=False), value)


@given(VALUES)
def test_we_read_what_openpi_writes(value):
    assert_same(wire.unpack(openpi.packb(value)), value)


@given(arrays())
def test_any_buffer_can_be_read(array):
    frame = wire.pack({'array': array})
    for kind in (bytes, bytearray, memoryview):
        assert_same(wire.unpack(kind(frame))['array'], array)


def test_mappings_and_tuples_are_plain_in_the_frame():
    from types import MappingProxyType

    frame = wire.pack(MappingProxyType({'a': (1, 2)}))
    assert wire.unpack(frame) == {'a': [1, 2]}


# --- what must not be sent ---


@pytest.mark.parametrize(
    'value',
    [
        np.array([object()]),
        np.array([1 + 2j]),
        np.complex64(1),
        np.longdouble(1),
        np.zeros(2, dtype=[('a', 'f4')]),
        np.zeros(2, dtype='V4'),
        np.array(['2026-01-01'], dtype='M8[D]'),
        np.timedelta64(1, 's'),
        {'a': {'b': object()}},
        {1, 2},
        1 << 64,
        print,
    ],
    ids=repr,
)
def test_what_has_no_form_is_not_packed(value):
    with pytest.raises(wire.WireError, match='cannot be sent: '):
        wire.pack(value)


def test_a_value_that_holds_itself_is_not_packed():
    value = []
    value.append(value)
    with pytest.raises(wire.WireError):
        wire.pack(value)


# --- hostile frames ---


def array(dtype='<f4', shape=(1,), data=b'0000', **more):
    return msgpack.packb({b'__ndarray__': True, b'dtype': dtype, b'shape': shape, b'data': data})


def scalar(dtype, data):
    return msgpack.packb({b'__npgeneric__': True, b'dtype': dtype, b'data': data})


HOSTILE = {
    'object': array('|O', [1], b'\x00' * 8),
    'object, no data': array('O', [0], b''),
    'void': array('|V4'),
    'record': array('f4,f4', [1], b'0' * 8),
    'sub-array': array('(2,)f4', [1], b'0' * 8),
    'complex': array('<c8', [1], b'0' * 8),
    'datetime': array('<M8[s]', [1], b'0' * 8),
    'no such type': array('<f5'),
    'type by number': array(7),
    'type as a list': array(['a', 'f4']),
    'type as a sum': array('1+1'),
    'type with a comma': array(',i4'),
    'long double': array('<f16', [1], b'0' * 16),
    'long type': array('f4,' * 1000),
    'no type': msgpack.packb({b'__ndarray__': True, b'shape': [1], b'data': b'0000'}),
    'nothing but the mark': msgpack.packb({b'__ndarray__': True}),
    'too little data': array(shape=[2]),
    'too much data': array(shape=[1], data=b'0' * 5),
    'data as text': array(data='0000'),
    'data as a list': array(data=[0, 0, 0, 0]),
    'huge': array(shape=[1 << 40, 1 << 20]),
    'overflowing': array(shape=[1 << 62, 4, 1 << 62]),
    'huge and empty': array(shape=[1 << 62, 1 << 62, 0], data=b''),
    'bytes of no length': array('|S0', [1 << 40], b''),
    'text of no length': array('<U0', [1 << 40], b''),
    'unsized text': array('U', [1 << 40], b''),
    'negative': array(shape=[-1]),
    'two negative': array(shape=[-1, -1]),
    'shape of floats': array(shape=[1.0]),
    'shape of booleans': array(shape=[True]),
    'shape as text': array(shape='1'),
    'shape as a number': array(shape=1),
    'many dimensions': array(shape=[1] * 9),
    'no code point': array('<U1', [1], b'\xff\xff\xff\x7f'),
    'no code point, big-endian': array('>U1', [1], b'\x7f\xff\xff\xff'),
    'scalar of objects': scalar('|O', 1),
    'scalar from a list': scalar('<f8', [1.0, 2.0]),
    'scalar from text': scalar('<f8', '1.0'),
    'scalar from nothing': scalar('<f4', None),
    'scalar from a dictionary': scalar('<U3', {}),
    'scalar beyond its type': scalar('|u1', 300),
    'scalar below its type': scalar('<u8', -1),
    'scalar of no type': msgpack.packb({b'__npgeneric__': True, b'data': 1}),
    'extension': msgpack.packb({'a': msgpack.ExtType(4, b'abc')}),
    'empty': b'',
    'reserved byte': b'\xc1',
    'two values': b'\x01\x02',
    'claims 4 GiB of bytes': b'\xc6\xff\xff\xff\xff',
    'claims 4 G entries': b'\xdd\xff\xff\xff\xff',
    'claims 4 G keys': b'\xdf\xff\xff\xff\xff',
    'claims a 4 GiB extension': b'\xc9\xff\xff\xff\xff\x04',
    'no UTF-8': b'\xa2\xff\xff',
    'list as a key': b'\x81\x91\x01\x02',
    'array as a key': b'\x81' + array() + b'\x01',
    'many empty dictionaries': b'\xdd\x00\x0f\x42\x40' + b'\x80' * 1_000_000,
    'many empty lists': b'\xdd\x00\x0f\x42\x40' + b'\x90' * 1_000_000,
    'many lists in lists': b'\xdc\x00\x0a' + (b'\xdd\x00\x01\x86\xa0' + b'\x90' * 100_000) * 10,
    'many numbers in lists': b'\xdc\x00\x0a' + (b'\xdd\x00\x01\x86\xa0' + b'\x00' * 100_000) * 10,
    'many keys': b'\xdf\x00\x0f\x42\x40' + b'\x00\x00' * 1_000_000,
    'deep': b'\x91' * 100_000 + b'\x00',
    'deep dictionaries': b'\x81\xa1a' * 100_000 + b'\x00',
}


@pytest.mark.parametrize('case', HOSTILE)
def test_a_hostile_frame_is_an_error_of_one_line_and_takes_no_memory(case):
    frame = HOSTILE[case]
    tracemalloc.start()
    try:
        with pytest.raises(wire.WireError) as refusal:
            wire.unpack(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 500_000 + 20 * len(frame)
    text = str(refusal.value)
    assert text and '\n' not in text and len(text) < 200


@given(VALUES, st.data())
def test_a_truncated_frame_is_an_error(value, data):
    frame = wire.pack({'value': value})
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(wire.WireError):
        wire.unpack(frame[:cut])


@settings(max_examples=400)
@given(VALUES, st.data())
def test_a_corrupted_frame_is_read_or_refused_and_never_more(value, data):
    frame = bytearray(wire.pack({'value': value}))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = wire.unpack(frame)
    except wire.WireError:
        return
    assert size(found) <= len(frame)
    repr(found)


@pytest.mark.parametrize('dtype', ['float32', '=f4', '<f4', 'f4'])
def test_types_that_other_clients_write_are_read(dtype):
    assert wire.unpack(array(dtype, [1], struct.pack('<f', 1.5))) == np.float32(1.5)


@settings(max_examples=400)
@given(st.binary(max_size=64))
def test_noise_is_read_or_refused(noise):
    try:
        repr(wire.unpack(noise))
    except wire.WireError:
        return


@given(
    st.one_of(
        st.text(max_size=8),
        st.text('<>|=?biufcgSUVOMm0123456789,()[]', max_size=6),
        st.from_regex(r'[<>|]?[biufSU][0-9]{1,2}', fullmatch=True),
    ),
    st.lists(st.integers(-2, 2**64 - 1), max_size=10),
    st.binary(max_size=64),
)
@example('|S0', [1 << 40], b'')
@example(',i4', [1], b'0000')
@example('<f4', [1 << 62, 0, 1 << 62], b'')
def test_an_array_is_never_larger_than_its_data(dtype, shape, data):
    frame = array(dtype, shape, data)
    try:
        found = wire.unpack(frame)
    except wire.WireError:
        return
    assert found.nbytes == len(data)
    assert list(found.shape) == shape and math.prod(shape) * found.itemsize == len(data)


def size(value):
    """Bytes of all arrays in a value."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list) else 0


def test_a_received_array_cannot_be_written_by_mistake():
    found = wire.unpack(wire.pack(np.arange(3.0)))
    with pytest.raises(ValueError, match='read-only'):
        found[0] = 1.0


def test_a_timestamp_is_a_number_of_seconds():
    frame = b'\xd6\xff' + struct.pack('>I', 1_800_000_000)
    assert wire.unpack(frame) == 1.8e9
