# SPDX-License-Identifier: Apache-2.0
"""Node `primitives`: motion primitives as cancellable actions, one goal at a time.

Everything runs on one thread: goals are coroutines that sleep while callbacks drive them, so a
cancel is answered as soon as the executor is free and no command follows it.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Literal

import numpy as np
from geometry_msgs.msg import PoseStamped
from praxis_core import qos
from praxis_core.contract import Contract, load_contract
from praxis_core.diagnostics import Diagnostics, StreamMonitor
from praxis_core.errors import ErrorCode
from praxis_core.parameters import ParameterError, ParameterModel, declare
from praxis_core.process import run
from praxis_core.waiting import Waits
from praxis_interfaces import action as actions
from praxis_interfaces.msg import Command, ControlStatus, StateVector
from praxis_interfaces.srv import AcquireLease, ReleaseLease
from pydantic import Field
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.client import Client
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.time import Time
from sensor_msgs.msg import JointState

from praxis_control.motion import DeltaActions, MotionObservation, rotation_matrix
from praxis_control.motion_pairing import ObservationPairing
from praxis_control.primitives import (
    MovePose,
    MoveTo,
    Primitive,
    RefusedError,
    Release,
    RotatePitch,
    RotateWrist,
    SetGripper,
)
from praxis_control.primitives_run import PrimitiveRun, StampedObservation

SOURCE = 'primitive'
POLL_S = 0.02

REASONS = {
    getattr(ControlStatus, name): name.removeprefix('REASON_').lower()
    for name in dir(ControlStatus)
    if name.startswith('REASON_')
}


class PrimitivesParameters(ParameterModel):
    """Parameters of the node `primitives`."""

    contract: str = Field(
        description='Path of the contract of the robot.', json_schema_extra={'read_only': True}
    )
    stepping: Literal['realtime', 'lockstep'] = Field(
        'realtime',
        description='realtime: give up when the state is older than max_age.state; lockstep: '
        'simulated time may stand still for stall_s.',
        json_schema_extra={'read_only': True},
    )
    arm: str = Field(
        '',
        description='Arm that is moved; empty: the only one of the contract.',
        json_schema_extra={'read_only': True},
    )
    stall_s: float = Field(
        30.0, ge=0.1, le=600.0, description='Lockstep: steady s without an observation (s).'
    )
    service_timeout_s: float = Field(
        3.0, ge=0.1, le=60.0, description='Wait for the arbiter to grant or take a lease (s).'
    )
    feedback_hz: float = Field(5.0, ge=2.0, le=10.0, description='Rate of feedback (Hz).')


def make_primitive(name: str, goal) -> Primitive:
    """Primitive of an action goal.

    Raises:
        RefusedError: A field is not finite or out of range.
    """
    if name == 'move_to':
        return MoveTo(
            np.asarray(goal.position, dtype=float),
            goal.gripper,
            goal.tolerance,
            goal.step_clip,
            goal.max_steps,
            goal.action_scale,
            goal.target_yaw if goal.has_target_yaw else None,
            goal.yaw_step_clip,
        )
    if name == 'move_pose':
        return MovePose(
            np.asarray(goal.position, dtype=float),
            goal.target_pitch,
            goal.target_yaw,
            goal.gripper,
            goal.step_clip,
            goal.pitch_step,
            goal.yaw_step,
            goal.tolerance,
            goal.orientation_tolerance,
            goal.action_scale,
            goal.max_steps,
        )
    if name in ('rotate_wrist', 'rotate_pitch'):
        angle, kind = (
            (goal.yaw, RotateWrist) if name == 'rotate_wrist' else (goal.pitch, RotatePitch)
        )
        return kind(
            angle, goal.relative, goal.gripper, goal.max_steps, goal.tolerance, goal.step_clip
        )
    if name == 'set_gripper':
        return SetGripper(goal.gripper, goal.steps)
    if name == 'release':
        # The type's default of 5 is set_gripper's; a release that short has not opened the hand.
        return Release(goal.steps or 20)
    raise KeyError(name)


ACTIONS = {
    'move_to': actions.MoveTo,
    'move_pose': actions.MovePose,
    'rotate_wrist': actions.RotateWrist,
    'rotate_pitch': actions.RotatePitch,
    'set_gripper': actions.SetGripper,
    'release': actions.SetGripper,
}


class PrimitivesNode(Node):
    """Six action servers over one run."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('primitives', **kwargs)
        self._settings = declare(self, PrimitivesParameters)
        parameters = self._settings.value
        self._contract = load_contract(parameters.contract)
        self._arm_name, self._arm = _arm(self._contract, parameters.arm)
        self._lockstep = parameters.stepping == 'lockstep'
        self._actions = _action_map(self._contract, self._arm)
        self._run: PrimitiveRun | None = None
        self._reserved = ''
        self._latest: StampedObservation | None = None
        self._status: ControlStatus | None = None
        self._answered = -1
        self._seq = 0
        self._waits = Waits(self)
        self._pairing = ObservationPairing(frozenset({'state', 'pose', 'joints'}))
        self._wire()

    def _wire(self) -> None:
        topics = self._contract.deployment.topics
        sensor = qos.LOCKSTEP_SUBSCRIBE if self._lockstep else qos.STATE_SUBSCRIBE
        group = ReentrantCallbackGroup()
        self.create_subscription(
            StateVector, topics.state, lambda m: self._part('state', m), sensor
        )
        self.create_subscription(
            PoseStamped, self._arm.pose_topic, lambda m: self._part('pose', m), sensor
        )
        self.create_subscription(
            JointState, topics.joint_states, lambda m: self._part('joints', m), sensor
        )
        self.create_subscription(
            ControlStatus, topics.control_status, self._control_status, qos.LATCHED
        )
        self._request = self.create_publisher(
            Command, f'{topics.command_request}/{SOURCE}', qos.REQUEST
        )
        self._acquire = self.create_client(AcquireLease, 'acquire_lease', callback_group=group)
        self._release = self.create_client(ReleaseLease, 'release_lease', callback_group=group)
        self._servers = [
            ActionServer(
                self,
                kind,
                name,
                execute_callback=partial(self._execute, name),
                goal_callback=lambda goal, name=name: self._accept(name),
                cancel_callback=self._cancel,
                callback_group=group,
                result_timeout=900,
            )
            for name, kind in ACTIONS.items()
        ]
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(POLL_S, self._check, clock=steady, callback_group=group)
        diagnostics = Diagnostics(self, self._contract.name)
        self._monitor = StreamMonitor(
            'observations', None if self._lockstep else self._contract.deployment.command_hz
        )
        diagnostics.watch(self._monitor)

    # Observations

    def _part(self, part: str, message) -> None:
        stamp = Time.from_msg(message.header.stamp).nanoseconds
        whole = self._pairing.add(part, stamp, message)
        if whole is None:
            return
        state = whole['state']
        try:
            motion = _motion(whole['pose'], whole['joints'], self._contract, self._arm)
        except ValueError as error:
            self.get_logger().error(str(error), throttle_duration_sec=5.0)
            return
        self._monitor.tick(stamp / 1e9, state.observation_seq)
        self._latest = StampedObservation(motion, state.observation_seq, stamp, state.episode_uuid)
        self._drive()

    def _drive(self) -> None:
        """Answer the newest observation, once."""
        goal, observation = self._run, self._latest
        if goal is None or observation is None or observation.seq == self._answered:
            return
        values = goal.observe(observation)
        if values is None:
            return
        self._answered = observation.seq
        stamp = Time(nanoseconds=observation.stamp_ns).to_msg()
        message = Command()
        message.header.stamp = stamp if self._lockstep else self.get_clock().now().to_msg()
        message.header.frame_id = self._contract.deployment.base_frame
        message.seq = self._seq
        message.source = SOURCE
        message.lease_id = goal.lease_id
        message.episode_uuid = observation.episode_uuid
        message.observation_seq = observation.seq
        message.observation_stamp = stamp
        message.interface_hash = self._contract.interface_hash
        message.action_space = self._contract.interface.action_space
        message.values = message.requested = values.tolist()
        self._seq += 1
        self._request.publish(message)

    def _control_status(self, message: ControlStatus) -> None:
        self._status = message
        if self._run is not None:
            self._run.lease_status(
                message.lease_id, REASONS.get(message.reason_code, ''), message.reason
            )

    # Goals

    def _accept(self, name: str) -> GoalResponse:
        if self._reserved:
            self.get_logger().warning(f'{name} rejected: busy with {self._reserved}')
            return GoalResponse.REJECT
        self._reserved = name
        return GoalResponse.ACCEPT

    def _cancel(self, handle) -> CancelResponse:
        if self._run is not None and self._run.lease_id == _goal_id(handle):
            self._run.stop('cancelled', ErrorCode.CANCELLED, 'cancelled by the client')
        return CancelResponse.ACCEPT

    async def _execute(self, name: str, handle):
        started = time.monotonic()
        result = ACTIONS[name].Result()
        try:
            goal = await self._carry_out(name, handle, started)
        except RefusedError as error:
            result.error_code = int(ErrorCode.INVALID_REQUEST)
            result.error_msg = str(error)
            result.termination_reason = 'refused'
            self.get_logger().warning(f'{name} refused: {error}')
            handle.abort()
            return result
        finally:
            self._run = None
            self._reserved = ''
        if handle.is_cancel_requested:
            goal.end = goal.end if goal.end.reason == 'cancelled' else None
            goal.stop('cancelled', ErrorCode.CANCELLED, 'cancelled by the client')
            handle.canceled()
        elif goal.end.code == ErrorCode.NONE:
            handle.succeed()
        else:
            self.get_logger().warning(f'{name} aborted: {goal.end.reason}: {goal.end.message}')
            handle.abort()
        result.error_code = int(goal.end.code)
        result.error_msg = goal.end.message
        result.termination_reason = goal.end.reason
        result.reached = goal.end.reached
        result.steps = goal.steps
        result.final_position = goal.position.tolist()
        result.final_error = float(goal.error)
        result.gripper_opening = float(goal.gripper_opening)
        return result

    async def _carry_out(self, name: str, handle, started: float) -> PrimitiveRun:
        arm = handle.request.arm
        if arm not in ('', self._arm_name):
            raise RefusedError(f'arm must be empty or {self._arm_name!r} (got {arm!r})')
        primitive = make_primitive(name, handle.request)
        parameters = self._settings.value
        stall = parameters.stall_s if self._lockstep else self._contract.deployment.max_age.state
        goal = PrimitiveRun(primitive, self._actions, _goal_id(handle), stall, time.monotonic)
        pending = self._ask(
            self._acquire,
            AcquireLease.Request(
                source=SOURCE,
                lease_id=goal.lease_id,
                interface_hash=self._contract.interface_hash,
            ),
        )
        lease = await pending
        if lease is None:
            goal.stop('no_arbiter', ErrorCode.TIMEOUT, 'the arbiter does not answer')
            return goal
        if not lease.success:
            goal.stop('lease_refused', ErrorCode(lease.error_code), lease.error_msg)
            return goal
        if handle.is_cancel_requested:
            goal.stop('cancelled', ErrorCode.CANCELLED, 'cancelled by the client')
        goal.bind(lease.episode_uuid)
        self._run = goal
        if self._status is not None:
            # The status of the grant may have come before the grant's own answer.
            self._control_status(self._status)
        self._drive()
        feedback_period = 1.0 / parameters.feedback_hz
        while goal.end is None:
            await self._waits.sleep(feedback_period, lambda: goal.end is not None)
            feedback = ACTIONS[name].Feedback()
            feedback.step = goal.steps
            feedback.error = float(goal.error)
            feedback.elapsed = time.monotonic() - started
            if goal.end is None:
                handle.publish_feedback(feedback)
        self._run = None
        await self._ask(self._release, ReleaseLease.Request(lease_id=goal.lease_id))
        return goal

    async def _ask(self, client: Client, request: object) -> object | None:
        """Response of an idempotent service, None when it takes too long or there is no server.

        A request sent before the server is discovered is lost, and so is an answer to a client
        that the server has not discovered; hence the wait, and the second try.
        """
        timeout = self._settings.value.service_timeout_s
        await self._waits.sleep(timeout, client.service_is_ready)
        for _ in range(2 if client.service_is_ready() else 0):
            call = client.call_async(request)
            answer = await self._waits.answer(call, timeout)
            if answer is not None:
                return answer
            client.remove_pending_request(call)
        return None

    def _check(self) -> None:
        if self._run is not None:
            self._run.check()

    def stop(self) -> None:
        """End the goal while callbacks still run, and give it time to answer its client."""
        goal = self._run
        if goal is None:
            return
        goal.stop('shutdown', ErrorCode.NOT_ACTIVE, 'the node is shutting down')
        deadline = time.monotonic() + self._settings.value.service_timeout_s + 1.0
        while self._reserved and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def close(self) -> None:
        """Destroy the action servers."""
        for server in self._servers:
            server.destroy()


def _goal_id(handle) -> str:
    return bytes(handle.goal_id.uuid).hex()


def _arm(contract: Contract, name: str):
    arms = contract.deployment.arms
    if not name:
        if len(arms) != 1:
            raise ParameterError(f'parameter arm: choose one of {sorted(arms)}')
        name = next(iter(arms))
    if name not in arms:
        raise ParameterError(f'parameter arm: {name!r} is not one of {sorted(arms)}')
    return name, arms[name]


def _action_map(contract: Contract, arm):
    gripper = contract.interface.gripper
    values = (gripper.open, gripper.close) if gripper is not None else (-1.0, 1.0)
    if contract.interface.action_kind == 'delta':
        return DeltaActions(contract.action_dim, contract.gripper_index, *values)
    # Only here, so that a delta robot needs no MuJoCo.
    from praxis_control.kinematics import JointActions, load_kinematics

    names = list(contract.interface.action.names)
    limits = contract.deployment.limits
    return JointActions(
        load_kinematics(contract.deployment.kinematic_model, arm.joints),
        joint_indices=[names.index(joint) for joint in arm.joints],
        dim=contract.action_dim,
        gripper_index=contract.gripper_index,
        gripper_open=values[0],
        gripper_close=values[1],
        max_step=np.array([limits[joint].max_step for joint in arm.joints]),
    )


def _motion(pose: PoseStamped, joints: JointState, contract: Contract, arm) -> MotionObservation:
    frame = contract.deployment.base_frame
    if pose.header.frame_id != frame:
        raise ValueError(
            f'end-effector pose is in frame {pose.header.frame_id!r}, the contract says {frame!r}'
        )
    by_name = dict(zip(joints.name, joints.position, strict=False))
    missing = [n for n in (*arm.joints, *arm.gripper_joints) if n not in by_name]
    if missing:
        raise ValueError(f'joint_states lacks {missing}')
    p, q = pose.pose.position, pose.pose.orientation
    return MotionObservation(
        position=np.array([p.x, p.y, p.z]),
        rotation=rotation_matrix(np.array([q.x, q.y, q.z, q.w])),
        gripper_opening=float(sum(abs(by_name[name]) for name in arm.gripper_joints)),
        joints=np.array([by_name[name] for name in arm.joints]),
    )


def main() -> int:
    """Run the node until it is interrupted."""
    return run(PrimitivesNode)


if __name__ == '__main__':
    raise SystemExit(main())
