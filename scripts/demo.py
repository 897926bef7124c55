#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job: a sentence to simulator-verified success, recorded, converted and compared."""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import rclpy
import tyro
from action_msgs.msg import GoalStatus
from praxis_core.qos import COMMAND_RECORD, LATCHED, LOCKSTEP_SUBSCRIBE
from praxis_core.waiting import on_executor
from praxis_data.compare import compare_episodes, episode_digest
from praxis_data.contact_sheet import contact_sheet, episode_video
from praxis_data.convert import convert_bag
from praxis_interfaces.action import RunTask
from praxis_interfaces.msg import Command, EpisodeStatus, StateVector, TaskStatus
from praxis_interfaces.srv import (
    DiscardEpisode,
    ListTasks,
    ResetEpisode,
    StartEpisode,
    StopEpisode,
)
from rcl_interfaces.srv import GetParameters
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rich.console import Console
from rich.table import Table

console = Console()

DEFAULT_TASK = {'libero': 'libero_spatial/0', 'tabletop': 'tabletop/place'}


NODES = ('simulator', 'arbiter', 'recorder', 'planner')
SERVICES = {
    'list_tasks': ListTasks,
    'reset_episode': ResetEpisode,
    'start_episode': StartEpisode,
    'stop_episode': StopEpisode,
    'discard_episode': DiscardEpisode,
}


class DemoError(RuntimeError):
    """The demo cannot go on; the message says which step failed and why."""


class UnknownSentenceError(DemoError):
    """No recipe is for the sentence, and nothing has moved."""


@dataclass
class Options:
    """What to run and where to put it."""

    platform: Annotated[
        Literal['all', 'libero', 'tabletop', 'tabletop_joint'], tyro.conf.arg(aliases=['-p'])
    ] = 'all'
    """simulator; all runs LIBERO, then tabletop"""
    task: str = ''
    """task id (libero_spatial/0) or sentence; default: one task per platform"""
    seed: int = 0
    """decides everything random of the episode"""
    init_state: int = -1
    """stored initial state of LIBERO, -1: chosen by the seed"""
    out: Path = Path('outputs/demo')
    """folder for bags, datasets and pictures; a run gets a subfolder of its own"""
    gui: bool = False
    """open MuJoCo's viewer (needs a display)"""
    render_quality: Literal['fast', 'reference'] = 'fast'
    """fast leaves out shadows and multisampling, reference renders as the benchmark does"""
    timeout: float = 240.0
    """seconds of wall time that one task may take"""


@dataclass
class Result:
    """One row of the final table."""

    task: str
    success: bool = False
    planner: str = ''
    steps: int = 0
    sim_s: float = 0.0
    wall_s: float = 0.0
    latency_ms: list[float] = field(default_factory=list)
    frames: int = 0
    drops: int = 0
    equal: bool = False
    digest: str = ''
    clean_exit: bool = False
    episode_index: int = -1
    paths: dict[str, Path] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all that the demo promises holds."""
        return self.success and self.equal and self.clean_exit and not self.problems


class Graph:
    """The launched graph of one robot: its output goes to a log, a dead process is noticed."""

    def __init__(self, platform: str, options: Options, folder: Path) -> None:
        arguments = {
            'platform': platform,
            'stepping': 'lockstep',
            'seed': options.seed,
            'render_quality': options.render_quality,
            'gui': str(options.gui).lower(),
            'data_root': folder,
        }
        command = ['praxis', 'launch', 'praxis_bringup', 'demo.launch.yaml']
        command += [f'{key}:={value}' for key, value in arguments.items()]
        console.print(' '.join(command), style='dim', soft_wrap=True, highlight=False)
        self.log = folder / 'launch.log'
        self.fault = ''
        self._stopping = False
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self.log.open('w') as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                if 'process has died' in line and not self._stopping:
                    self.fault = self.fault or line.strip()
        if not self._stopping:
            self.fault = self.fault or 'the launch ended by itself'

    def stop(self) -> int:
        """Stop as Ctrl-C does and return the exit code."""
        self._stopping = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(timeout=60.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
        self._reader.join()
        return code


class Observer(Node):
    """Watches one robot's topics and calls its services, as a user's script would."""

    def __init__(self, namespace: str, graph: Graph) -> None:
        super().__init__(f'demo_{os.getpid()}_{id(graph):x}', namespace=namespace)
        self._graph = graph
        self.task: TaskStatus | None = None
        self.episode: EpisodeStatus | None = None
        self.commands: list[Command] = []
        self.latency_ms: list[float] = []
        self._seen: dict[int, float] = {}
        self.create_subscription(StateVector, 'state', self._on_state, LOCKSTEP_SUBSCRIBE)
        self.create_subscription(Command, 'command', self._on_command, COMMAND_RECORD)
        self.create_subscription(TaskStatus, 'task_status', self._on_task, LOCKSTEP_SUBSCRIBE)
        self.create_subscription(EpisodeStatus, 'episode_status', self._on_episode, LATCHED)
        self._service_clients = {
            name: self.create_client(kind, name) for name, kind in SERVICES.items()
        }
        self._run_task = ActionClient(self, RunTask, 'run_task')
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self)
        self._thread = threading.Thread(target=self._executor.spin, daemon=True)
        self._thread.start()

    def _on_state(self, message: StateVector) -> None:
        self._seen[message.observation_seq] = time.monotonic()

    def _on_command(self, message: Command) -> None:
        arrived = self._seen.pop(message.observation_seq, None)
        if arrived is not None and not message.hold:
            self.latency_ms.append((time.monotonic() - arrived) * 1e3)
        self.commands.append(message)

    def _on_task(self, message: TaskStatus) -> None:
        self.task = message

    def _on_episode(self, message: EpisodeStatus) -> None:
        self.episode = message

    def meet(self, timeout: float) -> None:
        """Wait until every node has discovered this one; before, its answers would be lost.

        Discovery keeps the order of creation: who answers the newest client knows all others.

        Raises:
            DemoError: A node does not answer in time.
        """
        for name in NODES:
            client = self.create_client(GetParameters, f'{name}/get_parameters')
            request = GetParameters.Request(names=['use_sim_time'])

            def answers(client: Any = client, request: Any = request) -> bool:
                if not client.wait_for_service(timeout_sec=0.2):
                    return False
                done = threading.Event()
                client.call_async(request).add_done_callback(lambda _: done.set())
                return done.wait(1.0)

            self._until(answers, timeout, f'node {name} did not answer')

    def call(self, name: str, request: Any, timeout: float) -> Any:
        """Call a service and return its answer.

        Raises:
            DemoError: It does not exist, does not answer in time, or answers with an error.
        """
        client = self._service_clients[name]
        self._until(
            lambda: client.wait_for_service(timeout_sec=0.2),
            timeout,
            f'service {name} did not appear',
        )
        answer = self._wait(client.call_async(request), timeout, f'service {name}')
        if answer.error_code:
            raise DemoError(f'{name}: {answer.error_msg} (error {answer.error_code})')
        return answer

    def run_task(self, instruction: str, timeout: float, progress: Callable[[str], None]) -> Any:
        """Send a sentence to the planner and return its result message.

        Raises:
            UnknownSentenceError: There is no recipe for it.
            DemoError: The run failed, or the planner does not answer.
        """
        client = self._run_task
        self._until(
            lambda: client.wait_for_server(timeout_sec=0.2), 60.0, 'action run_task did not appear'
        )
        goal = RunTask.Goal(instruction=instruction, timeout=timeout)
        handle = self._wait(
            self._on_executor(
                client.send_goal_async, goal, lambda message: progress(message.feedback.step)
            ),
            30.0,
            'action run_task',
        )
        if not handle.accepted:
            raise DemoError('the planner rejected the goal; see its log')
        response = self._wait(
            self._on_executor(handle.get_result_async), timeout + 30.0, 'result of run_task'
        )
        result = response.result
        if response.status != GoalStatus.STATUS_SUCCEEDED:
            refused = result.termination_reason == 'unknown_instruction'
            kind = UnknownSentenceError if refused else DemoError
            raise kind(f'planner: {result.termination_reason}: {result.error_msg}')
        return result

    def _on_executor(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call where responses are taken."""
        try:
            return on_executor(self, partial(call, *arguments), 10.0)
        except TimeoutError as error:
            raise DemoError(str(error)) from None

    def _wait(self, future: Any, timeout: float, what: str) -> Any:
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        self._until(lambda: done.wait(0.2), timeout, f'{what} gave no answer')
        return future.result()

    def _until(self, condition: Callable[[], bool], timeout: float, complaint: str) -> None:
        """Wait for a condition that itself blocks a little, while the graph is well."""
        deadline = time.monotonic() + timeout
        while not condition():
            if self._graph.fault:
                raise DemoError(self._graph.fault)
            if time.monotonic() > deadline:
                raise DemoError(f'{complaint} within {timeout:.0f} s')

    def close(self) -> None:
        """Stop spinning, then destroy the node."""
        self._executor.shutdown()
        self._thread.join()
        self.destroy_node()


def choose_task(observer: Observer, wanted: str, platform: str) -> tuple[str, str]:
    """Return (task id, sentence); an unknown sentence keeps the default scene."""
    wanted = wanted or DEFAULT_TASK.get(platform, DEFAULT_TASK['tabletop'])
    tasks = observer.call('list_tasks', ListTasks.Request(), 120.0).tasks
    for task in tasks:
        if wanted == task.task_id or wanted.lower() == task.instruction.lower():
            return task.task_id, task.instruction
    if '/' in wanted and ' ' not in wanted:
        near = difflib.get_close_matches(wanted, [task.task_id for task in tasks], cutoff=0.0)
        raise DemoError(f'unknown task {wanted}; nearest: {", ".join(near)}')
    return DEFAULT_TASK.get(platform, DEFAULT_TASK['tabletop']), wanted


def run_episode(observer: Observer, platform: str, options: Options, result: Result) -> None:
    """Reset, record, carry out the sentence, stop; fills `result`."""
    observer.meet(120.0)
    task_id, sentence = choose_task(observer, options.task, platform)
    result.task = task_id
    reset = observer.call(
        'reset_episode',
        ResetEpisode.Request(task_id=task_id, seed=options.seed, init_state=options.init_state),
        180.0,
    )
    observer.call(
        'start_episode',
        StartEpisode.Request(task=sentence, episode_uuid=reset.episode_uuid),
        60.0,
    )
    observer.commands.clear()
    observer.latency_ms.clear()
    began = time.monotonic()
    with console.status(f'{task_id}: {sentence}') as status:
        try:
            planned = observer.run_task(
                sentence,
                options.timeout,
                lambda step: status.update(f'{task_id}: {sentence} [dim]{step}[/dim]'),
            )
            result.planner = planned.recipe
        except UnknownSentenceError:
            observer.call('discard_episode', DiscardEpisode.Request(), 60.0)
            raise
        except DemoError as error:
            result.problems.append(str(error))
    result.wall_s = time.monotonic() - began
    verdict = observer.task
    result.success = bool(verdict and verdict.success)
    result.steps = verdict.step if verdict else 0
    stopped = observer.call(
        'stop_episode',
        StopEpisode.Request(
            outcome=StopEpisode.Request.OUTCOME_SUCCESS
            if result.success
            else StopEpisode.Request.OUTCOME_FAILURE
        ),
        120.0,
    )
    result.frames = stopped.frames
    result.drops = observer.episode.dropped if observer.episode else 0
    result.latency_ms = list(observer.latency_ms)
    stamps = [c.header.stamp.sec + c.header.stamp.nanosec * 1e-9 for c in observer.commands]
    result.sim_s = stamps[-1] - stamps[0] if stamps else 0.0
    result.paths['bag'] = Path(stopped.bag_path)
    result.paths['dataset'] = Path(stopped.dataset_path)
    result.episode_index = stopped.episode_index
    if result.drops:
        result.problems.append(f'{result.drops} messages were lost while recording')


def verify(result: Result, folder: Path) -> None:
    """Convert the bag, compare with the live dataset, and draw the pictures."""
    index = result.episode_index
    with console.status('convert the bag and compare'):
        report = convert_bag(result.paths['bag'], folder / 'converted')
        difference = compare_episodes(
            result.paths['dataset'], index, report.dataset_path, report.episode_index
        )
        result.digest = episode_digest(result.paths['dataset'], index)
    result.equal = difference.equal
    if not difference.equal:
        result.problems.append(
            f'converted bag differs from the live dataset: {difference.differences[:3]}'
        )
    name = result.task.replace('/', '_')
    result.paths['converted'] = Path(report.dataset_path)
    result.paths['video'] = episode_video(result.paths['dataset'], index, folder / f'{name}.mp4')
    result.paths['sheet'] = contact_sheet(result.paths['dataset'], index, folder / f'{name}.png')


def run_platform(platform: str, options: Options, folder: Path) -> Result:
    """Run one platform's task from launch to verified data."""
    folder.mkdir(parents=True, exist_ok=True)
    result = Result(task=options.task or DEFAULT_TASK.get(platform, platform))
    graph = Graph(platform, options, folder)
    try:
        with contextlib.closing(Observer('robot', graph)) as observer:
            run_episode(observer, platform, options, result)
    except DemoError as error:
        result.problems.append(str(error))
    finally:
        code = graph.stop()
    result.clean_exit = code == 0
    if code:
        result.problems.append(f'the graph ended with exit code {code}, log: {graph.log}')
    if 'bag' in result.paths:
        verify(result, folder)
    return result


def table(results: list[Result]) -> Table:
    """Lay the results out, one column per task, for 80 columns."""
    view = Table(title='Praxis demo', title_justify='left')
    view.add_column('task')
    for result in results:
        view.add_column(result.task, justify='right')

    def verdict(good: bool) -> str:
        return '[green]yes[/]' if good else '[red]no[/]'

    def latency(result: Result) -> str:
        if not result.latency_ms:
            return '-'
        return ' / '.join(f'{ms:.1f}' for ms in np.percentile(result.latency_ms, [50, 99]))

    rows: dict[str, Callable[[Result], str]] = {
        'success': lambda result: verdict(result.success),
        'steps': lambda result: str(result.steps),
        'simulated, s': lambda result: f'{result.sim_s:.1f}',
        'wall, s': lambda result: f'{result.wall_s:.1f}',
        'commands per wall s': lambda result: f'{result.steps / max(result.wall_s, 1e-9):.1f}',
        'observation to command p50 / p99, ms': latency,
        'frames': lambda result: str(result.frames),
        'drops': lambda result: str(result.drops),
        'converted bag equals live dataset': lambda result: verdict(result.equal),
        'clean exit': lambda result: verdict(result.clean_exit),
    }
    for name, value in rows.items():
        view.add_row(name, *map(value, results))
    return view


def main() -> int:
    """Run the demo and return its exit code."""
    options = tyro.cli(Options, description=__doc__)
    os.environ.setdefault('ROS_DOMAIN_ID', str(40 + os.getpid() % 60))
    folder = (options.out / time.strftime('%Y%m%d-%H%M%S')).resolve()
    platforms = ['libero', 'tabletop'] if options.platform == 'all' else [options.platform]
    # Ctrl-C must reach this script, which then stops the graph in order.
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    results = []
    try:
        for platform in platforms:
            results.append(run_platform(platform, options, folder / platform))
    except KeyboardInterrupt:
        console.print('[red]interrupted[/red]')
        return 130
    finally:
        rclpy.try_shutdown()
    console.print(table(results))
    for result in results:
        if result.digest:
            console.print(
                f'{result.task} SHA-256 of states, actions, pixels: {result.digest}',
                soft_wrap=True,
                highlight=False,
            )
        for name, path in result.paths.items():
            console.print(f'{result.task} {name}: {path}', soft_wrap=True, highlight=False)
        for problem in result.problems:
            console.print(f'{result.task}: {problem}', style='red', markup=False, soft_wrap=True)
    return 0 if results and all(result.passed for result in results) else 1


if __name__ == '__main__':
    sys.exit(main())
