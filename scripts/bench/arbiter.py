#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the arbiter's latency and takeovers, with cameras running, from a third process.

Processes: robot (state at 30 Hz and 640x480 cameras), viewer (receives the cameras), arbiter, a
bare relay without any check as the baseline, sources (policy and teleop), observer. All times are
the machine's monotonic clock. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import array
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
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from praxis_core.contract import Contract, load_contract

ROOT = Path(__file__).resolve().parents[2]
HZ = 30.0
WIDTH, HEIGHT = 640, 480
SPACE = 'bench.joint.delta.v1'
READY = 'ready'


def write_contract(path: Path, cameras: int) -> None:
    """Write the bench robot's contract: the tabletop's at 30 Hz with large cameras."""
    document = yaml.safe_load((ROOT / 'params/robots/tabletop.yaml').read_text())
    document['name'] = 'bench'
    names = [f'camera_{index}' for index in range(cameras)]
    interface, deployment = document['interface'], document['deployment']
    interface.update(policy_hz=HZ, action_space=SPACE)
    interface['cameras'] = {
        name: {'role': name, 'width': WIDTH, 'height': HEIGHT, 'channels': 3} for name in names
    }
    deployment.update(command_hz=HZ, record_hz=HZ)
    deployment['cameras'] = {
        name: {'fps': HZ, 'frame': f'{name}_optical_frame', 'max_age': 0.5} for name in names
    }
    path.write_text(yaml.safe_dump(document))


def say(line: str) -> None:
    """Tell the parent."""
    print(line, flush=True)


def spin(node: Any, ended: threading.Event | None = None) -> None:
    """Spin on this thread until the parent asks to end, or the event is set."""
    import rclpy

    ended = ended or threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    # The instruments must not stop to collect garbage while they measure.
    gc.collect()
    gc.freeze()
    say(READY)
    while not ended.is_set():
        executor.spin_once(timeout_sec=0.2)


def run_robot(contract: Contract, out: Path) -> None:
    """Publish cameras, then the state that lists them, at 30 Hz on absolute deadlines."""
    import rclpy
    from praxis_core import qos
    from praxis_interfaces.msg import StateVector
    from rclpy.clock import Clock, ClockType
    from sensor_msgs.msg import Image

    node = rclpy.create_node('bench_robot')
    state = node.create_publisher(StateVector, 'state', qos.SENSOR_PUBLISH)
    cameras = {
        name: node.create_publisher(Image, f'cameras/{name}/image_raw', qos.SENSOR_PUBLISH)
        for name in contract.interface.cameras
    }
    pixels = np.random.default_rng(0).integers(0, 255, WIDTH * HEIGHT * 3, dtype=np.uint8)
    image = Image(height=HEIGHT, width=WIDTH, encoding='rgb8', step=WIDTH * 3)
    image.data = array.array('B', pixels.tobytes())
    message = StateVector(interface_hash=contract.interface_hash, episode_uuid=uuid.uuid4().hex)
    message.values = [0.0] * contract.state_dim
    message.cameras = list(cameras)

    def step() -> None:
        stamp = node.get_clock().now().to_msg()
        image.header.stamp = message.header.stamp = stamp
        for publisher in cameras.values():
            publisher.publish(image)
        message.observation_seq += 1
        state.publish(message)

    node.create_timer(1.0 / HZ, step, clock=Clock(clock_type=ClockType.STEADY_TIME))
    spin(node)


def run_viewer(contract: Contract, out: Path) -> None:
    """Receive every camera, as a recorder would."""
    import rclpy
    from praxis_core import qos
    from sensor_msgs.msg import Image

    node = rclpy.create_node('bench_viewer')
    counts = dict.fromkeys(contract.interface.cameras, 0)

    def count(name: str) -> None:
        counts[name] += 1

    for name in counts:
        node.create_subscription(
            Image,
            f'cameras/{name}/image_raw',
            lambda _, name=name: count(name),
            qos.SENSOR_SUBSCRIBE,
            raw=True,
        )
    spin(node)
    out.write_text(json.dumps(counts))


def run_relay(contract: Contract, out: Path) -> None:
    """Pass messages on without looking at them."""
    import rclpy
    from praxis_core import qos
    from praxis_interfaces.msg import Command

    node = rclpy.create_node('bench_relay')
    publisher = node.create_publisher(Command, 'relay_command', qos.COMMAND_PUBLISH)
    node.create_subscription(Command, 'relay_request', publisher.publish, qos.REQUEST)
    spin(node)


def run_observer(contract: Contract, out: Path) -> None:
    """Note when each command is seen."""
    import rclpy
    from praxis_core import qos
    from praxis_interfaces.msg import Command

    node = rclpy.create_node('bench_observer')
    seen: list[tuple[str, str, str, float, int]] = []

    def note(topic: str, message: Command) -> None:
        seen.append((topic, message.source, message.chunk_id, time.monotonic(), message.seq))

    for topic in ('command', 'relay_command'):
        node.create_subscription(
            Command, topic, lambda m, topic=topic: note(topic, m), qos.COMMAND_RECORD
        )
    spin(node)
    out.write_text(json.dumps(seen))


class Sources:
    """A policy that answers each state, and a human who takes over at random moments."""

    def __init__(self, contract: Contract, takeovers: int, seed: int) -> None:
        import rclpy
        from praxis_core import qos
        from praxis_interfaces.msg import Command, StateVector
        from praxis_interfaces.srv import AcquireLease, SetControlMode

        self.contract = contract
        self.takeovers = takeovers
        self.random = random.Random(seed)
        self.node = rclpy.create_node('bench_sources')
        self.publishers = {
            'policy': self.node.create_publisher(Command, 'command_request/policy', qos.REQUEST),
            'teleop': self.node.create_publisher(Command, 'command_request/teleop', qos.REQUEST),
            'relay': self.node.create_publisher(Command, 'relay_request', qos.REQUEST),
        }
        self.node.create_subscription(StateVector, 'state', self.on_state, qos.SENSOR_SUBSCRIBE)
        self.acquire = self.node.create_client(AcquireLease, 'acquire_lease')
        self.mode = self.node.create_client(SetControlMode, 'set_control_mode')
        self.sent: dict[str, float] = {}
        self.intervals: list[dict[str, float]] = []
        self.state = None
        self.lease = ''
        self.count = itertools.count()
        self.message_type = Command

    def on_state(self, state: Any) -> None:
        """Answer a state, through the arbiter and through the relay."""
        self.state = state
        if self.lease:
            self.send('policy')
        self.send('relay')

    def send(self, source: str) -> float:
        """Publish one request; gives the steady time in s before that."""
        state, message = self.state, self.message_type()
        message.header.stamp = state.header.stamp
        message.source = source
        message.lease_id = self.lease if source == 'policy' else ''
        message.episode_uuid = state.episode_uuid
        message.observation_seq = state.observation_seq
        message.observation_stamp = state.header.stamp
        message.interface_hash = self.contract.interface_hash
        message.action_space = SPACE
        message.values = [0.01] * self.contract.action_dim
        message.chunk_id = f'{source}-{next(self.count)}'
        at = time.monotonic()
        self.sent[message.chunk_id] = at
        self.publishers[source].publish(message)
        return at

    def call(self, client: Any, request: Any) -> Any:
        """Call a service from a thread that does not spin."""
        done = threading.Event()
        future = client.call_async(request)
        future.add_done_callback(lambda _: done.set())
        if not done.wait(10.0) or not future.result().success:
            raise RuntimeError(f'{client.srv_name}: {future.result()}')
        return future.result()

    def take_lease(self) -> None:
        """Acquire a lease for the policy, which requests from then on."""
        from praxis_interfaces.srv import AcquireLease

        lease = uuid.uuid4().hex
        self.call(
            self.acquire,
            AcquireLease.Request(
                source='policy', lease_id=lease, interface_hash=self.contract.interface_hash
            ),
        )
        self.lease = lease

    def drive(self) -> None:
        """Take over, command four ticks, give back; again and again."""
        from praxis_interfaces.srv import SetControlMode

        pause = threading.Event()
        while self.state is None or self.publishers['policy'].get_subscription_count() == 0:
            pause.wait(0.05)
        self.acquire.wait_for_service()
        self.mode.wait_for_service()
        give_back = SetControlMode.Request(mode=SetControlMode.Request.MODE_AUTONOMOUS)
        give_back.source = 'operator'
        for done in range(self.takeovers):
            self.take_lease()
            pause.wait(self.random.uniform(8.0, 11.0) / HZ)
            start = self.send('teleop')
            for tick in range(1, 4):
                pause.wait(max(0.0, start + tick / HZ - time.monotonic()))
                self.send('teleop')
            end = time.monotonic()
            # The policy goes on requesting with its dead lease, as a slow one would.
            self.intervals.append({'start': start, 'end': end})
            self.call(self.mode, give_back)
            pause.wait(0.06)
            if (done + 1) % 50 == 0:
                say(f'{done + 1} takeovers')


def run_sources(contract: Contract, out: Path, takeovers: int, seed: int) -> None:
    """Run policy and human until all takeovers are done."""
    sources, ended = Sources(contract, takeovers, seed), threading.Event()

    def drive() -> None:
        try:
            sources.drive()
            out.write_text(json.dumps({'sent': sources.sent, 'intervals': sources.intervals}))
            say('done')
        except Exception as error:
            say(f'failed: {error!r}')
        ended.set()

    thread = threading.Thread(target=drive)
    thread.start()
    spin(sources.node, ended)
    thread.join()


ROLES = {
    'robot': run_robot,
    'viewer': run_viewer,
    'relay': run_relay,
    'observer': run_observer,
}


def percentiles(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile in ms of values in s."""
    return tuple(round(float(v) * 1e3, 3) for v in np.percentile(values, [50, 99]))


def analyse(sources: dict, seen: list, cameras: dict, seconds: float) -> dict:
    """Turn the notes of sources and observer into figures."""
    sent, intervals = sources['sent'], sources['intervals']
    seen = [entry for entry in seen if entry[2] in sent or not entry[2]]
    executed = [entry for entry in seen if entry[0] == 'command']
    relayed = [at - sent[chunk] for topic, _, chunk, at, _ in seen if topic == 'relay_command']
    latencies = [at - sent[chunk] for _, source, chunk, at, _ in executed if source == 'policy']
    takeovers, missed, late = [], 0, 0
    for interval in intervals:
        inside = [e for e in executed if interval['start'] < e[3] <= interval['end']]
        first = next((e[3] for e in inside if e[1] == 'teleop'), None)
        if first is None:
            missed += 1
        else:
            takeovers.append(first - interval['start'])
        late += sum(e[1] == 'policy' and e[3] > interval['start'] + 1.0 / HZ for e in inside)
    latency, baseline, takeover = map(percentiles, (latencies, relayed, takeovers))
    numbers = [entry[4] for entry in executed]
    gaps = sum(b != a + 1 for a, b in itertools.pairwise(numbers))
    return {
        'bench': 'arbiter',
        'command_hz': HZ,
        'tick_ms': round(1e3 / HZ, 1),
        'takeovers': len(takeovers),
        'takeovers_missed': missed,
        'takeover_ms_p50': takeover[0],
        'takeover_ms_p99': takeover[1],
        'takeover_ms_max': round(max(takeovers) * 1e3, 3),
        'commands_after_tick': late,
        'latency_ms_p50': latency[0],
        'latency_ms_p99': latency[1],
        'baseline_ms_p50': baseline[0],
        'baseline_ms_p99': baseline[1],
        'ratio_p50': round(latency[0] / baseline[0], 2),
        'ratio_p99': round(latency[1] / baseline[1], 2),
        'requests': len(latencies),
        'command_seq_gaps': gaps,
        'camera_frames': cameras,
        'seconds': round(seconds, 1),
        'cpus': os.cpu_count(),
        'load_1min': round(os.getloadavg()[0], 2),
    }


def start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen:
    """Start one process of the bench."""
    return subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )


def measure(takeovers: int, cameras: int, seed: int) -> dict:
    """Run all processes and give the figures."""
    environment = {
        'ROS_DOMAIN_ID': '97',
        **os.environ,
        'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
        'PYTHONUNBUFFERED': '1',
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        contract = directory / 'bench.yaml'
        write_contract(contract, cameras)
        me = [__file__, '--contract', str(contract), '--takeovers', str(takeovers)]
        me += ['--seed', str(seed), '--out']
        processes: dict[str, subprocess.Popen] = {}
        try:
            ros = ['--ros-args', '-p', f'contract:={contract}', '-p', 'takeover_rearm_s:=0.2']
            arbiter = ['-m', 'praxis_control.arbiter_node', *ros]
            processes['arbiter'] = subprocess.Popen([sys.executable, *arbiter], env=environment)
            for role in ('relay', 'observer', 'viewer', 'robot'):
                processes[role] = start([*me, str(directory / role), '--role', role], environment)
                if processes[role].stdout.readline().strip() != READY:
                    raise RuntimeError(f'{role} did not start')
            began = time.monotonic()
            sources = start([*me, str(directory / 'sources'), '--role', 'sources'], environment)
            processes['sources'] = sources
            for line in sources.stdout:
                if line.strip() != READY:
                    print(line.strip(), file=sys.stderr)
            seconds = time.monotonic() - began
            if sources.wait() != 0 or not (directory / 'sources').exists():
                raise RuntimeError('the sources failed')
            for role in ('observer', 'viewer'):
                processes[role].send_signal(signal.SIGTERM)
                processes[role].wait(20.0)
            notes = {
                role: json.loads((directory / role).read_text())
                for role in ('sources', 'observer', 'viewer')
            }
        finally:
            for process in processes.values():
                if process.poll() is None:
                    process.terminate()
            for process in processes.values():
                try:
                    process.wait(5.0)
                except subprocess.TimeoutExpired:
                    process.kill()
        return analyse(notes['sources'], notes['observer'], notes['viewer'], seconds)


def main() -> int:
    """Run one role, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--takeovers', type=int, default=200, help='how many to measure')
    parser.add_argument('--cameras', type=int, default=3, help='640x480 at 30 Hz each')
    parser.add_argument('--seed', type=int, default=0, help='of the moments of takeover')
    parser.add_argument('--role', help=argparse.SUPPRESS)
    parser.add_argument('--contract', help=argparse.SUPPRESS)
    parser.add_argument('--out', type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role is None:
        result = measure(arguments.takeovers, arguments.cameras, arguments.seed)
        print(json.dumps(result))
        good = result['commands_after_tick'] == 0 and result['takeovers_missed'] == 0
        return 0 if good else 1

    import rclpy
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    contract = load_contract(arguments.contract)
    if arguments.role == 'sources':
        run_sources(contract, arguments.out, arguments.takeovers, arguments.seed)
    else:
        ROLES[arguments.role](contract, arguments.out)
    rclpy.try_shutdown()
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
