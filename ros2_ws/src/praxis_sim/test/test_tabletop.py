# SPDX-License-Identifier: Apache-2.0
import hashlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from praxis_core.contract import load_contract
from praxis_sim import platforms
from praxis_sim.platform import PlatformError, PlatformOptions
from praxis_sim.tabletop import TabletopPlatform, panda, scene, tasks
from praxis_sim.tabletop.teacher import Teacher

ROBOTS = Path(__file__).parents[4] / 'params' / 'robots'
PICK = 'tabletop/pick'


def make(contract='tabletop', **options):
    return TabletopPlatform(PlatformOptions(load_contract(ROBOTS / f'{contract}.yaml'), **options))


@pytest.fixture(scope='module')
def platform():
    platform = make()
    yield platform
    platform.close()


@pytest.fixture(scope='module')
def joint_platform():
    platform = make('tabletop_joint')
    yield platform
    platform.close()


def action(x=0.0, y=0.0, z=0.0, ax=0.0, ay=0.0, az=0.0, gripper=-1.0):
    return np.array([x, y, z, ax, ay, az, gripper])


def run(platform, task_id, seed, steps=300):
    observation = platform.reset(task_id, seed, -1, {})
    teacher = Teacher(task_id)
    for _ in range(steps):
        observation = platform.step(teacher.action(observation, platform.privileged()))
        if observation.success:
            break
    return observation


@pytest.mark.parametrize('task', tasks.TASKS, ids=lambda task: task.suite + task.task_id)
def test_the_scripted_teacher_solves_every_task_over_seeds(platform, task):
    solved = [run(platform, task.task_id, seed).success for seed in range(10, 18)]
    assert all(solved), solved


@pytest.mark.parametrize('task', tasks.TASKS, ids=lambda task: task.task_id)
def test_holding_solves_nothing_and_moves_nothing(platform, task):
    before = platform.reset(task.task_id, 3, -1, {})
    cube = platform.privileged()['red_cube'].position
    for _ in range(60):
        after = platform.step(platform.hold_action())
        assert not after.success
    assert after.eef['arm'].position == pytest.approx(before.eef['arm'].position, abs=1e-3)
    assert platform.privileged()['red_cube'].position == pytest.approx(cube, abs=1e-3)


def test_success_is_latched(platform):
    run(platform, PICK, 10)
    for _ in range(20):
        observation = platform.step(action(gripper=-1.0))
    assert platform.privileged()['red_cube'].position[2] < 0.05
    assert observation.success
    assert observation.progress == 1.0


def test_reset_forgets_success(platform):
    assert run(platform, PICK, 10).success
    assert not platform.reset(PICK, 10, -1, {}).success


def digests(platform, seed, steps=25):
    observation = platform.reset(PICK, seed, -1, {})
    teacher = Teacher(PICK)
    sums = []
    for _ in range(steps):
        observation = platform.step(teacher.action(observation, platform.privileged()))
        rendering = platform.render('agentview', 96, 96, depth=True)
        content = platform.state_digest() + rendering.rgb.tobytes() + rendering.depth.tobytes()
        sums.append(hashlib.sha256(content).hexdigest())
    return sums


def test_the_same_seed_and_actions_give_the_same_states_and_pixels(platform):
    first = digests(platform, 5)
    run(platform, 'tabletop/place', 6, 30)
    other = make()
    try:
        assert digests(platform, 5) == first == digests(other, 5)
        assert digests(platform, 6)[-1] != first[-1]
    finally:
        other.close()


def test_full_action_moves_towards_its_sign(platform):
    for axis in range(3):
        for sign in (-1, 1):
            before = platform.reset('tabletop/reach', 1, -1, {}).eef['arm'].position
            command = action()
            command[axis] = 0.5 * sign
            for _ in range(4):
                after = platform.step(command).eef['arm'].position
            moved = after - before
            assert sign * moved[axis] > 0.03
            assert np.abs(np.delete(moved, axis)).max() < 0.01


def test_rotation_about_z_turns_the_gripper(platform):
    before = platform.reset('tabletop/reach', 1, -1, {})
    for _ in range(5):
        after = platform.step(action(az=0.4))
    # Downward gripper: a turn by +z appears as yaw of the x axis.
    x, y, z, w = after.eef['arm'].quaternion
    yaw = np.arctan2(2 * (x * y + z * w), 1 - 2 * (y * y + z * z))
    assert 0.3 < yaw < 1.2
    assert after.eef['arm'].position == pytest.approx(before.eef['arm'].position, abs=0.01)


@pytest.mark.parametrize('axis', range(3))
def test_motion_stops_within_one_tick_of_hold(platform, axis):
    platform.reset('tabletop/reach', 1, -1, {})
    command = action()
    command[axis] = 1.0
    for _ in range(4):
        last = platform.step(command).eef['arm'].position
    for _ in range(8):
        held = platform.step(action()).eef['arm'].position
        assert np.linalg.norm(held - last) < 0.005


def test_gripper_minus_one_opens_and_plus_one_closes(platform):
    platform.reset(PICK, 1, -1, {})
    for value, opening in ((1.0, 0.0), (-1.0, 0.08)):
        for _ in range(15):
            observation = platform.step(action(gripper=value))
        left, right = observation.state[6:]
        assert left - right == pytest.approx(opening, abs=0.004)
    assert observation.state.shape == (8,)


def test_hold_keeps_the_last_gripper_value(platform):
    platform.reset(PICK, 1, -1, {})
    platform.step(action(gripper=1.0))
    assert platform.hold_action()[-1] == 1.0


def test_joint_targets_are_reached(joint_platform):
    observation = joint_platform.reset(PICK, 1, -1, {})
    target = observation.joint_positions[:7] + np.array([0.1, -0.1, 0.1, 0.1, -0.1, 0.1, 0.1])
    for _ in range(30):
        observation = joint_platform.step(np.append(target, 1.0))
    assert observation.state[:7] == pytest.approx(target, abs=0.01)
    assert observation.state[7] == pytest.approx(0.0, abs=0.004)
    assert joint_platform.hold_action()[:7] == pytest.approx(target)


def test_joint_speed_limits_hold_for_a_far_target(joint_platform):
    before = joint_platform.reset(PICK, 1, -1, {}).joint_positions
    after = joint_platform.step(np.append(before[:7] + 1.0, -1.0)).joint_positions
    assert np.max(np.abs(after - before)[:7]) < 2.61 * 0.05 * 1.1


def test_stays_within_joint_limits_when_pushed_away(platform):
    platform.reset('tabletop/reach', 1, -1, {})
    for _ in range(60):
        observation = platform.step(action(x=1.0, z=1.0))
    for name, value in zip(observation.joint_names, observation.joint_positions, strict=True):
        low, high = panda.JOINTS[name].limits
        assert low - 0.02 < value < high + 0.02
    assert np.isfinite(observation.state).all()


@pytest.mark.parametrize('bad', [np.zeros(6), np.full(7, np.nan), np.zeros((1, 7))])
def test_a_bad_action_is_refused(platform, bad):
    platform.reset(PICK, 1, -1, {})
    with pytest.raises(PlatformError, match='7 finite numbers'):
        platform.step(bad)


@pytest.mark.parametrize('camera', ['agentview', 'wrist'])
def test_depth_and_pose_put_the_cube_where_it_is(platform, camera):
    platform.reset(PICK, 2, -1, {'poses': {'red_cube': [0.47, 0.0, 0.0]}})
    view = platform.render(camera, 224, 224, depth=True, segmentation=True)
    rows, cols = np.nonzero(view.segmentation == view.labels.index('red cube') + 1)
    assert len(rows) > 30
    z = view.depth[rows, cols]
    k = view.camera.intrinsics
    points = np.stack([(cols - k[0, 2]) / k[0, 0] * z, (rows - k[1, 2]) / k[1, 1] * z, z], 1)
    world = points @ rotation(view.camera.pose.quaternion).T + view.camera.pose.position
    cube = platform.privileged()['red_cube'].position
    assert (np.abs(world - cube) < scene.CUBE * 1.5).all()
    assert np.median(world, 0) == pytest.approx(cube, abs=0.025)


def rotation(quaternion):
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def test_any_size_renders_and_leaves_the_usual_one_unchanged(platform):
    platform.reset(PICK, 2, -1, {})
    before = platform.render('agentview', 224, 224).rgb
    large = platform.render('agentview', 640, 480, depth=True)
    assert large.rgb.shape == (480, 640, 3)
    assert large.rgb.flags.c_contiguous and large.depth.flags.c_contiguous
    assert (platform.render('agentview', 224, 224).rgb == before).all()
    with pytest.raises(PlatformError, match='image size'):
        platform.render('agentview', 0, 10)
    with pytest.raises(PlatformError, match='no camera'):
        platform.render('nowhere', 10, 10)


def test_seeds_change_places_and_distractor_colours():
    layouts = [tasks.layout(PICK, seed, {}) for seed in range(40)]
    assert len({layout.poses['red_cube'] for layout in layouts}) == 40
    assert len({layout.colours['cube_1'] for layout in layouts}) > 2
    assert all('red' not in (x.colours['cube_1'], x.colours['cube_2']) for x in layouts)
    assert tasks.layout(PICK, 1, {}).poses != tasks.layout('tabletop/place', 1, {}).poses


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (('tabletop/fly', 0, -1, {}), 'unknown task'),
        ((PICK, 0, 3, {}), 'no initial states'),
        ((PICK, 0, -1, {'pose': {}}), 'unknown option'),
        ((PICK, 0, -1, {'poses': {'plate': [0, 0, 0]}}), 'unknown item'),
        ((PICK, 0, -1, {'poses': {'bowl': [0, 0]}}), 'want'),
        ((PICK, 0, -1, {'poses': {'bowl': [float('nan'), 0, 0]}}), 'not finite'),
    ],
)
def test_a_refused_reset_leaves_the_episode_running(platform, arguments, words):
    platform.reset(PICK, 1, -1, {})
    before = platform.state_digest()
    with pytest.raises(PlatformError, match=words):
        platform.reset(*arguments)
    assert platform.state_digest() == before


def test_refuses_a_foreign_action_space_and_quality():
    with pytest.raises(PlatformError, match=r"cannot execute 'libero.osc_pose.delta.v1'"):
        make('libero')
    with pytest.raises(PlatformError, match='unknown render quality'):
        make(render_quality='ultra')
    with pytest.raises(PlatformError, match='no options'):
        make(extra={'x': 1})


def test_urdf_has_the_same_kinematics_as_the_model(platform):
    platform.reset(PICK, 1, -1, {})
    robot = ElementTree.fromstring(platform.robot_description())
    positions = dict(zip(platform._joints, platform._data.qpos[:9], strict=True))
    poses = {'world': (np.eye(3), np.zeros(3))}
    for joint in robot.findall('joint'):
        parent, child = (joint.find(tag).get('link') for tag in ('parent', 'child'))
        origin = joint.find('origin')
        r, p, y = (float(v) for v in origin.get('rpy').split())
        offset = np.array([float(v) for v in origin.get('xyz').split()])
        turn = _about(2, y) @ _about(1, p) @ _about(0, r)
        if joint.get('type') != 'fixed':
            axis = np.array([float(v) for v in joint.find('axis').get('xyz').split()])
            value = positions[joint.get('name')]
            if joint.get('type') == 'revolute':
                assert axis.tolist() == [0, 0, 1]
                turn = turn @ _about(2, value)
            else:
                offset = offset + turn @ axis * value
        above, where = poses[parent]
        poses[child] = (above @ turn, where + above @ offset)
    for name, pose in platform.link_poses().items():
        assert poses[name][1] == pytest.approx(pose.position, abs=1e-6)
        assert poses[name][0] == pytest.approx(rotation(pose.quaternion), abs=1e-6)


def _about(axis, angle):
    c, s = np.cos(angle), np.sin(angle)
    matrix = np.eye(3)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix[i, i] = matrix[j, j] = c
    matrix[j, i], matrix[i, j] = s, -s
    return matrix


def test_unknown_platform_names_the_known_ones():
    with pytest.raises(PlatformError, match=r"'tabletpo'.*tabletop.*did you mean 'tabletop'"):
        platforms.create('tabletpo', None)
