# SPDX-License-Identifier: Apache-2.0
import hashlib
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from praxis_data.bag import BagError, BagReader, BagTopic, BagWriter
from praxis_data.recover import recover_bag, unfinished_bags
from rosbags.rosbag2 import Reader

TOPIC = BagTopic('/state', 'praxis_interfaces/msg/StateVector')
STORAGES = ('mcap', 'sqlite3')
MESSAGES = [os.urandom(40 + 13 * (k % 50)) for k in range(200)]


def unfinished(path, storage):
    writer = BagWriter(path, storage, [TOPIC], {'praxis.task': 'pick'}, flush_period_s=60)
    for k, data in enumerate(MESSAGES):
        writer.write('/state', data, k)
        if k % 40 == 39:
            writer.flush()
    if storage == 'mcap':
        writer.abort()
        return path
    # Closing the connection folds the WAL in; a crash leaves it.
    copy = path.with_name('crashed')
    shutil.copytree(path, copy)
    writer.abort()
    return copy


@pytest.fixture(scope='module')
def bags(tmp_path_factory):
    root = tmp_path_factory.mktemp('unfinished')
    return {storage: unfinished(root / storage, storage) for storage in STORAGES}


def digest(folder):
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.iterdir())}


@pytest.mark.parametrize('storage', STORAGES)
def test_everything_written_is_recovered_and_the_original_untouched(bags, storage, tmp_path):
    before = digest(bags[storage])
    recovery = recover_bag(bags[storage], tmp_path / 'whole')
    assert recovery.messages == len(MESSAGES)
    assert digest(bags[storage]) == before
    reader = BagReader(tmp_path / 'whole')
    assert reader.closed
    assert [m.data for m in reader] == MESSAGES
    assert reader.custom_data['praxis.task'] == 'pick'
    with Reader(tmp_path / 'whole') as independent:
        assert independent.message_count == len(MESSAGES)


@pytest.mark.parametrize('storage', STORAGES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(where=st.floats(0.0, 1.0))
def test_truncation_anywhere_yields_a_prefix(bags, tmp_path_factory, storage, where):
    cut = tmp_path_factory.mktemp('cut') / 'bag'
    shutil.copytree(bags[storage], cut)
    [file] = [f for f in cut.iterdir() if f.suffix in ('.mcap', '.db3')]
    wal = cut / f'{file.name}-wal'
    victim = wal if wal.exists() else file
    size = int(victim.stat().st_size * where)
    os.truncate(victim, size)
    recovery = recover_bag(cut)
    got = [m.data for m in BagReader(recovery.path)]
    assert got == MESSAGES[: len(got)]
    if storage == 'mcap':
        raw = file.read_bytes()
        whole = sum(1 for data in MESSAGES if data in raw)
        assert len(got) == whole


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(where=st.floats(0.0, 0.999), flip=st.integers(1, 255))
def test_a_damaged_byte_never_raises_nor_reorders(bags, tmp_path_factory, where, flip):
    cut = tmp_path_factory.mktemp('damaged') / 'bag'
    shutil.copytree(bags['mcap'], cut)
    [file] = list(cut.iterdir())
    data = bytearray(file.read_bytes())
    data[int(len(data) * where)] ^= flip
    file.write_bytes(data)
    positions = {data: k for k, data in enumerate(MESSAGES)}
    got = [positions[m.data] for m in BagReader(cut) if m.data in positions]
    assert got == sorted(got)


def test_closed_bag_is_refused(tmp_path):
    BagWriter(tmp_path / 'b', 'mcap', [TOPIC]).close()
    with pytest.raises(BagError, match='closed already'):
        recover_bag(tmp_path / 'b')


def test_unfinished_bags_are_found_until_recovered(tmp_path):
    BagWriter(tmp_path / 'whole', 'mcap', [TOPIC]).close()
    BagWriter(tmp_path / 'broken', 'mcap', [TOPIC]).abort()
    assert unfinished_bags(tmp_path) == [tmp_path / 'broken']
    recover_bag(tmp_path / 'broken')
    assert unfinished_bags(tmp_path) == []
    with pytest.raises(BagError, match='exists already'):
        recover_bag(tmp_path / 'broken')


@pytest.mark.parametrize('storage', STORAGES)
def test_killed_writer_loses_less_than_a_second(tmp_path, storage):
    program = textwrap.dedent(f"""
        import sys, time
        from praxis_data.bag import BagTopic, BagWriter
        writer = BagWriter({str(tmp_path / 'b')!r}, {storage!r},
                           [BagTopic('/state', 'praxis_interfaces/msg/StateVector')])
        end = time.monotonic() + 30
        while time.monotonic() < end:
            now = time.time_ns()
            writer.write('/state', now.to_bytes(8, 'little'), now)
            print(now, flush=True)
            time.sleep(0.002)
    """)
    process = subprocess.Popen([sys.executable, '-c', program], stdout=subprocess.PIPE, text=True)
    first = int(process.stdout.readline())
    for line in process.stdout:
        if int(line) - first > 1_300_000_000:
            break
    process.kill()
    lines = [int(line)] + [int(x) for x in process.stdout.read().split('\n')[:-1]]
    process.wait()
    recovery = recover_bag(tmp_path / 'b')
    assert lines[-1] - recovery.end_ns < 1_000_000_000
    assert recovery.start_ns == first
