# SPDX-License-Identifier: Apache-2.0
"""The simulator's command line, and a stand-in for the arbiter, for tests of the node."""

from __future__ import annotations

import sys
from pathlib import Path

from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_core.images import rgb_array
from praxis_core.testing import wait_until
from praxis_interfaces.msg import Command, StateVector
from praxis_interfaces.srv import ResetEpisode
from sensor_msgs.msg import Image

CONTRACT = Path(__file__).parents[4] / 'params' / 'robots' / 'tabletop.yaml'
CAMERAS = ('agentview', 'wrist')


def simulator(*parameters, stepping='lockstep', remappings=(), **values):
    values = {'contract': CONTRACT, 'stepping': stepping, 'task': 'tabletop/pick', **values}
    command = [sys.executable, '-m', 'praxis_sim.simulator_node', '--ros-args']
    for name, value in values.items():
        command += ['-p', f'{name}:={value}']
    for rule in remappings:
        command += ['-r', rule]
    return command


class Driver:
    """Stands in for the arbiter: sees whole observations and answers them."""

    def __init__(self, probe, namespace=''):
        self._probe = probe
        self.contract = load_contract(CONTRACT)
        self.observations = []
        self.problems = []
        self._pixels = {}
        self._last_seq = 0
        self.prefix = f'{namespace}/' if namespace else ''
        node = probe.node
        for name in CAMERAS:
            node.create_subscription(
                Image,
                f'{self.prefix}cameras/{name}/image_raw',
                lambda message, name=name: self._on_image(name, message),
                qos.LOCKSTEP_SUBSCRIBE,
            )
        node.create_subscription(
            StateVector, f'{self.prefix}state', self._on_state, qos.LOCKSTEP_SUBSCRIBE
        )
        self.commands = node.create_publisher(
            Command, f'{self.prefix}command', qos.COMMAND_PUBLISH
        )

    def _on_image(self, name, message):
        self._pixels[name] = (stamp(message), rgb_array(message).copy())

    def _on_state(self, message):
        for name in message.cameras:
            if self._pixels.get(name, (None,))[0] != stamp(message):
                self.problems.append(f'{name} is not there with state {message.observation_seq}')
        if message.observation_seq <= self._last_seq:
            return  # repeated for a late reader
        self._last_seq = message.observation_seq
        images = {name: pixels for name, (_, pixels) in self._pixels.items()}
        self.observations.append((message, images))

    def wait(self, count=1, timeout=20.0):
        wait_until(
            lambda: len(self.observations) >= count,
            timeout,
            lambda: f'{count} observations, got {len(self.observations)}',
        )
        return self.observations[count - 1]

    def ready(self):
        """Matched both ways; the state before that is asked for by a reset."""
        wait_until(lambda: self.commands.get_subscription_count() == 1, message='simulator')
        node = self._probe.node
        topics = [f'{self.prefix}cameras/{name}/image_raw' for name in CAMERAS]
        for topic in [*topics, f'{self.prefix}state']:
            name = node.resolve_topic_name(topic)
            wait_until(lambda name=name: node.count_publishers(name) == 1, message=name)
        while True:
            before = len(self.observations)
            self.reset()
            try:
                self.wait(before + 1, 1.0)
            except AssertionError:
                continue
            if all(self._pixels.get(name) for name in CAMERAS):
                self.problems.clear()
                self.observations.clear()
                return

    def reset(self, task_id='', seed=7, **fields):
        request = ResetEpisode.Request(task_id=task_id, seed=seed, **fields)
        return self._probe.call(ResetEpisode, f'{self.prefix}reset_episode', request)

    def answer(self, state, values, **changes):
        fields = {
            'source': 'arbiter',
            'observation_seq': state.observation_seq,
            'episode_uuid': state.episode_uuid,
            'interface_hash': self.contract.interface_hash,
            'action_space': self.contract.interface.action_space,
            'values': [float(value) for value in values],
        }
        self.commands.publish(Command(**(fields | changes)))


def stamp(message):
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
