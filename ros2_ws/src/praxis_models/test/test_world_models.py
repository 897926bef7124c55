# SPDX-License-Identifier: Apache-2.0
"""The back ends of world-action models and of RLDX-1 behind the worker's server, on the wire."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation, check_reply, request_of
from praxis_core.model_meta import read_meta
from praxis_models.transport import wire
from praxis_models.workers import registry
from websockets.sync.client import connect

sys.path.insert(0, str(Path(__file__).parent))
from fakes import cosmos_policy_project, fast_wam_project, rldx_project
from fakes.sglang_server import SGLang
from fakes.zmtp_server import ReplyServer
from worker_rig import Rig

TURN = np.tile(np.array([0, 0, 0, 1, 0, 0, 0, 1, 0, 1.0], np.float32), (16, 1))


def ranges(size, low='min', high='max'):
    return {low: [-1.0] * size, high: [1.0] * size}


@pytest.fixture
def cosmos_policy(tmp_path, monkeypatch):
    monkeypatch.setenv('DETERMINISTIC', '')
    for name, module in cosmos_policy_project.Project().modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    (tmp_path / 'policy.pt').touch()
    statistics = {
        f'{part}_{end}': [value] * size
        for part, size in (('actions', 7), ('proprio', 9))
        for end, value in (('min', -1.0), ('max', 1.0))
    }
    (tmp_path / 'libero_dataset_statistics.json').write_text(json.dumps(statistics))
    return {'checkpoint': str(tmp_path), 'predict_future': True}


@pytest.fixture
def cosmos3(tmp_path):
    server = SGLang(TURN)
    path = tmp_path / 'statistics.json'
    path.write_text(json.dumps({'global_raw': ranges(10, 'q01', 'q99')}))
    yield {'endpoint': server.endpoint, 'statistics': str(path)}
    server.close()


@pytest.fixture
def fast_wam(tmp_path, monkeypatch):
    project = fast_wam_project.Project(tmp_path / 'project')
    for name, module in project.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    (tmp_path / 'libero.pt').touch()
    statistics = {
        part: {'default': ranges(size, 'global_min', 'global_max')}
        for part, size in (('state', 8), ('action', 7))
    }
    path = tmp_path / 'libero_dataset_stats.json'
    path.write_text(json.dumps(statistics))
    return {'checkpoint': str(tmp_path / 'libero.pt'), 'predict_future': True}


@pytest.fixture
def rldx(request):
    policy = rldx_project.SimPolicy()
    server = ReplyServer(rldx_project.answer(policy))
    request.node.policy = policy
    yield {'endpoint': server.endpoint}
    server.close()


def observation_for(meta, size=256):
    return PhysicalObservation(
        images={role: np.zeros((size, size, 3), np.uint8) for role in meta.camera_roles},
        state={name: np.ones(length, np.float32) for name, length in meta.state_schema.items()},
        instruction='open the drawer',
    )


def served(name, options):
    loader = registry.find(name)
    return Rig(lambda: loader.load(loader.options(**options)))


@pytest.mark.parametrize('name', ['cosmos_policy', 'cosmos3', 'fast_wam', 'rldx'])
def test_a_chunk_comes_over_the_wire_as_the_meta_says(request, name):
    with served(name, request.getfixturevalue(name)) as rig:
        rig.wait_loaded()
        with rig.client() as client:
            meta = read_meta(client.meta)
            assert meta.backend == name
            reply = client.ask(request_of(meta, observation_for(meta)))
            prediction = check_reply(meta, reply)
    assert prediction.actions.shape == (meta.chunk_size, meta.control.action_dim)
    assert (prediction.future_observation is not None) == meta.returns_future_observation
    assert (prediction.value is not None) == meta.returns_value
    if meta.returns_future_observation:
        assert set(prediction.future_observation) == set(meta.camera_roles)


@pytest.mark.parametrize('name', ['cosmos_policy', 'rldx'])
def test_a_refusal_is_one_line_and_the_connection_stays(request, name):
    with served(name, request.getfixturevalue(name)) as rig:
        rig.wait_loaded()
        with rig.client() as client:
            meta = read_meta(client.meta)
            text = client.ask(request_of(meta, observation_for(meta, size=64)))
            assert isinstance(text, str) and 'expected 256x256 (got 64x64)' in text
            assert '\n' not in text
            assert 'actions' in client.ask(request_of(meta, observation_for(meta)))


def test_sessions_of_two_clients_keep_apart_and_reset_alone(request, rldx):
    with served('rldx', rldx) as rig:
        rig.wait_loaded()
        with rig.client() as one, rig.client() as other:
            meta = read_meta(one.meta)
            ids = [
                client.ask({'method': 'session.register'})['session_id'] for client in (one, other)
            ]
            for client, session in ((one, ids[0]), (other, ids[1]), (one, ids[0])):
                client.ask(request_of(meta, observation_for(meta), session_id=session))
            one.ask({'method': 'reset', 'session_id': ids[0]})
            for client, session in ((one, ids[0]), (other, ids[1])):
                client.ask(request_of(meta, observation_for(meta), session_id=session))
    policy = request.node.policy
    assert [call[1]['reset_memory'][0] for call in policy.calls] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert {'session_ids': [ids[0]]} in policy.resets
    assert policy.resets[0] == {'session_ids': [ids[0]]}


def test_a_process_of_its_own_serves_cosmos3(cosmos3, tmp_path):
    command = [sys.executable, '-m', 'praxis_models.workers', 'cosmos3']
    command += ['--endpoint', cosmos3['endpoint'], '--statistics', cosmos3['statistics']]
    command += ['--exit-on-stdin-eof']
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as worker:
        line = next(line for line in worker.stdout if 'listening on' in line)
        with connect(line.split()[-1], compression=None, open_timeout=20) as socket:
            meta = read_meta(wire.unpack(socket.recv(60)))
            socket.send(wire.pack(request_of(meta, observation_for(meta))))
            actions = check_reply(meta, wire.unpack(socket.recv(60))).actions
        worker.stdin.close()
        assert worker.wait(30) == 0
    assert actions[0] == pytest.approx([0, 0, 0, 0, 0, 0, -1], abs=1e-6)
