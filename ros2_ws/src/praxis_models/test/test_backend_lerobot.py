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
from praxis_core.contract import load_contract
from praxis_core.model_exchange import (
    PhysicalObservation,
    check_reply,
    check_request,
    reply_of,
    request_of,
)
from praxis_models.backend import BackendError, Session
from praxis_models.workers import lerobot

TREE = Path(__file__).parent / 'fakes' / 'lerobot_tree'
CONTRACTS = Path(__file__).parents[4] / 'params' / 'robots'
LIBERO = {
    'type': 'act',
    'chunk_size': 4,
    'n_action_steps': 3,
    'n_obs_steps': 1,
    'input_features': {
        'observation.images.image': {'type': 'VISUAL', 'shape': [3, 32, 32]},
        'observation.images.image2': {'type': 'VISUAL', 'shape': [3, 32, 32]},
        'observation.state': {'type': 'STATE', 'shape': [8]},
    },
    'output_features': {'action': {'type': 'ACTION', 'shape': [7]}},
}

SMALL = {'type': 'VISUAL', 'shape': [3, 8, 8]}


@pytest.fixture
def upstream(monkeypatch):
    """LeRobot's modules as its published code has them; gives what they were called with."""
    for name in [name for name in sys.modules if name.split('.')[0] in ('lerobot', 'torch')]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(TREE))
    from lerobot.policies import factory

    calls = factory.CALLS
    calls.batches.clear()
    calls.processed.clear()
    calls.resets = 0
    yield calls
    for name in [name for name in sys.modules if name.split('.')[0] in ('lerobot', 'torch')]:
        del sys.modules[name]


@pytest.fixture
def checkpoint(tmp_path):
    def make(config=LIBERO, rename_map=None, **changes):
        (tmp_path / 'config.json').write_text(json.dumps({**config, **changes}))
        (tmp_path / 'model.safetensors').write_bytes(b'')
        steps = [
            {
                'registry_name': 'rename_observations_processor',
                'config': {'rename_map': rename_map or {}},
            },
            {'registry_name': 'device_processor', 'config': {'device': 'cpu'}},
        ]
        for name in ('policy_preprocessor', 'policy_postprocessor'):
            (tmp_path / f'{name}.json').write_text(json.dumps({'name': name, 'steps': steps}))
        return str(tmp_path)

    return make


def observation_for(meta, height=48, width=48):
    images = {role: np.full((height, width, 3), 255, np.uint8) for role in meta.camera_roles}
    state = {name: np.ones(size, np.float32) for name, size in meta.state_schema.items()}
    return PhysicalObservation(images, state, 'tidy up')


def ask(backend):
    meta = backend.meta
    request = request_of(meta, observation_for(meta))
    return check_reply(meta, reply_of(backend.predict(check_request(meta, request), Session('s'))))


def test_libero_checkpoint_needs_no_mapping(upstream, checkpoint):
    backend = lerobot.load(lerobot.Options(checkpoint=checkpoint(), control='libero_7d'))
    meta = backend.meta
    assert meta.camera_roles == ('primary', 'wrist')
    assert dict(meta.state_schema) == {
        'eef_position': 3,
        'eef_quaternion_xyzw': 4,
        'gripper_qpos': 2,
    }
    assert (meta.chunk_size, meta.execute_steps) == (4, 3)
    # the postprocessor multiplies by 0.25, each step by itself; 0.75 is within -1 ... 1
    assert ask(backend).actions.tolist() == [[step * 0.25] * 7 for step in range(4)]
    batch = upstream.batches[0]
    assert batch['task'] == 'tidy up'
    assert batch['observation.images.image'].shape == (1, 3, 32, 32)
    assert float(batch['observation.images.image2'].array.max()) == 1.0
    assert batch['observation.state'].shape == (1, 8)


def test_contract_gives_roles_state_rate_and_hash(upstream, checkpoint):
    path = CONTRACTS / 'tabletop.yaml'
    contract = load_contract(path)
    camera, spec = next(iter(contract.interface.cameras.items()))
    config = {
        **LIBERO,
        'input_features': {
            f'observation.images.{camera}': {'type': 'VISUAL', 'shape': [3, 32, 32]},
            'observation.state': {'type': 'STATE', 'shape': [contract.state_dim]},
        },
        'output_features': {'action': {'type': 'ACTION', 'shape': [contract.action_dim]}},
    }
    backend = lerobot.load(lerobot.Options(checkpoint=checkpoint(config), control=str(path)))
    meta = backend.meta
    assert meta.camera_roles == (spec.role,)
    assert dict(meta.state_schema) == {'state': contract.state_dim}
    assert meta.policy_hz == contract.interface.policy_hz
    assert meta.interface_hash == contract.interface_hash
    assert ask(backend).actions.shape == (4, contract.action_dim)


def test_policy_with_a_history_begins_anew_and_gives_its_steps_one_by_one(upstream, checkpoint):
    config = {key: value for key, value in LIBERO.items() if key != 'chunk_size'}
    config.update(type='diffusion', n_obs_steps=2, n_action_steps=8, num_inference_steps=100)
    backend = lerobot.load(
        lerobot.Options(checkpoint=checkpoint(config), control='libero_7d', flow_steps=10)
    )
    before = upstream.resets
    actions = ask(backend).actions
    assert actions[:, 0].tolist() == [0, 0.25, 0.5, 0.75, 1, 1, 1, 1]
    assert upstream.resets == before + 1
    assert len(upstream.batches) == 1
    assert backend._policy.config.num_inference_steps == 10


def test_view_that_the_preprocessor_renames_goes_in_by_its_name_before(upstream, checkpoint):
    config = {
        **LIBERO,
        'input_features': {
            'observation.images.camera1': {'type': 'VISUAL', 'shape': [3, 32, 32]},
            'observation.state': {'type': 'STATE', 'shape': [8]},
        },
    }
    renamed = {'observation.images.front': 'observation.images.camera1'}
    backend = lerobot.load(
        lerobot.Options(
            checkpoint=checkpoint(config, renamed),
            control='libero_7d',
            cameras={'front': 'primary'},
        )
    )
    ask(backend)
    assert 'observation.images.camera1' in upstream.batches[0]


def test_reset_begins_the_policy_anew_from_the_seed(upstream, checkpoint):
    import torch

    backend = lerobot.load(lerobot.Options(checkpoint=checkpoint(), control='libero_7d', seed=7))
    before, seeds = upstream.resets, len(torch.SEEDS)
    backend.reset(Session('s'))
    assert upstream.resets == before + 1
    assert torch.SEEDS[seeds:] == [7]


def test_statistics_and_device_override_the_checkpoints(upstream, checkpoint, tmp_path):
    path = tmp_path / 'stats.json'
    path.write_text(json.dumps({'action': {'mean': [0.0] * 7, 'std': [1.0] * 7}}))
    lerobot.load(
        lerobot.Options(
            checkpoint=checkpoint(), control='libero_7d', statistics=str(path), device='cuda:1'
        )
    )
    before = upstream.overrides['preprocessor_overrides']
    assert before['device_processor'] == {'device': 'cuda:1'}
    assert before['normalizer_processor']['stats']['action']['std'] == [1.0] * 7
    after = upstream.overrides['postprocessor_overrides']
    assert after['unnormalizer_processor'] == before['normalizer_processor']


@pytest.mark.parametrize(
    ('changes', 'options', 'message'),
    [
        ({'type': 'pi9'}, {}, "ValueError: Policy type 'pi9' is not registered"),
        ({}, {'checkpoint': '/nowhere'}, "checkpoint '/nowhere': FileNotFoundError: config.json"),
        ({}, {'control': 'robotwin_qpos14'}, 'its actions have 7 numbers, those of .* 14'),
        ({}, {'control': '/nowhere.yaml'}, 'control: neither libero_7d'),
        ({}, {'cameras': {'top': 'primary'}}, "cameras: the checkpoint has no view 'top'"),
        ({}, {'flow_steps': 3}, 'flow_steps: a policy of the type act has none'),
        ({}, {'statistics': '/nowhere.json'}, r'statistics: /nowhere\.json: cannot be read'),
        (
            {'input_features': {'observation.state': {'type': 'STATE', 'shape': [6]}}},
            {},
            'observation.state has 6 numbers, position, axis-angle and fingers 8',
        ),
        (
            {
                'input_features': {
                    'observation.images.side': {'type': 'VISUAL', 'shape': [3, 8, 8]}
                }
            },
            {},
            'cameras: side has no role; give side=ROLE, of primary, wrist',
        ),
        (
            {'input_features': {'observation.environment_state': {'type': 'ENV', 'shape': [6]}}},
            {},
            'no observation has a feature of the type ENV',
        ),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    upstream, checkpoint, changes, options, message
):
    options = {'checkpoint': checkpoint(**changes), 'control': 'libero_7d', **options}
    with pytest.raises(BackendError, match=message) as caught:
        lerobot.load(lerobot.Options(**options))
    assert '\n' not in str(caught.value)


def test_missing_library_names_itself_and_the_python_parameter(monkeypatch, checkpoint):
    monkeypatch.setitem(sys.modules, 'torch', None)
    with pytest.raises(BackendError, match='torch cannot be imported by') as caught:
        lerobot.load(lerobot.Options(checkpoint=checkpoint(), control='libero_7d'))
    assert 'install lerobot >= 0.4.0, < 0.7' in str(caught.value)


@pytest.mark.slow
def test_chunks_are_what_lerobots_own_inference_gives(tmp_path):
    python = os.environ.get('PRAXIS_LEROBOT_PYTHON', sys.executable)
    probe = [python, '-c', 'import importlib.util as u; print(u.find_spec("lerobot") is not None)']
    found = subprocess.run(probe, capture_output=True, text=True, check=False)
    if found.stdout.strip() != 'True':
        pytest.skip(f'{python} has no lerobot: name one that has in PRAXIS_LEROBOT_PYTHON')
    source = [str(Path(module.__file__).parents[1]) for module in (praxis_core, praxis_models)]
    ran = subprocess.run(
        [python, str(Path(__file__).parent / 'lerobot_parity.py')],
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(source)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    differences = json.loads(ran.stdout.splitlines()[-1])
    assert set(differences) == {'act', 'diffusion'}
    for difference, spread in differences.values():
        assert difference < 1e-6
        assert spread > 0.1
