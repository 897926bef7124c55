# SPDX-License-Identifier: Apache-2.0
from xml.etree import ElementTree

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_sim.urdf import roll_pitch_yaw, urdf_from_model

MODEL = """
<mujoco>
  <worldbody>
    <body name="base" pos="1 2 3">
      <geom type="box" size=".1 .2 .3" pos="0 0 .1" group="1"/>
      <geom type="sphere" size=".5" group="3"/>
      <body name="arm" pos="0 0 .5" euler="30 40 50">
        <joint name="turn" axis="0 1 0" range="-90 90"/>
        <geom type="capsule" size=".05 .2" group="1"/>
        <body name="finger" pos=".1 0 0" quat="0 1 1 0">
          <joint name="slide" type="slide" axis="1 0 0" range="0 .04"/>
          <geom type="sphere" size=".02" group="1"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def rotation(rpy):
    (r, p, y), cos, sin = rpy, np.cos, np.sin
    rz = np.array([[cos(y), -sin(y), 0], [sin(y), cos(y), 0], [0, 0, 1]])
    ry = np.array([[cos(p), 0, sin(p)], [0, 1, 0], [-sin(p), 0, cos(p)]])
    rx = np.array([[1, 0, 0], [0, cos(r), -sin(r)], [0, sin(r), cos(r)]])
    return rz @ ry @ rx


def vector(text):
    return np.array([float(part) for part in text.split()])


def forward(text, root, positions):
    """Pose of every link as a 4x4 matrix, from URDF alone."""
    robot = ElementTree.fromstring(text)
    poses = {robot.find('link').get('name'): root}
    for joint in robot.findall('joint'):
        origin = joint.find('origin')
        local = np.eye(4)
        local[:3, :3] = rotation(vector(origin.get('rpy')))
        local[:3, 3] = vector(origin.get('xyz'))
        motion = np.eye(4)
        if joint.get('type') != 'fixed':
            axis, value = vector(joint.find('axis').get('xyz')), positions[joint.get('name')]
            if joint.get('type') == 'prismatic':
                motion[:3, 3] = axis * value
            else:
                x, y, z = axis
                cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
                motion[:3, :3] += np.sin(value) * cross + (1 - np.cos(value)) * cross @ cross
        parent = joint.find('parent').get('link')
        poses[joint.find('child').get('link')] = poses[parent] @ local @ motion
    return poses


@pytest.fixture
def model():
    return mujoco.MjModel.from_xml_string(MODEL)


def describe(model, **changes):
    arguments = {
        'name': 'robot',
        'links': {model.body(name).id: f'{name}_link' for name in ('base', 'arm', 'finger')},
        'joints': {0: 'joint_1', 1: 'joint_2'},
    }
    return urdf_from_model(model, model.body('base').id, **(arguments | changes))


def test_links_stand_where_mujoco_puts_them(model):
    data = mujoco.MjData(model)
    data.qpos[:] = 0.7, 0.03
    mujoco.mj_forward(model, data)
    root = np.eye(4)
    root[:3, 3] = 1, 2, 3
    poses = forward(describe(model), root, {'joint_1': 0.7, 'joint_2': 0.03})
    for name in ('base', 'arm', 'finger'):
        np.testing.assert_allclose(poses[f'{name}_link'][:3, 3], data.body(name).xpos, atol=1e-7)
        np.testing.assert_allclose(
            poses[f'{name}_link'][:3, :3].ravel(), data.body(name).xmat, atol=1e-7
        )


def test_limits_and_visible_shapes_are_written(model):
    robot = ElementTree.fromstring(describe(model))
    limit = robot.find("joint[@name='joint_2']/limit")
    assert (float(limit.get('lower')), float(limit.get('upper'))) == (0.0, 0.04)
    visuals = robot.findall("link[@name='base_link']/visual")
    assert [vector(v.find('geometry/box').get('size')).tolist() for v in visuals] == [
        [0.2, 0.4, 0.6]
    ]


def test_bodies_without_a_name_are_left_out_with_their_children(model):
    links = {model.body('base').id: 'base', model.body('finger').id: 'finger'}
    robot = ElementTree.fromstring(describe(model, links=links))
    assert [link.get('name') for link in robot.findall('link')] == ['base']


def test_a_joint_that_urdf_lacks_is_refused():
    model = mujoco.MjModel.from_xml_string(
        MODEL.replace('axis="0 1 0" range="-90 90"', 'type="ball"')
    )
    with pytest.raises(ValueError, match='turn: no URDF equivalent'):
        describe(model)


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4).filter(lambda q: np.dot(q, q) > 1e-3))
def test_angles_turn_back_into_the_rotation(quaternion):
    unit = np.array(quaternion) / np.linalg.norm(quaternion)
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, unit)
    np.testing.assert_allclose(rotation(roll_pitch_yaw(unit)).ravel(), matrix, atol=1e-6)


@pytest.mark.parametrize('pitch', [np.pi / 2, -np.pi / 2])
def test_angles_survive_the_gimbal_lock(pitch):
    matrix = rotation((0.3, pitch, 0.4))
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, matrix.ravel())
    np.testing.assert_allclose(rotation(roll_pitch_yaw(quaternion)), matrix, atol=1e-6)
