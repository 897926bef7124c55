# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from praxis_control.kinematics import JointActions, load_kinematics
from praxis_control.motion import MotionObservation, axis_rotation, hand_rotation, yaw_of
from praxis_control.primitives import MovePose, MoveTo, RefusedError, RotateWrist, SetGripper

JOINTS = [f'joint_{i}' for i in range(1, 8)]
HOME = np.array([0.0, -0.1837, 0.0, -2.5136, 0.0, 2.3299, np.pi / 4])
BASE = (np.array([-0.2, 0.1, 0.4]), axis_rotation(np.array([0.0, 0.0, 0.3])))
MAX_STEP = np.full(7, 0.1)


@pytest.fixture
def panda():
    return load_kinematics('panda', JOINTS)


class Servo:
    """Joints that settle short of their setpoint, on a base that the map does not know."""

    def __init__(self, kinematics, sag=0.0):
        self.kinematics, self.sag = kinematics, sag
        self.joints = HOME.copy()
        self.setpoints = []

    def observe(self):
        position, rotation = self.kinematics.forward(self.joints)
        origin, base = BASE
        return MotionObservation(origin + base @ position, base @ rotation, 0.08, self.joints)

    def run(self, primitive, actions):
        primitive.start(self.observe())
        actions.start(self.observe())
        while (step := primitive.update(self.observe())) is not None:
            action = actions.action(step, self.observe())
            self.setpoints.append(action)
            self.joints = self.joints + 0.7 * (action[:7] - self.sag - self.joints)
        return primitive.outcome


def joint_actions(panda):
    return JointActions(panda, list(range(7)), 8, 7, -1.0, 1.0, MAX_STEP)


def test_home_of_the_panda_points_straight_down(panda):
    position, rotation = panda.forward(HOME)
    assert position == pytest.approx([0.4467, 0.0, 0.2439], abs=1e-3)
    assert np.allclose(rotation, np.diag([1.0, -1.0, -1.0]), atol=1e-6)


def test_solution_reaches_the_pose_within_the_limits(panda):
    rng = np.random.default_rng(3)
    position, _ = panda.forward(HOME)
    for _ in range(25):
        goal = position + rng.uniform(-0.12, 0.12, 3)
        rotation = hand_rotation(rng.uniform(-0.3, 0.3), rng.uniform(-0.8, 0.8))
        joints, error = panda.solve(goal, rotation, HOME, HOME, 100)
        assert error < 1e-4
        assert np.allclose(panda.forward(joints)[0], goal, atol=1e-4)
        assert (joints >= panda.lower).all() and (joints <= panda.upper).all()


def test_pose_out_of_reach_is_reported_as_an_error(panda):
    _, error = panda.solve(np.array([2.0, 0, 0.5]), np.eye(3), HOME, HOME)
    assert error > 0.5


def test_move_to_in_joints_reaches_its_goal_on_a_turned_base(panda):
    servo = Servo(panda)
    goal = servo.observe().position + np.array([0.1, -0.12, -0.08])
    assert servo.run(MoveTo(goal), joint_actions(panda)).reached
    assert np.linalg.norm(servo.observe().position - goal) <= 0.012


def test_servo_that_sags_is_brought_to_the_goal(panda):
    servo = Servo(panda, sag=np.array([0, 0.02, 0, 0.02, 0, 0, 0]))
    goal = servo.observe().position + np.array([0.0, 0.1, 0.05])
    assert servo.run(MoveTo(goal, tolerance=0.004), joint_actions(panda)).reached


def test_move_pose_and_rotation_in_joints(panda):
    servo = Servo(panda)
    actions = joint_actions(panda)
    goal = servo.observe().position + np.array([0.05, 0.0, 0.05])
    assert servo.run(MovePose(goal, 0.2, 0.6), actions).reached
    assert servo.run(RotateWrist(-0.4, relative=True), actions).reached
    assert yaw_of(servo.observe().rotation) == pytest.approx(0.2, abs=0.08)


def test_setpoints_never_jump_beyond_the_step_limit(panda):
    servo = Servo(panda)
    servo.run(
        MoveTo(servo.observe().position + np.array([0.1, 0.1, 0.1]), step_clip=0.2),
        joint_actions(panda),
    )
    steps = np.diff([HOME, *(action[:7] for action in servo.setpoints)], axis=0)
    assert np.abs(steps).max() <= 0.1 + 1e-9


def test_gripper_is_held_while_the_arm_stays(panda):
    servo = Servo(panda)
    servo.run(SetGripper(1.0, 5), joint_actions(panda))
    assert [action[7] for action in servo.setpoints] == [1.0] * 5
    assert np.allclose(servo.joints, HOME, atol=1e-3)


def test_unknown_joints_refuse_the_motion(panda):
    with pytest.raises(RefusedError, match='joint positions'):
        joint_actions(panda).start(MotionObservation(np.zeros(3), np.eye(3)))


@pytest.mark.parametrize(
    ('path', 'joints', 'reason'),
    [
        ('', JOINTS, 'needs one'),
        ('pandda', JOINTS, 'built in are'),
        ('panda', ['joint_1', 'elbow'], "lacks joints \\['elbow'\\]"),
    ],
)
def test_model_that_does_not_fit_is_refused_by_name(path, joints, reason):
    with pytest.raises(ValueError, match=reason):
        load_kinematics(path, joints)
