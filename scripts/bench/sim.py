#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure what the ROS graph costs a simulation: steps/s of the whole loop against a bare loop.

Both arms step the same platform with the same scripted actions and render the same cameras; their
rounds alternate in one run, since machines are noisy. The ROS arm is simulator, arbiter and
recorder, each a process of its own, and this process as the source: a step counts when the source
has the whole observation. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
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
from praxis_core.contract import Contract, load_contract

ROOT = Path(__file__).resolve().parents[2]
TASKS = {'tabletop': 'tabletop/pick', 'libero': 'libero_spatial/0'}
SOURCE = 'demonstrator'
TIMEOUT_S = 120.0


def scripted_action(step: int, size: int) -> np.ndarray:
    """Small end-effector motion, the same in both arms: float64[size]."""
    phase = 2 * np.pi * step / 40
    action = np.zeros(size)
    action[:3] = 0.2 * np.array([np.sin(phase), np.cos(phase), -np.sin(2 * phase)])
    action[-1] = 1.0 if step % 40 >= 20 else -1.0
    return action


class Round:
    """Durations and pixels of one round."""

    def __init__(self) -> None:
        self.durations: list[float] = []
        self.pixels = hashlib.sha256()

    def add(self, duration: float) -> None:
        """Note the duration of a step, s."""
        self.durations.append(duration)

    @property
    def rate(self) -> float:
        """Steps per s."""
        return len(self.durations) / sum(self.durations)


class PlainArm:
    """The platform in a bare loop."""

    def __init__(self, options: argparse.Namespace, contract: Contract) -> None:
        from praxis_sim import platforms
        from praxis_sim.platform import PlatformOptions

        self._contract = contract
        self._platform = platforms.create(
            options.platform, PlatformOptions(contract, options.render_quality)
        )
        self._task = options.task

    def run(self, seed: int, steps: int) -> Round:
        """Reset and step; the first observation is not timed."""
        self._platform.reset(self._task, seed, -1, {})
        taken = Round()
        self._capture(taken)
        for step in range(steps):
            begin = time.perf_counter()
            self._platform.step(scripted_action(step, self._contract.action_dim))
            self._capture(taken)
            taken.add(time.perf_counter() - begin)
        return taken

    def _capture(self, taken: Round) -> None:
        for name, camera in self._contract.interface.cameras.items():
            rendering = self._platform.render(name, camera.width, camera.height)
            taken.pixels.update(rendering.rgb)

    def close(self) -> None:
        """Free the platform."""
        self._platform.close()


class RosArm:
    """The graph, driven through the arbiter by a source in this process."""

    def __init__(self, options: argparse.Namespace, contract: Contract, folder: Path) -> None:
        self._contract, self._task = contract, options.task
        self._processes: list[subprocess.Popen] = []
        participants = '[recorder]' if options.recorder else '[]'
        common = {'contract': contract.path, 'stepping': 'lockstep', 'use_sim_time': True}
        self._start('simulator', 'praxis_sim.simulator_node', common | {
            'platform': options.platform, 'task': options.task,
            'render_quality': options.render_quality, 'lockstep_participants': participants,
        })  # fmt: skip
        self._start('arbiter', 'praxis_control.arbiter_node', common | {'idle_hold_s': 0.0})
        if options.recorder:
            self._start('recorder', 'praxis_hil.recorder_node', {
                'contract': contract.path, 'dataset_root': folder / 'dataset',
                'bag_root': folder / 'bags', 'min_free_gb': 0.1, 'use_sim_time': True,
            })  # fmt: skip
        self._recorder = options.recorder
        self._observed = threading.Condition()
        self._seq, self._episode = 0, ''
        self._pixels: dict[str, tuple[int, Any]] = {}
        self._connect()

    def _start(self, name: str, module: str, parameters: dict[str, Any]) -> None:
        command = [sys.executable, '-m', module, '--ros-args', '--log-level', 'warn']
        for key, value in parameters.items():
            command += ['-p', f'{key}:={value}']
        self._processes.append(subprocess.Popen(command, start_new_session=True))

    def _connect(self) -> None:
        import rclpy
        from praxis_core import qos
        from praxis_interfaces.msg import Command, StateVector
        from rclpy.executors import SingleThreadedExecutor
        from sensor_msgs.msg import Image

        rclpy.init(args=[])
        self._node = rclpy.create_node('bench_source')
        topics = self._contract.deployment.topics
        for name in self._contract.interface.cameras:
            self._node.create_subscription(
                Image,
                f'{topics.cameras}/{name}/image_raw',
                lambda message, name=name: self._on_image(name, message),
                qos.LOCKSTEP_SUBSCRIBE,
            )
        self._node.create_subscription(
            StateVector, topics.state, self._on_state, qos.LOCKSTEP_SUBSCRIBE
        )
        self._requests = self._node.create_publisher(
            Command, f'{topics.command_request}/{SOURCE}', qos.REQUEST
        )
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._taken: Round | None = None
        self._left = 0
        self._lease = ''

    def _on_image(self, name: str, message: Any) -> None:
        self._pixels[name] = (_stamp(message), message.data)

    def _on_state(self, message: Any) -> None:
        if message.observation_seq <= self._seq:
            return  # repeated for a late reader
        self._seq, self._episode = message.observation_seq, message.episode_uuid
        self._observation_stamp = message.header.stamp
        taken = self._taken
        if taken is None or message.episode_uuid != self._round_episode:
            return
        for name in message.cameras:
            stamp, pixels = self._pixels[name]
            if stamp != _stamp(message):
                raise RuntimeError(f'{name} of observation {message.observation_seq} is missing')
            taken.pixels.update(pixels)
        if self._begin is not None:
            now = time.perf_counter()
            taken.add(now - self._begin)
            self._begin = None

    def _spin_until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            dead = [p.args[2] for p in self._processes if p.poll() is not None]
            if dead or time.monotonic() > deadline:
                raise RuntimeError(f'{what}: {"ended: " + ", ".join(dead) if dead else "timeout"}')
            self._executor.spin_once(timeout_sec=1.0)

    def _call(self, service: type, name: str, **fields: Any) -> Any:
        client = self._node.create_client(service, name)
        try:
            self._spin_until(client.service_is_ready, name)
            future = client.call_async(service.Request(**fields))
            self._spin_until(future.done, name)
            return future.result()
        finally:
            self._node.destroy_client(client)

    def run(self, seed: int, steps: int) -> Round:
        """Reset and step; the first observation is not timed."""
        from praxis_interfaces.srv import (
            AcquireLease,
            ReleaseLease,
            ResetEpisode,
            StartEpisode,
            StopEpisode,
        )  # fmt: skip

        def checked(response: Any, what: str) -> Any:
            if not response.success:
                raise RuntimeError(f'{what}: {response.error_msg}')
            return response

        taken = Round()
        self._begin: float | None = None
        self._round_episode = ''
        # The episode's identity is not known before its first observation is here.
        self._taken = None
        reset = checked(
            self._call(ResetEpisode, 'reset_episode', task_id=self._task, seed=seed), 'reset'
        )
        self._spin_until(lambda: self._seq >= reset.observation_seq, 'first observation')
        for name in self._contract.interface.cameras:
            taken.pixels.update(self._pixels[name][1])
        self._round_episode, self._taken = reset.episode_uuid, taken
        if self._recorder:
            checked(self._call(StartEpisode, 'start_episode', task='bench'), 'start')
        self._lease = uuid.uuid4().hex
        checked(
            self._call(
                AcquireLease, 'acquire_lease', source=SOURCE, lease_id=self._lease,
                interface_hash=self._contract.interface_hash,
            ),
            'lease',
        )  # fmt: skip
        for step in range(steps):
            seq = self._seq
            self._begin = time.perf_counter()
            self._request(scripted_action(step, self._contract.action_dim))
            self._spin_until(lambda seq=seq: self._seq > seq, f'step {step}')
        self._call(ReleaseLease, 'release_lease', lease_id=self._lease)
        if self._recorder:
            stopped = checked(self._call(StopEpisode, 'stop_episode'), 'stop')
            # The first observation precedes the start.
            if stopped.frames < steps - 1:
                raise RuntimeError(f'{stopped.frames} rows recorded of {steps}')
        return taken

    def _request(self, values: np.ndarray) -> None:
        from praxis_interfaces.msg import Command

        contract = self._contract
        self._requests.publish(
            Command(
                source=SOURCE, lease_id=self._lease, episode_uuid=self._episode,
                observation_seq=self._seq, observation_stamp=self._observation_stamp,
                interface_hash=contract.interface_hash,
                action_space=contract.interface.action_space, values=values.tolist(),
                requested=values.tolist(),
            )
        )  # fmt: skip

    def close(self) -> None:
        """End the processes in reverse order."""
        import rclpy

        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.try_shutdown()


def _stamp(message: Any) -> int:
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec


def _percentiles(durations: list[float]) -> dict[str, float]:
    return {f'p{q}': round(1e3 * float(np.percentile(durations, q)), 3) for q in (50, 95, 99)}


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--platform', choices=sorted(TASKS), default='tabletop')
    parser.add_argument('--contract', help='path; default params/robots/PLATFORM.yaml')
    parser.add_argument('--task', help='default is one of the platform')
    parser.add_argument('--steps', type=int, default=200, help='of each arm in all')
    parser.add_argument('--rounds', type=int, default=4, help='of each arm, alternating')
    parser.add_argument('--render-quality', choices=('fast', 'reference'), default='fast')
    parser.add_argument(
        '--recorder', action=argparse.BooleanOptionalAction, default=True,
        help='record every ROS round; needs praxis_hil',
    )  # fmt: skip
    options = parser.parse_args()
    options.task = options.task or TASKS[options.platform]
    os.environ.setdefault('ROS_DOMAIN_ID', '99')
    os.environ.setdefault('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    contract = load_contract(
        options.contract or ROOT / 'params' / 'robots' / f'{options.platform}.yaml'
    )
    each = max(1, options.steps // options.rounds)
    rounds: dict[str, list[Round]] = {'plain': [], 'ros': []}
    with tempfile.TemporaryDirectory(prefix='praxis_bench_') as folder:
        ros = RosArm(options, contract, Path(folder))
        plain = PlainArm(options, contract)
        try:
            for index in range(options.rounds + 1):
                for name, arm in (('plain', plain), ('ros', ros)):
                    taken = arm.run(index, each)
                    if index:  # the first round warms up
                        rounds[name].append(taken)
                        print(f'round {index} {name}: {taken.rate:.1f} steps/s', flush=True)
        finally:
            plain.close()
            ros.close()
    rates = {name: [taken.rate for taken in several] for name, several in rounds.items()}
    durations = {
        name: [value for taken in several for value in taken.durations]
        for name, several in rounds.items()
    }
    total = {name: len(values) / sum(values) for name, values in durations.items()}
    pixels = {
        name: [taken.pixels.hexdigest() for taken in several] for name, several in rounds.items()
    }
    print(
        json.dumps(
            {
                'bench': 'sim',
                'platform': options.platform,
                'task': options.task,
                'steps': each * options.rounds,
                'recorder': options.recorder,
                'render_quality': options.render_quality,
                'cameras': {
                    name: [camera.width, camera.height]
                    for name, camera in contract.interface.cameras.items()
                },
                'ros_steps_per_s': round(total['ros'], 2),
                'plain_steps_per_s': round(total['plain'], 2),
                'ratio': round(total['ros'] / total['plain'], 3),
                'ratio_by_round': [
                    round(a / b, 3) for a, b in zip(rates['ros'], rates['plain'], strict=True)
                ],
                'pixel_hash_equal': pixels['plain'] == pixels['ros'],
                'ros_step_ms': _percentiles(durations['ros']),
                'plain_step_ms': _percentiles(durations['plain']),
            }
        )
    )
    return 0 if pixels['plain'] == pixels['ros'] else 1


if __name__ == '__main__':
    sys.exit(main())
