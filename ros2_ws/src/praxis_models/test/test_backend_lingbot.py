# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation, check_reply, reply_of
from praxis_models.backend import BackendError, Session
from praxis_models.workers import lingbot

sys.path.insert(0, str(Path(__file__).parent))

from fakes import native_socket

RPENT = {
    'runtime': 'lingbotvla',
    'policy_name': 'robotwin_eef',
    'camera_order': ['cam_high', 'cam_left_wrist', 'cam_right_wrist'],
    'state_layout': 'eef16',
    'action_layout': 'eef16',
    'use_length': 50,
}
"""``vla_runtime_contract`` of RLinf/RPent 0a95f12f (``robots/robotwin/env_spec.py``)."""


class LingBotVla:
    """``LingbotVLAServer`` of Robbyant/lingbot-vla 8b187998, as far as a client can tell."""

    def __init__(self, use_length=50, width=16, transform=False):
        self.use_length = use_length
        self.width = width
        self.transform = transform
        self.seen = []

    def infer(self, observation):
        self.seen.append(observation)
        if observation.get('reset'):
            self.transform = observation['robo_name'] == 'robotwin_eef'
            return {'action': None}
        if not self.transform:
            raise AttributeError("'NoneType' object has no attribute 'org_features'")
        for name in ('cam_high', 'cam_left_wrist', 'cam_right_wrist'):
            image = observation[f'observation.images.{name}']
            assert image.dtype == np.uint8
            assert image.ndim == 3 and image.shape[-1] == 3
        state = observation['observation.state']
        assert state.shape == (16,) and state.dtype == np.float32
        assert isinstance(observation['task'], str)
        action = np.tile(state, (self.use_length, 1))
        action[:, 0] += np.arange(self.use_length) * 0.01
        return {'action': action[:, : self.width]}


def observation_for(meta):
    state = {name: np.zeros(size, np.float32) for name, size in meta.state_schema.items()}
    for side in ('left', 'right'):
        state[f'{side}_eef_pose'][:] = (0.5, 0, 0, 1, 0, 0, 0)
    images = {role: np.zeros((24, 32, 3), np.uint8) for role in meta.camera_roles}
    return PhysicalObservation(images, state, 'hand over the bottle')


def test_server_is_told_its_robot_and_gives_chunks_of_its_own_length():
    policy = LingBotVla(use_length=25)
    with native_socket.served(policy, {}) as endpoint:
        backend = lingbot.load(lingbot.Options(endpoint=endpoint))
        meta = backend.meta
        assert policy.seen[0] == {'reset': True, 'robo_name': 'robotwin_eef'}
        assert (meta.chunk_size, meta.execute_steps) == (25, 25)
        assert meta.control.embodiment == 'robotwin_eef16'
        prediction = backend.predict(observation_for(meta), Session('s'))
        actions = check_reply(meta, reply_of(prediction)).actions
        backend.close()
    np.testing.assert_allclose(actions[:, 0], 0.5 + np.arange(25) * 0.01, rtol=1e-5)
    assert actions[0, 3:7].tolist() == [1, 0, 0, 0]
    assert policy.seen[-1]['task'] == 'hand over the bottle'


def test_launcher_with_a_transform_of_its_own_is_not_told_the_robot():
    policy = LingBotVla(transform=True)
    with native_socket.served(policy, RPENT) as endpoint:
        backend = lingbot.load(lingbot.Options(endpoint=endpoint, execute_steps=20))
        backend.close()
    assert not any('reset' in request for request in policy.seen)
    assert (backend.meta.chunk_size, backend.meta.execute_steps) == (50, 20)
    assert backend.meta.metadata['server']['policy_name'] == 'robotwin_eef'


def test_server_that_was_restarted_is_told_its_robot_again():
    with native_socket.served(LingBotVla(), {}) as endpoint:
        backend = lingbot.load(lingbot.Options(endpoint=endpoint))
    observation = observation_for(backend.meta)
    with pytest.raises(BackendError, match='ws://127'):
        backend.predict(observation, Session('s'))
    policy = LingBotVla()
    with native_socket.served(policy, {}, port=int(endpoint.rpartition(':')[2])):
        assert backend._server._connection.wait(20).phase == 'ready'
        prediction = backend.predict(observation, Session('s'))
        backend.close()
    assert prediction.actions.shape == (50, 16)
    assert [bool(request.get('reset')) for request in policy.seen] == [True, False]


def test_servers_traceback_becomes_one_line():
    policy = LingBotVla(transform=True)
    with native_socket.served(policy, {}) as endpoint, pytest.raises(BackendError) as caught:
        lingbot.load(lingbot.Options(endpoint=endpoint, robot_name='aloha'))
    assert "no attribute 'org_features'" in str(caught.value)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('policy', 'metadata', 'options', 'message'),
    [
        (LingBotVla(width=14), {}, {}, r'action: expected shape \[H, 16\] \(got \[50, 14\]\)'),
        (LingBotVla(), {**RPENT, 'state_layout': 'qpos14'}, {}, 'state_layout: expected eef16'),
        (
            LingBotVla(use_length=5),
            {},
            {'execute_steps': 8},
            r'execute_steps: a chunk has 5 steps',
        ),
    ],
)
def test_another_policy_than_robotwins_poses_is_refused(policy, metadata, options, message):
    with (
        native_socket.served(policy, metadata) as endpoint,
        pytest.raises(BackendError, match=message),
    ):
        lingbot.load(lingbot.Options(endpoint=endpoint, **options))


@pytest.mark.parametrize('endpoint', ['nonsense', 'ws://127.0.0.1:1'])
def test_server_that_is_not_there_is_named(endpoint):
    with pytest.raises(BackendError, match='endpoint: '):
        lingbot.load(lingbot.Options(endpoint=endpoint, connect_s=0.3))
