# SPDX-License-Identifier: Apache-2.0
import base64
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from praxis_core.exchange_error import ExchangeError
from praxis_core.model_exchange import Prediction
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import LIBERO_7D, ROBOTWIN_QPOS14
from praxis_core.testing import wait_until
from starlette.testclient import TestClient

sys.path.insert(0, str(Path(__file__).parent))
from praxis_models.gateway import codec, observations, server
from praxis_models.gateway.calls import Gateway
from praxis_models.transport.connection import Connection
from praxis_models.workers import settings
from worker_rig import PRIMARY, Rig, Scripted, request

TOKEN = {'Authorization': 'Bearer geheim'}
DTYPES = ('bool', 'int8', 'uint8', 'int32', 'int64', 'uint16', 'float16', 'float32', 'float64')


# --- codec ---

arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
)
plain = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8)
plain |= st.floats(allow_nan=False)
values = st.recursive(
    plain | arrays,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(left, right):
    if isinstance(left, np.ndarray):
        assert isinstance(right, np.ndarray)
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            same(left[key], right[key])
    elif isinstance(left, list):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            same(one, other)
    else:
        assert type(left) is type(right)
        assert left == right


@given(values)
def test_what_is_written_is_read_back(value):
    same(codec.loads(codec.dumps(value)), value)


@given(arrays, st.sampled_from(['transposed', 'reversed', 'swapped']))
def test_array_of_any_layout_is_written_in_order(array, layout):
    if layout == 'swapped':
        given_array = array.astype(array.dtype.newbyteorder())
    else:
        given_array = (
            array.T if layout == 'transposed' else array[..., ::-1] if array.ndim else array
        )
    written = codec.dumps(given_array)
    assert json.loads(written)['dtype'] == array.dtype.name
    read = codec.loads(written)
    np.testing.assert_array_equal(read, given_array)
    assert read.flags.writeable


# Python's own float is what a float64 is written as.
@given(st.sampled_from(DTYPES[:-1]), st.integers(0, 100))
def test_scalar_keeps_its_type(dtype, number):
    scalar = np.dtype(dtype).type(number)
    written = json.loads(codec.dumps(scalar))
    assert written == {'__npscalar__': scalar.item(), 'dtype': dtype}
    read = codec.loads(json.dumps(written).encode())
    assert type(read) is type(scalar)
    assert read == scalar


def test_array_has_the_published_form():
    assert json.loads(codec.dumps(np.array([[1, 2]], np.uint8))) == {
        '__ndarray__': base64.b64encode(b'\1\2').decode(), 'dtype': 'uint8', 'shape': [1, 2]
    }  # fmt: skip


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(body):
    try:
        codec.loads(body)
    except codec.CodecError as error:
        assert '\n' not in str(error)


@pytest.mark.parametrize(
    'found',
    [
        {'dtype': 'O'}, {'dtype': 'object'}, {'dtype': 'U4'}, {'dtype': 'V8'}, {'dtype': 'M8[s]'},
        {'dtype': 'c8'}, {'dtype': 'f4,f4'}, {'dtype': '(2,)f4'}, {'dtype': None}, {'dtype': 3},
        {'dtype': ''}, {'dtype': 'x' * 99}, {'shape': [3]}, {'shape': [-1]}, {'shape': 2},
        {'shape': [2.0]}, {'shape': [True]}, {'shape': [1] * 20}, {'__ndarray__': 'a'},
        {'__ndarray__': '!!!!'}, {'__ndarray__': 5}, {'__ndarray__': None},
    ],
)  # fmt: skip
def test_array_that_is_not_what_it_says_is_refused(found):
    whole = {'__ndarray__': base64.b64encode(bytes(8)).decode(), 'dtype': 'f4', 'shape': [2]}
    assert codec.loads(json.dumps(whole).encode()).shape == (2,)
    with pytest.raises(codec.CodecError):
        codec.loads(json.dumps({'x': [{**whole, **found}]}).encode())


@pytest.mark.parametrize(
    'found', [{'dtype': 'O'}, {'dtype': None}, {'__npscalar__': 'x'}, {'__npscalar__': [1]},
              {'dtype': 'uint8', '__npscalar__': 300}, {'dtype': 'int64', '__npscalar__': 2**70}],
)  # fmt: skip
def test_scalar_that_is_not_what_it_says_is_refused(found):
    whole = {'__npscalar__': 1, 'dtype': 'float32', **found}
    with pytest.raises(codec.CodecError):
        codec.loads(json.dumps(whole).encode())


@pytest.mark.parametrize(
    'value', [np.array([None]), {1, 2}, object(), np.array(['a']), np.zeros(2, 'c8'), b'bytes']
)
def test_what_has_no_form_is_not_written(value):
    with pytest.raises(codec.CodecError):
        codec.dumps({'x': value})


def test_depth_without_end_is_refused():
    with pytest.raises(codec.CodecError):
        codec.loads(b'[' * 100_000)


# --- views and states ---


def meta(roles, schema, control=LIBERO_7D):
    return ModelMeta(backend='b', control=control, camera_roles=roles, state_schema=schema)


@pytest.mark.parametrize(
    ('roles', 'given_roles', 'views'),
    [
        (('primary', 'wrist'), {}, ('primary', 'wrist', '')),
        (('wrist', 'primary'), {}, ('primary', 'wrist', '')),
        (('head', 'left_wrist', 'right_wrist'), {}, ('head', 'left_wrist', 'right_wrist')),
        (('wrist',), {}, ('', 'wrist', '')),
        (('top',), {}, ('top', '', '')),
        ((), {}, ('', '', '')),
        (('a', 'b'), {'main': 'b'}, ('b', '', 'a')),
        (('head', 'left_wrist', 'right_wrist'), {'wrist': 'right_wrist'},
         ('head', 'right_wrist', 'left_wrist')),
    ],
)  # fmt: skip
def test_views_get_the_likeliest_roles_or_those_given(roles, given_roles, views):
    assert observations.views_of(meta(roles, {}), **given_roles) == views


def test_roles_that_do_not_fit_are_refused():
    with pytest.raises(ExchangeError, match=r'expected a or b \(got c\)'):
        observations.views_of(meta(('a', 'b'), {}), 'c')
    with pytest.raises(ExchangeError, match='at most three'):
        observations.views_of(meta(('a', 'b', 'c', 'd'), {}))


def test_liberos_eight_values_become_its_physical_states():
    # A quarter turn about z is the quaternion (0, 0, sqrt 1/2, sqrt 1/2).
    values = np.array([0.1, 0.2, 0.3, 0, 0, np.pi / 2, 0.04, -0.04], np.float32)
    state = observations.named_state(meta((), observations.LIBERO_STATE), values)
    np.testing.assert_allclose(state['eef_position'], [0.1, 0.2, 0.3], rtol=1e-6)
    np.testing.assert_allclose(state['eef_quaternion_xyzw'], [0, 0, 0.5**0.5, 0.5**0.5], atol=1e-6)
    np.testing.assert_allclose(state['gripper_qpos'], [0.04, -0.04], rtol=1e-6)


def test_states_that_do_not_hold_what_the_model_wants_are_refused():
    with pytest.raises(ExchangeError, match=r'joint_targets\[14\].*got 14 values'):
        observations.named_state(
            meta((), {'joint_targets': 14}, ROBOTWIN_QPOS14), np.zeros(14, np.float32)
        )
    with pytest.raises(ExchangeError, match=r'state\[3\].*got 8 values'):
        observations.named_state(meta((), {'state': 3}), np.zeros(8, np.float32))


# --- calls ---


class Stateless(Scripted):
    meta = Scripted.meta.model_copy(
        update={'uses_sessions': False, 'camera_roles': ('primary', 'wrist')}
    )


class Web:
    """The application before a worker, and calls as a client writes them."""

    def __init__(self, backend, **options):
        self.backend = backend
        self.rig = Rig(lambda: backend)
        self.options = {
            'token': 'geheim', 'open_calls': True, 'max_bytes': 2**22, **options
        }  # fmt: skip

    def __enter__(self):
        self.rig.__enter__()
        self.rig.wait_loaded()
        self.connection = Connection(f'127.0.0.1:{self.rig.server.port}')
        self.connection.start()
        assert self.connection.wait(20).phase == 'ready'
        app = server.make_app(Gateway(self.connection), **self.options)
        self.http = TestClient(app)
        return self

    def __exit__(self, *_):
        self.connection.close()
        self.rig.__exit__()

    def post(self, content, headers=None):
        headers = {'content-type': 'application/json', **(headers or {})}
        response = self.http.post('/call', content=content, headers=headers)
        assert response.status_code == 200
        return codec.loads(response.content)

    def call(self, method, *args, headers=None, session_id=None, **kwargs):
        body = {'method': method, 'args': list(args), 'kwargs': kwargs}
        if session_id is not None:
            body['session_id'] = session_id
        return self.post(codec.dumps(body), headers)

    def result(self, *args, **kwargs):
        answer = self.call(*args, **kwargs)
        assert answer['ok'], answer
        return answer['result']

    def refusal(self, *args, **kwargs):
        answer = self.call(*args, **kwargs)
        assert set(answer) == {'ok', 'error'}, answer
        assert not answer['ok']
        assert '\n' not in answer['error']
        return answer['error']


@pytest.fixture
def web():
    with Web(Stateless()) as web:
        yield web


@pytest.fixture
def session_web():
    with Web(Scripted()) as web:
        yield web


def batch(values=(1.0,), **change):
    count = len(values)
    images = np.stack([PRIMARY + index for index in range(count)])
    return {
        'main_images': images,
        'wrist_images': images[:, ::-1],
        'extra_view_images': None,
        'states': np.array([[value, 0, 0] for value in values], np.float32),
        'task_descriptions': ['pick up the cube'] * count,
        **change,
    }


def test_batch_gives_an_array_of_chunks(web):
    actions = web.result('vla.predict', batch((1.0, 2.0)), {'mode': 'eval'})
    assert (actions.dtype, actions.shape) == (np.float32, (2, 2, 7))
    np.testing.assert_array_equal(actions[:, 0, 0], [1.0, 2.0])


def test_views_reach_the_model_as_they_were(web):
    seen = []
    predict = web.backend.predict
    web.backend.predict = lambda observation, session: (
        seen.append(observation), predict(observation, session)
    )[1]  # fmt: skip
    web.result('vla.predict', batch())
    (observation,) = seen
    np.testing.assert_array_equal(observation.images['primary'], PRIMARY)
    np.testing.assert_array_equal(observation.images['wrist'], PRIMARY[::-1])
    assert observation.instruction == 'pick up the cube'


@pytest.mark.parametrize(
    ('args', 'text'),
    [
        ((batch(), {'mode': 'train'}), "options: expected {'mode': 'eval'}"),
        ((batch(), {'mode': 'eval', 'seed': 1}), 'options: expected'),
        ((batch(main_images=PRIMARY),), 'main_images: expected uint8[B, H, W, 3]'),
        ((batch(main_images=None),), 'main_images: expected'),
        ((batch(wrist_images=None),), "wrist_images: expected the view that the model calls"),
        ((batch(wrist_images=np.zeros((2, 4, 6, 3), np.uint8)),), 'wrist_images: expected uint8'),
        ((batch(states=np.zeros(3)),), 'states: expected numbers of shape [1, D]'),
        ((batch(states=np.zeros((1, 4))),), 'states: expected what holds state[3]'),
        ((batch(states=np.full((1, 3), np.nan)),), 'state.state[0]: expected a finite number'),
        ((batch(task_descriptions='x'),), 'task_descriptions: expected 1 sentences'),
        ((batch(task_descriptions=['']),), 'instruction: expected a sentence'),
        ((batch([0.0] * 17),), 'batch: expected at most 16 (got 17)'),
        ((5,), 'observation: expected a mapping'),
        ((), 'vla.predict: vla_predict() missing 1 required positional argument'),
        ((1, 2, 3), 'vla.predict: vla_predict() takes'),
    ],
)  # fmt: skip
def test_bad_batch_is_refused_by_name_before_inference(web, args, text):
    assert text in web.refusal('vla.predict', *args)
    assert web.backend.seen == []


def test_older_clients_send_png_and_get_lists(web):
    ok, png = cv2.imencode('.png', PRIMARY[..., ::-1])
    assert ok
    block = {'format': 'png', 'data': base64.b64encode(png).decode()}
    result = web.result(
        'predict', instruction='pick', images={'main': block, 'wrist': block},
        state=[[2.0, 0.0, 0.0]], mode='eval',
    )  # fmt: skip
    assert (result['shape'], result['dtype']) == ([1, 2, 7], 'float32')
    assert result['actions'][0][0][0] == 2.0
    decoded = observations.batch_of_one('pick', {'main': block}, [[1.0]])
    np.testing.assert_array_equal(decoded['main_images'], PRIMARY[None])


@pytest.mark.parametrize('data', ['', '!', 'aGVsbG8=', None, 5])
def test_png_that_is_none_is_refused(web, data):
    block = {'format': 'png', 'data': data}
    assert 'images.main: expected a PNG' in web.refusal(
        'predict', 'pick', {'main': block}, [[1.0]]
    )


def test_png_that_unpacks_to_gigabytes_is_refused(web):
    size = (60_000).to_bytes(4, 'big')
    raw = b'\x89PNG\r\n\x1a\n' + (13).to_bytes(4, 'big') + b'IHDR' + size + size + b'\x08\2\0\0\0'
    block = {'data': base64.b64encode(raw).decode()}
    assert '60000x60000' in web.refusal('predict', 'pick', {'main': block}, [[1.0]])


def test_metadata_has_the_references_keys_under_both_names(web):
    found = web.result('wam.get_model_meta')
    assert found == web.result('wam.capabilities')
    assert found['backend'] == 'scripted'
    assert found['control'] == {
        'embodiment': 'libero_7d', 'action_space': 'libero.osc_pose.delta.v1',
        'action_schema': list(LIBERO_7D.action_schema), 'action_type': None,
    }  # fmt: skip
    assert found['camera_roles'] == ['primary', 'wrist']
    assert found['state_schema'] == {'state': 3}
    assert (found['chunk_size'], found['uses_sessions']) == (2, False)


def test_physical_request_is_answered_with_all_that_was_predicted(web):
    frames = np.ones((3, 4, 4, 3), np.uint8)
    web.backend.answer = lambda: Prediction(
        np.ones((2, 7), np.float32), {'primary': frames}, 0.5, {'seed': 1}
    )
    whole = request()
    whole['images'] = {'primary': PRIMARY, 'wrist': PRIMARY, 'unasked': PRIMARY}
    whole['state'] = {'state': [1.0, 0.0, 0.0], 'joint_positions': np.zeros(7)}
    result = web.result('wam.predict', whole)
    np.testing.assert_array_equal(result['actions'], np.ones((2, 7), np.float32))
    np.testing.assert_array_equal(result['future_observation']['primary'], frames)
    assert result['value'] == 0.5
    assert result['metadata']['seed'] == 1
    assert result['metadata']['action_schema'] == list(LIBERO_7D.action_schema)


@pytest.mark.parametrize(
    ('change', 'text'),
    [
        ({'embodiment': 'x'}, "embodiment: expected 'libero_7d' (got 'x')"),
        ({'action_space': None}, 'action_space: expected'),
        ({'images': {'primary': PRIMARY}}, 'images.wrist: expected a value (got nothing)'),
        ({'images': None}, 'images: expected a mapping'),
        ({'state': {'state': [1.0]}}, 'state.state: expected numbers of shape [3]'),
        ({'state': {'state': ['a', 'b', 'c']}}, 'state.state: expected numbers'),
    ],
)
def test_bad_physical_request_is_refused_by_name(web, change, text):
    whole = {**request(), 'images': {'primary': PRIMARY, 'wrist': PRIMARY}, **change}
    assert text in web.refusal('wam.predict', whole)
    assert web.backend.seen == []


def test_fault_of_the_model_is_told_without_a_traceback(web):
    web.backend.answer = lambda: 1 / 0
    answer = web.call('vla.predict', batch())
    assert answer == {'ok': False, 'error': 'scripted failed: ZeroDivisionError: division by zero'}


@pytest.mark.parametrize(
    ('method', 'text'),
    [
        ('shutdown', 'shutdown is refused'),
        ('vla.predct', "did you mean 'vla.predict'?"),
        ('_predict', "'_predict': unknown method"),
        ('__init__', "'__init__': unknown method"),
        (5, 'method must be text'),
    ],
)
def test_other_methods_are_refused(web, method, text):
    assert text in web.refusal(method, headers=TOKEN)


@pytest.mark.parametrize(
    ('content', 'text'),
    [
        (b'', 'not JSON'),
        (b'{', 'not JSON'),
        (b'[]', 'a call is an object'),
        (b'{"method": "healthz", "args": 3}', 'args a list'),
        (b'{"method": "healthz", "kwargs": [1]}', 'kwargs must be an object'),
        (b'{"method": "healthz", "session_id": 4}', 'session_id text'),
        (b'{"method": "healthz", "kwargs": {"session_id": "x"}}', 'belongs beside'),
        (b'x' * (2**22 + 1), 'the body is above 4194304 bytes'),
    ],
)
def test_bad_body_is_answered_in_the_envelope(web, content, text):
    answer = web.post(content)
    assert not answer['ok']
    assert text in answer['error']


def test_pages_in_a_browser_are_turned_away(web):
    body = codec.dumps({'method': 'healthz'})
    assert 'browser' in web.post(body, {'Origin': 'http://evil.example'})['error']
    assert 'application/json' in web.post(body, {'content-type': 'text/plain'})['error']
    assert web.post(body) == {'ok': True, 'result': {'status': 'ok'}}


def test_sessions_need_the_token(session_web):
    for method in ('session.register', 'session.close', 'wam.reset'):
        for headers in (None, {'Authorization': 'Bearer falsch'}, {'Authorization': 'geheim'}):
            text = session_web.refusal(method, session_id='rpc_12345678', headers=headers)
            assert text == f'{method} needs the header Authorization: Bearer TOKEN'
    assert session_web.backend.forgotten == []


def test_session_lives_from_register_to_close(session_web):
    ask, name = session_web.result, 'rpc_12345678'
    assert ask('session.register', session_id=name, headers=TOKEN)['session_id'] == name
    counts = [
        ask('wam.predict', request(), session_id=name)['metadata']['count'] for _ in range(2)
    ]
    assert counts == [0, 1]
    assert ask('wam.reset', session_id=name, headers=TOKEN) == {'ok': True}
    assert ask('wam.predict', request(), session_id=name)['metadata']['count'] == 0
    ask('session.close', session_id=name, headers=TOKEN)
    assert name in session_web.refusal('wam.predict', request(), session_id=name)


def test_model_that_remembers_is_not_shared_by_callers_without_a_session(session_web):
    assert 'call session.register first' in session_web.refusal('wam.predict', request())
    single = batch((1.0, 2.0), wrist_images=None)
    assert 'since this model remembers' in session_web.refusal('vla.predict', single)


def test_reset_of_a_model_without_memory_is_granted(web):
    assert web.result('wam.reset', headers=TOKEN) == {'ok': True}
    assert web.backend.forgotten == []


def test_on_an_open_network_everything_but_health_needs_the_token():
    with Web(Stateless(), open_calls=False) as web:
        assert web.result('healthz') == {'status': 'ok'}
        assert 'expected the header' in web.refusal('wam.get_model_meta')
        assert web.result('wam.get_model_meta', headers=TOKEN)['backend'] == 'scripted'


def test_without_a_token_nobody_is_trusted():
    with Web(Scripted(), token='') as web:
        for headers in ({'Authorization': 'Bearer '}, {'Authorization': 'Bearer'}, None):
            assert 'needs the header' in web.refusal('session.register', headers=headers)


def test_loss_of_the_worker_is_told(web):
    web.rig.stop()
    wait_until(lambda: web.connection.status.phase != 'ready')
    assert 'the worker is' in web.refusal('healthz')
    assert 'the worker is' in web.refusal('vla.predict', batch())
    assert web.http.get('/healthz').status_code == 503


def test_health_by_get(web):
    assert web.http.get('/healthz').text == 'OK\n'
    assert web.http.get('/docs').status_code == 404


# --- the process ---


def post(port, body):
    asked = urllib.request.Request(
        f'http://127.0.0.1:{port}/call', codec.dumps(body),
        {'Content-Type': 'application/json'},
    )  # fmt: skip
    with urllib.request.urlopen(asked, timeout=20) as response:
        return codec.loads(response.read())


def test_process_serves_a_worker_and_ends_with_0(spawn, tmp_path):
    worker = spawn([sys.executable, '-m', 'praxis_models.workers', 'noop', '--delay-ms', '5'])
    endpoint = worker.expect('ws://[0-9.:]+').group()
    file = tmp_path / 'port'
    process = spawn(
        [sys.executable, '-m', 'praxis_models.gateway', '--endpoint', endpoint,
         '--port-file', str(file)],
    )  # fmt: skip
    port = int(process.expect('RPC server listening on http://127.0.0.1:([0-9]+)\n').group(1))
    assert file.read_text() == f'{port}\n'
    wait_until(lambda: post(port, {'method': 'healthz'})['ok'])
    values = batch(states=np.zeros((1, 8), np.float32))
    answer = post(port, {'method': 'vla.predict', 'args': [values]})
    assert answer['result'].shape == (1, 10, 7)
    assert process.stop() == 0


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        ([], '--endpoint: is missing'),
        (['--endpoint', 'ws://127.0.0.1:1', '--host', '0.0.0.0'], 'can be reached by others'),
        (['--endpoint', 'ftp://x'], 'gateway: '),
        (['--endpiont', 'x'], 'did you mean --endpoint?'),
    ],
)
def test_bad_command_line_ends_with_2_and_one_line(capsys, monkeypatch, words, text):
    monkeypatch.delenv(server.TOKEN_VARIABLE, raising=False)
    monkeypatch.delenv(settings.TOKEN_VARIABLE, raising=False)
    assert server.main(words) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count('\n') == 1
