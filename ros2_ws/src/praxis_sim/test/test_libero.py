# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path

import numpy as np
import pytest
from praxis_core.contract import load_contract
from praxis_sim.libero import LiberoPlatform
from praxis_sim.platform import PlatformError, PlatformOptions

pytest.importorskip('libero')
pytestmark = pytest.mark.libero

ROOT = Path(__file__).resolve().parents[4]
CONTRACT = ROOT / 'params/robots/libero.yaml'
SPATIAL = 'libero_spatial/0'


@pytest.fixture(scope='module')
def platform():
    platform = LiberoPlatform(PlatformOptions(load_contract(CONTRACT), 'fast'))
    yield platform
    platform.close()


@pytest.fixture
def spatial(platform):
    """The first task of libero_spatial in its first initial state."""
    platform.first = platform.reset(SPATIAL, 0, 0, {})
    return platform


def matrix(quaternion):
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def fingerprint(platform, task, seed, init_state):
    """SHA-256 over states, physics and pixels of a short episode."""
    digest = hashlib.sha256()
    rng = np.random.default_rng(1)
    observation = platform.reset(task, seed, init_state, {})
    for _ in range(4):
        digest.update(observation.state.tobytes())
        digest.update(platform.state_digest())
        for camera in ('agentview', 'wrist'):
            view = platform.render(camera, 64, 48, depth=True, segmentation=True)
            for array in (view.rgb, view.depth, view.segmentation):
                digest.update(array.tobytes())
        observation = platform.step(rng.uniform(-1, 1, 7))
    return digest.hexdigest()


def test_every_suite_of_the_wheels_is_listed_in_the_benchmarks_order(platform):
    tasks = {task.task_id: task for task in platform.tasks()}
    suites = [task.suite for task in tasks.values()]
    for base in ('spatial', 'object', 'goal', '10'):
        for variant in ('', '_task', '_swap', '_lan', '_object', '_env'):
            assert suites.count(f'libero_{base}{variant}') == 10
    assert suites.count('libero_90') == 90
    assert 'libero_spatial_with_red_box' not in suites  # its red box is in no wheel
    assert tasks[SPATIAL].instruction == (
        'pick up the black bowl between the plate and the ramekin and place it on the plate'
    )
    assert tasks['libero_10/0'].instruction == (
        'put both the alphabet soup and the tomato sauce in the basket'
    )
    assert tasks[SPATIAL].init_states == 50
    assert tasks['libero_goal_env/0'].init_states == 0


def test_language_variants_have_sentences_of_their_own(platform):
    tasks = {task.task_id: task.instruction for task in platform.tasks()}
    assert tasks['libero_goal/1'] == tasks['libero_goal_swap/1'] == 'put the bowl on the stove'
    assert tasks['libero_goal_lan/1'] == 'place the bowl on the stove'
    assert tasks['libero_goal_task/1'] == 'put the plate on the stove'


def test_the_state_is_the_benchmarks_own(spatial):
    first = spatial.first
    eef = first.eef['arm']
    assert first.state.shape == (8,) and first.state.dtype == np.float64
    np.testing.assert_array_equal(first.state[:3], eef.position)
    axis = first.state[3:6]
    half = np.linalg.norm(axis) / 2
    quaternion = np.append(axis / (2 * half) * np.sin(half), np.cos(half))
    np.testing.assert_allclose(matrix(quaternion), matrix(eef.quaternion), atol=1e-9)
    assert matrix(eef.quaternion)[2, 2] < -0.99  # the gripper points down
    assert first.joint_names[0] == 'joint_1' and first.joint_names[-1] == 'finger_right'
    np.testing.assert_array_equal(first.state[6:], first.joint_positions[-2:])
    assert first.state[6] > 0.03 and first.state[7] < -0.03  # open
    assert not first.success and first.progress == 0.0


def test_a_pixels_ray_hits_what_the_image_shows(spatial):
    import mujoco

    scene = spatial._current
    groups = np.array([0, 1, 0, 0, 0, 0], np.uint8)
    for camera in ('agentview', 'wrist'):
        view = spatial.render(camera, 48, 36, depth=True, segmentation=True)
        model = view.camera
        inverse, turn = np.linalg.inv(model.intrinsics), matrix(model.pose.quaternion)
        errors, agree = [], 0
        geom = np.zeros(1, np.int32)
        for row in range(36):
            for column in range(48):
                ray = inverse @ (column, row, 1.0)
                distance = mujoco.mj_ray(
                    *(scene.model, scene.data, model.pose.position, turn @ ray),
                    *(groups, 1, -1, geom),
                )
                errors.append(abs(distance - view.depth[row, column]))
                body = scene.model.geom_bodyid[geom[0]]
                name = scene.model.body(body).name
                label = view.labels[view.segmentation[row, column] - 1]
                agree += (
                    label in name
                    or label
                    in {
                        'floor': 'world',
                        'wall': 'world',
                        'robot': 'robot0_ mount0_' + name,
                        'gripper': 'gripper0_' + name,
                    }.get(label, '')
                    + name
                    or body == 0
                )
        # Edges of meshes fall on either side, and inner faces are not drawn.
        assert np.median(errors) < 2e-5, camera
        assert np.mean(np.array(errors) < 1e-3) > 0.97, camera
        assert agree / len(errors) > 0.97, camera


def test_objects_project_into_their_own_segment(spatial):
    view = spatial.render('agentview', 512, 384, segmentation=True)
    instances = list(spatial._current.instances())
    first = len(view.labels) - len(instances)
    turn = matrix(view.camera.pose.quaternion)
    for marker in spatial.markers():
        if marker.name.startswith(('wooden_cabinet', 'flat_stove')):
            continue
        x, y, z = view.camera.intrinsics @ (
            turn.T @ (marker.pose.position - view.camera.pose.position)
        )
        row, column = round(y / z), round(x / z)
        assert view.segmentation[row, column] == first + instances.index(marker.name) + 1


def test_labels_are_categories_and_repeat(spatial):
    view = spatial.render('agentview', 256, 256, rgb=False, segmentation=True)
    assert view.rgb is None and view.depth is None
    labels = [view.labels[i - 1] for i in np.unique(view.segmentation) if i]
    assert labels.count('akita_black_bowl') == 2
    assert set(labels) >= {'plate', 'cookies', 'glazed_rim_porcelain_ramekin', 'wooden_cabinet'}
    assert set(labels) >= {'flat_stove', 'robot', 'gripper', 'table', 'floor', 'wall'}


def test_rendering_changes_nothing(spatial):
    before = spatial.state_digest()
    small = spatial.render('agentview', 256, 256).rgb
    large = spatial.render('agentview', 1024, 1024, depth=True, segmentation=True)
    assert large.rgb.shape == (1024, 1024, 3) and large.depth.dtype == np.float32
    np.testing.assert_array_equal(spatial.render('agentview', 256, 256).rgb, small)
    assert spatial.state_digest() == before


def test_what_is_left_out_of_view_leaves_no_trace(spatial, monkeypatch):
    from praxis_sim.libero import camera

    views = [('agentview', 96, 64), ('wrist', 64, 96), ('wrist', 64, 64)]
    culled = [spatial.render(*view, depth=True) for view in views]
    count = spatial._scenes[SPATIAL][1]._scene.ngeom
    monkeypatch.setattr(camera, '_outside', lambda model, *_: np.zeros(model.ngeom, bool))
    for view, mine in zip(views, culled, strict=True):
        whole = spatial.render(*view, depth=True)
        np.testing.assert_array_equal(mine.rgb, whole.rgb)
        np.testing.assert_array_equal(mine.depth, whole.depth)
    assert spatial._scenes[SPATIAL][1]._scene.ngeom > count


def test_depth_of_nothing_is_nan(spatial):
    model = spatial._current.model
    groups = model.geom_group.copy()
    try:
        room = (model.geom_bodyid == 0) & (groups == 1)
        model.geom_group[room] = 0  # without floor and walls only the sky is left
        for rgb in (True, False):
            view = spatial.render('agentview', 64, 64, rgb=rgb, depth=True, segmentation=True)
            assert np.isnan(view.depth[10, 0]) and view.depth[-1, 0] < 2.0
            np.testing.assert_array_equal(np.isnan(view.depth), view.segmentation == 0)
    finally:
        model.geom_group[:] = groups


def test_the_urdf_puts_links_where_the_simulator_does(spatial):
    import mujoco

    scene = spatial._current
    mujoco.mj_kinematics(scene.model, scene.data)
    links = spatial.link_poses()
    # MuJoCo's own reader of URDF, told to keep fixed links and to do without inertia.
    compiler = '<mujoco><compiler fusestatic="false" boundmass="1" boundinertia="1"/></mujoco>'
    text = spatial.robot_description().replace('<link', f'{compiler}<link', 1)
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    for name, value in zip(spatial.first.joint_names, spatial.first.joint_positions, strict=True):
        data.joint(name).qpos = value
    mujoco.mj_kinematics(model, data)
    base, turn = links['base'].position, matrix(links['base'].quaternion)
    assert {model.body(body).name for body in range(1, model.nbody)} >= set(links) - {'base'}
    for name in set(links) - {'base'}:
        link = data.body(name)
        position = base + turn @ link.xpos
        np.testing.assert_allclose(position, links[name].position, atol=1e-5)
        rotation = turn @ link.xmat.reshape(3, 3)
        np.testing.assert_allclose(rotation, matrix(links[name].quaternion), atol=1e-5)
    assert spatial.camera_model('wrist', 8, 8).parent in links


def test_hold_keeps_the_last_gripper_value(spatial):
    assert spatial.hold_action().tolist() == [0, 0, 0, 0, 0, 0, -1]
    spatial.step(np.array([0.0, 0, 0, 0, 0, 0, 0.5]))
    assert spatial.hold_action().tolist() == [0, 0, 0, 0, 0, 0, 0.5]
    spatial.reset(SPATIAL, 0, 0, {})
    assert spatial.hold_action()[-1] == -1


def test_an_action_moves_along_the_worlds_axes(spatial):
    start = spatial.first.state[:3]
    for _ in range(5):
        end = spatial.step(np.array([0, 0.4, 0, 0, 0, 0, -1.0])).state[:3]
    moved = end - start
    assert moved[1] > 0.015 and abs(moved[0]) < 0.01 and abs(moved[2]) < 0.01


def test_requests_that_cannot_be_met_name_the_reason(platform):
    platform.reset(SPATIAL, 0, 0, {'settle_steps': 0})
    reasons = {
        'nearest: libero_spatial/': lambda: platform.reset('libero_spatail/0', 0, 0, {}),
        r'init_state 50 outside -1\.\.49': lambda: platform.reset(SPATIAL, 0, 50, {}),
        'seed -1 outside': lambda: platform.reset(SPATIAL, -1, 0, {}),
        r"unknown reset options \['x'\]": lambda: platform.reset(SPATIAL, 0, 0, {'x': 1}),
        'settle_steps': lambda: platform.reset(SPATIAL, 0, 0, {'settle_steps': -1}),
    }
    for reason, request in reasons.items():
        with pytest.raises(PlatformError, match=reason):
            request()
    platform.reset(SPATIAL, 0, 0, {'settle_steps': 0})
    for action in (np.zeros(6), np.full(7, np.nan)):
        with pytest.raises(PlatformError, match='7 finite values'):
            platform.step(action)
    with pytest.raises(PlatformError, match='unknown camera'):
        platform.render('nonsense', 8, 8)
    with pytest.raises(PlatformError, match='image size'):
        platform.render('wrist', 0, 8)


@pytest.fixture
def open_contexts(platform, monkeypatch):
    """OpenGL contexts that are made and not freed, from a platform without scenes on."""
    import mujoco

    platform.close()
    alive = []

    class Counted(mujoco.GLContext):
        def __init__(self, *size):
            super().__init__(*size)
            alive.append(self)

        def free(self):
            if self in alive:  # its destructor frees it again
                alive.remove(self)
            super().free()

    monkeypatch.setattr(mujoco, 'GLContext', Counted)
    return alive


def test_resets_of_one_task_build_nothing_anew(platform, open_contexts):
    platform.reset('libero_spatial/1', 0, 0, {'settle_steps': 0})
    platform.render('agentview', 32, 32)
    scene, renderer = platform._scenes['libero_spatial/1']
    model, contexts = scene.model, list(renderer._contexts)
    for init_state in range(1, 6):
        platform.reset('libero_spatial/1', init_state, init_state, {'settle_steps': 0})
        platform.render('wrist', 32, 32, depth=True, segmentation=True)
        assert platform._scenes['libero_spatial/1'] == (scene, renderer)
        assert platform._current.env.sim.model._model is model
        assert renderer._contexts == contexts and len(open_contexts) == 1


def test_a_change_of_task_leaves_nothing_of_the_last_one(platform, open_contexts):
    gone = []
    for task in ('libero_spatial/1', SPATIAL, 'libero_spatial/1'):
        platform.reset(task, 0, 0, {'settle_steps': 0})
        platform.render('agentview', 32, 32)
        assert [what() for what in gone] == [None] * len(gone)
        assert len(open_contexts) == 1
        scene, renderer = platform._scenes[task]
        gone = [weakref.ref(part) for part in (scene, scene.env, scene.env.sim, renderer)]
        del scene, renderer


def test_nothing_works_before_a_reset():
    fresh = LiberoPlatform(PlatformOptions(load_contract(CONTRACT)))
    with pytest.raises(PlatformError, match='reset first'):
        fresh.step(np.zeros(7))
    with pytest.raises(PlatformError, match='reset first'):
        fresh.render('wrist', 8, 8)
    fresh.close()


def test_seeds_choose_initial_states_and_placement(platform):
    def bowl(seed, init_state):
        platform.reset(SPATIAL, seed, init_state, {'settle_steps': 0})
        return platform.privileged()['akita_black_bowl_1'].position

    np.testing.assert_array_equal(bowl(53, -1), bowl(53, 3))
    assert not np.array_equal(bowl(1, -1), bowl(2, -1))


def test_a_rim_grasp_solves_the_first_spatial_task_and_success_is_latched(spatial):
    observation = spatial.first

    def move(target, gripper):
        nonlocal observation
        for _ in range(160):
            error = target - observation.state[:3]
            if np.linalg.norm(error) < 0.008:
                return
            step = np.clip(error, -0.025, 0.025) / 0.05
            observation = spatial.step(np.array([*step, 0, 0, 0, gripper]))

    def grip(value):
        nonlocal observation
        for _ in range(10):
            observation = spatial.step(np.array([0.0, 0, 0, 0, 0, 0, value]))

    def above(point, height):
        return point + np.array([0.0, 0.0, height])

    poses = spatial.privileged()
    bowl, plate = poses['akita_black_bowl_1'].position, poses['plate_1'].position
    rim = bowl + np.array([0.0, 0.05, 0.0])
    move(above(rim, 0.20), -1)
    move(above(rim, 0.025), -1)
    grip(1)
    move(above(rim, 0.20), 1)
    held = spatial.privileged()['akita_black_bowl_1'].position - observation.state[:3]
    assert held[2] > -0.06  # it came along
    over = plate - held * (1, 1, 0)
    move(above(over, 0.20), 1)
    move(above(over, 0.06), 1)
    assert not observation.success
    grip(-1)
    assert observation.success and observation.terminated and observation.progress == 1.0
    scene = spatial._current
    scene.env.sim.data.set_joint_qpos('akita_black_bowl_1_joint0', [0.2, 0, 1, 1, 0, 0, 0])
    after = spatial.step(spatial.hold_action())
    assert not scene.success() and after.success and after.progress == 0.0
    assert not spatial.reset(SPATIAL, 0, 0, {}).success


def test_another_process_and_a_cached_scene_repeat_the_episode(platform, tmp_path):
    script = textwrap.dedent(
        f"""
        import importlib.util, json, sys
        spec = importlib.util.spec_from_file_location('test_libero', {str(Path(__file__))!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        from praxis_core.contract import load_contract
        platform = module.LiberoPlatform(module.PlatformOptions(load_contract({str(CONTRACT)!r})))
        light = not {{'robosuite', 'mujoco', 'torch'}} & set(sys.modules)
        platform.tasks()
        light = light and 'robosuite' not in sys.modules
        print(json.dumps([module.fingerprint(platform, {SPATIAL!r}, 7, -1), light]))
        """
    )
    home = tmp_path / 'home'
    home.mkdir()
    environment = {**os.environ, 'HOME': str(home), 'PYTHONHASHSEED': '12345'}
    environment.pop('LIBERO_CONFIG_PATH', None)
    other = subprocess.run(
        [sys.executable, '-c', script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=True,
    )
    # Cached, and used for another seed and state before.
    platform.reset(SPATIAL, 1, 3, {})
    platform.step(np.array([0.3, -1, 0.5, 1, 0, 0, 1.0]))
    first = fingerprint(platform, SPATIAL, 7, -1)
    platform.step(np.full(7, 0.9))
    assert fingerprint(platform, SPATIAL, 7, -1) == first
    assert fingerprint(platform, SPATIAL, 8, -1) != first
    # The other process asked nothing, wrote nothing to its home and said nothing but the result.
    assert json.loads(other.stdout) == [first, True]
    assert other.stderr == ''
    assert [path for path in home.rglob('*') if path.is_file() and 'libero' in str(path)] == []


def test_reference_states_and_pixels_equal_the_benchmarks_own():
    """Against LIBERO's own wrapper, with hard resets and robosuite's renderer."""
    import mujoco
    from praxis_sim.libero.catalog import Catalog, load_states

    files = Catalog().find('libero_object/2')
    platform = LiberoPlatform(PlatformOptions(load_contract(CONTRACT), 'reference'))
    mine = platform.reset('libero_object/2', 4, 6, {})
    from libero.libero.envs import OffScreenRenderEnv

    env = OffScreenRenderEnv(
        bddl_file_name=str(files.definition), camera_heights=64, camera_widths=64
    )
    env.seed(4)
    env.reset()
    env.set_init_state(load_states(files)[6])
    action = np.array([0.2, -0.5, -0.3, 0, 0.1, 0, 1.0])
    for step in [np.array([0, 0, 0, 0, 0, 0, -1.0])] * 10 + [action] * 2:
        env.step(step)
    for _ in range(2):
        mine = platform.step(action)
    # Its extra forward passes warm the solver differently: the last bits may differ.
    data = platform._current.data
    np.testing.assert_allclose(data.qpos, env.sim.data.qpos, atol=1e-12)
    site = env.sim.data.get_site_xpos('gripper0_grip_site')
    np.testing.assert_allclose(mine.state[:3], site, atol=1e-12)
    data.qpos[:] = env.sim.data.qpos
    mujoco.mj_forward(platform._current.model, data)
    env.sim.forward()
    for camera, name in (('agentview', 'agentview'), ('wrist', 'robot0_eye_in_hand')):
        upside_down = env.sim.render(96, 64, camera_name=name)
        upright = platform.render(camera, 96, 64).rgb
        np.testing.assert_array_equal(upright, upside_down[::-1])
        assert not np.array_equal(upright, upside_down)
    env.close()
    platform.close()
