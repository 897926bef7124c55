# SPDX-License-Identifier: Apache-2.0
"""RLDX-1's policy and its server as RLWRLD/RLDX-1 publishes them, without a network.

Made from ``rldx/policy/rldx_policy.py`` 0bbc9e30 (what RLDXSimPolicyWrapper asserts of flat
observations and gives back), ``step_request.py`` 0bbc9e30 (options), ``server_client.py`` 21007bd4
(endpoints and messages) and ``rldx/configs/data/robocasa365_config.py`` 21007bd4 (keys).
"""

import enum
import io
from dataclasses import dataclass, field
from types import ModuleType

import msgpack
import numpy as np

CAMERAS = ['robot0_agentview_left', 'robot0_agentview_right', 'robot0_eye_in_hand']
STATES = {
    'end_effector_position_relative': 3,
    'end_effector_rotation_relative': 4,
    'gripper_qpos': 2,
    'base_position': 3,
    'base_rotation': 4,
}
ACTIONS = {
    'end_effector_position': 3,
    'end_effector_rotation': 3,
    'gripper_close': 1,
    'base_motion': 4,
    'control_mode': 1,
}


class EmbodimentTag(enum.Enum):
    GENERAL_EMBODIMENT = 'general_embodiment'
    GR1 = 'gr1'


@dataclass
class ModalityConfig:
    delta_indices: list
    modality_keys: list


def modality(deltas=(-6, -4, -2, 0), cameras=CAMERAS):
    return {
        'video': ModalityConfig(list(deltas), list(cameras)),
        'state': ModalityConfig([0], list(STATES)),
        'action': ModalityConfig(list(range(16)), list(ACTIONS)),
        'language': ModalityConfig([0], ['annotation.human.task_description']),
    }


@dataclass
class SimPolicy:
    """What RLDXSimPolicyWrapper does around the network, which is ``self.actions``."""

    config: dict = field(default_factory=modality)
    calls: list = field(default_factory=list)
    resets: list = field(default_factory=list)
    loaded: dict = field(default_factory=dict)

    def __post_init__(self):
        self.actions = {
            name: np.full((1, 16, size), 0.1 * index, np.float32)
            for index, (name, size) in enumerate(ACTIONS.items())
        }

    def get_modality_config(self):
        return self.config

    def get_action(self, observation, options=None):
        horizon = len(self.config['video'].delta_indices)
        for name in self.config['video'].modality_keys:
            assert f'video.{name}' in observation, f"Video key 'video.{name}' must be there"
            video = observation[f'video.{name}']
            assert video.dtype == np.uint8 and video.ndim == 5
            assert video.shape[1] == horizon, f"'{name}'s horizon must be {horizon}"
            assert video.shape[-1] == 3
        for name, size in STATES.items():
            state = observation[f'state.{name}']
            assert state.dtype == np.float32 and state.shape == (1, 1, size)
        language = observation['annotation.human.task_description']
        assert isinstance(language, (tuple, list)) and isinstance(language[0], str)
        for name, kind in (('session_ids', str), ('reset_memory', (bool, int))):
            assert isinstance(options[name], list) and len(options[name]) == 1
            assert isinstance(options[name][0], kind)
        self.calls.append((observation, options))
        return {f'action.{name}': value for name, value in self.actions.items()}, {}

    def reset(self, options=None):
        self.resets.append(options)
        return {'cleared_sessions': (options or {}).get('session_ids', [])}


def modules(policy):
    """Modules of the project whose policy is this one."""
    tags = ModuleType('rldx.data.embodiment_tags')
    tags.EmbodimentTag = EmbodimentTag
    policies = ModuleType('rldx.policy.rldx_policy')

    def load(embodiment_tag, model_path, *, device, strict=True, **more):
        policy.loaded.update(
            tag=embodiment_tag, path=model_path, device=device, strict=strict, **more
        )
        return policy

    policies.RLDXPolicy = load
    policies.RLDXSimPolicyWrapper = lambda policy, *, strict=True: policy
    return {'rldx.data.embodiment_tags': tags, 'rldx.policy.rldx_policy': policies}


def answer(policy, token=''):
    """What the project's server answers to one message, by the policy."""

    def handle(message):
        request = msgpack.unpackb(message, object_hook=_read)
        if token and request.get('api_token') != token:
            return _written({'error': 'Unauthorized: Invalid API token'})
        endpoint = request.get('endpoint', 'get_action')
        try:
            if endpoint == 'ping':
                return _written({'status': 'ok', 'message': 'Server is running'})
            if endpoint == 'get_modality_config':
                return _written(policy.get_modality_config())
            if endpoint in ('get_action', 'reset'):
                return _written(getattr(policy, endpoint)(**request.get('data', {})))
            raise ValueError(f'Unknown endpoint: {endpoint}')
        except Exception as error:
            return _written({'error': str(error)})

    return handle


def _read(found):
    if '__ndarray_class__' in found:
        return np.load(io.BytesIO(found['as_npy']), allow_pickle=False)
    return found


def _written(value):
    return msgpack.packb(value, default=_write)


def _write(value):
    if isinstance(value, ModalityConfig):
        return {'__ModalityConfig_class__': True, 'as_json': dict(vars(value))}
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=False)
    return {'__ndarray_class__': True, 'as_npy': stream.getvalue()}
