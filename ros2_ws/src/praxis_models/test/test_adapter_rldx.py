# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from praxis_core.model_exchange import PhysicalObservation
from praxis_models.adapters import rldx as adapter


def frame(value):
    return {role: np.full((4, 4, 3), value, np.uint8) for role in adapter.CAMERAS}


OBSERVATION = PhysicalObservation(
    images={},
    state={
        'eef_position_in_base': np.array([0.1, 0.2, 0.3], np.float32),
        'eef_quaternion_xyzw_in_base': np.array([0.5, -0.5, 0.5, -0.5], np.float32),
        'gripper_qpos': np.array([0.04, -0.04], np.float32),
        'base_position': np.array([1.0, 2.0, 0.7], np.float32),
        'base_quaternion_xyzw': np.array([0.0, 0.0, 0.6, 0.8], np.float32),
    },
    instruction='close the drawer',
)


def test_the_control_is_twelve_fields_in_robosuites_order():
    assert adapter.CONTROL.action_schema == (
        *('delta_x', 'delta_y', 'delta_z'),
        *('delta_axis_angle_x', 'delta_axis_angle_y', 'delta_axis_angle_z'),
        'gripper',
        *('base_forward', 'base_lateral', 'base_turn', 'torso'),
        'control_mode',
    )


def test_videos_are_a_batch_of_one_with_the_newest_last():
    native = adapter.encode(OBSERVATION, [frame(1), frame(2), frame(3)])
    video = native['video.robot0_eye_in_hand']
    assert video.shape == (1, 3, 4, 4, 3) and video.dtype == np.uint8
    assert video[0, :, 0, 0, 0].tolist() == [1, 2, 3]
    assert native['annotation.human.task_description'] == ['close the drawer']


def test_states_get_the_models_names_and_keep_w_last():
    native = adapter.encode(OBSERVATION, [frame(0)])
    assert native['state.base_rotation'].shape == (1, 1, 4)
    assert native['state.base_rotation'].dtype == np.float32
    assert native['state.base_rotation'][0, 0] == pytest.approx([0.0, 0.0, 0.6, 0.8])
    assert native['state.end_effector_position_relative'][0, 0] == pytest.approx([0.1, 0.2, 0.3])
    rotation = native['state.end_effector_rotation_relative'][0, 0]
    assert rotation.tolist() == [0.5, -0.5, 0.5, -0.5]
    assert native['state.gripper_qpos'][0, 0] == pytest.approx([0.04, -0.04])
    assert native['state.base_position'][0, 0] == pytest.approx([1.0, 2.0, 0.7])


@pytest.mark.parametrize(
    ('count', 'spacing', 'expected'),
    [
        # a request every two steps has the very frames
        (5, 2, [1, 2, 3, 4]),
        (4, 2, [0, 1, 2, 3]),
        # the first is repeated before there are enough
        (1, 2, [0, 0, 0, 0]),
        (2, 2, [0, 0, 0, 1]),
        # 6, 4, 2 and 0 steps back of requests 8 apart: 6 is nearer to 8, 4 is the newer of a tie
        (3, 8, [1, 2, 2, 2]),
        (7, 1, [0, 2, 4, 6]),
        (5, 4, [3, 3, 4, 4]),
    ],
)
def test_the_frames_nearest_in_time_are_taken(count, spacing, expected):
    frames = [{'n': index} for index in range(count)]
    chosen = adapter.history(frames, [-6, -4, -2, 0], spacing)
    assert [found['n'] for found in chosen] == expected


def actions(**more):
    made = {
        f'action.{name}': np.zeros((1, 16, size), np.float32)
        for name, size in adapter.ACTIONS.items()
    }
    made.update({f'action.{name}': np.asarray(value) for name, value in more.items()})
    return made


def test_parts_are_put_in_order():
    made = actions(
        end_effector_position=np.full((1, 16, 3), 0.1),
        end_effector_rotation=np.full((1, 16, 3), 0.2),
        base_motion=np.tile([0.3, 0.4, 0.5, 0.6], (1, 16, 1)),
    )
    chunk = adapter.decode(made, 16)
    assert chunk.shape == (16, 12) and chunk.dtype == np.float32
    expected = [0.1, 0.1, 0.1, 0.2, 0.2, 0.2, -1.0, 0.3, 0.4, 0.5, 0.6, -1.0]
    assert chunk[15] == pytest.approx(expected)


@pytest.mark.parametrize(('raw', 'expected'), [(0.0, -1.0), (0.49, -1.0), (0.5, 1.0), (1.0, 1.0)])
def test_gripper_and_mode_are_minus_one_below_a_half(raw, expected):
    made = actions(
        gripper_close=np.full((1, 16, 1), raw), control_mode=np.full((1, 16, 1), 1.0 - raw)
    )
    chunk = adapter.decode(made, 16)
    assert chunk[0, 6] == expected
    assert chunk[0, 11] == (1.0 if 1.0 - raw >= 0.5 else -1.0)


def test_a_part_that_is_missing_or_of_another_shape_is_named():
    made = actions()
    del made['action.base_motion']
    with pytest.raises(ValueError, match=r'action\.base_motion: expected .*\[1, 16, 4\]'):
        adapter.decode(made, 16)
    with pytest.raises(ValueError, match=r'action\.gripper_close: .*\(got \[1, 8, 1\]\)'):
        adapter.decode(actions(gripper_close=np.zeros((1, 8, 1))), 16)
    with pytest.raises(ValueError, match=r'action\.gripper_close: expected finite'):
        adapter.decode(actions(gripper_close=np.full((1, 16, 1), np.nan)), 16)


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r'robot0_agentview_left: expected 256x256 \(got 4x4\)'):
        adapter.check_images(frame(0))


def test_messages_carry_arrays_as_files_of_numpy():
    value = {'a': np.arange(6, dtype=np.float32).reshape(2, 3), 'b': ['x', True, None]}
    found = adapter.unpack(adapter.pack(value))
    assert found['b'] == ['x', True, None]
    np.testing.assert_array_equal(found['a'], value['a'])
    # the published form, rldx/policy/server_client.py
    assert b'__ndarray_class__' in adapter.pack(value) and b'\x93NUMPY' in adapter.pack(value)


def test_messages_with_objects_or_without_sense_are_refused():
    with pytest.raises(TypeError, match='object has no form'):
        adapter.pack({'a': object()})
    evil = adapter.pack({'a': np.zeros(1)}).replace(b"'<f8'", b"'|O' ")
    with pytest.raises(ValueError, match='Object arrays cannot be loaded'):
        adapter.unpack(evil)
    with pytest.raises(ValueError, match='no message of RLDX'):
        adapter.unpack(b'\xc1')
