# SPDX-License-Identifier: Apache-2.0
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_core.contract import load_contract
from praxis_core.model_exchange import PhysicalObservation, check_reply, reply_of
from praxis_core.native_control import LIBERO_7D, control_of
from praxis_models.adapters.recorded_actions import Chunks, Recording
from praxis_models.backend import BackendError, Session
from praxis_models.workers import replay

CONTRACT = Path(__file__).parents[4] / 'params' / 'robots' / 'libero.yaml'
NOTHING = PhysicalObservation(images={}, state={}, instruction='anything')
FIELDS = LIBERO_7D.action_schema


def actions(rows, dim=7):
    return np.arange(1, rows * dim + 1, dtype=np.float32).reshape(rows, dim)


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / 'episode.npz'
    np.savez(path, actions=actions(7), action_names=np.array(FIELDS), policy_hz=20.0)
    return path


@pytest.fixture
def dataset(tmp_path):
    """Written by hand from LeRobot's v2.1 layout, with chunks of 2 episodes."""
    root = tmp_path / 'dataset'
    (root / 'meta').mkdir(parents=True)
    info = {
        'codebase_version': 'v2.1',
        'fps': 10,
        'chunks_size': 2,
        'total_episodes': 4,
        'data_path': 'data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet',
        'features': {'action': {'dtype': 'float32', 'shape': [7], 'names': list(FIELDS)}},
    }
    (root / 'meta' / 'info.json').write_text(json.dumps(info))
    for index in range(4):
        path = root / info['data_path'].format(episode_chunk=index // 2, episode_index=index)
        path.parent.mkdir(parents=True, exist_ok=True)
        column = pa.FixedSizeListArray.from_arrays((actions(5) + 100 * index).ravel(), 7)
        pq.write_table(pa.table({'action': column}), path)
    return root


def load(path, **options):
    return replay.load(replay.Options(**{'checkpoint': path, 'control': 'libero_7d', **options}))


def play(backend, count, session=None):
    session = session or Session('s')
    predictions = [backend.predict(NOTHING, session) for _ in range(count)]
    for prediction in predictions:
        check_reply(backend.meta, reply_of(prediction))
    return [prediction.actions for prediction in predictions]


def test_chunks_follow_one_another(npz):
    first, second = play(load(npz, chunk_size=3), 2)
    np.testing.assert_array_equal(first, actions(7)[:3])
    np.testing.assert_array_equal(second, actions(7)[3:6])


def test_chunks_overlap_where_only_some_steps_are_executed(npz):
    backend = load(npz, chunk_size=4, execute_steps=2)
    first, second = play(backend, 2)
    np.testing.assert_array_equal(first, actions(7)[:4])
    np.testing.assert_array_equal(second, actions(7)[2:6])
    assert backend.meta.execute_steps == 2


def test_end_holds_still_with_the_last_gripper_value(npz):
    *_, last, after = play(load(npz, chunk_size=3), 4)
    rest = np.array([0, 0, 0, 0, 0, 0, 49], np.float32)
    np.testing.assert_array_equal(last, [actions(7)[6], rest, rest])
    np.testing.assert_array_equal(after, [rest] * 3)


def test_end_repeats_the_last_row_in_an_absolute_space(tmp_path):
    np.savez(tmp_path / 'a.npz', actions=actions(1, 14))
    (chunk,) = play(load(tmp_path / 'a.npz', control='robotwin_qpos14', chunk_size=3), 1)
    np.testing.assert_array_equal(chunk, np.tile(actions(1, 14), (3, 1)))


def test_end_can_be_refused_and_a_reset_begins_again(npz):
    backend, session = load(npz, chunk_size=4, at_end='refuse'), Session('s')
    play(backend, 2, session)
    with pytest.raises(BackendError, match='has ended after 2 chunks'):
        backend.predict(NOTHING, session)
    backend.reset(session)
    np.testing.assert_array_equal(play(backend, 1, session)[0], actions(7)[:4])


def test_sessions_have_cursors_of_their_own(npz):
    backend, first, second = load(npz, chunk_size=3), Session('a'), Session('b')
    play(backend, 1, first)
    np.testing.assert_array_equal(play(backend, 1, second)[0], actions(7)[:3])
    np.testing.assert_array_equal(play(backend, 1, first)[0], actions(7)[3:6])


def test_recorded_chunks_are_given_as_they_are(tmp_path):
    recorded = np.arange(3 * 5 * 7, dtype=np.float64).reshape(3, 5, 7)
    np.savez(tmp_path / 'chunks.npz', actions=recorded)
    backend = load(tmp_path / 'chunks.npz', execute_steps=2)
    assert backend.meta.chunk_size == 5
    given_back = play(backend, 4)
    np.testing.assert_array_equal(given_back[:3], recorded)
    assert not given_back[3][:, :6].any()
    with pytest.raises(BackendError, match='execute_steps: 6 is more than a chunk of 5'):
        load(tmp_path / 'chunks.npz', execute_steps=6)


def test_meta_tells_what_is_replayed(npz):
    meta = load(npz, chunk_size=3, cameras=('primary',)).meta
    assert meta.control == LIBERO_7D
    assert (meta.chunk_size, meta.policy_hz, meta.uses_sessions) == (3, 20.0, True)
    assert meta.camera_roles == ('primary',)
    assert meta.metadata == {'episode': 0, 'chunks': 3}


@pytest.mark.parametrize('episode', [0, 1, 3])
def test_dataset_gives_the_episode_asked_for(dataset, episode):
    backend = load(dataset, episode=episode, chunk_size=5)
    np.testing.assert_array_equal(play(backend, 1)[0], actions(5) + 100 * episode)
    assert backend.meta.policy_hz == 10.0


def test_dataset_brings_its_contract(dataset):
    folder = dataset / 'meta' / 'contracts'
    folder.mkdir()
    contract = load_contract(CONTRACT)
    names = list(contract.interface.action.names)
    info = json.loads((dataset / 'meta' / 'info.json').read_text())
    info['features']['action']['names'] = {'motors': names}
    (dataset / 'meta' / 'info.json').write_text(json.dumps(info))
    for name in ('a.yaml', 'b.yaml'):
        shutil.copy(CONTRACT, folder / name)
    meta = load(dataset, control='').meta
    assert meta.control == control_of(contract)
    assert meta.interface_hash == contract.interface_hash


@pytest.mark.parametrize(
    ('change', 'text'),
    [
        ({'codebase_version': 'v3.0'}, "codebase_version is 'v3.0', not 'v2.1'"),
        ({'features': {}}, "has no feature 'action'"),
        ({'data_path': 'data/{nonsense}'}, 'info.json'),
        ({'features': {'action': {'names': ['x', 'y']}}}, 'actions are x, y; libero_7d has '),
    ],
)  # fmt: skip
def test_unusable_dataset_is_refused_with_its_reason(dataset, change, text):
    path = dataset / 'meta' / 'info.json'
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BackendError) as caught:
        load(dataset)
    assert text in str(caught.value)


def test_missing_episode_is_refused_with_what_there_is(dataset):
    with pytest.raises(BackendError, match='has no episode 4; it has 4, counted from 0'):
        load(dataset, episode=4)


def test_damaged_episode_is_refused(dataset):
    (dataset / 'data' / 'chunk-000' / 'episode_000000.parquet').write_bytes(b'PAR1 nonsense')
    with pytest.raises(BackendError, match='episode_000000'):
        load(dataset)


@pytest.mark.parametrize(
    ('arrays', 'text'),
    [
        ({'other': actions(2)}, 'has no array actions, only other'),
        ({'actions': actions(2)[0]}, 'actions must be numbers [N, A] or [K, H, A]'),
        ({'actions': np.zeros((0, 7))}, 'actions must be numbers'),
        ({'actions': np.full((2, 7), np.nan)}, 'actions[0] is not finite'),
        ({'actions': np.array([[None] * 7])}, 'Object arrays cannot be loaded'),
        ({'actions': actions(2, 6)}, 'actions have 6 values; libero_7d has 7'),
        ({'actions': actions(2), 'action_names': ['x'] * 7}, 'actions are x, x'),
    ],
)
def test_unusable_file_is_refused_with_its_reason(tmp_path, arrays, text):
    np.savez(tmp_path / 'a.npz', **arrays)
    with pytest.raises(BackendError) as caught:
        load(tmp_path / 'a.npz')
    assert text in str(caught.value)


def test_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(BackendError, match=r'none\.npz'):
        load(tmp_path / 'none.npz')
    (tmp_path / 'text.npz').write_text('PK nothing')
    with pytest.raises(BackendError, match=r'text\.npz'):
        load(tmp_path / 'text.npz')


def test_control_must_be_given_where_no_contract_is_stored(npz):
    with pytest.raises(BackendError, match='control: must be given'):
        load(npz, control='')
    with pytest.raises(BackendError, match="control: 'other' is neither libero_7d"):
        load(npz, control='other')


@given(
    rows=st.integers(1, 40), length=st.integers(1, 12), advance=st.integers(1, 12), data=st.data()
)
def test_executed_rows_are_the_recorded_ones_in_order(rows, length, advance, data):
    advance = min(advance, length)
    recorded = actions(rows)
    chunks = Chunks(Recording(recorded), length, advance, FIELDS, is_delta=True)
    executed = np.concatenate([chunks.chunk(k)[:advance] for k in range(chunks.count)])
    np.testing.assert_array_equal(executed[:rows], recorded)
    assert not executed[rows:, :6].any()
    beyond = chunks.chunk(chunks.count + data.draw(st.integers(0, 5)))
    assert not beyond[:, :6].any()
    np.testing.assert_array_equal(beyond[:, 6], np.full(length, recorded[-1, 6]))
