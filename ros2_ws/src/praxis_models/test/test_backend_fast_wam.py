# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation, check_reply, reply_of
from praxis_models import embeddings
from praxis_models.backend import BackendError, Session
from praxis_models.embeddings import Embedding, Embeddings
from praxis_models.workers import fast_wam

sys.path.insert(0, str(Path(__file__).parent))
from fakes.fast_wam_project import Project


def statistics(states, actions):
    def block(size):
        return {
            'default': {
                'global_min': [-2.0] * size,
                'global_max': [2.0] * size,
                'global_mean': [1.0] * size,
                'global_std': [2.0] * size,
            }
        }

    return {'state': block(states), 'action': block(actions)}


LIBERO = PhysicalObservation(
    images={role: np.zeros((256, 256, 3), np.uint8) for role in ('primary', 'wrist')},
    state={
        'eef_position': np.array([1.0, 2.0, -2.0], np.float32),
        'eef_quaternion_xyzw': np.array([0.0, 0.0, 0.0, 1.0], np.float32),
        'gripper_qpos': np.array([0.5, -0.5], np.float32),
    },
    instruction='open the drawer',
)
ROBOTWIN = PhysicalObservation(
    images={
        role: np.zeros((240, 320, 3), np.uint8) for role in ('head', 'left_wrist', 'right_wrist')
    },
    state={'joint_targets': np.full(14, 3.0, np.float32)},
    instruction='stack the blocks',
)


@pytest.fixture
def project(monkeypatch, tmp_path):
    project = Project(tmp_path / 'project')
    for name, module in project.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return project


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / 'libero_uncond_2cam224.pt'
    path.touch()
    beside = tmp_path / 'libero_uncond_2cam224_dataset_stats.json'
    beside.write_text(json.dumps(statistics(8, 7)))
    return path


@pytest.fixture
def text_embeddings(tmp_path):
    values = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    entry = Embedding(values, np.array([True, True, False, False]))
    path = tmp_path / 'text.npz'
    embeddings.write(path, Embeddings({'open the drawer': entry}))
    return path


def loaded(checkpoint, **options):
    return fast_wam.load(fast_wam.Options(checkpoint=str(checkpoint), **options))


def asked(backend, observation=LIBERO):
    return check_reply(backend.meta, reply_of(backend.predict(observation, Session('a'))))


def test_a_chunk_of_libero_is_restored_and_its_gripper_turned(project, checkpoint):
    backend = loaded(checkpoint)
    project.model.values[:] = [0.5, -0.5, 0.0, 0.25, 1.0, -1.0, 0.3]
    actions = asked(backend).actions
    # min -2, max 2 doubles; the gripper 0.6 is open, which is -1
    assert actions[31] == pytest.approx([1.0, -1.0, 0.0, 0.5, 2.0, -2.0, -1.0])


def test_what_goes_in_is_normalised(project, checkpoint):
    asked(loaded(checkpoint))
    call = project.model.calls[0]
    assert call.image.shape == (1, 3, 224, 448)
    assert call.proprio[0] == pytest.approx([0.5, 1.0, -1.0, 0, 0, 0, 0.25, -0.25])


def test_the_evaluations_sampling_is_the_default(project, checkpoint):
    asked(loaded(checkpoint))
    call = project.model.calls[0]
    assert (call.steps, call.seed, call.horizon) == (10, 42, 32)
    asked(loaded(checkpoint, flow_steps=20, seed=7))
    call = project.model.calls[0]
    assert (call.steps, call.seed) == (20, 7)


def test_the_model_is_loaded_as_the_evaluation_does(project, checkpoint):
    loaded(checkpoint, device='cuda:1', precision='float16')
    model = project.model
    assert project.composed == [('sim_libero', [])]
    assert model.checkpoint == str(checkpoint) and model.evaluating
    assert (model.device, model.dtype) == ('cuda:1', 'float16')
    assert model.settings['load_text_encoder'] is True


def test_the_meta_says_what_is_served(project, checkpoint):
    meta = loaded(checkpoint).meta
    assert meta.control.embodiment == 'libero_7d'
    assert meta.camera_roles == ('primary', 'wrist')
    assert meta.state_schema == {'eef_position': 3, 'eef_quaternion_xyzw': 4, 'gripper_qpos': 2}
    assert (meta.chunk_size, meta.execute_steps, meta.policy_hz) == (32, 10, 20.0)
    assert not meta.returns_future_observation


@pytest.fixture
def robotwin(tmp_path):
    path = tmp_path / 'robotwin_uncond_3cam_384.pt'
    path.touch()
    beside = tmp_path / 'robotwin_uncond_3cam_384_dataset_stats.json'
    beside.write_text(json.dumps(statistics(14, 14)))
    return path


def test_a_chunk_of_robotwin_is_by_mean_and_deviation(project, robotwin):
    backend = loaded(robotwin, preset='robotwin')
    project.model.values[:] = 0.25
    actions = asked(backend, ROBOTWIN).actions
    assert actions == pytest.approx(np.full((32, 14), 1.5))
    assert project.model.calls[0].proprio == pytest.approx(np.ones((1, 14)))
    assert project.model.calls[0].image.shape == (1, 3, 384, 320)
    assert backend.meta.control.action_type == 'qpos'
    assert (backend.meta.execute_steps, backend.meta.policy_hz) == (24, None)


def test_a_cached_prompt_is_given_with_zeros_for_its_padding(project, checkpoint, text_embeddings):
    backend = loaded(
        checkpoint, text_embeddings=str(text_embeddings), cached_instructions_only=True
    )
    asked(backend)
    call = project.model.calls[0]
    assert call.context.tolist() == [[[1, 2], [3, 4], [0, 0], [0, 0]]]
    assert call.mask.tolist() == [[True] * 4]
    assert project.model.settings['load_text_encoder'] is False
    assert project.model.embedded == []


def other(instruction):
    return PhysicalObservation(LIBERO.images, LIBERO.state, instruction)


def test_another_prompt_is_refused_where_only_cached_ones_are_served(
    project, checkpoint, text_embeddings
):
    backend = loaded(
        checkpoint, text_embeddings=str(text_embeddings), cached_instructions_only=True
    )
    with pytest.raises(BackendError, match='instruction: none of the 1 cached ones'):
        asked(backend, other('close it'))
    assert project.model.calls == []


def test_another_prompt_is_embedded_by_the_model(project, checkpoint, text_embeddings):
    backend = loaded(checkpoint, text_embeddings=str(text_embeddings))
    asked(backend, other('close it'))
    assert project.model.embedded == [
        "A video recorded from a robot's point of view executing the following instruction: "
        'close it'
    ]


def test_imagined_frames_are_given_by_role_and_upright(project, checkpoint):
    backend = loaded(checkpoint, predict_future=True)
    assert backend.meta.returns_future_observation and not backend.meta.returns_value
    future = asked(backend).future_observation
    assert future['primary'].shape == future['wrist'].shape == (9, 224, 224, 3)
    # the fake is bright in the left half of the primary view, which upright is the right half
    assert (future['primary'][0, :, 112:] == 50).all()
    assert (future['primary'][8, :, :112] == 8).all()
    assert (future['wrist'][3] == 3).all()


def test_a_chunk_that_is_not_finite_is_refused(project, checkpoint):
    backend = loaded(checkpoint)
    project.model.values[3, 6] = np.nan
    with pytest.raises(BackendError, match='actions: expected finite numbers'):
        asked(backend)


def test_a_resolved_configuration_is_read(project, checkpoint, tmp_path):
    path = tmp_path / 'resolved.yaml'
    path.write_text('model: {}\n')
    loaded(checkpoint, config=str(path))
    assert project.composed == []
    path.write_text('data: {}\n')
    with pytest.raises(BackendError, match='has no mapping `model`'):
        loaded(checkpoint, config=str(path))


def test_a_task_of_the_project_is_composed(project, checkpoint):
    loaded(checkpoint, config='libero_joint_2cam224_1e-4')
    assert project.composed == [('sim_libero', ['task=libero_joint_2cam224_1e-4'])]
    with pytest.raises(BackendError, match=r"config: Could not find 'task/nowhere' Available"):
        loaded(checkpoint, config='nowhere')


def test_a_configuration_of_another_robot_is_refused(project, robotwin, tmp_path):
    path = tmp_path / 'libero.yaml'
    path.write_text('model: {}\n')
    with pytest.raises(
        BackendError, match=r'model\.proprio_dim: expected 14 for robotwin \(got 8\)'
    ):
        loaded(robotwin, preset='robotwin', config=str(path))


def test_statistics_that_are_not_there_or_do_not_fit_are_refused(project, checkpoint, robotwin):
    with pytest.raises(BackendError, match=r'statistics: /nowhere\.json: cannot be read'):
        loaded(checkpoint, statistics='/nowhere.json')
    with pytest.raises(BackendError, match=r'statistics: .*14 numbers, expected 8'):
        loaded(robotwin)


def test_a_checkpoint_that_is_not_there_is_refused(project, checkpoint):
    beside = checkpoint.with_name('libero_uncond_2cam224_dataset_stats.json')
    with pytest.raises(BackendError, match=r'checkpoint: .*gone\.pt is not there'):
        loaded(checkpoint.with_name('gone.pt'), statistics=str(beside))


def test_without_the_project_one_line_says_what_to_install(checkpoint):
    with pytest.raises(BackendError, match=r'install FastWAM \(github\.com') as caught:
        loaded(checkpoint)
    assert '\n' not in str(caught.value)
