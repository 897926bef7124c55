# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from praxis_core.contract import load_contract
from praxis_core.exchange_error import ExchangeError
from praxis_core.images import fill_image
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import control_of
from praxis_models.observation.assembly import Assembler
from praxis_models.observation.plan import StaleError, Stream, plan_observation

ROBOTS = Path(__file__).parents[4] / 'params' / 'robots'
TABLETOP = load_contract(ROBOTS / 'tabletop.yaml')
JOINT = load_contract(ROBOTS / 'tabletop_joint.yaml')
MS = 1_000_000
AGENTVIEW, WRIST = Stream('camera', 'agentview'), Stream('camera', 'wrist')
JOINTS = Stream('joints')


def meta(contract=TABLETOP, cameras=(), **states):
    return ModelMeta(
        backend='test',
        control=control_of(contract),
        camera_roles=cameras,
        state_schema=states,
    )


def image(value, encoding='rgb8'):
    message = SimpleNamespace()
    return fill_image(message, np.full((4, 6, 3), value, np.uint8), encoding)


def state(values=(), seq=1, cameras=()):
    return SimpleNamespace(
        values=list(values) or [0.0] * 8, observation_seq=seq, cameras=list(cameras)
    )


def make(lockstep=False, contract=TABLETOP, cameras=(), **states):
    plan = plan_observation(meta(contract, cameras, **states), contract)
    return Assembler(contract, plan, lockstep)


def seen(assembler, state_message, stamp_ms=100):
    return assembler.snapshot(state_message, stamp_ms * MS, 0.0).observation('pick')


def test_cameras_come_by_role_and_states_by_name():
    assembler = make(cameras=('primary', 'wrist'), state=8, eef_position=3, gripper_qpos=2)
    assembler.add(WRIST, 100 * MS, image(2), 0.0)
    assembler.add(AGENTVIEW, 100 * MS, image(1), 0.0)
    observed = seen(assembler, state(range(8), cameras=['agentview', 'wrist']))
    assert observed.instruction == 'pick'
    assert set(observed.images) == {'primary', 'wrist'}
    assert (observed.images['primary'] == 1).all() and (observed.images['wrist'] == 2).all()
    assert observed.state['state'].dtype == np.float32
    np.testing.assert_array_equal(observed.state['state'], np.arange(8))
    np.testing.assert_array_equal(observed.state['eef_position'], [0, 1, 2])
    np.testing.assert_array_equal(observed.state['gripper_qpos'], [6, 7])


def test_orientation_becomes_a_quaternion_with_w_last():
    assembler = make(eef_quaternion_xyzw=4)
    # A quarter turn about y: sin and cos of 45 degrees.
    observed = seen(assembler, state([0, 0, 0, 0, np.pi / 2, 0, 0, 0]))
    half = np.sqrt(0.5)
    np.testing.assert_allclose(observed.state['eef_quaternion_xyzw'], [0, half, 0, half])
    at_rest = seen(assembler, state([0.0] * 8)).state['eef_quaternion_xyzw']
    np.testing.assert_array_equal(at_rest, [0, 0, 0, 1])


def test_joints_are_read_by_name_in_the_order_of_the_contract():
    assembler = make(joint_positions=7, gripper_qvel=2)
    names = [*(f'joint_{index}' for index in range(7, 0, -1)), 'finger_right', 'finger_left']
    message = SimpleNamespace(
        name=names, position=[7, 6, 5, 4, 3, 2, 1, 0, 0], velocity=[0] * 7 + [0.2, 0.1]
    )
    assembler.add(JOINTS, 100 * MS, message, 0.0)
    observed = seen(assembler, state())
    np.testing.assert_array_equal(observed.state['joint_positions'], np.arange(1, 8))
    np.testing.assert_allclose(observed.state['gripper_qvel'], [0.1, 0.2])


def test_a_joint_that_is_missing_is_named():
    assembler = make(joint_positions=7)
    names = [f'joint_{index}' for index in range(1, 7)]
    assembler.add(JOINTS, 100 * MS, SimpleNamespace(name=names, position=[0.0] * 6), 0.0)
    with pytest.raises(StaleError, match='joint_states: no position of joint_7'):
        seen(assembler, state())


def test_joints_in_the_state_vector_need_no_other_topic():
    plan = plan_observation(meta(JOINT, joint_positions=7), JOINT)
    assert plan.streams == ()


def test_only_what_is_asked_for_is_subscribed_to():
    assert plan_observation(meta(state=8), TABLETOP).streams == ()
    plan = plan_observation(meta(cameras=('wrist',), gripper_qvel=2), TABLETOP)
    assert plan.streams == (WRIST, JOINTS)
    plan = plan_observation(meta(**{'privileged.red_cube': 7, 'privileged.bowl': 7}), TABLETOP)
    assert plan.streams == (Stream('privileged'),)


def test_ground_truth_is_read_by_name_of_the_body():
    assembler = make(**{'privileged.bowl': 7})

    def pose(x):
        return SimpleNamespace(
            position=SimpleNamespace(x=x, y=0.2, z=0.3),
            orientation=SimpleNamespace(x=0.0, y=0.0, z=0.6, w=0.8),
        )

    message = SimpleNamespace(names=['red_cube', 'bowl'], poses=[pose(9.0), pose(0.1)])
    assembler.add(Stream('privileged'), 100 * MS, message, 0.0)
    observed = seen(assembler, state())
    np.testing.assert_allclose(
        observed.state['privileged.bowl'], [0.1, 0.2, 0.3, 0, 0, 0.6, 0.8], rtol=1e-6
    )
    message.names[1] = 'plate'
    with pytest.raises(StaleError, match="no body 'bowl', there are red_cube, plate"):
        seen(assembler, state())


@pytest.mark.parametrize(
    ('cameras', 'states', 'words'),
    [
        (('head',), {}, r"camera_roles: .*primary, wrist \(got 'head'\)"),
        ((), {'eef_pos': 3}, r"state_schema.eef_pos: .*eef_position.*\(got 'eef_pos'\)"),
        ((), {'joint_positions': 6}, r'state_schema.joint_positions: .*7 values.*\(got 6\)'),
        ((), {'state': 16}, r'state_schema.state: .*8 values.*tabletop.*\(got 16\)'),
        ((), {'eef_linear_velocity': 3}, 'state_schema.eef_linear_velocity'),
    ],
    ids=['role', 'unknown', 'size', 'whole_state', 'not_on_the_graph'],
)
def test_what_the_robot_lacks_is_said_before_the_first_inference(cameras, states, words):
    with pytest.raises(ExchangeError, match=words):
        plan_observation(meta(cameras=cameras, **states), TABLETOP)


def test_an_image_of_another_encoding_becomes_rgb():
    assembler = make(cameras=('primary',))
    message = fill_image(SimpleNamespace(), np.full((2, 2, 3), [3, 2, 1], np.uint8), 'bgr8')
    assembler.add(AGENTVIEW, 100 * MS, message, 0.0)
    observed = seen(assembler, state(cameras=['agentview']))
    assert observed.images['primary'][0, 0].tolist() == [1, 2, 3]


def test_images_are_viewed_and_not_copied():
    assembler = make(cameras=('primary',))
    message = image(7)
    assembler.add(AGENTVIEW, 100 * MS, message, 0.0)
    view = seen(assembler, state(cameras=['agentview'])).images['primary']
    assert np.shares_memory(view, np.frombuffer(message.data, np.uint8))


def test_in_real_time_a_slower_camera_serves_until_its_age_limit():
    assembler = make(cameras=('primary',))
    assembler.add(AGENTVIEW, 100 * MS, image(1), 0.0)
    assert (seen(assembler, state(), 250).images['primary'] == 1).all()
    with pytest.raises(StaleError, match=r'camera agentview: 0.251 s old, limit 0.15 s'):
        seen(assembler, state(), 351)


def test_a_camera_that_never_came_is_named():
    with pytest.raises(StaleError, match='camera agentview: nothing received yet'):
        seen(make(cameras=('primary',)), state())


def test_the_image_of_the_observation_is_preferred_to_a_newer_one():
    assembler = make(cameras=('primary',))
    for stamp in (50, 100, 150):
        assembler.add(AGENTVIEW, stamp * MS, image(stamp), 0.0)
    assert (seen(assembler, state(cameras=['agentview'])).images['primary'] == 100).all()


def test_lockstep_takes_the_very_stamp_or_nothing():
    assembler = make(lockstep=True, cameras=('primary',))
    listed = state(cameras=['agentview'])
    assembler.add(AGENTVIEW, 50 * MS, image(1), 0.0)
    assert not assembler.is_whole(listed, 100 * MS)
    with pytest.raises(StaleError, match='agentview: nothing of stamp'):
        seen(assembler, listed)
    assembler.add(AGENTVIEW, 100 * MS, image(2), 0.0)
    assert assembler.is_whole(listed, 100 * MS)
    assert (seen(assembler, listed).images['primary'] == 2).all()


def test_lockstep_takes_the_last_image_of_a_camera_that_was_not_due():
    assembler = make(lockstep=True, cameras=('primary',))
    assembler.add(AGENTVIEW, 50 * MS, image(1), 0.0)
    assert assembler.is_whole(state(), 100 * MS)
    assert (seen(assembler, state()).images['primary'] == 1).all()


def test_an_observation_is_as_old_as_its_newest_message():
    assembler = make(cameras=('primary', 'wrist'))
    assembler.add(AGENTVIEW, 100 * MS, image(1), 5.0)
    assembler.add(WRIST, 100 * MS, image(1), 7.0)
    both = state(cameras=['agentview', 'wrist'])
    assert assembler.snapshot(both, 100 * MS, 6.0).received == 7.0
    assert assembler.snapshot(both, 100 * MS, 8.0).received == 8.0


def test_an_episode_begins_without_images_of_the_one_before():
    assembler = make(cameras=('primary',))
    assembler.add(AGENTVIEW, 50 * MS, image(1), 0.0)
    assembler.drop_before(100 * MS)
    with pytest.raises(StaleError, match='nothing received yet'):
        seen(assembler, state())
