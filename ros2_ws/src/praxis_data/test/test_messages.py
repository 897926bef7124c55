# SPDX-License-Identifier: Apache-2.0
import contextlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from praxis_data import messages

STATE = 'praxis_interfaces/msg/StateVector'
COMMAND = 'praxis_interfaces/msg/Command'
IMAGE = 'sensor_msgs/msg/Image'

floats = st.lists(st.floats(allow_nan=False), max_size=9)
texts = st.text(
    alphabet=st.characters(blacklist_categories=('Cs',), blacklist_characters='\0'), max_size=12
)


def test_definition_holds_every_dependency_once():
    text = messages.definition('sensor_msgs/msg/Image')
    assert text.count('MSG: std_msgs/Header') == 1
    assert text.count('MSG: builtin_interfaces/Time') == 1
    assert 'uint8[] data' in text
    assert messages.definition('sensor_msgs/Image') == text


def test_unknown_type_names_itself():
    with pytest.raises(messages.MessageError, match='nowhere_msgs/msg/Thing'):
        messages.definition('nowhere_msgs/msg/Thing')
    with pytest.raises(messages.MessageError, match='not a message type'):
        messages.decode('Thing', b'\0\1\0\0')


@settings(max_examples=50, deadline=None)
@given(floats, floats, texts, st.integers(0, 2**64 - 1), st.booleans())
def test_own_messages_survive_a_round_trip(values, requested, source, seq, hold):
    made = messages.make(
        COMMAND, values=values, requested=requested, source=source, seq=seq, hold=hold
    )
    back = messages.decode(COMMAND, messages.encode(COMMAND, made))
    assert back.values.tolist() == values
    assert back.requested.tolist() == requested
    assert (back.source, back.seq, back.hold) == (source, seq, hold)


@settings(max_examples=25, deadline=None)
@given(floats, floats, texts, st.booleans())
def test_bytes_are_those_of_rclpy(values, requested, source, hold):
    serialization = pytest.importorskip('rclpy.serialization')
    from praxis_interfaces.msg import Command

    theirs = Command(values=values, requested=requested, source=source, hold=hold, clamped=True)
    data = serialization.serialize_message(theirs)
    ours = messages.decode(COMMAND, data)
    assert ours.values.tolist() == values
    assert ours.requested.tolist() == requested
    assert (ours.source, ours.hold, ours.clamped, ours.chunk_index) == (source, hold, True, -1)
    assert serialization.deserialize_message(messages.encode(COMMAND, ours), Command) == theirs


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([STATE, COMMAND, IMAGE]))
def test_any_bytes_decode_or_raise_message_error(data, kind):
    with contextlib.suppress(messages.MessageError):
        messages.decode(kind, data)


def test_image_data_is_a_view():
    data = messages.encode(IMAGE, messages.make(IMAGE, data=bytes(range(256)) * 100))
    pixels = messages.decode(IMAGE, data).data
    assert not pixels.flags.owndata
    assert np.shares_memory(pixels, np.frombuffer(data, np.uint8))


def test_typestore_knows_every_interface():
    store = messages.typestore()
    for name in ('StateVector', 'Command', 'ControlStatus', 'TaskStatus', 'PicoState'):
        assert f'praxis_interfaces/msg/{name}' in store.fielddefs


def test_stamps_keep_every_nanosecond():
    fields = messages.time_fields(1_700_000_000_123_456_789)
    made = messages.make(STATE, header={'stamp': fields, 'frame_id': 'world'})
    assert messages.stamp_ns(made.header.stamp) == 1_700_000_000_123_456_789


def test_package_imports_without_rclpy():
    modules = (
        'messages assembler lerobot_writer lerobot_reader convert compare compaction contact_sheet'
    )
    code = (
        'import sys\n'
        'class Block:\n'
        '    def find_spec(self, name, path=None, target=None):\n'
        "        if name.split('.')[0] in ('rclpy', 'praxis_interfaces', 'sensor_msgs'):\n"
        '            raise ImportError(name)\n'
        'sys.meta_path.insert(0, Block())\n'
        'import importlib\n'
        f'for m in {modules.split()!r}:\n'
        '    importlib.import_module("praxis_data." + m)\n'
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=120)
