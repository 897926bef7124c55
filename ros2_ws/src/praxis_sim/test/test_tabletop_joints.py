# SPDX-License-Identifier: Apache-2.0
"""The tasks by absolute joint targets, as a policy of joint positions commands them."""

from pathlib import Path

import numpy as np
import pytest
from praxis_core.contract import load_contract
from praxis_sim.platform import PlatformOptions
from praxis_sim.tabletop import TabletopPlatform, tasks
from praxis_sim.tabletop.teacher import Teacher

ROBOTS = Path(__file__).parents[4] / 'params' / 'robots'
SEEDS = (10, 11, 12)


@pytest.fixture(scope='module')
def platforms():
    made = [
        TabletopPlatform(PlatformOptions(load_contract(ROBOTS / f'{name}.yaml')))
        for name in ('tabletop', 'tabletop_joint')
    ]
    yield made
    for platform in made:
        platform.close()


def demonstrated(platform, task_id, seed):
    """Joint targets float64[T, 8] along which the teacher solves a task."""
    observation = platform.reset(task_id, seed, -1, {})
    teacher, targets = Teacher(task_id), []
    while not observation.success and len(targets) < 300:
        command = teacher.action(observation, platform.privileged())
        observation = platform.step(command)
        targets.append(np.append(observation.joint_positions[:7], command[-1]))
    assert observation.success
    return np.array(targets)


@pytest.mark.parametrize('task', tasks.TASKS, ids=lambda task: task.task_id)
@pytest.mark.parametrize('seed', SEEDS)
def test_demonstrated_joint_targets_solve_the_task(platforms, task, seed):
    by_pose, by_joints = platforms
    targets = demonstrated(by_pose, task.task_id, seed)
    observation = by_joints.reset(task.task_id, seed, -1, {})
    for target in [*targets, *[targets[-1]] * 10]:
        assert observation.state.shape == (8,)
        observation = by_joints.step(target)
        if observation.success:
            break
    assert observation.success and observation.progress == 1.0


def test_targets_of_another_scene_do_not_solve_it(platforms):
    by_pose, by_joints = platforms
    targets = demonstrated(by_pose, 'tabletop/pick', SEEDS[0])
    by_joints.reset('tabletop/pick', SEEDS[1], -1, {})
    assert not any(by_joints.step(target).success for target in targets)


def test_joint_targets_repeat_the_episode_bit_for_bit(platforms):
    by_pose, by_joints = platforms
    targets = demonstrated(by_pose, 'tabletop/reach', SEEDS[0])
    digests = []
    for _ in range(2):
        by_joints.reset('tabletop/reach', SEEDS[0], -1, {})
        for target in targets:
            by_joints.step(target)
        digests.append(by_joints.state_digest())
    assert digests[0] == digests[1]
