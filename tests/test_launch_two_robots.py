# SPDX-License-Identifier: Apache-2.0
"""Two robots in two namespaces, launched for real: neither hears the other."""

import pytest
from praxis_core import qos
from praxis_core.testing import wait_until
from praxis_interfaces.action import RunTask
from praxis_interfaces.msg import EpisodeStatus, StateVector, TaskStatus
from praxis_interfaces.srv import ResetEpisode
from rclpy.action import ActionClient
from tf2_msgs.msg import TFMessage

ROBOTS = ('robot_a', 'robot_b')
NODES = {'simulator', 'arbiter', 'recorder', 'primitives', 'perception', 'planner'}


@pytest.mark.slow
def test_two_robots_run_a_task_each_without_hearing_the_other(spawn, graph_probe, tmp_path):
    command = ['praxis', 'launch', '--builtin', 'praxis_bringup', 'two_robots.launch.yaml']
    launched = spawn([*command, f'root:={tmp_path}'], env={'ROS_LOG_DIR': str(tmp_path / 'log')})
    node = graph_probe.node

    states = {
        robot: graph_probe.collect(StateVector, f'/{robot}/state', qos.LOCKSTEP_SUBSCRIBE)
        for robot in ROBOTS
    }
    verdicts = {
        robot: graph_probe.collect(TaskStatus, f'/{robot}/task_status', qos.LOCKSTEP_SUBSCRIBE)
        for robot in ROBOTS
    }
    episodes = {
        robot: graph_probe.collect(EpisodeStatus, f'/{robot}/episode_status', qos.LATCHED)
        for robot in ROBOTS
    }
    transforms = graph_probe.collect(TFMessage, f'/{ROBOTS[0]}/tf', 100)
    planners = {robot: ActionClient(node, RunTask, f'/{robot}/run_task') for robot in ROBOTS}
    for robot in ROBOTS:
        request = ResetEpisode.Request(task_id='tabletop/reach', seed=1)
        reset = graph_probe.call(ResetEpisode, f'/{robot}/reset_episode', request, 120.0)
        assert reset.success, reset.error_msg
        wait_until(planners[robot].server_is_ready, 60.0, f'planner of {robot}')
        episodes[robot].wait(1, 60.0)

    wanted = {f'/{robot}/{name}' for robot in ROBOTS for name in NODES}
    wait_until(
        lambda: wanted <= {f'{ns}/{name}' for name, ns in node.get_node_names_and_namespaces()},
        message='every node of both robots',
    )
    topics = {name for name, _ in node.get_topic_names_and_types()}
    assert not topics & {'/clock', '/tf', '/tf_static'}
    assert topics >= {f'/{robot}/{name}' for robot in ROBOTS for name in ('clock', 'tf')}

    # One robot works while the other is left alone.
    still = states[ROBOTS[1]].messages[-1].episode_uuid
    goal = RunTask.Goal(instruction=reset.instruction)
    sent = graph_probe.on_executor(lambda: planners[ROBOTS[0]].send_goal_async(goal))
    wait_until(sent.done, 60.0, 'answer of the planner')
    result = graph_probe.on_executor(sent.result().get_result_async)
    wait_until(result.done, 240.0, 'end of the task')
    assert result.result().result.error_code == 0, result.result().result.error_msg
    verdicts[ROBOTS[0]].wait_for(lambda status: status.success, 10.0)
    assert not any(status.success for status in verdicts[ROBOTS[1]].messages)
    assert states[ROBOTS[1]].messages[-1].episode_uuid == still

    frames = {
        frame
        for message in transforms.wait(1)
        for transform in message.transforms
        for frame in (transform.header.frame_id, transform.child_frame_id)
    }
    assert frames
    assert all(frame == 'world' or frame.startswith('robot_a/') for frame in frames), frames

    assert launched.stop(timeout=60.0) == 0
    assert launched.output.count('process has finished cleanly') == 2 * len(NODES)
