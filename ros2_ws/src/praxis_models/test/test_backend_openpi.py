# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import praxis_core
import praxis_models
import pytest
from praxis_core.model_exchange import (
    PhysicalObservation,
    check_reply,
    check_request,
    reply_of,
    request_of,
)
from praxis_core.model_meta import read_meta
from praxis_models.backend import BackendError, Session
from praxis_models.transport import wire
from praxis_models.workers import openpi

TREE = Path(__file__).parent / 'fakes' / 'openpi_tree'
STATISTICS = {
    'norm_stats': {
        key: {'mean': [0.0] * 8, 'std': [1.0] * 8, 'q01': [-1.0] * 8, 'q99': [1.0] * 8}
        for key in ('state', 'actions')
    }
}


@pytest.fixture
def upstream(monkeypatch):
    """openpi's modules as its published code has them; yields the calls that they got."""
    for name in [name for name in sys.modules if name.split('.')[0] == 'openpi']:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(TREE))
    monkeypatch.setenv('JAX_PLATFORMS', '')
    from openpi.policies import policy_config

    policy_config.CALLS.clear()
    yield policy_config.CALLS
    for name in [name for name in sys.modules if name.split('.')[0] == 'openpi']:
        del sys.modules[name]


@pytest.fixture
def checkpoint(tmp_path):
    for asset in (
        'physical-intelligence/libero',
        'droid',
        'lerobot/aloha_sim_transfer_cube_human',
    ):
        folder = tmp_path / 'assets' / asset
        folder.mkdir(parents=True)
        (folder / 'norm_stats.json').write_text(json.dumps(STATISTICS))
    return str(tmp_path)


def observation_for(meta):
    images = {role: np.zeros((48, 64, 3), np.uint8) for role in meta.camera_roles}
    state = {name: np.ones(size, np.float32) for name, size in meta.state_schema.items()}
    return PhysicalObservation(images, state, 'close the drawer')


@pytest.mark.parametrize(
    ('config', 'cameras', 'shape'),
    [
        ('pi05_libero', {}, (10, 7)),
        ('pi0_fast_libero', {}, (10, 7)),
        ('pi05_droid', {}, (15, 8)),
        ('pi0_aloha_sim', {'cam_high': 'primary'}, (50, 14)),
    ],
)
def test_observation_as_the_metadata_says_gives_a_chunk_as_it_says(
    upstream, checkpoint, config, cameras, shape
):
    backend = openpi.load(
        openpi.Options(checkpoint=checkpoint, config=config, cameras=cameras, warm_up=False)
    )
    meta = read_meta(backend.meta.to_wire())
    request = wire.unpack(wire.pack(request_of(meta, observation_for(meta))))
    prediction = backend.predict(check_request(meta, request), Session('s'))
    reply = wire.unpack(wire.pack(reply_of(prediction)))
    assert check_reply(meta, reply).actions.shape == shape
    assert meta.checkpoint == checkpoint
    assert meta.metadata['config'] == config


def test_chunks_differ_and_a_reset_repeats_them(upstream, checkpoint):
    backend = openpi.load(openpi.Options(checkpoint=checkpoint, seed=5))
    observation, session = observation_for(backend.meta), Session('s')
    first = [backend.predict(observation, session).actions for _ in range(2)]
    backend.reset(session)
    again = [backend.predict(observation, session).actions for _ in range(2)]
    assert not np.array_equal(first[0], first[1])
    assert np.array_equal(first, again)


def test_flow_steps_and_statistics_reach_openpi(upstream, checkpoint, tmp_path):
    path = tmp_path / 'mine.json'
    path.write_text(json.dumps(STATISTICS))
    openpi.load(
        openpi.Options(
            checkpoint=checkpoint, flow_steps=5, statistics=str(path), device='cpu', warm_up=False
        )
    )
    assert upstream[0]['sample_kwargs'] == {'num_steps': 5}
    assert upstream[0]['norm_stats']['state']['q99'] == [1.0] * 8
    assert os.environ['JAX_PLATFORMS'] == 'cpu'


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'config': 'pi5_libero'}, "config: Config 'pi5_libero' not found. Did you mean"),
        ({'config': 'debug'}, "preset: the name of config 'debug' does not tell the robot"),
        ({'config': 'pi0_fast_libero', 'flow_steps': 3}, 'flow_steps: pi0-FAST has no flow'),
        ({'config': 'pi0_fast_libero', 'checkpoint': 'dummy'}, 'dummy weights are for pi0 and'),
        ({'checkpoint': '/nowhere'}, "checkpoint '/nowhere': File not found at /nowhere"),
        ({'statistics': '/nowhere.json'}, r'statistics: /nowhere\.json: cannot be read'),
        ({'execute_steps': 11}, r'execute_steps: a chunk has 10 steps \(got 11\)'),
        ({'device': 'tpu'}, "device: must be cpu, cuda or cuda:N .got 'tpu'"),
        ({'cameras': {'top': 'primary'}}, "cameras: openpi has no view 'top'"),
        ({'cameras': {'image': 'primary'}}, 'cameras: wrist_image has no role'),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(upstream, checkpoint, options, message):
    with pytest.raises(BackendError, match=message) as caught:
        openpi.load(openpi.Options(**{'checkpoint': checkpoint, **options}))
    assert '\n' not in str(caught.value)


def test_missing_library_names_itself_and_the_python_parameter(monkeypatch):
    monkeypatch.setitem(sys.modules, 'openpi', None)
    with pytest.raises(BackendError) as caught:
        openpi.load(openpi.Options(checkpoint='dummy'))
    text = str(caught.value)
    assert 'openpi.training.config cannot be imported by' in text
    assert sys.executable in text
    assert 'name its Python with `python`' in text


def _environment():
    """Python that has openpi: ours, or PRAXIS_OPENPI_PYTHON."""
    python = os.environ.get('PRAXIS_OPENPI_PYTHON', sys.executable)
    found = subprocess.run(
        [python, '-c', 'import importlib.util as u; print(u.find_spec("openpi") is not None)'],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.stdout.strip() != 'True':
        pytest.skip(f'{python} has no openpi: install requirements/openpi.txt there')
    return python


@pytest.mark.slow
@pytest.mark.parametrize(
    ('config', 'cameras', 'shape'),
    [('pi05_libero', (), (10, 7)), ('pi0_aloha_sim', ('--cameras', 'cam_high=head'), (50, 14))],
)
def test_openpi_itself_answers_with_a_chunk_through_the_socket(tmp_path, config, cameras, shape):
    client = pytest.importorskip('websockets.sync.client')
    command = [
        _environment(), '-m', 'praxis_models.workers', 'openpi', '--checkpoint', 'dummy',
        '--config', config, '--flow-steps', '1', '--device', 'cpu', *cameras,
        '--port-file', str(tmp_path / 'port'), '--exit-on-stdin-eof',
    ]  # fmt: skip
    source = [str(Path(module.__file__).parents[1]) for module in (praxis_core, praxis_models)]
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(source)}
    log = (tmp_path / 'log').open('w+')
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        text=True,
    ) as worker:  # fmt: skip
        try:
            ready = next((line for line in worker.stdout if 'listening on' in line), '')
            assert ready, Path(log.name).read_text()[-3000:]
            with client.connect(
                ready.split()[-1], compression=None, max_size=None, ping_interval=None
            ) as socket:
                meta = read_meta(wire.unpack(socket.recv(timeout=300)))
                observation = observation_for(meta)
                socket.send(wire.pack(request_of(meta, observation)))
                frame = socket.recv(timeout=200)
                assert isinstance(frame, bytes), frame
                actions = check_reply(meta, wire.unpack(frame)).actions
        finally:
            worker.stdin.close()
            worker.wait(60)
            log.close()
    assert actions.shape == shape
    assert np.ptp(actions) > 0.1
    assert meta.metadata['model_type'] == config.split('_')[0]
