#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the way from an observation to a chunk of actions, and what a cancel does.

A model without weights answers three 224x224 images and a state, so that only the way is
measured, while a robot publishes at 30 Hz. (a) openpi-client straight to the worker; (b) inside
run_policy, from the newest frame to the chunk in hand; (c) predict_chunk seen from an action
client; (d) HTTP with base64 JSON. Then the regularity of the commands while chunks change, and
cancels at random moments. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import _rpc_baseline
import numpy as np
import yaml
from praxis_core.contract import Contract, load_contract

ROOT = Path(__file__).resolve().parents[2]
HZ = 30.0
SIZE = 224
HORIZON, EXECUTE = 16, 5
CAMERAS = ('camera_0', 'camera_1', 'camera_2')
READY = 'ready'
TIMEOUT_S = 60.0


def write_contract(path: Path) -> None:
    """Write the bench robot's contract: the tabletop's at 30 Hz with three cameras."""
    document = yaml.safe_load((ROOT / 'params/robots/tabletop.yaml').read_text())
    document['name'] = 'bench'
    interface, deployment = document['interface'], document['deployment']
    interface.update(policy_hz=HZ)
    interface['cameras'] = {
        name: {'role': name, 'width': SIZE, 'height': SIZE} for name in CAMERAS
    }
    deployment.update(command_hz=HZ, record_hz=HZ)
    deployment['cameras'] = {
        name: {'fps': HZ, 'frame': f'{name}_optical_frame', 'max_age': 0.5} for name in CAMERAS
    }
    path.write_text(yaml.safe_dump(document))


def observation() -> dict[str, Any]:
    """One observation's arrays: role -> uint8[224, 224, 3], state float32[8]."""
    noise = np.random.default_rng(0)
    images = {name: noise.integers(0, 255, (SIZE, SIZE, 3), np.uint8) for name in CAMERAS}
    return {'images': images, 'state': np.zeros(8, np.float32)}


def percentiles(values: list[float], prefix: str) -> dict[str, float]:
    """Median, 95th and 99th percentile in ms of values in s."""
    found = np.percentile(values, [50, 95, 99]) * 1e3
    names = ('p50', 'p95', 'p99')
    return {f'{prefix}_ms_{n}': round(float(v), 3) for n, v in zip(names, found, strict=True)}


def timed(call: Callable[[], Any], count: int, pause: Callable[[], Any]) -> list[float]:
    """Seconds of each call, with a pause before each, after five that do not count."""
    spent = []
    for index in range(count + 5):
        pause()
        began = time.monotonic()
        call()
        if index >= 5:
            spent.append(time.monotonic() - began)
    return spent


# --- processes ---


def run_robot(contract: Contract) -> None:
    """Publish three cameras, then the state that lists them, at 30 Hz on absolute deadlines."""
    import array
    import uuid

    import rclpy
    from praxis_core import qos
    from praxis_interfaces.msg import StateVector
    from rclpy.signals import SignalHandlerOptions
    from sensor_msgs.msg import Image

    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node('bench_robot')
    states = node.create_publisher(StateVector, 'state', qos.SENSOR_PUBLISH)
    cameras = []
    for name, pixels in observation()['images'].items():
        message = Image(height=SIZE, width=SIZE, encoding='rgb8', step=SIZE * 3)
        message.data = array.array('B', pixels.tobytes())
        topic = contract.image_topic(name)
        cameras.append((node.create_publisher(Image, topic, qos.SENSOR_PUBLISH), message))
    state = StateVector(interface_hash=contract.interface_hash, episode_uuid=uuid.uuid4().hex)
    state.values = [0.0] * contract.state_dim
    state.cameras = list(CAMERAS)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    # It stands for hardware, which shares no CPU with the node; needs the right to do so.
    with contextlib.suppress(OSError):
        os.nice(-10)
    print(READY, flush=True)
    gc.collect()
    gc.freeze()
    start = time.monotonic()
    for tick in itertools.count():
        if ended.wait(max(0.0, start + tick / HZ - time.monotonic())):
            break
        stamp = node.get_clock().now().to_msg()
        for publisher, message in cameras:
            message.header.stamp = stamp
            publisher.publish(message)
        state.header.stamp = stamp
        state.observation_seq = tick
        states.publish(state)
    node.destroy_node()
    rclpy.try_shutdown()


def run_empty_action(contract: Contract) -> None:
    """Serve an action that does nothing."""
    import rclpy
    from praxis_interfaces.action import PredictChunk
    from rclpy.action import ActionServer
    from rclpy.executors import ExternalShutdownException

    async def execute(handle: Any) -> PredictChunk.Result:
        handle.succeed()
        return PredictChunk.Result()

    rclpy.init(args=[])
    node = rclpy.create_node('bench_empty_action')
    server = ActionServer(node, PredictChunk, 'empty_action', execute)
    print(READY, flush=True)
    with contextlib.suppress(ExternalShutdownException, KeyboardInterrupt):
        rclpy.spin(node)
    server.destroy()


def run_http(contract: Contract) -> None:
    """Serve the baseline (d)."""
    server = _rpc_baseline.serve(np.zeros((1, HORIZON, contract.action_dim), np.float32))
    print(server.server_port, flush=True)
    sys.stdin.read()


ROLES = {'robot': run_robot, 'http': run_http, 'empty_action': run_empty_action}


class Client:
    """An action client that can also watch the commands; in the process of the bench."""

    def __init__(self, contract: Contract) -> None:
        import rclpy
        from praxis_interfaces.action import PredictChunk, RunPolicy
        from rclpy.action import ActionClient
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.signals import SignalHandlerOptions

        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        self.contract = contract
        self.node = rclpy.create_node('bench_client')
        self.run_policy = ActionClient(self.node, RunPolicy, 'run_policy')
        self.predictions = {
            name: ActionClient(self.node, PredictChunk, name)
            for name in ('predict_chunk', 'empty_action')
        }
        self.requests: list[tuple[float, str]] = []
        self.commands: list[tuple[float, float, str]] = []
        self.states: list[float] = []
        self.chunks: list[float] = []
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def _spin(self) -> None:
        while not self._ended.is_set():
            self._executor.spin_once(timeout_sec=0.2)

    def close(self) -> None:
        """End the spinning thread, then the node."""
        import rclpy

        self._ended.set()
        self._thread.join()
        self.node.destroy_node()
        rclpy.try_shutdown()

    def watch(self) -> None:
        """Note from here on when states, requests, commands and chunks arrive."""
        from praxis_core import qos
        from praxis_interfaces.msg import ActionChunk, Command, StateVector

        topics = self.contract.deployment.topics

        def on_request(message: Command) -> None:
            self.requests.append((time.monotonic(), message.lease_id))

        def on_command(message: Command) -> None:
            if message.chunk_id:
                stamp = seconds(message.header.stamp)
                self.commands.append((time.monotonic(), stamp, message.chunk_id))

        def on_state(message: StateVector) -> None:
            self.states.append(seconds(message.header.stamp))

        def on_chunk(message: ActionChunk) -> None:
            self.chunks.append(message.inference_ms / 1e3)

        for kind, topic, note, profile in (
            (Command, self.contract.request_topic('policy'), on_request, qos.REQUEST),
            (Command, topics.command, on_command, qos.COMMAND_RECORD),
            (StateVector, topics.state, on_state, qos.STATE_SUBSCRIBE),
            (ActionChunk, topics.action_chunk, on_chunk, qos.EVENT),
        ):
            self.node.create_subscription(kind, topic, note, profile)

    def on_thread(
        self,
        call: Callable[[Callable[[Any], None]], None],
        what: str,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """Let a call start on the spinning thread, and wait for what it hands over."""
        done, box = threading.Event(), []

        def hand_over(value: Any) -> None:
            box.append((time.monotonic(), value))
            done.set()

        self._executor.create_task(call, hand_over)
        if not done.wait(timeout_s):
            raise RuntimeError(f'{what}: no answer')
        return box[0]

    def goal(self, **fields: Any) -> tuple[Any, Callable[[], tuple[float, Any]]]:
        """Send a goal of run_policy; gives its handle and what waits for its result."""
        from praxis_interfaces.action import RunPolicy

        message = RunPolicy.Goal(instruction='reach the cube', **fields)
        ended, answer = threading.Event(), []

        def note(future: Any) -> None:
            answer.append((time.monotonic(), future.result()))
            ended.set()

        def accepted(future: Any, hand_over: Callable[[Any], None]) -> None:
            handle = future.result()
            if handle.accepted:
                handle.get_result_async().add_done_callback(note)
            hand_over(handle)

        def send(hand_over: Callable[[Any], None]) -> None:
            future = self.run_policy.send_goal_async(message)
            future.add_done_callback(lambda done: accepted(done, hand_over))

        def result() -> tuple[float, Any]:
            if not ended.wait(TIMEOUT_S + 60.0):
                raise RuntimeError('run_policy: no result')
            return answer[0]

        handle = self.on_thread(send, 'run_policy')[1]
        if not handle.accepted:
            raise RuntimeError('run_policy was rejected')
        return handle, result

    def predict(self, name: str = 'predict_chunk', timeout_s: float = TIMEOUT_S) -> None:
        """One prediction, to its result."""
        from praxis_interfaces.action import PredictChunk

        def accepted(future: Any, hand_over: Callable[[Any], None]) -> None:
            handle = future.result()
            if not handle.accepted:
                hand_over('rejected')
                return
            handle.get_result_async().add_done_callback(
                lambda done: hand_over(done.result().result.error_msg)
            )

        def send(hand_over: Callable[[Any], None]) -> None:
            future = self.predictions[name].send_goal_async(
                PredictChunk.Goal(instruction='reach the cube')
            )
            future.add_done_callback(lambda done: accepted(done, hand_over))

        error = self.on_thread(send, name, timeout_s)[1]
        if error:
            raise RuntimeError(f'{name}: {error}')

    def cancel(self, handle: Any) -> None:
        """Cancel a goal and wait for the answer."""

        def send(hand_over: Callable[[Any], None]) -> None:
            handle.cancel_goal_async().add_done_callback(hand_over)

        self.on_thread(send, 'cancel')

    def wait_until_ready(self) -> None:
        """Wait until a chunk is predicted: the node is active, the model connected."""
        for action in (self.run_policy, *self.predictions.values()):
            if not action.wait_for_server(timeout_sec=TIMEOUT_S):
                raise RuntimeError('no action server')
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                # An answer is lost where the server has not discovered this client yet.
                return self.predict(timeout_s=3.0)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                threading.Event().wait(0.2)


class Bench:
    """The processes of one run; a context manager that ends them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.contract_path = directory / 'bench.yaml'
        write_contract(self.contract_path)
        self.contract = load_contract(self.contract_path)
        self._running: list[subprocess.Popen] = []

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: Any) -> None:
        for process in reversed(self._running):
            self.stop(process)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen:
        """Start a process of Python."""
        environment = {**os.environ, 'PYTHONUNBUFFERED': '1'}
        process = subprocess.Popen([sys.executable, *arguments], env=environment, **options)
        self._running.append(process)
        return process

    def stop(self, process: subprocess.Popen) -> None:
        """End a process and wait for it."""
        if process.stdin is not None:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def role(self, name: str) -> str:
        """Start one of this file's roles; gives its first line."""
        arguments = (__file__, '--role', name, '--contract', str(self.contract_path))
        process = self.start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return process.stdout.readline().strip()

    def worker(self, name: str, delay_ms: float) -> int:
        """Start a worker without weights; gives its port."""
        file = self.directory / name
        process = self.start(
            '-m', 'praxis_models.workers', 'noop', '--port', '0', '--port-file', str(file),
            '--control', str(self.contract_path), '--cameras', *CAMERAS,
            '--state-schema', f'state={self.contract.state_dim}',
            '--chunk-size', str(HORIZON), '--delay-ms', str(delay_ms),
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + TIMEOUT_S
        while not file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f'{name} did not start')
            time.sleep(0.05)
        return int(file.read_text())

    def node(self, module: str, **parameters: Any) -> subprocess.Popen:
        """Start a node."""
        arguments = ['-m', module, '--ros-args', '-p', f'contract:={self.contract_path}']
        for key, value in parameters.items():
            arguments += ['-p', f'{key}:={value}']
        return self.start(*arguments, stdout=subprocess.DEVNULL)

    def action_model(self, port: int) -> subprocess.Popen:
        """Start the node under test on a worker."""
        return self.node(
            'praxis_models.action_model_node',
            endpoint=f'ws://127.0.0.1:{port}',
            stepping='realtime',
        )


# --- phases ---


def round_trips(bench: Bench, client: Client, worker: int, http: int, count: int) -> dict:
    """Measure (a), (c) and (d) in turns, so that each sees the same machine.

    Each at the pace of a camera, as a policy asks, and ``tight``, one call after another, which
    finds the machine awake. ``a_ours`` is (a) with the client that the node uses; ``empty_action``
    is an action that does nothing, which is what (c) cannot be faster than.
    """
    from openpi_client.websocket_client_policy import WebsocketClientPolicy
    from praxis_models.transport.connection import Connection

    data = observation()
    control = bench.contract.interface
    request = {
        'images': data['images'],
        'state': {'state': data['state']},
        'instruction': 'reach the cube',
        'embodiment': control.embodiment,
        'action_space': control.action_space,
    }
    batch = {name: image[None] for name, image in data['images'].items()}
    observed = {**batch, 'states': data['state'][None], 'task_descriptions': ['reach the cube']}
    policy = WebsocketClientPolicy('127.0.0.1', worker)
    ours = Connection(f'ws://127.0.0.1:{worker}')
    ours.start()
    ours.wait(TIMEOUT_S, 'ready')

    def ask_ours() -> None:
        outcome = ours.call(request)
        if not outcome.ok:
            raise RuntimeError(str(outcome.error))

    calls = {
        'a': lambda: policy.infer(request),
        'a_ours': ask_ours,
        'c': lambda: client.predict('predict_chunk'),
        'd': lambda: _rpc_baseline.call(http, observed),
        'empty_action': lambda: client.predict('empty_action'),
    }
    moment, wait = random.Random(0), threading.Event()
    paces = {
        '': lambda: wait.wait(moment.uniform(0.0, 2.0 / HZ)),
        'tight_': lambda: None,
    }
    spent: dict[str, list[float]] = {}
    rounds = 5
    for _ in range(rounds):
        for pace, pause in paces.items():
            for name, call in calls.items():
                spent.setdefault(pace + name, []).extend(timed(call, count // rounds, pause))
    ours.close()
    return {key: value for name in spent for key, value in percentiles(spent[name], name).items()}


def closed_loop(client: Client, chunks: int, process: subprocess.Popen) -> dict:
    """Measure (b) and the regularity of the commands while chunks change."""
    import psutil

    for notes in (client.states, client.commands, client.chunks):
        notes.clear()
    cpu = psutil.Process(process.pid)
    before, began = sum(cpu.cpu_times()[:2]), time.monotonic()
    _, result = client.goal(max_chunks=chunks, execute_steps=EXECUTE)
    response = result()[1]
    cores = (sum(cpu.cpu_times()[:2]) - before) / (time.monotonic() - began)
    if response.result.error_code:
        raise RuntimeError(response.result.error_msg)
    arrived, stamps, played = zip(*client.commands, strict=True)
    states = [at for at in client.states if stamps[0] - 1.0 / HZ <= at <= stamps[-1]]
    return {
        **percentiles(client.chunks, 'b'),
        **percentiles(deviations(stamps), 'command_jitter'),
        **percentiles(deviations(arrived), 'command_arrival_jitter'),
        **percentiles(deviations(states), 'state_jitter'),
        'commands': len(played),
        'states': len(states),
        'chunks': len(client.chunks),
        'chunk_changes': sum(b != a for a, b in itertools.pairwise(played)),
        'node_cores': round(cores, 3),
    }


def seconds(stamp: Any) -> float:
    """A header's stamp as seconds."""
    return stamp.sec + stamp.nanosec * 1e-9


def deviations(times: Sequence[float]) -> list[float]:
    """How far each interval is from a period, s."""
    return [abs(b - a - 1.0 / HZ) for a, b in itertools.pairwise(times)]


def cancels(client: Client, count: int) -> dict:
    """Cancel run_policy at random moments."""
    from action_msgs.msg import GoalStatus

    moment, wait = random.Random(1), threading.Event()
    spent, canceled, late = [], 0, 0
    for _ in range(count):
        handle, result = client.goal(execute_steps=EXECUTE)
        lease = bytes(handle.goal_id.uuid).hex()
        wait.wait(moment.uniform(0.0, 0.6))
        began = time.monotonic()
        client.cancel(handle)
        answered, response = result()
        spent.append(answered - began)
        canceled += response.status == GoalStatus.STATUS_CANCELED
        wait.wait(3.0 / HZ)
        late += sum(owner == lease and at > answered for at, owner in client.requests)
    return {
        **percentiles(spent, 'cancel'),
        'cancel_ms_max': round(max(spent) * 1e3, 3),
        'cancels': count,
        'canceled': canceled,
        'commands_after_cancel': late,
    }


def measure(count: int, chunks: int, cancelled: int, delay_ms: float) -> dict:
    """Run all phases and give the figures."""
    os.environ.setdefault('ROS_DOMAIN_ID', '98')
    os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Bench(Path(folder)) as bench:
        http = int(bench.role('http'))
        worker, slow = bench.worker('worker', 0.0), bench.worker('slow', delay_ms)
        bench.role('robot')
        bench.role('empty_action')
        bench.node('praxis_control.arbiter_node', stepping='realtime')
        node = bench.action_model(worker)
        client = Client(bench.contract)
        try:
            client.wait_until_ready()
            gc.collect()
            gc.freeze()
            figures = round_trips(bench, client, worker, http, count)
            say('round trips are done')
            client.watch()
            figures |= closed_loop(client, chunks, node)
            say('closed loop is done')
            bench.stop(node)
            bench.action_model(slow)
            client.wait_until_ready()
            figures |= cancels(client, cancelled)
        finally:
            client.close()
    return {
        'bench': 'inference',
        **figures,
        'b_minus_a_ms_p50': round(figures['b_ms_p50'] - figures['a_ms_p50'], 3),
        'd_over_c_p50': round(figures['d_ms_p50'] / figures['c_ms_p50'], 2),
        'tight_d_over_c_p50': round(figures['tight_d_ms_p50'] / figures['tight_c_ms_p50'], 2),
        'cancel_inference_ms': delay_ms,
        'command_hz': HZ,
        'images': f'{len(CAMERAS)}x{SIZE}x{SIZE}',
        'seconds': round(time.monotonic() - began, 1),
        'cpus': os.cpu_count(),
        'load_1min': round(os.getloadavg()[0], 2),
    }


def say(line: str) -> None:
    """Report progress."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Run one role, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--count', type=int, default=150, help='round trips of a, c and d each, at either pace'
    )
    parser.add_argument('--chunks', type=int, default=200, help='inferences of b')
    parser.add_argument('--cancels', type=int, default=100, help='goals to cancel')
    parser.add_argument('--cancel-inference-ms', type=float, default=40.0, help='of the cancels')
    parser.add_argument('--role', choices=list(ROLES), help=argparse.SUPPRESS)
    parser.add_argument('--contract', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role is not None:
        contract = load_contract(arguments.contract)
        ROLES[arguments.role](contract)
        return 0
    result = measure(
        arguments.count, arguments.chunks, arguments.cancels, arguments.cancel_inference_ms
    )
    print(json.dumps(result))
    good = result['canceled'] == result['cancels'] and result['commands_after_cancel'] == 0
    return 0 if good else 1


if __name__ == '__main__':
    raise SystemExit(main())
