# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from praxis_core.model_exchange import (
    ExchangeError,
    PhysicalObservation,
    Prediction,
    check_meta,
    check_reply,
    check_request,
    reply_of,
    request_of,
)
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import LIBERO_7D, ROBOTWIN_QPOS14

META = ModelMeta(
    backend='fast_wam',
    control=LIBERO_7D,
    camera_roles=('primary', 'wrist'),
    state_schema={'eef_position': 3, 'gripper_qpos': 2},
    chunk_size=4,
    interface_hash='aa',
)
ANY_LENGTH = META.model_copy(update={'chunk_size': None})


def observation():
    return PhysicalObservation(
        images={role: np.zeros((4, 5, 3), np.uint8) for role in META.camera_roles},
        state={'eef_position': np.ones(3, np.float32), 'gripper_qpos': np.ones(2, np.float32)},
        instruction='pick up the cube',
    )


def request(**changes):
    made = request_of(META, observation())
    for path, value in changes.items():
        *folders, name = path.split('__')
        place = made
        for folder in folders:
            place = place[folder]
        if value is ...:
            del place[name]
        else:
            place[name] = value
    return made


def test_a_request_carries_the_observation():
    got = check_request(META, request_of(META, observation(), session_id='s_1'))
    assert got.instruction == 'pick up the cube'
    assert list(got.images) == ['primary', 'wrist']
    assert {name: vector.dtype for name, vector in got.state.items()} == {
        'eef_position': np.float32, 'gripper_qpos': np.float32,
    }  # fmt: skip


def test_whole_numbers_and_doubles_are_states_too():
    got = check_request(META, request(state__eef_position=np.array([1, 2, 3])))
    assert got.state['eef_position'].dtype == np.float32


@pytest.mark.parametrize(
    ('changes', 'field', 'expected', 'got'),
    [
        ({'embodiment': 'franka'}, 'embodiment', "'libero_7d'", "'franka'"),
        ({'action_space': ...}, 'action_space', "'libero.osc_pose.delta.v1'", 'nothing'),
        ({'instruction': '  '}, 'instruction', 'a sentence', "'  '"),
        ({'instruction': 7}, 'instruction', 'a sentence', '7'),
        ({'images': None}, 'images', 'a mapping', 'None'),
        ({'images__wrist': ...}, 'images.wrist', 'a value', 'nothing'),
        ({'images__top': 0}, 'images', 'one of primary, wrist', "'top'"),
        ({'images__wrist': np.zeros((4, 5, 3))}, 'images.wrist', 'uint8[H, W, 3]', 'float64[4, '),
        ({'images__wrist': np.zeros((3, 4, 5), np.uint8)}, 'images.wrist', 'uint8', 'uint8[3, '),
        ({'images__wrist': np.zeros((0, 5, 3), np.uint8)}, 'images.wrist', 'uint8', 'uint8[0, '),
        ({'images__wrist': b'jpeg'}, 'images.wrist', 'uint8[H, W, 3]', "b'jpeg'"),
        ({'state': ...}, 'state', 'a mapping', 'nothing'),
        ({'state__gripper_qpos': np.ones(3)}, 'state.gripper_qpos', 'numbers of shape [2]', 'f'),
        ({'state__gripper_qpos': np.array([1 + 1j, 0])}, 'state.gripper_qpos', 'numbers', 'compl'),
        ({'state__gripper_qpos': [0.0, 1.0]}, 'state.gripper_qpos', 'numbers', '[0.0, 1.0]'),
        (
            {'state__eef_position': np.array([0.0, np.nan, 1.0])},
            'state.eef_position[1]', 'a finite number', 'nan',
        ),
    ],
)  # fmt: skip
def test_a_request_is_refused_by_field(changes, field, expected, got):
    with pytest.raises(ExchangeError) as refusal:
        check_request(META, request(**changes))
    assert refusal.value.field == field
    assert refusal.value.expected.startswith(expected)
    assert refusal.value.got.startswith(got)


def test_a_request_that_is_no_mapping_is_refused():
    with pytest.raises(ExchangeError, match=r"request: expected a mapping \(got 'predict'\)"):
        check_request(META, 'predict')


def test_a_reply_carries_the_prediction():
    frames = {'primary': np.zeros((2, 4, 5, 3), np.uint8)}
    sent = Prediction(np.ones((4, 7)), frames, 0.5, {'flow_steps': 5})
    got = check_reply(META, reply_of(sent))
    assert got.actions.dtype == np.float32
    assert got.actions.tolist() == sent.actions.tolist()
    assert (got.value, got.metadata, got.future_observation) == (0.5, {'flow_steps': 5}, frames)


def test_a_plain_reply_has_actions_only():
    reply = reply_of(Prediction(np.zeros((4, 7))))
    assert list(reply) == ['actions']
    got = check_reply(META, reply)
    assert (got.value, got.future_observation, got.metadata) == (None, None, {})


@pytest.mark.parametrize(
    ('reply', 'message'),
    [
        ('boom', 'reply: expected a mapping'),
        ({}, 'actions: expected numbers of shape [4, 7] (got nothing)'),
        (
            {'actions': np.zeros((3, 7))},
            'actions: expected numbers of shape [4, 7] (got float64[3',
        ),
        (
            {'actions': np.zeros((4, 8))},
            'actions: expected numbers of shape [4, 7] (got float64[4',
        ),
        ({'actions': np.zeros(7)}, 'actions: expected numbers of shape [4, 7] (got float64[7])'),
        ({'actions': np.zeros((4, 7), bool)}, 'actions: expected numbers'),
        ({'actions': [[0.0] * 7] * 4}, 'actions: expected numbers'),
        ({'value': np.nan}, 'value: expected a finite number (got nan)'),
        ({'value': True}, 'value: expected a finite number (got True)'),
        ({'value': 'high'}, 'value: expected a finite number'),
        ({'metadata': 3}, 'metadata: expected a mapping'),
        ({'future_observation': np.zeros(3)}, 'future_observation: expected a mapping'),
        (
            {'future_observation': {'primary': np.zeros((4, 5, 3), np.uint8)}},
            'future_observation.primary: expected uint8[T, H, W, 3] (got uint8[4, 5, 3])',
        ),
    ],
)
def test_a_reply_is_refused_by_field(reply, message):
    if isinstance(reply, dict) and reply and 'actions' not in reply:
        reply = {'actions': np.zeros((4, 7)), **reply}
    with pytest.raises(ExchangeError) as refusal:
        check_reply(META, reply)
    assert str(refusal.value).startswith(message)


def test_an_action_that_is_not_finite_is_named():
    actions = np.zeros((4, 7))
    actions[2, 6] = -np.inf
    with pytest.raises(ExchangeError, match=r'actions\[2\].gripper: .* \(got -inf\)'):
        check_reply(META, {'actions': actions})


def test_a_double_beyond_single_precision_is_not_finite():
    with pytest.raises(ExchangeError, match='finite'):
        check_reply(META, {'actions': np.full((4, 7), 1e300)})


def test_an_empty_chunk_is_refused_where_the_length_varies():
    with pytest.raises(ExchangeError, match=r'shape \[H, 7\] \(got float64\[0, 7\]\)'):
        check_reply(ANY_LENGTH, {'actions': np.zeros((0, 7))})
    assert len(check_reply(ANY_LENGTH, {'actions': np.zeros((9, 7))}).actions) == 9


@given(arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, max_dims=3)))
def test_what_passes_is_finite_and_of_the_action_dimension(actions):
    try:
        got = check_reply(ANY_LENGTH, {'actions': actions}).actions
    except ExchangeError:
        return
    assert got.ndim == 2 and got.shape[1] == 7 and len(got) and np.isfinite(got).all()


@given(st.recursive(st.none() | st.integers() | st.text() | st.floats(), st.lists) | st.binary())
def test_nothing_but_a_request_passes(value):
    with pytest.raises(ExchangeError):
        check_request(META, value)


def test_the_model_that_is_wanted_passes():
    check_meta(META, LIBERO_7D, backend='fast_wam', interface_hash='aa')
    check_meta(META, LIBERO_7D)
    unknown = META.model_copy(update={'interface_hash': ''})
    check_meta(unknown, LIBERO_7D, interface_hash='bb')


@pytest.mark.parametrize(
    ('control', 'wanted', 'message'),
    [
        (LIBERO_7D, {'backend': 'openpi'}, "backend: expected 'openpi' (got 'fast_wam')"),
        (LIBERO_7D, {'interface_hash': 'bb'}, "interface_hash: expected 'bb' (got 'aa')"),
        (ROBOTWIN_QPOS14, {}, "control.embodiment: expected 'robotwin_qpos14' (got 'libero_7d')"),
        (
            LIBERO_7D.model_copy(update={'action_schema': ('x', 'y')}), {},
            'control.action_schema: expected x, y (got delta_x, delta_y, delta_z, ',
        ),
        (
            LIBERO_7D.model_copy(update={'action_type': 'ee'}), {},
            "control.action_type: expected 'ee' (got nothing)",
        ),
    ],
)  # fmt: skip
def test_another_model_is_refused_by_field(control, wanted, message):
    with pytest.raises(ExchangeError) as refusal:
        check_meta(META, control, **wanted)
    assert str(refusal.value).startswith(message)
