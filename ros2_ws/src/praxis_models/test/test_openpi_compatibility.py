# SPDX-License-Identifier: Apache-2.0
"""openpi's client with our workers, and our client with openpi's own serving class.

The serving class comes from ``openpi.serving`` (Physical-Intelligence/openpi 15a9616a; that of
rlinf-openpi 0.1.1 is the same file), found in the directory ``PRAXIS_OPENPI_SOURCE``, in the
interpreter ``PRAXIS_OPENPI_PYTHON``, or beside the tests.
"""

import importlib.util
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from praxis_core.contract import load_contract
from praxis_core.model_exchange import PhysicalObservation, request_of
from praxis_core.model_meta import read_meta
from praxis_core.testing import wait_until
from websockets.exceptions import InvalidStatus

sys.path.insert(0, str(Path(__file__).parent))

from connection_rig import SLACK_S, fixture_connect, ready  # noqa: F401
from hostile_server import refusing_port
from praxis_models.dialect import meet
from praxis_models.request_format import PRESETS

pytestmark = pytest.mark.filterwarnings('ignore:connect.. must be used as a context manager')

LIBERO = load_contract(Path(__file__).resolve().parents[4] / 'params' / 'robots' / 'libero.yaml')
SERVER = Path(__file__).parent / 'openpi_server.py'


def observed(instruction='put the bowl on the plate'):
    rng = np.random.default_rng(5)
    return PhysicalObservation(
        images={
            role: rng.integers(0, 256, (224, 224, 3), np.uint8) for role in ('primary', 'wrist')
        },
        state={'state': np.linspace(-0.5, 0.5, 8, dtype=np.float32)},
        instruction=instruction,
    )


# --- openpi's client, our worker ---


@pytest.fixture
def worker(spawn, tmp_path):
    """Start the worker ``noop``; gives its port once the model is loaded."""

    def start(*words, **environment):
        file = tmp_path / 'port'
        process = spawn(
            [
                *(sys.executable, '-m', 'praxis_models.workers', 'noop'),
                *('--port-file', str(file), *words),
            ],
            env=environment,
        )
        process.expect('model worker noop listening on ws://127.0.0.1:[0-9]+\n')
        port = int(file.read_text())

        def healthy():
            try:
                with urllib.request.urlopen(f'http://127.0.0.1:{port}/healthz') as answer:
                    return answer.read() == b'OK\n'
            except OSError:
                return False

        wait_until(healthy, 30.0, 'the worker')
        return port

    return start


def test_openpis_client_infers_with_our_worker(worker):
    port = worker()
    policy = WebsocketClientPolicy('127.0.0.1', port)
    meta = read_meta(policy.get_server_metadata())
    assert (meta.backend, meta.camera_roles, meta.chunk_size) == ('noop', ('primary', 'wrist'), 10)
    request = request_of(meta, observed())
    first, second = policy.infer(request), policy.infer(request)
    assert first['actions'].dtype == np.float32 and first['actions'].shape == (10, 7)
    assert first['server_timing']['infer_ms'] >= 0
    assert second['server_timing']['prev_total_ms'] > 0


def test_openpis_client_sees_a_refusal_as_an_error_and_goes_on(worker):
    policy = WebsocketClientPolicy('127.0.0.1', worker())
    request = request_of(read_meta(policy.get_server_metadata()), observed())
    with pytest.raises(RuntimeError) as refusal:
        policy.infer({**request, 'state': {'state': np.zeros(7, np.float32)}})
    assert 'state.state: expected numbers of shape [8]' in str(refusal.value)
    assert 'Traceback' not in str(refusal.value)
    assert policy.infer(request)['actions'].shape == (10, 7)


def test_openpis_broker_hands_out_our_chunks_action_by_action(worker):
    policy = WebsocketClientPolicy('127.0.0.1', worker('--chunk-size', '3'))
    request = request_of(read_meta(policy.get_server_metadata()), observed())
    broker = ActionChunkBroker(policy, action_horizon=3)
    for _ in range(4):
        assert broker.infer(request)['actions'].shape == (7,)


def test_openpis_client_brings_its_key(worker):
    port = worker(PRAXIS_MODEL_TOKEN='secret')
    for key in (None, 'wrong'):
        with pytest.raises(InvalidStatus, match='401'):
            WebsocketClientPolicy('127.0.0.1', port, api_key=key)
    policy = WebsocketClientPolicy('127.0.0.1', port, api_key='secret')
    assert read_meta(policy.get_server_metadata()).backend == 'noop'


def test_our_client_brings_the_same_key_and_is_refused_without(worker, connect):
    port = worker(PRAXIS_MODEL_TOKEN='secret')
    status = connect(f'127.0.0.1:{port}').wait(10.0, 'refused')
    assert status.phase == 'refused' and 'HTTP 401' in status.reason
    ready(connect(f'127.0.0.1:{port}', token='secret'))


# --- openpi's serving class, our client ---


def _interpreter(kind):
    """Python and environment that have the serving class."""
    if kind == 'source':
        folder = os.environ['PRAXIS_OPENPI_SOURCE']
        root = Path(folder) / 'src' if (Path(folder) / 'src' / 'openpi').is_dir() else Path(folder)
        assert (root / 'openpi' / 'serving').is_dir(), f'{folder} holds no openpi'
        before = os.environ.get('PYTHONPATH', '')
        return sys.executable, {'PYTHONPATH': f'{root}{os.pathsep}{before}'}
    if kind == 'interpreter':
        return os.environ['PRAXIS_OPENPI_PYTHON'], {'PYTHONPATH': ''}
    if importlib.util.find_spec('openpi') is None:
        pytest.skip('openpi is not installed here')
    return sys.executable, {}


KINDS = ['installed']
KINDS += ['source'] if os.environ.get('PRAXIS_OPENPI_SOURCE') else []
KINDS += ['interpreter'] if os.environ.get('PRAXIS_OPENPI_PYTHON') else []


@pytest.fixture(params=KINDS)
def openpi(request, spawn):
    """Start openpi's server on a port, a free one by default; gives process and endpoint."""
    python, environment = _interpreter(request.param)

    def start(family='libero', port=0):
        port = port or refusing_port()
        process = spawn([python, str(SERVER), str(port), family], env=environment)
        process.expect(f'serving {family} by ')
        return process, f'127.0.0.1:{port}'

    return start


LONG = {'connect_timeout_s': 2.0, 'receive_timeout_s': 10.0, 'first_reply_timeout_s': 10.0}


def talk(connection, family='libero'):
    """Wait for the server; gives the dialect with it."""
    ready(connection, 60.0)
    names = {'libero': 'openpi_libero', 'rlt': 'rlt'}
    return meet(connection.metadata, LIBERO, PRESETS[names[family]])


def predict(connection, dialect, instruction='go'):
    return connection.call(dialect.request(observed(instruction)), parse=dialect.prediction)


def test_openpis_server_answers_our_client(openpi, connect):
    connection = connect(openpi()[1], **LONG)
    dialect = talk(connection)
    assert dialect.meta.metadata['reset_pose'] == [0, -1.5, 1.5, 0, 0, 0]
    assert dialect.meta.checkpoint == 'pi05_libero'
    observation = observed()
    for turn in range(3):
        outcome = predict(connection, dialect)
        assert outcome.ok, outcome
        corners = [observation.images[role][0, -1, 0] / 255 for role in ('primary', 'wrist')]
        expected = [*corners, *observation.state['state'][:5]]
        np.testing.assert_allclose(outcome.value.actions, np.tile(expected, (10, 1)), rtol=1e-6)
        assert outcome.value.metadata['policy_timing'] == {'infer_ms': 12.5}
        assert ('prev_total_ms' in outcome.value.metadata['server_timing']) == (turn > 0)


def test_openpis_server_gives_back_every_kind_of_array(openpi, connect):
    connection = ready(connect(openpi()[1], **LONG), 60.0)
    kinds = ['?', 'i1', '<i8', '>i4', '<u2', '<f2', '>f4', '<f8', 'S3', '<U3']
    sent = {kind: np.arange(6).reshape(2, 3).astype(kind) for kind in kinds}
    sent.update(zero=np.array(3, 'i2'), none=np.zeros((0, 4), 'f4'), turned=np.eye(3)[:, ::-2])
    outcome = connection.call({'prompt': 'echo', 'deep': {'er': [sent]}, 'scalar': np.float32(2)})
    found = outcome.reply['echo']
    assert found['scalar'] == 2 and found['scalar'].dtype == np.float32
    for name, array in sent.items():
        back = found['deep']['er'][0][name]
        assert (back.dtype.str, back.shape) == (array.dtype.str, array.shape)
        np.testing.assert_array_equal(back, array)


def test_openpis_traceback_is_one_line_and_the_next_request_passes(openpi, connect):
    connection = connect(openpi()[1], **LONG)
    dialect = talk(connection)
    for turn in range(2):
        outcome = predict(connection, dialect, 'fail')
        assert (outcome.kind, outcome.message) == ('refused', 'ValueError: the policy has failed')
        assert predict(connection, dialect).ok
        assert connection.generation == turn + 2


def test_openpis_server_is_not_lost_while_it_computes(openpi, connect):
    connection = connect(openpi()[1], **LONG)  # pings after 0.15 s, lost after 0.25 s more
    dialect = talk(connection)
    outcome = predict(connection, dialect, 'take 1.0')
    assert outcome.ok and connection.generation == 1


def test_a_cancelled_request_to_openpis_server_leaves_the_next_one_its_own_reply(openpi, connect):
    connection = connect(openpi()[1], cancel_grace_s=10.0, **LONG)
    dialect = talk(connection)
    assert predict(connection, dialect).ok
    ended = []
    slow = connection.submit(dialect.request(observed('take 0.5')), ended.append)
    wait_until(lambda: slow.sent, 5.0)
    slow.cancel()
    assert [outcome.kind for outcome in ended] == ['cancelled']
    outcome = connection.call({'prompt': 'echo', 'number': 7})
    assert outcome.ok and outcome.reply['echo'] == {'number': 7}
    assert connection.generation == 1


def test_the_death_of_openpis_server_is_seen_at_once_and_its_return_too(openpi, connect):
    process, endpoint = openpi()
    connection = connect(endpoint, **LONG)
    talk(connection)
    began = time.monotonic()
    os.kill(process.pid, signal.SIGKILL)
    assert connection.wait(5.0, 'lost').phase == 'lost'
    assert time.monotonic() - began < 0.5 + SLACK_S
    openpi('rlt', port=int(endpoint.rpartition(':')[2]))
    dialect = talk(connection, 'rlt')
    assert dialect.meta.backend == 'rlt' and connection.generation == 2
    assert predict(connection, dialect).value.actions.shape == (20, 7)


def test_a_stopped_server_is_lost_and_found_again(openpi, connect):
    process, endpoint = openpi()
    connection = connect(endpoint, **{**LONG, 'connect_timeout_s': 0.5})
    dialect = talk(connection)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        status = connection.wait(10.0, 'lost')
        assert status.phase == 'lost' and 'no answer to a ping' in status.reason
    finally:
        os.kill(process.pid, signal.SIGCONT)
    ready(connection, 30.0)
    assert predict(connection, dialect).ok
