# SPDX-License-Identifier: Apache-2.0
"""Success of the recipes, through the whole graph in lockstep, by the simulator's own check.

Every run is a reset, one run_task goal with the task's own sentence, and what task_status says.
LIBERO runs start from initial states drawn when the benchmark starts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TASKS = {
    'libero': ('libero_spatial/0', 'libero_object/1', 'libero_goal/8', 'libero_10/0'),
    'tabletop': ('tabletop/reach', 'tabletop/pick', 'tabletop/place'),
    'tabletop_joint': ('tabletop/reach', 'tabletop/pick', 'tabletop/place'),
}


class Graph:
    """Simulator, arbiter, primitives, perception and planner of one contract."""

    def __init__(self, contract: str, folder: Path) -> None:
        path = ROOT / 'params' / 'robots' / f'{contract}.yaml'
        platform = contract.split('_')[0]
        common = [f'contract:={path}']
        lockstep = [*common, 'stepping:=lockstep']
        self._processes = [
            self._start(folder, module, parameters)
            for module, parameters in (
                ('praxis_sim.simulator_node', [*lockstep, f'platform:={platform}']),
                ('praxis_control.arbiter_node', lockstep),
                ('praxis_control.primitives_node', lockstep),
                ('praxis_perception.perception_node', common),
                ('praxis_agent.planner_node', [*lockstep, f'transcript_dir:={folder}']),
            )
        ]

    @staticmethod
    def _start(folder: Path, module: str, parameters: list[str]) -> subprocess.Popen:
        arguments = [part for parameter in parameters for part in ('-p', parameter)]
        with open(folder / f'{module}.log', 'w') as log:
            return subprocess.Popen(
                [sys.executable, '-m', module, '--ros-args', *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise if a process has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f'{process.args[2]} ended with status {process.returncode}')

    def close(self) -> None:
        """End every process, and wait for it."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            try:
                process.wait(15.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Harness:
    """Resets, runs and reads the verdict."""

    def __init__(self, graph: Graph) -> None:
        import rclpy
        from praxis_core import qos
        from praxis_interfaces.action import RunTask
        from praxis_interfaces.msg import TaskStatus
        from praxis_interfaces.srv import ListTasks, ResetEpisode
        from rclpy.action import ActionClient

        self._rclpy = rclpy
        self._graph = graph
        self._types = RunTask, ResetEpisode, ListTasks
        self.node = rclpy.create_node('recipes_bench')
        self._status: TaskStatus | None = None
        self.node.create_subscription(
            TaskStatus, 'task_status', self._on_status, qos.LOCKSTEP_SUBSCRIBE
        )
        self._reset = self.node.create_client(ResetEpisode, 'reset_episode')
        self._list = self.node.create_client(ListTasks, 'list_tasks')
        self._run = ActionClient(self.node, RunTask, 'run_task')

    def _on_status(self, message) -> None:
        self._status = message

    def wait(self, condition, timeout: float, what: str) -> None:
        """Spin until a condition holds."""
        deadline = time.monotonic() + timeout
        while not condition():
            self._graph.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f'{what}: not within {timeout:g} s')
            self._rclpy.spin_once(self.node, timeout_sec=0.05)

    def _result(self, future, timeout: float, what: str):
        self.wait(future.done, timeout, what)
        return future.result()

    def ready(self) -> None:
        """Wait until every node reads the state, so that the first observation reaches all."""
        self.wait(
            lambda: (
                self._run.server_is_ready()
                and self._reset.service_is_ready()
                and self.node.count_subscribers('state') >= 3
                and self.node.count_publishers('task_status') >= 1
            ),
            180.0,
            'the graph',
        )

    def tasks(self) -> dict:
        """Tasks by id."""
        answer = self._result(self._list.call_async(self._types[2].Request()), 60.0, 'list_tasks')
        return {task.task_id: task for task in answer.tasks}

    def run(self, task, seed: int, init_state: int, timeout: float) -> dict:
        """One run; its verdict is the simulator's."""
        run_task, reset_episode, _ = self._types
        request = reset_episode.Request(task_id=task.task_id, seed=seed, init_state=init_state)
        reset = self._result(self._reset.call_async(request), 180.0, 'reset_episode')
        if not reset.success:
            raise RuntimeError(reset.error_msg)
        started = time.monotonic()
        goal = run_task.Goal(instruction=task.instruction, timeout=timeout)
        handle = self._result(self._run.send_goal_async(goal), 30.0, 'run_task to accept')
        if not handle.accepted:
            raise RuntimeError('run_task rejected the goal')
        result = self._result(handle.get_result_async(), timeout + 60.0, 'run_task').result
        seconds = time.monotonic() - started
        try:
            self.wait(
                lambda: (
                    self._status is not None and self._status.episode_uuid == reset.episode_uuid
                ),
                10.0,
                'task_status',
            )
        except TimeoutError:
            return {'success': False, 'steps': 0, 'wall_s': seconds, 'reason': 'no task_status'}
        return {
            'success': bool(self._status.success),
            'steps': int(self._status.step),
            'wall_s': round(seconds, 1),
            'reason': f'{result.termination_reason} {result.error_msg}'.strip(),
        }


def bench(contract: str, tasks: list[str], runs: int, draw: random.Random, timeout: float) -> dict:
    """All runs of one contract; success counts by task."""
    import rclpy

    totals: dict[str, dict] = {}
    with tempfile.TemporaryDirectory(prefix='praxis_recipes_') as folder:
        graph = Graph(contract, Path(folder))
        rclpy.init(args=[])
        try:
            harness = Harness(graph)
            harness.ready()
            known = harness.tasks()
            for task_id in tasks:
                task = known[task_id]
                seeds = draw.sample(range(task.init_states or 10_000), runs)
                results = []
                for seed in seeds:
                    stored = task.init_states > 0
                    outcome = harness.run(
                        task, 0 if stored else seed, seed if stored else -1, timeout
                    )
                    results.append({'start': seed, **outcome})
                    print(
                        f'{contract} {task_id} {"init" if stored else "seed"} {seed}: '
                        f'{"success" if outcome["success"] else "FAILED"}, '
                        f'{outcome["steps"]} steps, {outcome["wall_s"]:.1f} s, '
                        f'{outcome["reason"]}',
                        flush=True,
                    )
                totals[task_id] = {
                    'success': sum(item['success'] for item in results),
                    'runs': len(results),
                    'starts': seeds,
                    'mean_steps': round(sum(item['steps'] for item in results) / len(results), 1),
                    'mean_wall_s': round(sum(i['wall_s'] for i in results) / len(results), 1),
                }
            harness.node.destroy_node()
        finally:
            rclpy.try_shutdown()
            graph.close()
    return totals


def main() -> int:
    """Run and print the table; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--contracts', nargs='+', default=list(TASKS), choices=list(TASKS))
    parser.add_argument('--tasks', nargs='+', default=[], help='task ids; default: all')
    parser.add_argument('--runs', type=int, default=5, help='starts of each task')
    parser.add_argument('--draw', type=int, default=None, help='seed of the draw; default: random')
    parser.add_argument('--timeout', type=float, default=900.0, help='s of one run')
    options = parser.parse_args()
    seed = options.draw if options.draw is not None else random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    # Its own domain: another graph's nodes would answer.
    os.environ['ROS_DOMAIN_ID'] = str(random.SystemRandom().randrange(110, 200))
    os.environ.setdefault('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    results = {}
    for contract in options.contracts:
        tasks = [task for task in TASKS[contract] if not options.tasks or task in options.tasks]
        if tasks:
            results[contract] = bench(contract, tasks, options.runs, draw, options.timeout)
    print()
    for contract, totals in results.items():
        for task_id, total in totals.items():
            print(
                f'{contract:15} {task_id:18} {total["success"]}/{total["runs"]}  '
                f'{total["mean_steps"]:6.1f} steps  {total["mean_wall_s"]:6.1f} s'
            )
    flat = [total for totals in results.values() for total in totals.values()]
    summary = {
        'name': 'recipes',
        'draw': seed,
        'success': sum(total['success'] for total in flat),
        'runs': sum(total['runs'] for total in flat),
        'recipes': results,
    }
    print(json.dumps(summary))
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
