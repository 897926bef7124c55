# SPDX-License-Identifier: Apache-2.0
"""The arbiter as a node: requests and states in, commands and control_status out."""

from __future__ import annotations

import time
from functools import partial
from typing import TypeVar

import numpy as np
from builtin_interfaces.msg import Time
from praxis_core import process, qos
from praxis_core.contract import load_contract
from praxis_core.diagnostics import START_S, Diagnostics, Level, Report, StreamMonitor
from praxis_core.errors import ErrorCode
from praxis_core.parameters import declare
from praxis_interfaces.msg import Command, ControlStatus, StateVector
from praxis_interfaces.srv import AcquireLease, ReleaseLease, SetControlMode
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.node import Node
from std_srvs.srv import Trigger

from praxis_control.arbiter import Arbiter
from praxis_control.arbiter_parameters import ArbiterParameters
from praxis_control.command import Executed, Reply, Request, Status
from praxis_control.freshness import Observation
from praxis_control.gate import ControlSpec
from praxis_control.modes import Actor, Mode, Reason

_STATUS_HZ = 10.0
_FAREWELL_S = 0.5
"""Longest that the last hold may take to reach the robot."""
_NS = 1_000_000_000

Response = TypeVar(
    'Response', SetControlMode.Response, AcquireLease.Response, ReleaseLease.Response
)


class ArbiterNode(Node):
    """Wires topics and services to an `Arbiter`.

    One thread runs everything, so that a request is judged as soon as it is read and nothing is
    locked. Timers run on the steady clock: they do not stop or jump with the node's clock.
    """

    def __init__(self) -> None:
        super().__init__('arbiter')
        parameters = declare(self, ArbiterParameters).value
        contract = load_contract(parameters.contract)
        topics = contract.deployment.topics
        options = parameters.options()
        self._lockstep = options.lockstep
        self._spec = ControlSpec.from_contract(contract)
        self._started = time.monotonic()
        self._arbiter = Arbiter(self._spec, options, self._started)
        self._seq = 0
        self._status_key: tuple | None = None
        self._logged: tuple[Reason, float] = (Reason.NONE, 0.0)

        self._command = self.create_publisher(Command, topics.command, qos.COMMAND_PUBLISH)
        self._status = self.create_publisher(ControlStatus, topics.control_status, qos.LATCHED)
        state_qos = qos.LOCKSTEP_SUBSCRIBE if self._lockstep else qos.STATE_SUBSCRIBE
        self.create_subscription(StateVector, topics.state, self._on_state, state_qos)
        for source in (*options.sources, *options.human_sources):
            self.create_subscription(
                Command,
                f'{topics.command_request}/{source}',
                partial(self._on_request, source),
                qos.REQUEST,
            )

        self.create_service(SetControlMode, 'set_control_mode', self._on_set_mode)
        self.create_service(AcquireLease, 'acquire_lease', self._on_acquire)
        self.create_service(ReleaseLease, 'release_lease', self._on_release)
        for name, mode in (('~/hold', Mode.HOLD), ('~/estop', Mode.ESTOP), ('~/resume', None)):
            self.create_service(Trigger, name, partial(self._on_button, mode))

        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._tick_timer = self.create_timer(1.0 / self._spec.command_hz, self._tick, clock=steady)
        self.create_timer(1.0 / _STATUS_HZ, self._on_status_timer, clock=steady)

        self._state_monitor = StreamMonitor(
            'state',
            expected_hz=None if self._lockstep else self._spec.command_hz,
            clock=time.monotonic,
        )
        self._command_monitor = StreamMonitor('command')
        self._diagnostics = Diagnostics(self, contract.name)
        self._diagnostics.watch(self._state_monitor)
        self._diagnostics.watch(self._command_monitor)
        self._diagnostics.add('arbiter', self._diagnose, patience=START_S)
        self._publish_status(time.monotonic())
        self.get_logger().info(
            f'{contract.name}: {parameters.stepping}, {self._spec.command_hz:g} Hz, '
            f'{self._spec.action_space}, mode {self._arbiter.mode.name.lower()}'
        )

    def close(self) -> None:
        """Leave the robot in a hold; called when no callback runs any more."""
        now = time.monotonic()
        _, executed = self._arbiter.set_mode(
            Mode.HOLD, Actor.HUMAN.value, 'the arbiter shuts down', now
        )
        self._emit(executed, now)
        self._command.wait_for_all_acked(Duration(seconds=_FAREWELL_S))

    # Topics

    def _on_state(self, message: StateVector) -> None:
        now = time.monotonic()
        stamp = message.header.stamp
        observation = Observation(
            seq=message.observation_seq,
            stamp_ns=stamp.sec * _NS + stamp.nanosec,
            episode_uuid=message.episode_uuid,
            interface_hash=message.interface_hash,
            values=np.asarray(message.values, dtype=np.float64),
            cameras=message.cameras,
        )
        self._emit(self._arbiter.receive_state(observation, now), now)
        self._state_monitor.tick(observation.stamp_ns / _NS, observation.seq)

    def _on_request(self, source: str, message: Command) -> None:
        now = time.monotonic()
        stamp = message.observation_stamp
        request = Request(
            source=source,
            lease_id=message.lease_id,
            episode_uuid=message.episode_uuid,
            observation_seq=message.observation_seq,
            observation_stamp_ns=stamp.sec * _NS + stamp.nanosec,
            interface_hash=message.interface_hash,
            action_space=message.action_space,
            values=np.asarray(message.values, dtype=np.float64),
            chunk_id=message.chunk_id,
            chunk_index=message.chunk_index,
        )
        deadline = self._arbiter.deadline
        self._emit(self._arbiter.receive_request(request, now), now)
        if self._arbiter.deadline != deadline:
            self._arm(now)

    # Time

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._arbiter.deadline:
            self._look_at_publishers(now)
            self._emit(self._arbiter.tick(now), now)
        self._arm(now)

    def _arm(self, now: float) -> None:
        wait_ns = max(1, int((self._arbiter.deadline - now) * _NS))
        self._tick_timer.timer_period_ns = wait_ns
        self._tick_timer.reset()

    def _look_at_publishers(self, now: float) -> None:
        count = self.count_publishers(self._command.topic_name)
        self._emit(self._arbiter.set_publishers(count, now), now)

    def _on_status_timer(self) -> None:
        self._publish_status(time.monotonic())

    # Output

    def _emit(self, executed: Executed | None, now: float) -> None:
        """Publish a command, then the status if something about it has changed."""
        if executed is not None:
            self._publish(executed)
        status = self._arbiter.status(now)
        if status.key() != self._status_key:
            self._publish_status(now, status)

    def _publish(self, executed: Executed) -> None:
        self._seq += 1
        message = Command()
        observed = Time(
            sec=executed.observation_stamp_ns // _NS, nanosec=executed.observation_stamp_ns % _NS
        )
        message.header.stamp = observed if self._lockstep else self.get_clock().now().to_msg()
        message.seq = self._seq
        message.source = executed.source
        message.lease_id = executed.lease_id
        message.episode_uuid = executed.episode_uuid
        message.observation_seq = executed.observation_seq
        message.observation_stamp = observed
        message.chunk_id = executed.chunk_id
        message.chunk_index = executed.chunk_index
        message.interface_hash = self._spec.interface_hash
        message.action_space = self._spec.action_space
        message.values = executed.values.tolist()
        message.requested = executed.requested.tolist()
        message.hold = executed.hold
        message.clamped = executed.clamped
        self._command.publish(message)
        self._command_monitor.tick()

    def _publish_status(self, now: float, status: Status | None = None) -> None:
        status = status or self._arbiter.status(now)
        self._status_key = status.key()
        message = ControlStatus()
        message.header.stamp = self.get_clock().now().to_msg()
        message.mode = int(status.mode)
        message.mode_name = status.mode.name.lower()
        message.active_source = status.active_source
        message.lease_id = status.lease_id
        message.episode_uuid = status.episode_uuid
        message.intervention = status.intervention
        message.model_control_enabled = status.model_control_enabled
        message.holding = status.holding
        message.reason_code = int(status.reason)
        message.reason = status.text
        message.refused_total = status.refused_total
        message.clamped_total = status.clamped_total
        self._status.publish(message)
        self._log(status, now)

    def _log(self, status: Status, now: float) -> None:
        """Log a reason when it changes, and the same one at most every 5 s."""
        reason, at = self._logged
        if status.reason is Reason.NONE or (status.reason is reason and now - at < 5.0):
            return
        waiting = status.reason is Reason.STALE_STATE and not self._arbiter.observed
        if waiting and now - self._started < START_S:
            return
        if status.reason is reason and status.reason in (Reason.STALE_STATE, Reason.ESTOP):
            return
        self._logged = (status.reason, now)
        ordinary = (Reason.RESET, Reason.TAKEOVER, Reason.OPERATOR, Reason.RELEASED)
        text = f'{status.mode.name.lower()}, {status.reason.name.lower()}: {status.text}'
        # rclpy binds a severity to the calling line, so each has its own.
        if status.reason in ordinary:
            self.get_logger().info(text)
        else:
            self.get_logger().warning(text)

    def _diagnose(self) -> Report:
        status = self._arbiter.status(time.monotonic())
        faults = (
            Reason.STALE_STATE,
            Reason.FROZEN_STATE,
            Reason.STALE_CAMERA,
            Reason.NON_FINITE,
            Reason.SOURCE_SILENT,
        )
        level, message = Level.OK, status.mode.name.lower()
        if status.reason in faults:
            level, message = Level.WARN, status.text
        if status.reason in (Reason.SECOND_PUBLISHER, Reason.ESTOP):
            level, message = Level.ERROR, status.text
        return (
            level,
            message,
            {
                'active_source': status.active_source,
                'holding': str(status.holding),
                'reason': status.reason.name.lower(),
                'refused_total': str(status.refused_total),
                'clamped_total': str(status.clamped_total),
            },
        )

    # Services

    def _on_set_mode(
        self, request: SetControlMode.Request, response: SetControlMode.Response
    ) -> SetControlMode.Response:
        now = time.monotonic()
        try:
            wanted = Mode(request.mode)
        except ValueError:
            reply = Reply(
                ErrorCode.INVALID_REQUEST, f'mode {request.mode} is none of 0 to {len(Mode) - 1}'
            )
        else:
            reply, executed = self._arbiter.set_mode(wanted, request.source, request.reason, now)
            self._emit(executed, now)
        response.mode = int(self._arbiter.mode)
        return _answer(response, reply)

    def _on_button(
        self, mode: Mode | None, _: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        now = time.monotonic()
        if mode is None:
            stopped = self._arbiter.mode is Mode.ESTOP
            mode = Mode.HOLD if stopped else Mode.AUTONOMOUS
        reply, executed = self._arbiter.set_mode(mode, Actor.OPERATOR.value, 'button', now)
        self._emit(executed, now)
        response.success = reply.success
        response.message = reply.message or f'mode {self._arbiter.mode.name.lower()}'
        return response

    def _on_acquire(
        self, request: AcquireLease.Request, response: AcquireLease.Response
    ) -> AcquireLease.Response:
        now = time.monotonic()
        self._look_at_publishers(now)
        reply = self._arbiter.acquire(
            request.source, request.lease_id, request.interface_hash, request.duration, now
        )
        self._emit(None, now)
        if self._arbiter.lease is not None and reply.success:
            response.episode_uuid = self._arbiter.lease.episode_uuid
        return _answer(response, reply)

    def _on_release(
        self, request: ReleaseLease.Request, response: ReleaseLease.Response
    ) -> ReleaseLease.Response:
        now = time.monotonic()
        reply, executed = self._arbiter.release(request.lease_id, now)
        self._emit(executed, now)
        return _answer(response, reply)


def _answer(response: Response, reply: Reply) -> Response:
    response.success = reply.success
    response.error_code = int(reply.code)
    response.error_msg = reply.message
    return response


def main() -> int:
    """Run the arbiter until it is interrupted."""
    return process.run(ArbiterNode)


if __name__ == '__main__':
    raise SystemExit(main())
