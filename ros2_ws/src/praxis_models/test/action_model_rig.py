# SPDX-License-Identifier: Apache-2.0
"""A robot with its arbiter, scripted model servers, and a client: what `action_model` needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hostile_server import Peer
from praxis_core import qos
from praxis_core.contract import Contract, load_contract
from praxis_core.errors import ErrorCode
from praxis_core.images import fill_image
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import control_of
from praxis_core.testing import GraphProbe, wait_until
from praxis_interfaces.action import PredictChunk, RunPolicy
from praxis_interfaces.msg import Command, ControlStatus, StateVector, TaskStatus
from praxis_interfaces.srv import AcquireLease, ReleaseLease
from praxis_models.action_model_node import ActionModelNode
from praxis_models.transport import wire
from rclpy.action import ActionClient
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.time import Time
from sensor_msgs.msg import Image

ROBOTS = Path(__file__).parents[4] / 'params' / 'robots'
TABLETOP = load_contract(ROBOTS / 'tabletop.yaml')
JOINT = load_contract(ROBOTS / 'tabletop_joint.yaml')
PERIOD_S = 0.05
STEPS = 4


def meta_of(contract: Contract = TABLETOP, **fields) -> ModelMeta:
    """Metadata of a model that wants the state alone and answers four steps."""
    fields = {'state_schema': {'state': 8}, 'chunk_size': STEPS, **fields}
    return ModelMeta(backend='fake', control=control_of(contract), **fields)


def counted(request: dict, number: int) -> dict:
    """Steps that say which chunk and step they are: 0.01 x chunk + 0.001 x step."""
    actions = np.zeros((STEPS, 7), np.float32)
    actions[:, 0] = 0.01 * number + 0.001 * np.arange(STEPS)
    return {'actions': actions}


class Policy:
    """Script of a model server that serves every connection with one function.

    Attributes:
        requests: Inference requests as they came.
        calls: Control calls as they came.
        delay: Called before each reply.
    """

    def __init__(
        self,
        meta: ModelMeta | None = None,
        reply: Callable[[dict, int], dict | str] = counted,
        delay: Callable[[Peer], None] = lambda peer: None,
    ) -> None:
        self.meta = meta or meta_of()
        self.reply = reply
        self.delay = delay
        self.requests: list[dict] = []
        self.calls: list[dict] = []
        self.times: list[float] = []

    def __call__(self, peer: Peer) -> None:
        peer.greet(self.meta.to_wire())
        while (message := peer.receive()) is not None:
            request = wire.unpack(message)
            if 'method' in request:
                self.calls.append(request)
                peer.send(wire.pack({'session_id': 's_00000001'}))
                continue
            self.requests.append(request)
            self.times.append(time.monotonic())
            self.delay(peer)
            answer = self.reply(request, len(self.requests) - 1)
            peer.send(answer if isinstance(answer, str) else wire.pack(answer))


class Rig(Node):
    """Arbiter and robot in one: grants leases; in lockstep it answers requests with states."""

    def __init__(self, contract: Contract = TABLETOP, lockstep: bool = True, **kwargs) -> None:
        super().__init__('rig', **kwargs)
        self.contract = contract
        self.lockstep = lockstep
        self.grant = True
        self.step = lockstep
        self.lease = ''
        self.acquired: list[AcquireLease.Request] = []
        self.released: list[str] = []
        self.requests: list[tuple[float, Command]] = []
        self.values = np.zeros(contract.state_dim)
        self.cameras: tuple[str, ...] = ()
        self.seq = 0
        self.episode = 'first'
        self.create_service(AcquireLease, 'acquire_lease', self._acquire)
        self.create_service(ReleaseLease, 'release_lease', self._release)
        self.status = self.create_publisher(ControlStatus, 'control_status', qos.LATCHED)
        self.state = self.create_publisher(StateVector, 'state', qos.COMMAND_PUBLISH)
        self.task = self.create_publisher(TaskStatus, 'task_status', qos.SENSOR_PUBLISH)
        self.images = {
            name: self.create_publisher(Image, contract.image_topic(name), qos.SENSOR_PUBLISH)
            for name in contract.interface.cameras
        }
        self.create_subscription(Command, 'command_request/policy', self._request, qos.REQUEST)
        if not lockstep:
            steady = Clock(clock_type=ClockType.STEADY_TIME)
            self.timer = self.create_timer(PERIOD_S, self.observe, clock=steady)

    def _acquire(self, request, response):
        self.acquired.append(request)
        response.success = self.grant
        if self.grant:
            self.lease = request.lease_id
            response.episode_uuid = self.episode
            self.tell()
        else:
            response.error_code, response.error_msg = int(ErrorCode.WRONG_MODE), 'mode is hold'
        return response

    def _release(self, request, response):
        self.released.append(request.lease_id)
        self.lease = ''
        response.success = True
        return response

    def tell(self, reason: int = ControlStatus.REASON_NONE, text: str = '') -> None:
        """Publish what the arbiter thinks."""
        self.status.publish(ControlStatus(lease_id=self.lease, reason_code=reason, reason=text))

    def revoke(self, reason: int, text: str) -> None:
        """End the lease."""
        self.lease = ''
        self.tell(reason, text)

    def judge(self, **verdict: bool) -> None:
        """Publish a verdict on the task."""
        self.task.publish(TaskStatus(episode_uuid=self.episode, **verdict))

    def _request(self, message: Command) -> None:
        self.requests.append((time.monotonic(), message))
        if self.step:
            self.observe()

    def observe(self) -> None:
        """Publish the next observation, state last."""
        self.seq += 1
        if self.lockstep:
            stamp = Time(nanoseconds=round(self.seq * PERIOD_S * 1e9)).to_msg()
        else:
            stamp = self.get_clock().now().to_msg()
        for camera in self.cameras:
            image = fill_image(Image(), np.full((4, 4, 3), self.seq % 256, np.uint8), 'rgb8')
            image.header.stamp = stamp
            self.images[camera].publish(image)
        state = StateVector(
            observation_seq=self.seq,
            episode_uuid=self.episode,
            interface_hash=self.contract.interface_hash,
            values=self.values.tolist(),
            cameras=list(self.cameras),
        )
        state.header.stamp = stamp
        self.state.publish(state)

    @property
    def sent(self) -> list[Command]:
        """Requests so far."""
        return [message for _, message in self.requests]

    @property
    def firsts(self) -> list[float]:
        """First value of each request."""
        return [round(message.values[0], 6) for message in self.sent]


class Client:
    """Sends goals from the probe's thread."""

    def __init__(self, probe: GraphProbe, namespace: str = '') -> None:
        prefix = f'{namespace}/' if namespace else ''
        self.probe = probe
        self.feedback: list = []
        self.run_policy = ActionClient(probe.node, RunPolicy, f'{prefix}run_policy')
        self.predict_chunk = ActionClient(probe.node, PredictChunk, f'{prefix}predict_chunk')
        for client in (self.run_policy, self.predict_chunk):
            wait_until(client.server_is_ready, message='action server')

    def _send(self, client, goal):
        def note(message):
            self.feedback.append(message.feedback)

        future = self.probe.on_executor(lambda: client.send_goal_async(goal, note))
        wait_until(future.done, message='goal response')
        return future.result()

    def run(self, instruction='pick', **fields):
        """Start a policy."""
        return self._send(self.run_policy, RunPolicy.Goal(instruction=instruction, **fields))

    def predict(self, instruction='pick'):
        """Ask for one chunk."""
        return self._send(self.predict_chunk, PredictChunk.Goal(instruction=instruction))

    def result(self, handle, timeout=20.0):
        """Wait for the end of a goal; gives status and result."""
        future = self.probe.on_executor(handle.get_result_async)
        wait_until(future.done, timeout, 'result')
        return future.result().status, future.result().result

    def cancel(self, handle):
        """Cancel a goal; gives status, result and the s that it took."""
        ended: list[float] = []

        def ask():
            result = handle.get_result_async()
            result.add_done_callback(lambda _: ended.append(time.monotonic()))
            handle.cancel_goal_async()
            return time.monotonic(), result

        began, future = self.probe.on_executor(ask)
        wait_until(lambda: ended, message='end of a cancelled goal')
        return future.result().status, future.result().result, ended[0] - began


def make_node(endpoint: str, stepping: str, namespace: str = '', **parameters) -> ActionModelNode:
    """A node that joins a server; times are short."""
    values = {
        'contract': str(ROBOTS / 'tabletop.yaml'),
        'stepping': stepping,
        'endpoint': endpoint,
        'receive_timeout_s': 5.0,
        'first_reply_timeout_s': 5.0,
        'model_patience_s': 1.0,
        'service_timeout_s': 1.0,
        **parameters,
    }
    overrides = [Parameter(name, value=value) for name, value in values.items()]
    return ActionModelNode(parameter_overrides=overrides, namespace=namespace)
