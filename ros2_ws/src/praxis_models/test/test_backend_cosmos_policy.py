# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation, check_reply, reply_of
from praxis_models import embeddings
from praxis_models.backend import BackendError, Session
from praxis_models.embeddings import Embedding, Embeddings
from praxis_models.workers import cosmos_policy

sys.path.insert(0, str(Path(__file__).parent))
from fakes.cosmos_policy_project import Project

STATISTICS = {
    'actions_min': [-1.0, -2.0, -3.0, -0.5, -0.25, -0.125, -1.0],
    'actions_max': [1.0, 2.0, 3.0, 0.5, 0.25, 0.375, 1.0],
    'proprio_min': [0.0] * 9,
    'proprio_max': [2.0] * 9,
}
OBSERVATION = PhysicalObservation(
    images={role: np.zeros((256, 256, 3), np.uint8) for role in ('primary', 'wrist')},
    state={
        'gripper_qpos': np.array([0.0, 2.0], np.float32),
        'eef_position': np.array([1.0, 0.5, 1.5], np.float32),
        'eef_quaternion_xyzw': np.array([0.0, 0.0, 0.0, 1.0], np.float32),
    },
    instruction='open the drawer',
)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ('DETERMINISTIC', 'CUDA_VISIBLE_DEVICES'):
        monkeypatch.setenv(name, '')
        monkeypatch.delenv(name)


@pytest.fixture
def project(monkeypatch):
    project = Project()
    for name, module in project.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return project


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / 'checkpoint'
    folder.mkdir()
    (folder / 'Cosmos-Policy-LIBERO-Predict2-2B.pt').touch()
    (folder / cosmos_policy.STATISTICS).write_text(json.dumps(STATISTICS))
    return folder


@pytest.fixture
def text_embeddings(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = tmp_path / 'text.npz'
    embeddings.write(path, Embeddings({'open the drawer': Embedding(values, None, 'bfloat16')}))
    return path


def loaded(checkpoint, **options):
    return cosmos_policy.load(cosmos_policy.Options(checkpoint=str(checkpoint), **options))


def test_a_chunk_is_what_the_project_denormalises(project, checkpoint):
    backend = loaded(checkpoint)
    prediction = check_reply(backend.meta, reply_of(backend.predict(OBSERVATION, Session('a'))))
    # the fake's ramp runs from -1 to 1 over 16 steps: 0.5 (a + 1) (max - min) + min
    assert prediction.actions[0] == pytest.approx(STATISTICS['actions_min'])
    assert prediction.actions[15] == pytest.approx(STATISTICS['actions_max'])
    assert prediction.actions[5, 5] == pytest.approx(-0.125 + 5 / 15 * 0.5)
    assert prediction.future_observation is None and prediction.value is None
    # 2 (x - min) / (max - min) - 1 over 0 ... 2 is x - 1
    assert project.calls[0].proprio == pytest.approx([-1, 1, 0, -0.5, 0.5, -1, -1, -1, 0])


def test_the_meta_says_what_is_served(project, checkpoint):
    meta = loaded(checkpoint).meta
    assert meta.control.action_space == 'libero.osc_pose.delta.v1'
    assert meta.camera_roles == ('primary', 'wrist')
    assert meta.state_schema == {'gripper_qpos': 2, 'eef_position': 3, 'eef_quaternion_xyzw': 4}
    assert (meta.chunk_size, meta.execute_steps, meta.policy_hz) == (16, 16, 20.0)
    assert not (meta.uses_sessions or meta.returns_future_observation or meta.returns_value)


def test_views_and_value_are_given_where_they_are_asked_for(project, checkpoint):
    backend = loaded(checkpoint, predict_future=True)
    assert backend.meta.returns_future_observation and backend.meta.returns_value
    prediction = check_reply(backend.meta, reply_of(backend.predict(OBSERVATION, Session('a'))))
    assert prediction.value == 0.75
    assert prediction.future_observation['primary'].shape == (1, 224, 224, 3)
    assert prediction.future_observation['primary'].max() == 10
    assert prediction.future_observation['wrist'].max() == 20


def test_options_reach_the_project(project, checkpoint):
    backend = loaded(checkpoint, flow_steps=3, seed=195, config='other')
    backend.predict(OBSERVATION, Session('a'))
    call = project.calls[0]
    assert (call.steps, call.seed, call.randomize_seed) == (3, 195, False)
    assert project.seeds == [195]
    assert project.settings.config == 'other'
    assert project.settings.ckpt_path.endswith('Cosmos-Policy-LIBERO-Predict2-2B.pt')
    assert os.environ['DETERMINISTIC'] == 'True'


def test_a_cached_instruction_goes_in_as_its_embedding(project, checkpoint, text_embeddings):
    backend = loaded(checkpoint, text_embeddings=str(text_embeddings))
    backend.predict(OBSERVATION, Session('a'))
    assert project.calls[0].embedding.tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert project.embedded == []
    assert backend.meta.metadata['cached_instructions'] == ['open the drawer']


def other(instruction):
    return PhysicalObservation(OBSERVATION.images, OBSERVATION.state, instruction)


def test_another_instruction_is_embedded_by_the_project(project, checkpoint, text_embeddings):
    backend = loaded(checkpoint, text_embeddings=str(text_embeddings))
    backend.predict(other('close it'), Session('a'))
    assert project.embedded == ['close it']


def test_another_instruction_is_refused_where_only_cached_ones_are_served(
    project, checkpoint, text_embeddings
):
    backend = loaded(
        checkpoint, text_embeddings=str(text_embeddings), cached_instructions_only=True
    )
    with pytest.raises(BackendError, match=r"instruction: none of the 1 cached.*'close it'"):
        backend.predict(other('close it'), Session('a'))
    assert project.embedded == [] and project.calls == []


def test_an_image_of_another_size_is_refused_by_name(project, checkpoint):
    small = {role: np.zeros((128, 128, 3), np.uint8) for role in ('primary', 'wrist')}
    with pytest.raises(BackendError, match=r'images\.primary: expected 256x256'):
        loaded(checkpoint).predict(
            PhysicalObservation(small, OBSERVATION.state, 'x'), Session('a')
        )


def test_a_checkpoint_of_another_robot_is_refused(project, checkpoint):
    project.chunk_size = 50
    with pytest.raises(BackendError, match=r'expected chunks of 16 \(got 50\)'):
        loaded(checkpoint)


@pytest.mark.parametrize(
    ('options', 'what'),
    [
        ({'cached_instructions_only': True}, 'cached_instructions_only needs text_embeddings'),
        ({'text_embeddings': '/nowhere.npz'}, r'text_embeddings: /nowhere\.npz: cannot be read'),
        ({'statistics': '/nowhere.json'}, r'statistics: /nowhere\.json is not there'),
        ({'device': 'cpu'}, r"device: must be cuda or cuda:N \(got 'cpu'\)"),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_line(project, checkpoint, options, what):
    with pytest.raises(BackendError, match=what) as caught:
        loaded(checkpoint, **options)
    assert '\n' not in str(caught.value)


def test_a_checkpoint_that_is_not_there_is_refused(project, tmp_path):
    with pytest.raises(BackendError, match=r'checkpoint: .*nowhere is not there'):
        loaded(tmp_path / 'nowhere')
    with pytest.raises(BackendError, match=r'has 0 \.pt files, expected one'):
        loaded(tmp_path)


def test_a_repository_is_left_to_the_project(project, monkeypatch):
    monkeypatch.setattr(
        sys.modules['cosmos_policy.experiments.robot.cosmos_utils'],
        'load_dataset_stats',
        lambda path: {'path': path},
    )
    cosmos_policy.load(cosmos_policy.Options())
    assert project.settings.ckpt_path == 'nvidia/Cosmos-Policy-LIBERO-Predict2-2B'


def test_a_device_is_the_one_of_those_that_are_visible(project, checkpoint, monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '4,6')
    loaded(checkpoint, device='cuda:1')
    assert os.environ['CUDA_VISIBLE_DEVICES'] == '6'


def test_without_the_project_one_line_says_what_to_install(checkpoint):
    with pytest.raises(BackendError, match=r'install cosmos-policy \(github\.com') as caught:
        loaded(checkpoint)
    assert sys.executable in str(caught.value) and '\n' not in str(caught.value)
