# SPDX-License-Identifier: Apache-2.0
"""Simulator and action model, launched for real: the worker's life within the launcher's."""

import os
import signal
from pathlib import Path

import pytest
from action_msgs.msg import GoalStatus
from praxis_core.testing import wait_until
from praxis_interfaces.action import RunPolicy
from praxis_interfaces.srv import GetModelInfo, ResetEpisode
from rclpy.action import ActionClient

SECONDS = 120.0


class Policy:
    """The launched stack, as a user sees it."""

    def __init__(self, probe, spawn, folder: Path, *arguments: str) -> None:
        self._probe = probe
        self._mark = f'PRAXIS_TEST_MARK={folder}'
        command = ['praxis', 'launch', '--builtin', 'praxis_bringup', 'policy.launch.yaml']
        name, _, value = self._mark.partition('=')
        self.launched = spawn(
            [*command, f'data_root:={folder}', *arguments],
            env={'ROS_LOG_DIR': str(folder / 'log'), name: value},
        )
        self._client = ActionClient(probe.node, RunPolicy, '/robot/run_policy')
        wait_until(self._client.server_is_ready, SECONDS, self._said)
        wait_until(self._has_model, SECONDS, self._said)

    def _said(self) -> str:
        return self.launched.output

    def _has_model(self) -> bool:
        info = self._probe.call(GetModelInfo, '/robot/get_model_info', timeout=SECONDS)
        return info.error_code == 0 and info.backend == 'expert'

    def reset(self, task: str) -> None:
        request = ResetEpisode.Request(task_id=task, seed=1)
        answer = self._probe.call(ResetEpisode, '/robot/reset_episode', request, SECONDS)
        assert answer.success, answer.error_msg

    def send(self, instruction: str, feedback=None):
        goal = RunPolicy.Goal(instruction=instruction)
        sent = self._probe.on_executor(
            lambda: self._client.send_goal_async(goal, feedback_callback=feedback)
        )
        wait_until(sent.done, SECONDS, 'answer to the goal')
        return sent.result()

    def result(self, handle):
        ended = self._probe.on_executor(handle.get_result_async)
        wait_until(ended.done, SECONDS, self._said)
        return ended.result()

    def processes(self, word: str = '') -> list[int]:
        """Processes of this stack, wherever they hang, with a word on their command line."""
        found = []
        for entry in Path('/proc').iterdir():
            try:
                environment = (entry / 'environ').read_text(errors='replace').split('\0')
                command = (entry / 'cmdline').read_text(errors='replace')
            except OSError:
                continue
            if entry.name.isdigit() and self._mark in environment and command and word in command:
                found.append(int(entry.name))
        return found

    def worker(self) -> int:
        (pid,) = self.processes('praxis_models.workers')
        return pid


@pytest.mark.slow
def test_a_run_survives_the_death_of_its_worker_and_the_worker_ends_with_the_launcher(
    graph_probe, spawn, tmp_path
):
    policy = Policy(graph_probe, spawn, tmp_path, 'stepping:=realtime')
    policy.reset('tabletop/pick')
    killed = []

    def kill_once(message) -> None:
        if message.feedback.chunks >= 2 and not killed:
            killed.append(policy.worker())
            os.kill(killed[0], signal.SIGKILL)

    answer = policy.result(policy.send('pick up the red cube', kill_once))
    assert killed and policy.worker() != killed[0]
    assert answer.status == GoalStatus.STATUS_SUCCEEDED, answer.result
    assert answer.result.termination_reason == 'task_success'
    logs = list((tmp_path / 'log/workers').glob('robot_expert.log'))
    assert len(logs) == 1 and logs[0].read_text().count(' of robot/expert, pid ') == 2

    assert policy.launched.stop(timeout=60.0) == 0
    assert policy.processes() == []
    assert logs[0].read_text().splitlines()[-1].endswith('status 0')


@pytest.mark.slow
def test_nothing_is_left_of_a_launcher_that_was_killed(graph_probe, spawn, tmp_path):
    policy = Policy(graph_probe, spawn, tmp_path, 'stepping:=lockstep')
    policy.reset('tabletop/reach')
    answer = policy.result(policy.send('reach the red cube'))
    assert answer.result.termination_reason == 'task_success', answer.result
    assert policy.processes('guard.py')
    os.kill(policy.launched.pid, signal.SIGKILL)
    wait_until(lambda: not policy.processes(), 60.0, lambda: str(policy.processes()))
