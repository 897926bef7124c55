# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from praxis_core.model_exchange import (
    PhysicalObservation,
    check_reply,
    check_request,
    reply_of,
    request_of,
)
from praxis_models.backend import BackendError, Session
from praxis_models.workers import apxinf

sys.path.insert(0, str(Path(__file__).parent))

from fakes import native_socket

TREE = Path(__file__).parent / 'fakes' / 'apxinf_tree'


@pytest.fixture
def upstream(monkeypatch):
    """APXInf's package as its published code has it; gives the policies that it made."""
    monkeypatch.syspath_prepend(str(TREE))
    import apxinf as package

    package.POLICIES.clear()
    yield package.POLICIES
    for name in ('apxinf', 'apxinf_py'):
        sys.modules.pop(name, None)


@pytest.fixture
def checkpoint(tmp_path):
    def make(views, **more):
        features = {f'observation.images.view_{index}': {} for index in range(views)}
        config = {'type': 'pi05', 'input_features': features, 'num_inference_steps': 5, **more}
        (tmp_path / 'config.json').write_text(json.dumps(config))
        return str(tmp_path)

    return make


def observation_for(meta):
    images = {role: np.zeros((48, 64, 3), np.uint8) for role in meta.camera_roles}
    state = {name: np.full(size, 0.25, np.float32) for name, size in meta.state_schema.items()}
    return PhysicalObservation(images, state, 'tidy up')


@pytest.mark.parametrize(
    ('preset', 'views', 'horizon', 'chunk', 'execute'),
    [
        ('libero', 2, 10, (5, 7), 5),
        ('dual_franka', 3, 20, (20, 20), 20),
        ('yam', 3, 30, (30, 14), 5),
    ],
)
def test_preset_predicts_returns_and_executes_what_the_reference_does(
    upstream, checkpoint, preset, views, horizon, chunk, execute
):
    backend = apxinf.load(
        apxinf.Options(preset=preset, checkpoint=checkpoint(views), flow_steps=5)
    )
    meta = backend.meta
    request = request_of(meta, observation_for(meta))
    prediction = backend.predict(check_request(meta, request), Session('s'))
    assert check_reply(meta, reply_of(prediction)).actions.shape == chunk
    assert (meta.chunk_size, meta.execute_steps) == (chunk[0], execute)
    assert len(meta.camera_roles) == views
    assert upstream[0].action_horizon == horizon
    assert meta.metadata['flow_steps'] == 5
    backend.close()
    assert upstream[0].closed


def test_model_that_predicts_nothing_relative_leaves_yam_where_it_is(upstream, checkpoint):
    backend = apxinf.load(apxinf.Options(preset='yam', checkpoint=checkpoint(3)))
    observation = observation_for(backend.meta)
    chunk = backend.predict(observation, Session('s')).actions
    assert np.delete(chunk, [6, 13], axis=1).tolist() == [[0.25] * 12] * 30


def test_all_steps_may_be_returned(upstream, checkpoint):
    options = apxinf.Options(checkpoint=checkpoint(2), return_steps=10, execute_steps=8)
    meta = apxinf.load(options).meta
    assert (meta.chunk_size, meta.execute_steps) == (10, 8)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({}, 'give either checkpoint or endpoint'),
        ({'checkpoint': '/nowhere'}, "checkpoint '/nowhere': AutoPolicy: no config.json"),
        ({'checkpoint': 2, 'preset': 'yam'}, 'model expects 2 camera views but 3 image_keys'),
        ({'checkpoint': 2, 'flow_steps': 10}, r'set num_inference_steps to 10 there \(it is 5\)'),
        ({'checkpoint': 2, 'statistics': 'mine.json'}, 'statistics: this version of APXInf reads'),
        ({'checkpoint': 2, 'cameras': {'observation/image': 'primary'}}, 'libero has 2 views'),
        ({'endpoint': 'ws://127.0.0.1:1', 'horizon': 3}, 'horizon: is for the server'),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(upstream, checkpoint, options, message):
    if isinstance(options.get('checkpoint'), int):
        options = {**options, 'checkpoint': checkpoint(options['checkpoint'])}
    with pytest.raises(BackendError, match=message) as caught:
        apxinf.load(apxinf.Options(**options))
    assert '\n' not in str(caught.value)


def test_missing_engine_names_itself_and_the_python_parameter(checkpoint):
    with pytest.raises(BackendError, match='apxinf cannot be imported by') as caught:
        apxinf.load(apxinf.Options(checkpoint=checkpoint(2)))
    assert 'name its Python with `python`' in str(caught.value)


class Served:
    """A policy behind ``apxinf-robo serve``; what goes over the wire is ``wire_response``."""

    def __init__(self, horizon=10):
        self.metadata = {
            'model_type': 'pi05',
            'protocol': 'openpi.websocket_policy',
            'precision': 'fp8',
            'action_horizon': horizon,
            'action_dim': 7,
            'image_keys': ['observation/image', 'observation/wrist_image'],
        }
        self.seen = []

    def infer(self, observation):
        self.seen.append(observation)
        actions = np.tile(np.linspace(-1, 1, 7, dtype=np.float32), (10, 1))
        return {'actions': actions, 'policy_timing': {'infer_ms': 1.0}}


def test_server_of_the_engine_takes_the_place_of_a_checkpoint():
    policy = Served()
    with native_socket.served(policy, policy.metadata) as endpoint:
        backend = apxinf.load(apxinf.Options(endpoint=endpoint))
        chunk = backend.predict(observation_for(backend.meta), Session('s')).actions
        backend.close()
    assert chunk.shape == (5, 7)
    np.testing.assert_allclose(chunk[0], np.linspace(-1, 1, 7), rtol=1e-6)
    assert policy.seen[0]['observation/state'].shape == (8,)
    assert backend.meta.metadata['precision'] == 'fp8'
    assert backend.meta.checkpoint == endpoint


@pytest.mark.parametrize(
    ('metadata', 'message'),
    [
        ({}, 'its metadata has no image_keys: is it one of APXInf'),
        (
            {'image_keys': ['observation/image']},
            r'image_keys: expected .* \(got \[.obs',
        ),
        ({**Served().metadata, 'action_dim': 32}, r'action_dim: expected 7 \(got 32\)'),
        ({**Served().metadata, 'action_horizon': 0}, 'action_horizon: expected a number'),
    ],
)
def test_server_of_something_else_is_refused(metadata, message):
    with (
        native_socket.served(Served(), metadata) as endpoint,
        pytest.raises(BackendError, match=message),
    ):
        apxinf.load(apxinf.Options(endpoint=endpoint))
