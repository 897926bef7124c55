# SPDX-License-Identifier: Apache-2.0
import os
import sys
import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation, check_reply, reply_of
from praxis_models.adapters import rldx as adapter
from praxis_models.backend import BackendError, Session
from praxis_models.workers import rldx

sys.path.insert(0, str(Path(__file__).parent))
from fakes import rldx_project
from fakes.rldx_project import EmbodimentTag, SimPolicy
from fakes.zmtp_server import ReplyServer

EXPECTED = [0.0] * 3 + [0.1] * 3 + [-1.0] + [0.3] * 4 + [-1.0]


def observation(value=0, instruction='close the drawer', size=256):
    return PhysicalObservation(
        images={role: np.full((size, size, 3), value, np.uint8) for role in adapter.CAMERAS},
        state={name: np.ones(size, np.float32) for name, size in adapter.STATE_SCHEMA.items()},
        instruction=instruction,
    )


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv('RLDX_ATTN_IMPL', '')
    monkeypatch.delenv('RLDX_ATTN_IMPL')


@pytest.fixture
def policy(monkeypatch):
    policy = SimPolicy()
    for name, module in rldx_project.modules(policy).items():
        monkeypatch.setitem(sys.modules, name, module)
    return policy


@pytest.fixture
def served():
    policy = SimPolicy()
    server = ReplyServer(rldx_project.answer(policy))
    server.policy = policy
    yield server
    server.close()


@pytest.fixture(params=['loaded', 'served'])
def backend(request):
    """The same tests hold for a policy that is loaded here and for one behind its own server."""
    if request.param == 'loaded':
        policy = request.getfixturevalue('policy')
        backend = rldx.load(rldx.Options(checkpoint='RLWRLD/RLDX-1'))
    else:
        server = request.getfixturevalue('served')
        policy = server.policy
        backend = rldx.load(rldx.Options(endpoint=server.endpoint, timeout_s=5.0))
    backend.fake = policy
    yield backend
    backend.close()


def asked(backend, session, **more):
    return check_reply(backend.meta, reply_of(backend.predict(observation(**more), session)))


def choices(backend):
    return [(call[1]['session_ids'][0], call[1]['reset_memory'][0]) for call in backend.fake.calls]


def shown(backend, index=-1):
    """First pixel of each frame of the video of a call."""
    return backend.fake.calls[index][0]['video.robot0_eye_in_hand'][0, :, 0, 0, 0].tolist()


def test_a_chunk_comes_in_the_controls_order(backend):
    actions = asked(backend, Session('a')).actions
    assert actions.shape == (16, 12)
    assert actions[9] == pytest.approx(EXPECTED)


def test_the_meta_says_what_is_served(backend):
    meta = backend.meta
    assert meta.uses_sessions
    assert meta.camera_roles == adapter.CAMERAS
    assert meta.state_schema == adapter.STATE_SCHEMA
    assert (meta.chunk_size, meta.execute_steps, meta.policy_hz) == (16, 8, 20.0)
    assert meta.metadata['video_delta_indices'] == [-6, -4, -2, 0]


def test_memory_is_reset_at_the_start_and_kept_after_it(backend):
    session = Session('a')
    for _ in range(3):
        asked(backend, session)
    assert choices(backend) == [('a', True), ('a', False), ('a', False)]


def test_sessions_do_not_share_memory_or_frames(backend):
    first, second = Session('a'), Session('b')
    asked(backend, first, value=10)
    asked(backend, second, value=20)
    asked(backend, first, value=11)
    assert choices(backend) == [('a', True), ('b', True), ('a', False)]
    assert shown(backend) == [10, 11, 11, 11]
    asked(backend, second, value=21)
    assert shown(backend) == [20, 21, 21, 21]


def test_a_reset_forgets_one_session_here_and_there(backend):
    first, second = Session('a'), Session('b')
    for session in (first, second):
        asked(backend, session, value=10)
    backend.reset(first)
    assert backend.fake.resets == [{'session_ids': ['a']}]
    asked(backend, first, value=30)
    assert shown(backend) == [30, 30, 30, 30]
    asked(backend, second, value=11)
    assert choices(backend)[2:] == [('a', True), ('b', False)]


def test_a_session_that_was_never_used_needs_no_reset(backend):
    backend.reset(Session('new'))
    assert backend.fake.resets == []


def test_another_instruction_starts_anew(backend):
    session = Session('a')
    asked(backend, session, value=10)
    asked(backend, session, value=20, instruction='open the drawer')
    assert choices(backend) == [('a', True), ('a', True)]
    assert shown(backend) == [20, 20, 20, 20]


def test_an_image_of_another_size_is_refused_and_not_remembered(backend):
    session = Session('a')
    with pytest.raises(BackendError, match=r'robot0_agentview_left: expected 256x256'):
        asked(backend, session, size=128)
    assert session.memory == {} and backend.fake.calls == []


def test_a_call_that_fails_leaves_no_memory(backend):
    session = Session('a')
    asked(backend, session, value=10)
    backend.fake.actions['gripper_close'][:] = np.nan
    with pytest.raises(BackendError, match=r'rldx: action\.gripper_close: expected finite'):
        asked(backend, session, value=11)
    backend.fake.actions['gripper_close'][:] = 1.0
    asked(backend, session, value=12)
    assert choices(backend)[-1] == ('a', True)
    assert shown(backend) == [12, 12, 12, 12]


def test_a_policys_objection_is_one_line(backend):
    backend.fake.config['video'].delta_indices.append(0)
    with pytest.raises(BackendError, match='horizon must be 5') as caught:
        asked(backend, Session('a'))
    assert '\n' not in str(caught.value)


def test_a_request_every_two_steps_has_the_very_frames(policy):
    backend = rldx.load(rldx.Options(checkpoint='x', execute_steps=2))
    session = Session('a')
    for value in range(6):
        backend.predict(observation(value), session)
    video = policy.calls[-1][0]['video.robot0_eye_in_hand']
    assert video[0, :, 0, 0, 0].tolist() == [2, 3, 4, 5]
    # no more frames are kept than the video reaches back
    assert len(session.memory['frames']) == 5


def test_options_reach_the_project(policy, monkeypatch):
    torch = ModuleType('torch')
    seeds = []
    torch.manual_seed = seeds.append
    monkeypatch.setitem(sys.modules, 'torch', torch)
    rldx.load(
        rldx.Options(
            checkpoint='/models/rldx', device='cuda:1', flow_steps=4, seed=5, memory=False,
            embodiment_tag='GR1',
        )
    )  # fmt: skip
    assert policy.loaded == {
        'tag': EmbodimentTag.GR1,
        'path': '/models/rldx',
        'device': 'cuda:1',
        'strict': True,
        'denoising_timesteps': [0.0, 0.25, 0.5, 0.75],
        'deactivate_memory': True,
    }
    assert seeds == [5]


def test_attention_without_flash_attn_is_pytorchs(policy):
    rldx.load(rldx.Options(checkpoint='x'))
    assert os.environ['RLDX_ATTN_IMPL'] == 'sdpa'


def test_a_checkpoint_of_another_robot_is_refused(policy):
    policy.config = rldx_project.modality(cameras=['ego_view'])
    with pytest.raises(BackendError, match=r'video: expected robot0.*\(got ego_view\)'):
        rldx.load(rldx.Options(checkpoint='x'))


@pytest.mark.parametrize(
    ('options', 'what'),
    [
        ({}, 'give one of checkpoint and endpoint'),
        ({'checkpoint': 'x', 'endpoint': 'y:1'}, 'give one of checkpoint and endpoint'),
        ({'endpoint': 'http://x:1'}, r'endpoint: must be tcp://HOST:PORT'),
        ({'endpoint': 'x:1', 'seed': 1}, 'seed: is for the server at endpoint to know'),
        ({'checkpoint': 'x', 'embodiment_tag': 'NONE'}, 'embodiment_tag: RLDX has none of the'),
    ],
)
def test_options_that_cannot_be_are_refused(policy, options, what):
    with pytest.raises(BackendError, match=what):
        rldx.load(rldx.Options(**options))


def test_a_token_is_sent_and_a_wrong_one_refused_at_once(tmp_path):
    policy = SimPolicy()
    server = ReplyServer(rldx_project.answer(policy, token='secret'))
    for name in ('secret', 'wrong'):
        (tmp_path / name).write_text(f'{name}\n')

    def load(name):
        options = rldx.Options(endpoint=server.endpoint, api_token_file=str(tmp_path / name))
        return rldx.load(options)

    load('secret').close()
    with pytest.raises(BackendError, match='refuses ping: Unauthorized'):
        load('wrong')
    with pytest.raises(BackendError, match=r'api_token_file: cannot be read: .*missing'):
        load('missing')
    server.close()


def test_loading_waits_for_the_server_to_come(served):
    port = served.port
    served.close()
    late = []
    timer = threading.Timer(
        0.3, lambda: late.append(ReplyServer(rldx_project.answer(SimPolicy()), port))
    )
    timer.start()
    backend = rldx.load(rldx.Options(endpoint=f'127.0.0.1:{port}', ready_timeout_s=20.0))
    assert asked(backend, Session('a')).actions[0] == pytest.approx(EXPECTED)
    backend.close()
    timer.join()
    late[0].close()


def test_a_server_that_does_not_come_or_answer_is_named(served):
    backend = rldx.load(rldx.Options(endpoint=served.endpoint, timeout_s=0.3))
    served.hold = True
    with pytest.raises(BackendError, match=r'tcp://127.* does not answer in time'):
        asked(backend, Session('a'))
    served.hold = False
    served.close()
    with pytest.raises(BackendError, match=r'tcp://127.*: '):
        asked(backend, Session('a'))
    with pytest.raises(BackendError, match='refused'):
        rldx.load(rldx.Options(endpoint=served.endpoint, ready_timeout_s=0.0))


def test_without_the_project_one_line_says_what_to_install():
    with pytest.raises(BackendError, match=r'install RLDX-1 \(github\.com') as caught:
        rldx.load(rldx.Options(checkpoint='x'))
    assert '\n' not in str(caught.value)
