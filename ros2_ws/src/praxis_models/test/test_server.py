# SPDX-License-Identifier: Apache-2.0
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from praxis_core.model_exchange import Prediction
from praxis_core.model_meta import read_meta
from praxis_core.testing import wait_until

sys.path.insert(0, str(Path(__file__).parent))
from praxis_models.backend import BackendError
from praxis_models.transport import wire
from praxis_models.workers.process import REPEAT_S
from websockets.exceptions import ConnectionClosed, InvalidStatus
from worker_rig import PRIMARY, Client, Rig, Scripted, get, request

NOOP = [sys.executable, '-m', 'praxis_models.workers', 'noop']


@pytest.fixture
def backend():
    backend = Scripted()
    yield backend
    backend.gate.set()


@pytest.fixture
def rig(backend):
    with Rig(lambda: backend) as rig:
        rig.wait_loaded()
        yield rig
        backend.gate.set()


# --- protocol ---


def test_metadata_comes_first_and_reads_back(rig, backend):
    with rig.client() as client:
        assert read_meta(client.meta) == backend.meta


def test_reply_has_the_actions_and_the_timing(rig):
    with rig.client() as client:
        first, second = client.ask(request(3.0)), client.ask(request(4.0))
    np.testing.assert_array_equal(first['actions'], np.full((2, 7), 3.0, np.float32))
    assert first['actions'].dtype == np.float32
    assert set(first['server_timing']) == {'infer_ms', 'queue_ms'}
    assert second['server_timing']['prev_total_ms'] >= first['server_timing']['infer_ms'] > 0


def test_timing_of_the_model_is_passed_on(rig, backend):
    timing = {'policy_timing': {'infer_ms': 2.5}}
    backend.answer = lambda: Prediction(np.zeros((2, 7), np.float32), metadata=timing)
    with rig.client() as client:
        assert client.ask(request())['policy_timing'] == {'infer_ms': 2.5}


def test_optional_parts_of_a_prediction_arrive(rig, backend):
    frames = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    backend.answer = lambda: Prediction(np.zeros((2, 7)), {'primary': frames}, 0.25, {'seed': 1})
    with rig.client() as client:
        reply = client.ask(request())
    np.testing.assert_array_equal(reply['future_observation']['primary'], frames)
    assert (reply['value'], reply['metadata']) == (0.25, {'seed': 1})


def test_openpi_client_gets_metadata_and_actions(rig):
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    client = WebsocketClientPolicy('127.0.0.1', rig.server.port)
    assert client.get_server_metadata()['backend'] == 'scripted'
    np.testing.assert_array_equal(client.infer(request(5.0))['actions'], np.full((2, 7), 5.0))
    with pytest.raises(RuntimeError, match=r'state\.state: expected numbers of shape'):
        client.infer({**request(), 'state': {'state': np.zeros(2, np.float32)}})
    np.testing.assert_array_equal(client.infer(request(6.0))['actions'], np.full((2, 7), 6.0))
    client._ws.close()


@pytest.mark.parametrize(
    ('change', 'text'),
    [
        ({'embodiment': 'other'}, "embodiment: expected 'libero_7d' (got 'other')"),
        ({'instruction': ' '}, 'instruction: expected a sentence'),
        ({'images': {}}, 'images.primary: expected a value (got nothing)'),
        ({'images': {'primary': PRIMARY.astype(float)}}, 'images.primary: expected uint8[H'),
        ({'state': {'state': np.array([0, np.nan, 0])}}, 'state.state[1]: expected a finite'),
        ({'session_id': 's_deadbeef'}, "(got 's_deadbeef')"),
        ({'session_id': 5}, 'session_id'),
        ({'method': 'shutdown'}, "method: expected a known one, known are reset"),
        ({'method': 'session.regster'}, "did you mean 'session.register'?"),
        ({'method': 3}, 'method'),
    ],
)  # fmt: skip
def test_refusal_names_the_fault_and_the_connection_goes_on(rig, backend, change, text):
    with rig.client() as client:
        refusal = client.ask({**request(), **change})
        assert isinstance(refusal, str)
        assert text in refusal
        assert '\n' not in refusal
        assert backend.seen == []
        np.testing.assert_array_equal(client.ask(request(2.0))['actions'][0, 0], 2.0)


@pytest.mark.parametrize(
    'frame',
    [b'', b'\xc1', wire.pack([1, 2]), wire.pack(request())[:-3], 'text', b'\x81\xa1a\xc7\xff',
     wire.pack({b'__ndarray__': True, b'dtype': 'O', b'data': b'', b'shape': [0]})],
)  # fmt: skip
def test_garbage_is_refused_and_the_connection_goes_on(rig, frame):
    with rig.client() as client:
        client.socket.send(frame)
        assert isinstance(client.receive(), str)
        assert client.ask(request(2.0))['actions'][0, 0] == 2.0


@pytest.mark.parametrize(
    ('answer', 'text'),
    [
        (lambda: Prediction(np.full((2, 7), np.nan)), 'gave an invalid reply: actions[0].delta_x'),
        (lambda: Prediction(np.zeros((3, 7))), 'gave an invalid reply: actions: expected numbers'),
        (lambda: Prediction(np.zeros((2, 7)), value=float('inf')), 'invalid reply: value'),
        (lambda: Prediction(np.zeros((2, 7)), metadata={'x': {1, 2}}), 'invalid reply: cannot be'),
        (lambda: None, 'scripted failed: AttributeError'),
        (lambda: 1 / 0, 'scripted failed: ZeroDivisionError: division by zero'),
        (lambda: sys.exit(3), 'scripted failed: RuntimeError: SystemExit'),
    ],
)
def test_fault_of_the_model_is_told_and_the_worker_goes_on(rig, backend, answer, text):
    backend.answer = answer
    with rig.client() as client:
        told = client.ask(request())
        assert text in told
        assert 'Traceback' not in told
        assert '\n' not in told
        backend.answer = None
        assert client.ask(request(2.0))['actions'][0, 0] == 2.0


def test_refusal_by_the_model_goes_to_the_client_as_it_is(rig, backend):
    def refuse():
        raise BackendError('no cached embedding of\n  this instruction')

    backend.answer = refuse
    with rig.client() as client:
        assert client.ask(request()) == 'no cached embedding of this instruction'


# --- concurrency ---


def test_pings_and_health_are_answered_while_the_model_runs(rig, backend):
    backend.gate.clear()
    with rig.client() as client:
        client.send(request())
        assert backend.entered.acquire(timeout=20)
        assert rig.health() == (200, 'OK\n')
        assert client.socket.ping().wait(20)
        with rig.client() as other:
            assert other.meta['backend'] == 'scripted'
            assert 'instruction' in other.ask({**request(), 'instruction': ''})
        assert not rig.server._service._inference.waiting
        backend.gate.set()
        assert client.receive()['actions'].shape == (2, 7)


def test_requests_are_served_one_at_a_time_in_the_order_of_arrival(rig, backend):
    backend.gate.clear()
    with rig.client() as a, rig.client() as b, rig.client() as c:
        a.send(request(1.0))
        assert backend.entered.acquire(timeout=20)
        for number, client in enumerate((b, c), 1):
            client.send(request(1.0 + number))
            wait_until(lambda n=number: rig.inference.waiting == n)
        assert backend.seen == [1.0]
        backend.gate.set()
        assert [client.receive()['actions'][0, 0] for client in (a, b, c)] == [1.0, 2.0, 3.0]
    assert backend.seen == [1.0, 2.0, 3.0]
    assert len(backend.threads) == 1


def test_client_that_left_while_it_waited_is_skipped(rig, backend):
    backend.gate.clear()
    with rig.client() as first, rig.client() as last:
        first.send(request(1.0))
        assert backend.entered.acquire(timeout=20)
        with rig.client() as gone:
            gone.send(request(2.0))
            wait_until(lambda: rig.inference.waiting == 1)
        last.send(request(3.0))
        wait_until(lambda: rig.inference.waiting == 2)
        backend.gate.set()
        assert last.receive()['actions'][0, 0] == 3.0
    assert backend.seen == [1.0, 3.0]


def test_full_queue_is_refused(backend):
    with Rig(lambda: backend, max_waiting=1) as rig:
        rig.wait_loaded()
        backend.gate.clear()
        with rig.client() as a, rig.client() as b, rig.client() as c:
            a.send(request(1.0))
            assert backend.entered.acquire(timeout=20)
            b.send(request(2.0))
            wait_until(lambda: rig.inference.waiting == 1)
            assert c.ask(request(3.0)) == '1 requests wait already'
            backend.gate.set()
            assert b.receive()['actions'][0, 0] == 2.0
            assert c.ask(request(4.0))['actions'][0, 0] == 4.0


def test_large_frame_is_read_off_the_event_loop(rig, backend, monkeypatch):
    threads = []

    def unpack(frame):
        threads.append(threading.current_thread().name)
        return original(frame)

    original = wire.unpack
    monkeypatch.setattr(wire, 'unpack', unpack)
    image = np.zeros((1300, 1300, 3), np.uint8)
    with Client(rig.server.port) as client:
        client.socket.recv(20)
        client.socket.send(wire.pack({**request(1.0), 'images': {'primary': image}}))
        assert original(client.socket.recv(20))['actions'][0, 0] == 1.0
        client.socket.send(wire.pack(request(2.0)))
        assert original(client.socket.recv(20))['actions'][0, 0] == 2.0
    assert threads[0] != threads[1]


# --- sessions ---


def test_each_connection_has_a_session_of_its_own_that_ends_with_it(rig, backend):
    with rig.client() as a, rig.client() as b:
        replies = [client.ask(request())['metadata'] for client in (a, a, b)]
        assert [reply['count'] for reply in replies] == [0, 1, 0]
        assert replies[0]['session'] == replies[1]['session'] != replies[2]['session']
    wait_until(lambda: len(backend.forgotten) == 2)
    assert dict(backend.forgotten) == {
        replies[0]['session']: {'count': 2}, replies[2]['session']: {'count': 1}
    }  # fmt: skip


def test_registered_session_outlives_its_connection(rig, backend):
    with rig.client() as client:
        name = client.ask({'method': 'session.register'})['session_id']
        client.ask(request(session_id=name))
    with rig.client() as client:
        assert client.ask(request(session_id=name))['metadata'] == {'count': 1, 'session': name}
        assert client.ask({'method': 'reset', 'session_id': name}) == {
            'ok': True, 'session_id': name
        }  # fmt: skip
        assert client.ask(request(session_id=name))['metadata']['count'] == 0
        assert client.ask({'method': 'session.close', 'session_id': name})['ok']
        assert name in client.ask(request(session_id=name))
    assert backend.forgotten == [(name, {'count': 2}), (name, {'count': 1})]
    assert len(backend.threads) == 1


def test_session_can_be_named_by_the_client(rig):
    with rig.client() as client:
        call = {'method': 'session.register', 'session_id': 'rpc_12345678'}
        assert client.ask(call)['session_id'] == 'rpc_12345678'
        assert client.ask(request(session_id='rpc_12345678'))['metadata']['count'] == 0


def test_reset_without_a_session_is_for_the_connections_own(rig):
    with rig.client() as client:
        client.ask(request())
        assert client.ask({'method': 'reset'})['ok']
        assert client.ask(request())['metadata']['count'] == 0


def test_reset_waits_for_the_inference_before_it(rig, backend):
    backend.gate.clear()
    with rig.client() as client, rig.client() as other:
        name = client.ask({'method': 'session.register'})['session_id']
        client.send(request(session_id=name))
        assert backend.entered.acquire(timeout=20)
        other.send({'method': 'reset', 'session_id': name})
        wait_until(lambda: rig.inference.waiting == 1)
        assert backend.forgotten == []
        backend.gate.set()
        assert other.receive()['ok']
    assert backend.forgotten[0] == (name, {'count': 1})


def test_idle_session_is_swept_and_its_memory_dropped(backend):
    with Rig(lambda: backend, idle_s=0.2) as rig:
        rig.wait_loaded()
        with rig.client() as client:
            name = client.ask({'method': 'session.register'})['session_id']
            client.ask(request(session_id=name))
            wait_until(lambda: backend.forgotten == [(name, {'count': 1})])
            assert name in client.ask(request(session_id=name))


# --- who may come in ---


def test_token_is_demanded_by_the_handshake_but_not_by_health(backend):
    with Rig(lambda: backend, token='geheim') as rig:
        rig.wait_loaded()
        for headers in ({}, {'Authorization': 'Api-Key gehei'}, {'Authorization': 'geheim'}):
            with pytest.raises(InvalidStatus) as caught:
                Client(rig.server.port, headers)
            assert caught.value.response.status_code == 401
        with rig.client(Authorization='Api-Key geheim') as client:
            assert client.meta['backend'] == 'scripted'


def test_openpi_client_sends_the_token(backend):
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    with Rig(lambda: backend, token='geheim') as rig:
        rig.wait_loaded()
        client = WebsocketClientPolicy('127.0.0.1', rig.server.port, api_key='geheim')
        assert client.infer(request(5.0))['actions'][0, 0] == 5.0
        client._ws.close()


def test_page_in_a_browser_is_turned_away(rig):
    with pytest.raises(InvalidStatus) as caught:
        Client(rig.server.port, {'Origin': 'http://evil.example'})
    assert caught.value.response.status_code == 403


def test_message_above_the_limit_closes_that_connection_with_1009(backend):
    with Rig(lambda: backend, max_message_mb=0.01) as rig:
        rig.wait_loaded()
        with rig.client() as client, rig.client() as other:
            client.socket.send(bytes(20_000))
            with pytest.raises(ConnectionClosed) as caught:
                client.receive()
            assert caught.value.rcvd.code == 1009
            assert 'limit' in caught.value.rcvd.reason
            assert other.ask(request(2.0))['actions'][0, 0] == 2.0


def test_connections_are_limited(backend):
    with Rig(lambda: backend, max_connections=2) as rig:
        rig.wait_loaded()
        with rig.client(), rig.client():
            with pytest.raises(InvalidStatus) as caught:
                Client(rig.server.port)
            assert caught.value.response.status_code == 503
            assert rig.health()[0] == 200
        wait_until(lambda: not rig.server._connections)
        with rig.client() as client:
            assert client.meta


def test_plain_http_elsewhere_and_broken_handshakes_do_no_harm(rig):
    assert get(rig.server.port, '/')[0] == 426
    for rubbish in (b'\x00' * 100, b'GET / HTTP/1.1\r\n\r\n', b''):
        with socket.create_connection(('127.0.0.1', rig.server.port)) as raw:
            raw.sendall(rubbish)
    with rig.client() as client:
        assert client.ask(request(2.0))['actions'][0, 0] == 2.0


# --- life ---


def test_loading_is_told_and_a_client_waits_for_its_metadata(backend):
    gate = threading.Event()

    def load():
        assert gate.wait(30)
        return backend

    with Rig(load) as rig, Client(rig.server.port) as client:
        status, body = rig.health()
        assert status == 503
        assert json.loads(body)['status'] == 'loading'
        assert client.socket.ping().wait(20)
        with pytest.raises(TimeoutError):
            client.socket.recv(0.05)
        gate.set()
        assert client.receive()['backend'] == 'scripted'
        assert rig.health() == (200, 'OK\n')


def test_client_that_gives_up_while_the_model_loads_frees_its_seat(backend):
    gate = threading.Event()

    def load():
        assert gate.wait(30)
        return backend

    with Rig(load, max_connections=1) as rig:
        with Client(rig.server.port):
            wait_until(lambda: rig.server._connections)
        wait_until(lambda: not rig.server._connections)
        with Client(rig.server.port) as client:
            rig.server.stop()
            with pytest.raises(ConnectionClosed) as caught:
                client.receive()
            assert caught.value.rcvd.code == 1001
        gate.set()
        rig.join()


def test_failure_to_load_ends_the_worker_with_its_reason(capsys):
    gate = threading.Event()

    def load():
        assert gate.wait(30)
        raise FileNotFoundError('no checkpoint\nat /x')

    with Rig(load) as rig, Client(rig.server.port) as client:
        gate.set()
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()
        assert caught.value.rcvd.code == 1011
        rig.join()
        assert rig.status == 1
        assert rig.server.reason == 'FileNotFoundError: no checkpoint at /x'
    assert 'Traceback' in capsys.readouterr().err


def test_stop_lets_the_running_inference_finish_and_refuses_the_rest(backend):
    with Rig(lambda: backend) as rig:
        rig.wait_loaded()
        backend.gate.clear()
        with rig.client() as running, rig.client() as waiting:
            running.send(request(1.0))
            assert backend.entered.acquire(timeout=20)
            waiting.send(request(2.0))
            wait_until(lambda: rig.inference.waiting == 1)
            rig.server.stop()
            wait_until(lambda: rig.inference._stopping)
            backend.gate.set()
            assert running.receive()['actions'][0, 0] == 1.0
            assert waiting.receive() == 'the worker is stopping'
            for client in (running, waiting):
                with pytest.raises(ConnectionClosed) as caught:
                    client.receive()
                assert caught.value.rcvd.code == 1001
        rig.join()
    assert rig.status == 0
    assert backend.seen == [1.0]
    assert backend.closed
    assert [memory for _, memory in backend.forgotten if memory] == [{'count': 1}]


# --- the process ---


@pytest.fixture
def worker(spawn, tmp_path):
    def start(*words):
        file = tmp_path / f'port_{time.monotonic_ns()}'
        process = spawn([*NOOP, '--port-file', str(file), *words])
        process.expect('model worker noop listening on ws://127.0.0.1:[0-9]+\n')
        return process, int(file.read_text())

    return start


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_process_with_0(worker, number):
    process, port = worker()
    wait_until(lambda: get(port, '/healthz')[0] == 200)
    with Client(port) as client:
        client.receive()
        process.send_signal(number)
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()
        assert caught.value.rcvd.code == 1001
    assert process.wait() == 0


def test_inference_that_does_not_end_is_left_at_the_limit(worker):
    process, port = worker('--delay-ms', '60000', '--stop-s', '0.2', '--cameras')
    wait_until(lambda: get(port, '/healthz')[0] == 200)
    with Client(port) as client:
        client.receive()
        asked = request()
        asked.update(images={}, state={'state': np.zeros(8, np.float32)})
        client.send(asked)
        wait_until(lambda: client.socket.ping().wait(20))
        process.send_signal(signal.SIGTERM)
        assert client.receive() == 'the worker is stopping'
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()
        assert caught.value.rcvd.code == 1001
        assert process.wait(10) == 0


def test_signal_while_the_model_loads_ends_at_once(worker):
    process, port = worker('--load-s', '60')
    assert get(port, '/healthz')[0] == 503
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


def test_second_signal_ends_without_waiting(worker):
    process, port = worker('--delay-ms', '60000', '--stop-s', '60', '--cameras')
    wait_until(lambda: get(port, '/healthz')[0] == 200)
    with Client(port) as client:
        client.receive()
        client.send({**request(), 'images': {}, 'state': {'state': np.zeros(8, np.float32)}})
        wait_until(lambda: client.socket.ping().wait(20))
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: get(port, '/healthz')[1].startswith('{'), message='stopping')
        threading.Event().wait(REPEAT_S + 0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM


def test_end_of_standard_input_ends_the_process():
    process = subprocess.Popen(
        [*NOOP, '--exit-on-stdin-eof'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert 'listening' in process.stdout.readline()
        process.stdin.write('words do nothing\n')
        process.stdin.close()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_failure_to_load_ends_the_process_with_1_and_one_line(spawn):
    process = spawn([*NOOP, '--control', 'robotwin_qpos14'])
    assert process.wait() == 1
    last = process.output.splitlines()[-1]
    assert last.startswith('model worker noop: zeros are no rest in robotwin.joint_action.qpos14')


def test_port_in_use_ends_the_process_with_1(spawn):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        process = spawn([*NOOP, '--port', str(port)])
        assert process.wait() == 1
    assert f'cannot listen on 127.0.0.1:{port}' in process.output.splitlines()[-1]
