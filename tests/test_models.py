# SPDX-License-Identifier: Apache-2.0
"""An action model in closed loop: simulator, arbiter, action_model, worker, each a process."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticArray
from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_core.testing import wait_until
from praxis_interfaces.action import RunPolicy
from praxis_interfaces.msg import ActionChunk, Command, StateVector
from praxis_interfaces.srv import GetModelInfo, ResetEpisode
from rclpy.action import ActionClient

ROOT = Path(__file__).resolve().parents[1]
CONTRACT = ROOT / 'params/robots/tabletop.yaml'
PICK = 'pick up the red cube'
SECONDS = 120.0


class Stack:
    """The processes, and a client of the policy."""

    def __init__(self, probe, spawn, stepping: str, task: str, seed: int, **model) -> None:
        self.probe = probe
        self.contract = load_contract(CONTRACT)
        self._spawn = spawn
        self.commands = probe.collect(Command, 'command', qos.COMMAND_RECORD)
        self.states = probe.collect(StateVector, 'state', qos.LOCKSTEP_SUBSCRIBE)
        self.chunks = probe.collect(ActionChunk, 'action_chunk', 100)
        common = {'contract': CONTRACT, 'stepping': stepping}
        self.model = self.start('praxis_models.action_model_node', **common, **model)
        self.start('praxis_control.arbiter_node', **common)
        self.start(
            'praxis_sim.simulator_node', **common, platform='tabletop', task=task, seed=seed
        )
        self.client = ActionClient(probe.node, RunPolicy, 'run_policy')
        wait_until(self.client.server_is_ready, SECONDS, 'run_policy')
        wait_until(self._has_model, SECONDS, lambda: self.model.report())
        self.states.wait(1, SECONDS)

    def start(self, module: str, **parameters):
        flags = [part for k, v in parameters.items() for part in ('-p', f'{k}:={v}')]
        return self._spawn([sys.executable, '-m', module, '--ros-args', *flags])

    def _has_model(self) -> bool:
        info = self.probe.call(GetModelInfo, 'get_model_info', timeout=SECONDS)
        return info.error_code == 0

    def reset(self, task: str, seed: int) -> None:
        request = ResetEpisode.Request(task_id=task, seed=seed)
        answer = self.probe.call(ResetEpisode, 'reset_episode', request, timeout=SECONDS)
        assert answer.success, answer.error_msg

    def send(self, instruction: str, **limits):
        goal = RunPolicy.Goal(instruction=instruction, **limits)
        future = self.probe.on_executor(lambda: self.client.send_goal_async(goal))
        wait_until(future.done, SECONDS, 'answer to the goal')
        assert future.result().accepted
        return future.result()

    def result(self, handle):
        future = self.probe.on_executor(handle.get_result_async)
        wait_until(future.done, SECONDS, lambda: f'result\n{self.model.report()}')
        return future.result().status, future.result().result

    def executed(self) -> list[Command]:
        """Commands of the policy."""
        return [m for m in list(self.commands.messages) if m.source == 'policy']


@pytest.fixture
def stack(graph_probe, spawn):
    def start(stepping='lockstep', task='tabletop/pick', seed=3, **model):
        options = {'backend': 'expert', **model}
        return Stack(graph_probe, spawn, stepping, task, seed, **options)

    return start


@pytest.mark.parametrize('stepping', ['lockstep', 'realtime'])
def test_the_teacher_as_a_model_picks_up_the_cube(stack, stepping):
    graph = stack(stepping)
    graph.reset('tabletop/pick', 3)
    status, result = graph.result(graph.send(PICK, timeout=60.0))
    assert (status, result.error_code) == (GoalStatus.STATUS_SUCCEEDED, 0), result
    assert (result.termination_reason, result.outcome) == ('task_success', 'success')
    commands = graph.executed()
    assert commands and not any(command.hold for command in commands)
    # What was executed is what the published chunks say, step by step.
    chunks = {
        m.chunk_id: np.array(m.actions).reshape(m.horizon, -1) for m in graph.chunks.messages
    }
    for command in commands:
        wanted = chunks[command.chunk_id][command.chunk_index]
        np.testing.assert_allclose(command.values, np.clip(wanted, -1.0, 1.0), atol=1e-6)
    low, high = min(graph.states.messages, key=lambda s: s.values[2]), graph.states.messages[-1]
    assert high.values[2] - low.values[2] > 0.05, 'the hand rose with the cube'


def test_an_episode_in_lockstep_does_not_depend_on_the_machine(stack):
    """Two runs, the second with a model that is slow: the same commands to the last bit."""
    graph = stack(prefetch_steps=2, latency_ticks=1)
    runs = []
    for _ in range(2):
        graph.reset('tabletop/pick', 5)
        mark = len(graph.executed())
        status, _ = graph.result(graph.send(PICK))
        assert status == GoalStatus.STATUS_SUCCEEDED
        commands = graph.executed()[mark:]
        runs.append([(tuple(m.values), m.chunk_index) for m in commands])
    assert len(runs[0]) > 10 and runs[0] == runs[1]


def test_a_worker_that_is_killed_is_started_again_and_the_run_goes_on(stack):
    options = json.dumps({'control': str(CONTRACT), 'cameras': []})
    # In quotes, since ROS reads the value of a parameter as YAML.
    graph = stack('realtime', backend='noop', worker_options=f"'{options}'", model_patience_s=60.0)
    reports = graph.probe.collect(DiagnosticArray, '/diagnostics', 100)
    handle = graph.send('stand still')
    wait_until(lambda: len(graph.executed()) > 5, SECONDS, 'commands')
    pid = wait_until(lambda: worker_pid(reports), SECONDS, 'pid of the worker')
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: worker_pid(reports) not in (pid, None), SECONDS, 'another worker')
    graph.chunks.wait(len(graph.chunks.messages) + 3, SECONDS)
    graph.probe.on_executor(handle.cancel_goal_async)
    status, result = graph.result(handle)
    assert (status, result.termination_reason) == (GoalStatus.STATUS_CANCELED, 'cancelled')


def worker_pid(reports) -> int | None:
    """Process id of the worker, as diagnostics last told it."""
    for message in reversed(list(reports.messages)):
        for status in message.status:
            values = {pair.key: pair.value for pair in status.values}
            if status.name == 'action_model: model':
                return int(values['worker_pid']) if values['worker_pid'] else None
    return None
