# SPDX-License-Identifier: Apache-2.0
import os
import sqlite3
import threading
import time

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from praxis_data import messages
from praxis_data.bag import BagError, BagReader, BagTopic, BagWriter, bag_info, qos_profile
from rosbags.rosbag2 import Reader

STATE = BagTopic('/state', 'praxis_interfaces/msg/StateVector')
IMAGE = BagTopic('/cameras/top/image_raw/compressed', 'sensor_msgs/msg/CompressedImage')
COMMAND = BagTopic('/command', 'praxis_interfaces/msg/Command', qos_profile(depth=100))
TOPICS = (STATE, IMAGE, COMMAND)
STORAGES = ('mcap', 'sqlite3')


def wait_for(condition, timeout=10.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def state(seq):
    return messages.encode(
        STATE.typename,
        messages.make(STATE.typename, observation_seq=seq, values=[0.5, seq], cameras=['top']),
    )


entries = st.lists(
    st.tuples(st.sampled_from([t.name for t in TOPICS]), st.binary(min_size=4, max_size=300)),
    max_size=60,
)


@pytest.mark.parametrize('storage', STORAGES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(items=entries)
def test_random_messages_come_back_in_arrival_order(tmp_path_factory, storage, items):
    path = tmp_path_factory.mktemp('bag') / 'b'
    with BagWriter(path, storage, TOPICS, {'praxis.task': 'pick'}) as writer:
        for index, (topic, data) in enumerate(items):
            writer.write(topic, data, 1000 + index // 3)
    reader = BagReader(path)
    assert reader.closed
    assert [(m.topic, m.data, m.log_time_ns) for m in reader] == [
        (topic, data, 1000 + index // 3) for index, (topic, data) in enumerate(items)
    ]
    assert reader.custom_data == {'praxis.task': 'pick'}
    assert {t.name: t.typename for t in reader.topics.values()} == {
        t.name: t.typename for t in TOPICS
    }


@pytest.mark.parametrize('storage', STORAGES)
def test_independent_reader_decodes_the_bag(tmp_path, storage):
    with BagWriter(tmp_path / 'b', storage, TOPICS, {'praxis.task': 'pick'}) as writer:
        for k in range(50):
            writer.write('/state', state(k), k * 5_000_000)
    with Reader(tmp_path / 'b') as reader:
        assert reader.message_count == 50
        by_topic = {c.topic: c for c in reader.connections}
        digest = messages.typestore().hash_rihs01('sensor_msgs/msg/CompressedImage')
        assert by_topic[IMAGE.name].digest == digest
        assert by_topic['/command'].ext.offered_qos_profiles[0].depth == 100
        seqs = [
            messages.decode(STATE.typename, bytes(data)).observation_seq
            for _, _, data in reader.messages()
        ]
    assert seqs == list(range(50))


def test_mcap_has_index_schemas_and_rosbag2_metadata(tmp_path):
    with BagWriter(tmp_path / 'b', 'mcap', TOPICS, {'praxis.task': 'pick'}) as writer:
        writer.write('/state', state(7), 5)
    with writer.file.open('rb') as stream:
        reader = make_reader(stream)
        summary = reader.get_summary()
        assert summary.statistics.message_count == 1
        assert summary.chunk_indexes
        schemas = {s.name: s for s in summary.schemas.values()}
        assert schemas[STATE.typename].encoding == 'ros2msg'
        assert b'uint64 observation_seq' in schemas[STATE.typename].data
        [metadata] = [m for m in reader.iter_metadata() if m.name == 'rosbag2']
    stored = yaml.safe_load(metadata.metadata['serialized_metadata'])
    on_disk = yaml.safe_load((tmp_path / 'b' / 'metadata.yaml').read_text())
    assert stored == on_disk['rosbag2_bagfile_information']


@pytest.mark.parametrize('storage', STORAGES)
def test_metadata_is_what_humble_to_kilted_parse(tmp_path, storage):
    with BagWriter(tmp_path / 'b', storage, TOPICS) as writer:
        writer.write('/state', state(1), 2_000_000_000)
        writer.write('/state', state(2), 3_500_000_000)
    text = (tmp_path / 'b' / 'metadata.yaml').read_text()
    info = yaml.safe_load(text)['rosbag2_bagfile_information']
    assert info['version'] == 8
    assert info['duration'] == {'nanoseconds': 1_500_000_000}
    assert info['relative_file_paths'] == [f.name for f in [writer.file]]
    meta = info['topics_with_message_count'][0]['topic_metadata']
    assert isinstance(meta['offered_qos_profiles'], str)
    assert meta['type_description_hash'].startswith('RIHS01_')


@pytest.mark.parametrize('storage', STORAGES)
def test_message_is_readable_by_others_within_the_flush_period(tmp_path, storage):
    writer = BagWriter(tmp_path / 'b', storage, TOPICS, flush_period_s=0.05)
    try:
        writer.write('/state', state(3), 1)
        wait_for(lambda: [m.topic for m in BagReader(tmp_path / 'b')] == ['/state'])
    finally:
        writer.abort()


@pytest.mark.parametrize('storage', STORAGES)
def test_close_makes_file_metadata_and_folder_durable(tmp_path, storage, monkeypatch):
    synced = set()
    real = os.fsync

    def trace(fd):
        synced.add(os.path.realpath(f'/proc/self/fd/{fd}'))
        real(fd)

    monkeypatch.setattr(os, 'fsync', trace)
    writer = BagWriter(tmp_path / 'b', storage, TOPICS)
    writer.write('/state', state(3), 1)
    synced.clear()
    writer.close()
    assert {
        str(writer.file),
        str(tmp_path / 'b'),
        str(tmp_path / 'b/.metadata.yaml.tmp'),
    } <= synced


def test_closed_sqlite_bag_is_one_file(tmp_path):
    with BagWriter(tmp_path / 'b', 'sqlite3', TOPICS) as writer:
        writer.write('/state', state(3), 1)
    assert sorted(os.listdir(tmp_path / 'b')) == ['b_0.db3', 'metadata.yaml']
    with sqlite3.connect(f'{writer.file.as_uri()}?immutable=1', uri=True) as db:
        assert db.execute('SELECT count(*) FROM messages').fetchone() == (1,)


def test_unclosed_bag_carries_its_custom_data(tmp_path):
    for storage in STORAGES:
        writer = BagWriter(tmp_path / storage, storage, TOPICS, {'praxis.contract': 'name: x\n'})
        writer.abort()
        reader = BagReader(tmp_path / storage)
        assert not reader.closed
        assert reader.custom_data == {'praxis.contract': 'name: x\n'}


def test_errors_name_path_and_reason(tmp_path):
    with pytest.raises(BagError, match='does not exist'):
        BagReader(tmp_path / 'none')
    with pytest.raises(BagError, match='holds no'):
        BagReader(tmp_path)
    with pytest.raises(BagError, match='mcap or sqlite3'):
        BagWriter(tmp_path / 'b', 'rosbag1')
    with pytest.raises(BagError, match='no definition'):
        BagWriter(tmp_path / 'b', 'mcap', [BagTopic('/x', 'nowhere/msg/Thing')])
    assert not (tmp_path / 'b').exists()
    with BagWriter(tmp_path / 'b', 'mcap', TOPICS) as writer:
        with pytest.raises(BagError, match='not declared'):
            writer.write('/other', b'1234', 0)
        with pytest.raises(BagError, match='exists already'):
            BagWriter(tmp_path / 'b')


def test_background_write_error_is_raised_by_the_next_write(tmp_path, monkeypatch):
    writer = BagWriter(tmp_path / 'b', 'mcap', TOPICS, flush_period_s=0.01)

    def full(_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(os, 'fdatasync', full)
    wait_for(lambda: not writer._thread.is_alive())
    with pytest.raises(OSError, match='No space left'):
        writer.write('/state', state(3), 1)
    writer.abort()


def test_info_counts_by_topic(tmp_path):
    with BagWriter(tmp_path / 'b', 'mcap', TOPICS) as writer:
        for k in range(4):
            writer.write('/state', state(k), k * 1_000_000_000)
    info = bag_info(tmp_path / 'b')
    assert info.counts == {'/state': 4, IMAGE.name: 0, '/command': 0}
    assert info.duration_s == pytest.approx(3.0)
    assert info.closed


def test_damaged_closed_bag_raises(tmp_path):
    with BagWriter(tmp_path / 'b', 'mcap', TOPICS) as writer:
        writer.write('/state', state(1), 1)
    data = bytearray(writer.file.read_bytes())
    at = data.index(state(1))
    data[at + 10] ^= 0xFF
    writer.file.write_bytes(data)
    with pytest.raises(BagError, match='checksum'):
        list(BagReader(tmp_path / 'b'))
