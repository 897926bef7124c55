# SPDX-License-Identifier: Apache-2.0
"""Foreign requests against openpi's own examples (Physical-Intelligence/openpi 15a9616a)."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from openpi_client import image_tools
from praxis_core.contract import Contract, load_contract
from praxis_core.exchange_error import ExchangeError
from praxis_core.model_exchange import PhysicalObservation
from praxis_core.model_meta import ModelMeta, read_meta
from praxis_core.native_control import control_of
from praxis_models.adapters import openpi as openpi_adapter
from praxis_models.dialect import Foreign, Praxis, meet
from praxis_models.request_format import PRESETS, RequestFormat, part_of, read_format

ROBOTS = Path(__file__).resolve().parents[4] / 'params' / 'robots'
LIBERO = load_contract(ROBOTS / 'libero.yaml')
JOINTS = load_contract(ROBOTS / 'tabletop_joint.yaml')


def named(count, *names):
    return [f'{name}_{index}' for name in names for index in range(count // len(names))]


def bimanual(size, cameras, **interface):
    """A contract of two arms with as many states as actions."""
    document = yaml.safe_load((ROBOTS / 'tabletop_joint.yaml').read_text())
    names = named(size, 'left', 'right')
    document['interface'].update(
        gripper={'action': None},
        state={'names': names, 'units': ['rad'] * size},
        action={'names': names, 'units': ['rad'] * size},
        cameras={
            name: {'role': role, 'width': 64, 'height': 48} for name, role in cameras.items()
        },
        **interface,
    )
    deployment = document['deployment']
    deployment.pop('home'), deployment.pop('kinematic_model')
    deployment['limits'] = {name: {'min': -3.0, 'max': 3.0, 'max_step': 1.0} for name in names}
    camera = deployment['cameras']['agentview']
    deployment['cameras'] = {name: dict(camera, frame=f'{name}_frame') for name in cameras}
    return Contract.model_validate(document)


ALOHA = bimanual(14, {'high': 'head', 'left': 'left_wrist', 'right': 'right_wrist'})
ZME = bimanual(16, {'top': 'head', 'left_wrist': 'left_wrist'}, action_horizon=20)
RNG = np.random.default_rng(3)


def picture(height, width):
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


def observed(contract, height=256, width=256, **state):
    state.setdefault('state', RNG.normal(size=contract.state_dim))
    return PhysicalObservation(
        images={
            shape.role: picture(height, width) for shape in contract.interface.cameras.values()
        },
        state={name: np.asarray(value, dtype=np.float32) for name, value in state.items()},
        instruction='put the bowl on the plate',
    )


def foreign(name, contract, metadata=None, **changes):
    form = PRESETS[name] if isinstance(name, str) else name
    if changes:
        form = RequestFormat.model_validate({**form.model_dump(), **changes})
    return Foreign(form, metadata or {}, contract)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, dict):
            assert_same(found[key], value)
        elif isinstance(value, str):
            assert found[key] == value
        else:
            assert found[key].shape == value.shape, key
            assert found[key].dtype.kind == value.dtype.kind, key
            np.testing.assert_allclose(found[key], value, rtol=1e-6, err_msg=key)


# --- requests ---


@pytest.mark.parametrize('pillow', [True, False])
@pytest.mark.parametrize('size', [(256, 256), (224, 224), (480, 640), (200, 150), (100, 224)])
def test_liberos_request_is_what_openpis_example_sends(size, pillow, monkeypatch):
    observation = observed(LIBERO, *size)
    views = {}
    for key, role in (('image', 'primary'), ('wrist_image', 'wrist')):
        upside_down = observation.images[role][::-1]  # as robosuite renders it
        turned = np.ascontiguousarray(upside_down[::-1, ::-1])  # examples/libero/main.py
        views[f'observation/{key}'] = image_tools.resize_with_pad(turned, 224, 224)
    if not pillow:
        monkeypatch.setitem(sys.modules, 'PIL', None)
    found = foreign('openpi_libero', LIBERO).request(observation)
    state = observation.state['state']
    prompt = 'put the bowl on the plate'
    assert_same(found, {**views, 'observation/state': state, 'prompt': prompt})


def test_droids_request_is_what_openpis_example_sends():
    observation = observed(JOINTS, 360, 640)
    images, state = observation.images, observation.state['state']
    expected = {
        'observation/exterior_image_1_left': image_tools.resize_with_pad(
            images['primary'], 224, 224
        ),
        'observation/wrist_image_left': image_tools.resize_with_pad(images['wrist'], 224, 224),
        'observation/joint_position': state[:7],
        'observation/gripper_position': state[7:],
        'prompt': 'put the bowl on the plate',
    }
    assert_same(foreign('openpi_droid', JOINTS).request(observation), expected)


def test_alohas_request_is_nested_and_channels_first():
    observation = observed(ALOHA, 480, 640)
    roles = {'cam_high': 'head', 'cam_left_wrist': 'left_wrist', 'cam_right_wrist': 'right_wrist'}
    expected = {
        'images': {
            name: image_tools.resize_with_pad(observation.images[role], 224, 224).transpose(
                2, 0, 1
            )
            for name, role in roles.items()
        },
        'state': observation.state['state'],
        'prompt': 'put the bowl on the plate',
    }
    assert_same(foreign('openpi_aloha', ALOHA).request(observation), expected)


def test_the_presets_and_the_openpi_workers_adapter_agree():
    observation = observed(LIBERO, 224, 224)
    position, axis_angle, fingers = np.split(observation.state['state'], [3, 6])
    half = np.linalg.norm(axis_angle) / 2
    axis = axis_angle / np.linalg.norm(axis_angle)
    physical = {
        'eef_position': position,
        'eef_quaternion_xyzw': np.append(axis * np.sin(half), np.cos(half)).astype('f4'),
        'gripper_qpos': fingers,
    }
    expected = openpi_adapter.encode(
        'libero', PhysicalObservation(observation.images, physical, observation.instruction)
    )
    found = foreign('openpi_libero', LIBERO).request(observation)
    assert found.keys() == expected.keys()
    for key in ('observation/image', 'observation/wrist_image'):
        np.testing.assert_array_equal(found[key], expected[key])
    np.testing.assert_allclose(
        found['observation/state'], expected['observation/state'], atol=1e-6
    )


def test_the_rl_token_server_gets_images_by_the_contracts_names():
    dialect = foreign('rlt', ZME, {'rlt_stage2': stage()})
    observation = observed(ZME, 48, 64)
    expected = {
        'images': {
            'top': observation.images['head'],
            'left_wrist': observation.images['left_wrist'],
        },
        'state': observation.state['state'],
        'prompt': 'put the bowl on the plate',
    }
    assert_same(dialect.request(observation), expected)
    assert dialect.meta.chunk_size == 20 and dialect.meta.backend == 'rlt'


def test_a_format_of_ones_own_concatenates_parts_of_states():
    form = read_format(
        json.dumps(
            {
                'nested': True,
                'images': {'obs/view': 'wrist', 'obs/again': 'wrist'},
                'state': {'obs/arm': ['state[3:5]', 'eef_position', 'state[0]'], 'q': 'state'},
                'prompt': 'task',
                'image_flip': 'both',
            }
        )
    )
    observation = observed(JOINTS, 8, 8, eef_position=[7.0, 8.0, 9.0])
    state = observation.state['state']
    turned = observation.images['wrist'][::-1, ::-1]
    expected = {
        'obs': {
            'view': turned,
            'again': turned,
            'arm': np.array([state[3], state[4], 7.0, 8.0, 9.0, state[0]]),
        },
        'q': state,
        'task': 'put the bowl on the plate',
    }
    dialect = Foreign(form, {}, JOINTS)
    assert_same(dialect.request(observation), expected)
    assert dialect.meta.camera_roles == ('wrist',)
    assert dict(dialect.meta.state_schema) == {'state': 8, 'eef_position': 3}


@pytest.mark.parametrize(
    ('missing', 'field'), [('images', 'images.wrist'), ('state', 'state.state')]
)
def test_an_observation_that_lacks_something_is_refused(missing, field):
    observation = observed(LIBERO)
    if missing == 'images':
        observation.images.pop('wrist')
    else:
        observation.state.pop('state')
    with pytest.raises(ExchangeError) as refusal:
        foreign('openpi_libero', LIBERO).request(observation)
    assert refusal.value.field == field


# --- metadata ---


def test_a_foreign_model_is_completed_from_the_contract():
    metadata = {'reset_pose': np.zeros(3), 'name': b'pi05', 'scale': np.float32(2), 'bad': np.nan}
    meta = meet(metadata, LIBERO, PRESETS['openpi_libero']).meta
    assert meta.control == control_of(LIBERO)
    assert meta.camera_roles == ('primary', 'wrist')
    assert dict(meta.state_schema) == {'state': 8}
    assert (meta.backend, meta.chunk_size, meta.execute_steps) == ('openpi', None, 5)
    assert meta.metadata == {
        'dialect': 'openpi_libero',
        'reset_pose': [0.0, 0.0, 0.0],
        'name': 'pi05',
        'scale': 2.0,
        'bad': None,
    }
    assert read_meta(json.loads(json.dumps(meta.to_wire()))) == meta


def test_a_server_that_states_our_protocol_is_one_of_ours_whatever_the_format():
    meta = ModelMeta(backend='noop', control=control_of(LIBERO), state_schema={'state': 8})
    for form in (None, PRESETS['openpi_libero']):
        dialect = meet(meta.to_wire(), LIBERO, form)
        assert isinstance(dialect, Praxis) and dialect.meta == meta
    request = dialect.request(observed(LIBERO), session_id='s_1')
    assert request['session_id'] == 's_1' and request['embodiment'] == 'libero_7d'
    chunk = np.zeros((3, 7), dtype=np.float32)
    np.testing.assert_array_equal(dialect.prediction({'actions': chunk}).actions, chunk)


def test_a_foreign_server_without_a_format_is_refused_with_the_known_ones():
    with pytest.raises(ExchangeError, match=r'metadata.protocol: .*openpi_libero, openpi_droid'):
        meet({'name': 'pi0'}, LIBERO)


@pytest.mark.parametrize(
    ('name', 'contract', 'text'),
    [
        ('openpi_libero', JOINTS, 'control.action_schema: expected a contract of 7 actions'),
        ('openpi_aloha', LIBERO, 'control.action_schema: expected a contract of 14 actions'),
        (RequestFormat(state={'s': 'state[9]'}), LIBERO, r'state\[9:10\]: expected a part of 8'),
        (
            RequestFormat(state={'s': 'tactile'}),
            LIBERO,
            'state_sizes.tactile: expected its length',
        ),
        (
            RequestFormat(state={'s': 'state'}, state_sizes={'state': 9}),
            LIBERO,
            'expected a contract of 9 states',
        ),
        (
            RequestFormat(state={'s': 'state'}, gripper_threshold=0.5),
            ALOHA,
            'gripper: expected a gripper',
        ),
        (
            RequestFormat(state={'s': 'state'}, anchors={'delta_x': 'state[8]'}),
            LIBERO,
            'anchors.delta_x',
        ),
    ],
)
def test_a_format_that_does_not_fit_the_robot_is_refused(name, contract, text):
    with pytest.raises(ExchangeError, match=text):
        foreign(name, contract)


def stage(**changes):
    network = {'state_dim': 16, 'action_dim': 16, 'action_horizon': 20}
    network.update(changes.pop('network', {}))
    return {'round_complete': True, 'network_config': network, 'mode': 'mean', **changes}


@pytest.mark.parametrize(
    ('metadata', 'field'),
    [
        ({}, 'metadata.rlt_stage2'),
        ({'rlt_stage2': [1]}, 'metadata.rlt_stage2'),
        ({'rlt_stage2': stage(round_complete=False)}, 'metadata.rlt_stage2.round_complete'),
        ({'rlt_stage2': stage(round_complete=1)}, 'metadata.rlt_stage2.round_complete'),
        ({'rlt_stage2': stage(network_config=None)}, 'metadata.rlt_stage2.network_config'),
        ({'rlt_stage2': stage(network={'state_dim': 14})}, '.network_config.state_dim'),
        ({'rlt_stage2': stage(network={'action_dim': 7})}, '.network_config.action_dim'),
        ({'rlt_stage2': stage(network={'action_horizon': 50})}, '.network_config.action_horizon'),
        ({'rlt_stage2': stage(network={'action_horizon': 20.0})}, '.action_horizon'),
        ({'rlt_stage2': stage(network={'action_horizon': None})}, '.action_horizon'),
    ],
)
def test_the_rl_token_server_is_held_to_the_contract(metadata, field):
    with pytest.raises(ExchangeError) as refusal:
        foreign('rlt', ZME, metadata)
    assert refusal.value.field.endswith(field)


# --- replies ---


def test_a_reply_becomes_a_prediction_with_its_timings():
    dialect = foreign('openpi_libero', LIBERO)
    actions = np.linspace(-2, 2, 70).reshape(10, 7)
    reply = {
        'actions': actions,
        'state': np.zeros(8),
        'policy_timing': {'infer_ms': np.float64(71.5)},
        'server_timing': {'infer_ms': 72.0, 'prev_total_ms': 90.0},
    }
    prediction = dialect.prediction(reply)
    assert prediction.actions.dtype == np.float32
    np.testing.assert_array_equal(prediction.actions, np.clip(actions, -1, 1).astype(np.float32))
    assert prediction.metadata == {
        'policy_timing': {'infer_ms': 71.5},
        'server_timing': {'infer_ms': 72.0, 'prev_total_ms': 90.0},
    }


def test_droids_gripper_is_decided_in_the_contracts_values():
    actions = np.zeros((4, 8))
    actions[:, 7] = [0.0, 0.5, 0.51, 3.0]
    prediction = foreign('openpi_droid', JOINTS).prediction({'actions': actions})
    np.testing.assert_array_equal(prediction.actions[:, 7], [-1, -1, 1, 1])  # -1 is open
    assert actions[3, 7] == 3.0


@pytest.mark.parametrize(
    ('reply', 'field'),
    [
        ({}, 'actions'),
        ({'action': np.zeros((10, 7))}, 'actions'),
        ({'actions': np.zeros((10, 8))}, 'actions'),
        ({'actions': np.zeros((0, 7))}, 'actions'),
        ({'actions': np.zeros(7)}, 'actions'),
        ({'actions': [[0.0] * 7]}, 'actions'),
        ({'actions': np.full((1, 7), np.inf)}, 'actions[0].delta_x'),
    ],
)
def test_a_reply_without_a_usable_chunk_is_refused(reply, field):
    with pytest.raises(ExchangeError) as refusal:
        foreign('openpi_libero', LIBERO).prediction(reply)
    assert refusal.value.field == field


def test_a_chunk_of_another_length_than_stated_is_refused():
    dialect = foreign('openpi_libero', LIBERO, chunk_size=10)
    with pytest.raises(ExchangeError, match=r'shape \[10, 7\]'):
        dialect.prediction({'actions': np.zeros((9, 7))})


# --- formats ---


@pytest.mark.parametrize('text', ['', '  ', 'praxis'])
def test_no_format_is_our_own_protocol(text):
    assert read_format(text) is None


def test_presets_are_found_by_name_and_may_be_changed():
    assert read_format('openpi_droid') is PRESETS['openpi_droid']
    changed = read_format('{"preset": "openpi_aloha", "images": {"images/cam_high": "head"}}')
    assert dict(changed.images) == {'images/cam_high': 'head'}
    assert changed.channels_first and changed.nested and changed.action_dim == 14


@pytest.mark.parametrize('name', PRESETS)
def test_a_preset_written_as_json_is_the_preset(name):
    text = json.dumps(PRESETS[name].model_dump(mode='json'))
    assert read_format(text) == PRESETS[name]


@pytest.mark.parametrize(
    ('text', 'lines'),
    [
        ('openpi', ['must be praxis, openpi_libero', "(got 'openpi')"]),
        ('{"state": ', ['is not JSON']),
        ('{"preset": "aloha"}', ['preset: must be one of', "(got 'aloha')"]),
        ('{}', ['images: or state must be given (got {})']),
        ('{"state": {"s": "state"}, "imges": {}}', ["imges: unknown key, did you mean 'images'?"]),
        (
            '{"state": {"s": "state[2:2]"}}',
            ['state.s[0]: must not be an empty range', 'state[2:2]'],
        ),
        ('{"state": {"s": "state[a]"}}', ['state.s[0]: must be NAME, NAME[I] or NAME[I:J]']),
        ('{"state": {"s": []}}', ['state.s: must have 1 or more entries']),
        ('{"images": {"a": 3}}', ['images.a: must be text (got 3)']),
        ('{"images": {"a": "x"}, "image_size": [224, 0]}', ['image_size[1]: must be at least 1']),
        ('{"images": {"a": "x"}, "image_flip": "left"}', ['image_flip: must be', "(got 'left')"]),
        ('{"images": {"a": "x"}, "clip": [1, -1]}', ['clip: must be the lower and the higher']),
        ('{"images": {"a": "x"}, "state": {"a": "state"}}', ['state.a: is the place of images.a']),
        ('{"images": {"prompt": "x"}}', ['prompt: is the place of images.prompt']),
        (
            '{"nested": true, "images": {"a/b": "x"}, "state": {"a": "state"}}',
            ['state.a: is the place of images.a/b'],
        ),
        ('{"nested": true, "images": {"a//b": "x"}}', ['images.a//b: has an empty step']),
        ('{"every_camera": "images/all"}', ['every_camera: must hold {camera} or {role}']),
        ('{"every_camera": "images/{name}"}', ['every_camera: must hold {camera} or {role}']),
        (
            '{"state": {"s": "state"}, "state_sizes": {"stat": 8}}',
            ["state_sizes.stat: unknown key, did you mean 'state'? (got 8)"],
        ),
    ],
)
def test_a_faulty_format_is_refused_with_the_key_and_the_value(text, lines):
    with pytest.raises(ValueError) as refusal:
        read_format(text)
    for line in lines:
        assert line in str(refusal.value)


def test_flat_keys_keep_their_slashes():
    flat = RequestFormat(images={'a/b': 'x'}, state={'a': 'state'})
    assert flat.path('a/b') == ('a/b',)
    assert part_of('state[3:5]') == ('state', 3, 5)
    assert part_of('state[3]') == ('state', 3, 4)
    assert part_of('state') == ('state', 0, None)
