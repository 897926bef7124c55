# SPDX-License-Identifier: Apache-2.0
import hashlib
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from praxis_core import qos
from praxis_core.errors import ErrorCode
from praxis_core.images import image_array, rgb_array
from praxis_core.testing import wait_until
from praxis_interfaces.msg import Command, ObservationAck, TaskStatus
from praxis_interfaces.srv import ListTasks, RenderCamera
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import MarkerArray

sys.path.insert(0, str(Path(__file__).parent))
from simulator_rig import CAMERAS, Driver, simulator


@pytest.fixture
def driver(graph_probe):
    return Driver(graph_probe)


def policy(state, images):
    """A closed loop: the next action depends on every pixel and every state value."""
    mean = [float(images[name].mean()) / 255 for name in CAMERAS]
    action = np.zeros(7)
    action[:3] = np.tanh(3 * (np.array([0.5, 0.0, 0.1]) - np.array(state.values[:3])))
    action[5] = mean[0] - mean[1]
    action[6] = 1.0 if state.observation_seq % 20 > 10 else -1.0
    return action


def closed_loop(driver, steps):
    content = hashlib.sha256()
    driver.reset('tabletop/place', 11)
    seqs = []
    for k in range(1, steps + 1):
        state, images = driver.wait(k)
        action = policy(state, images)
        content.update(np.array(state.values).tobytes() + action.tobytes())
        for name in CAMERAS:
            content.update(images[name].tobytes())
        seqs.append(state.observation_seq)
        driver.answer(state, action)
    assert seqs == list(range(seqs[0], seqs[0] + steps))
    return content.hexdigest()


def test_two_processes_agree_on_states_actions_and_pixels(spawn, graph_probe):
    sums = []
    for _ in range(2):
        process = spawn(simulator())
        driver = Driver(graph_probe)
        driver.ready()
        sums.append(closed_loop(driver, 40))
        assert driver.problems == []
        graph_probe.node.destroy_publisher(driver.commands)
        assert process.stop(signal.SIGTERM) == 0
        name = graph_probe.node.resolve_topic_name('state')
        wait_until(lambda name=name: graph_probe.node.count_publishers(name) == 0)
    assert sums[0] == sums[1]


def test_lockstep_stands_still_until_commanded_and_acknowledged(spawn, graph_probe, driver):
    process = spawn(simulator(lockstep_participants='[recorder]', stall_warning_s=0.3))
    driver.ready()
    acks = graph_probe.publisher(ObservationAck, 'observation_ack', qos.LOCKSTEP_SUBSCRIBE, 1)
    driver.reset()
    state, _ = driver.wait()
    driver.answer(state, np.zeros(7))
    process.expect('lockstep waits for recorder to acknowledge')
    assert len(driver.observations) == 1
    acks.publish(
        ObservationAck(
            participant='recorder',
            observation_seq=state.observation_seq,
            episode_uuid=state.episode_uuid,
        )
    )
    following, _ = driver.wait(2)
    assert following.observation_seq == state.observation_seq + 1


def test_lockstep_repeats_the_observation_for_a_reader_that_came_late(spawn, graph_probe):
    process = spawn(simulator())
    process.expect('episode ')
    driver = Driver(graph_probe)
    state, _ = driver.wait()
    wait_until(lambda: set(driver._pixels) == set(CAMERAS), message='images')
    driver.answer(state, np.zeros(7))
    following, _ = driver.wait(2)
    assert following.observation_seq == state.observation_seq + 1


def test_reset_keeps_time_and_sequence_and_changes_the_episode(spawn, graph_probe, driver):
    spawn(simulator())
    clock = graph_probe.collect(Clock, '/clock', qos.LOCKSTEP_SUBSCRIBE)
    status = graph_probe.collect(TaskStatus, 'task_status', qos.LOCKSTEP_SUBSCRIBE)
    driver.ready()
    first = driver.reset('tabletop/pick', 1)
    state, _ = driver.wait(1)
    driver.answer(state, np.ones(7) * 0.1)
    driver.wait(2)
    second = driver.reset('tabletop/place', 2)
    reborn, _ = driver.wait(3)
    assert second.success
    assert second.instruction == 'put the red cube in the bowl'
    assert second.observation_seq == reborn.observation_seq == first.observation_seq + 2
    assert reborn.episode_uuid == second.episode_uuid != first.episode_uuid
    times = [message.clock.sec * 10**9 + message.clock.nanosec for message in clock.messages]
    assert np.all(np.diff(times) >= 0)
    found = status.wait_for(lambda message: message.episode_uuid == second.episode_uuid)
    assert found.step == 0
    assert found.task_id == 'tabletop/place'
    # A command for the episode before is not executed in this one.
    driver.answer(state, np.ones(7))
    driver.answer(reborn, np.zeros(7))
    after, _ = driver.wait(4)
    assert after.values[:3] == pytest.approx(reborn.values[:3], abs=1e-4)


@pytest.mark.parametrize(
    ('fields', 'code', 'words'),
    [
        ({'task_id': 'tabletop/pik'}, ErrorCode.TASK_UNKNOWN, 'tabletop/pick'),
        ({'init_state': 4}, ErrorCode.RESET_FAILED, 'no initial states'),
        ({'options': '{'}, ErrorCode.RESET_FAILED, 'no JSON'),
    ],
)
def test_failed_reset_leaves_the_episode_running(spawn, driver, fields, code, words):
    spawn(simulator())
    driver.ready()
    driver.reset()
    state, _ = driver.wait(1)
    response = driver.reset(**fields)
    assert not response.success
    assert response.error_code == code
    assert words in response.error_msg
    driver.answer(state, np.zeros(7))
    after, _ = driver.wait(2)
    assert after.episode_uuid == state.episode_uuid


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        ({'interface_hash': 'f' * 64}, 'interface_hash'),
        ({'values': [float('nan')] * 7}, 'not finite'),
        ({'values': [1.0] * 6}, '6 values'),
    ],
)
def test_unfit_command_holds_and_is_reported(spawn, graph_probe, driver, changes, words):
    spawn(simulator())
    diagnostics = graph_probe.collect(DiagnosticArray, '/diagnostics')
    driver.ready()
    driver.reset()
    state, _ = driver.wait(1)
    driver.answer(state, **({'values': np.ones(7)} | changes))
    after, _ = driver.wait(2)
    assert after.values[:3] == pytest.approx(state.values[:3], abs=1e-4)
    diagnostics.wait_for(
        lambda array: any(words in item.message and item.level == b'\x02' for item in array.status)
    )


def test_second_publisher_of_command_makes_it_hold(spawn, graph_probe, driver):
    spawn(simulator())
    diagnostics = graph_probe.collect(DiagnosticArray, '/diagnostics')
    driver.ready()
    intruder = graph_probe.publisher(Command, 'command', qos.COMMAND_PUBLISH, readers=1)
    driver.reset()
    state, _ = driver.wait(1)
    driver.answer(state, np.ones(7))
    after, _ = driver.wait(2)
    assert after.values[:3] == pytest.approx(state.values[:3], abs=1e-4)
    diagnostics.wait_for(
        lambda array: any('2 publishers of /command' in item.message for item in array.status)
    )
    graph_probe.node.destroy_publisher(intruder)

    def moves():
        count = len(driver.observations)
        before, _ = driver.observations[-1]
        driver.answer(before, [0.5] + [0.0] * 6)
        following, _ = driver.wait(count + 1)
        return following.values[0] - before.values[0] > 1e-3

    wait_until(moves, message='motion after the second publisher left')


def test_realtime_runs_by_the_clock_and_holds_without_commands(spawn, graph_probe, driver):
    process = spawn(simulator(stepping='realtime'))
    driver.ready()
    driver.reset()
    driver.wait(20)
    first, last = driver.observations[0][0], driver.observations[19][0]
    assert last.values[:3] == pytest.approx(first.values[:3], abs=1e-3)
    # One command is executed, repeated once, then it holds by itself.
    driver.answer(last, [0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0])
    count = len(driver.observations)
    driver.wait(count + 12)
    heights = [state.values[2] for state, _ in driver.observations[count:]]
    assert heights[-1] - last.values[2] > 0.01
    assert abs(heights[-1] - heights[-4]) < 1e-3
    assert process.stop(signal.SIGTERM) == 0


def test_services_describe_and_render(spawn, graph_probe, driver):
    spawn(simulator())
    driver.ready()
    tasks = graph_probe.call(ListTasks, 'list_tasks')
    assert [task.task_id for task in tasks.tasks] == [
        'tabletop/reach', 'tabletop/pick', 'tabletop/place',
    ]  # fmt: skip
    unknown = graph_probe.call(ListTasks, 'list_tasks', ListTasks.Request(suite='kitchen'))
    assert unknown.error_code == ErrorCode.NOT_FOUND
    request = RenderCamera.Request(
        camera='wrist', width=320, height=240, rgb=True, depth=True, segmentation=True
    )
    view = graph_probe.call(RenderCamera, 'render_camera', request)
    assert view.error_code == 0, view.error_msg
    assert rgb_array(view.rgb_image).shape == (240, 320, 3)
    assert image_array(view.depth_image).dtype == np.float32
    assert 'red cube' in view.labels
    assert image_array(view.segmentation_image).max() <= len(view.labels)
    assert view.rgb_image.header.frame_id == 'wrist_optical_frame'
    assert view.camera_pose.header.frame_id == 'world'
    assert view.camera_info.k[2] == pytest.approx(159.5)
    bad = graph_probe.call(RenderCamera, 'render_camera', RenderCamera.Request(camera='top'))
    assert bad.error_code == ErrorCode.CAMERA_UNKNOWN
    button = graph_probe.call(Trigger, 'simulator/reset')
    assert button.success
    assert 'tabletop/pick, seed 8' in button.message


def test_scene_and_frames_reach_a_late_reader(spawn, graph_probe, driver):
    spawn(simulator())
    driver.ready()
    description = graph_probe.collect(String, 'robot_description', qos.LATCHED)
    markers = graph_probe.collect(MarkerArray, 'scene_markers', qos.LATCHED)
    static = graph_probe.collect(TFMessage, '/tf_static', qos.LATCHED)
    assert '<robot name="panda">' in description.wait()[0].data
    assert {marker.ns for marker in markers.wait()[0].markers} >= {'red_cube', 'bowl', 'table'}
    frames = {item.child_frame_id: item for item in static.wait()[0].transforms}
    assert frames['agentview_optical_frame'].header.frame_id == 'world'
    assert frames['wrist_optical_frame'].header.frame_id == 'hand'
    moving = graph_probe.collect(TFMessage, '/tf', qos.LOCKSTEP_SUBSCRIBE)
    joints = graph_probe.collect(JointState, 'joint_states', qos.LOCKSTEP_SUBSCRIBE)
    eef = graph_probe.collect(PoseStamped, 'eef/arm/pose', qos.LOCKSTEP_SUBSCRIBE)
    info = graph_probe.collect(CameraInfo, 'cameras/wrist/camera_info', qos.LOCKSTEP_SUBSCRIBE)
    depth = graph_probe.collect(Image, 'cameras/wrist/depth/image_raw', qos.LOCKSTEP_SUBSCRIBE)

    def complete():
        driver.reset()
        return moving.messages and joints.messages and eef.messages and depth.messages

    wait_until(complete, message='everything of an observation')
    info.wait()
    children = [item.child_frame_id for item in moving.messages[-1].transforms]
    assert {'link0', 'link7', 'hand', 'eef'} <= set(children)
    assert not set(children) & set(frames)
    assert joints.messages[-1].name[0] == 'joint_1'
    assert depth.messages[-1].encoding == '32FC1'


def test_two_simulators_in_two_namespaces_do_not_meet(spawn, graph_probe):
    drivers = []
    for name in ('left', 'right'):
        rules = [f'__ns:=/{name}', '/clock:=clock', '/tf:=tf', '/tf_static:=tf_static']
        spawn(simulator(remappings=rules, frame_prefix=f'{name}/'))
        drivers.append(Driver(graph_probe, name))
    for driver in drivers:
        driver.ready()
    left, right = drivers
    left.reset()
    state, _ = left.wait(1)
    left.answer(state, np.zeros(7))
    left.wait(2)
    assert right.observations == []
    topics = dict(graph_probe.node.get_topic_names_and_types())
    assert '/left/clock' in topics
    assert '/clock' not in topics
    static = graph_probe.collect(TFMessage, 'left/tf_static', qos.LATCHED)
    frames = {item.child_frame_id: item for item in static.wait()[0].transforms}
    assert frames['left/wrist_optical_frame'].header.frame_id == 'left/hand'


@pytest.mark.parametrize(
    ('values', 'words'),
    [
        ({'platform': 'tabeltop'}, "unknown platform 'tabeltop'.*did you mean 'tabletop'"),
        ({'gui': 'true'}, 'gui: no display'),
        ({'task': 'tabletop/fly'}, "unknown task 'tabletop/fly'"),
    ],
)
def test_a_bad_start_says_why_and_ends_cleanly(spawn, graph_probe, values, words):
    command = simulator(**values)
    process = spawn(command, env={'DISPLAY': '', 'WAYLAND_DISPLAY': ''})
    process.expect(words)
    process.expect('autostart: (configure|activate) failed')
    assert process.stop(signal.SIGTERM) == 0


def test_an_unknown_parameter_ends_the_process(spawn):
    process = spawn(simulator(stepings='lockstep'))
    assert process.wait() == 2
    assert 'stepings' in process.output
