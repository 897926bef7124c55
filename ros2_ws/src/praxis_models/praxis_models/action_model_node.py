# SPDX-License-Identifier: Apache-2.0
"""Node `action_model`: an action model in closed loop, as actions.

Everything here runs on one thread; inference runs on the connection's. What arrives from there is
announced by a guard condition, so no timer lies between an observation and its command.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_core.diagnostics import Diagnostics, Report, StreamMonitor
from praxis_core.errors import ErrorCode
from praxis_core.lifecycle import AutostartNode
from praxis_core.parameters import ParameterError, declare
from praxis_core.process import run
from praxis_interfaces.action import PredictChunk, RunPolicy
from praxis_interfaces.msg import (
    ActionChunk,
    Command,
    ControlStatus,
    PrivilegedState,
    StateVector,
    TaskStatus,
)
from praxis_interfaces.srv import AcquireLease, GetModelInfo, ReleaseLease, ResetModel
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile
from rclpy.task import Future
from rclpy.time import Time
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64

from praxis_models import model_messages
from praxis_models.action_model_parameters import ActionModelParameters
from praxis_models.action_model_settings import link_settings, renewal_s, run_options
from praxis_models.faults import FAULTS
from praxis_models.future_frames import FutureFrames
from praxis_models.goals.chunk_goal import ChunkGoal
from praxis_models.goals.goal_servers import GoalServers
from praxis_models.goals.lease_client import LeaseClient
from praxis_models.goals.policy_driver import Observed
from praxis_models.goals.policy_goal import PolicyGoal
from praxis_models.goals.policy_run import Verdict
from praxis_models.inference_statistics import InferenceStatistics
from praxis_models.latency import keep_heap, share_interpreter
from praxis_models.model_link import Inferred, ModelLink, Trouble
from praxis_models.model_report import model_report
from praxis_models.observation.assembly import Assembler
from praxis_models.observation.plan import ObservationPlan, Stream
from praxis_models.playback.timeline import Step

REASONS = {
    getattr(ControlStatus, name): name.removeprefix('REASON_').lower()
    for name in dir(ControlStatus)
    if name.startswith('REASON_')
}
EVENTS = QoSProfile(depth=10)


class ActionModelNode(AutostartNode):
    """Actions `predict_chunk` and `run_policy` over one model; a `World` to its goals."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('action_model', **kwargs)
        self._settings = declare(self, ActionModelParameters)
        self.link: ModelLink | None = None
        self.assembler: Assembler | None = None
        self.observed: Observed | None = None
        self.statistics = InferenceStatistics()
        self._plan: ObservationPlan | None = None
        self._control: ControlStatus | None = None
        self._verdict: Verdict | None = None
        self._made: list[Callable[[], Any]] = []
        self._readers: list[Any] = []
        self._streams: list[Any] = []
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._frames = FutureFrames(self, steady, self._frame_of)
        self._seq = 0
        group = ReentrantCallbackGroup()
        self._wake = self.create_guard_condition(self._on_wake, callback_group=group)
        self._goals = GoalServers(
            self,
            self._begin_policy,
            self._begin_chunk,
            lambda: self._settings.value.feedback_hz,
        )
        self.create_service(GetModelInfo, 'get_model_info', self._model_info, callback_group=group)
        self.create_service(ResetModel, 'reset_model', self._reset_model, callback_group=group)

    # Lifecycle

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the contract, start or join the worker, create publishers."""
        p = self._settings.value
        self._contract = contract = load_contract(p.contract)
        self._lockstep = p.stepping == 'lockstep'
        settings = link_settings(p, contract, self.get_namespace())
        topics = contract.deployment.topics
        self._requests = self._advertise(Command, contract.request_topic(p.source), qos.REQUEST)
        self._chunks = self._advertise(ActionChunk, topics.action_chunk, EVENTS)
        self._values = self._advertise(Float64, 'value', EVENTS)
        self._acquire = self.create_client(AcquireLease, 'acquire_lease')
        self._release = self.create_client(ReleaseLease, 'release_lease')
        for client in (self._acquire, self._release):
            self._made.append(partial(self.destroy_client, client))
        self._diagnostics = Diagnostics(self, contract.name)
        self._made.append(self._diagnostics.close)
        self._diagnostics.add('model', self._report, patience=p.worker_ready_timeout_s)
        self.statistics = InferenceStatistics()
        self.link = ModelLink(settings, self._wake.trigger, self._on_model)
        try:
            self.link.start()
        except ValueError as error:
            raise ParameterError(f'parameter endpoint: {error}') from None
        return TransitionCallbackReturn.SUCCESS

    def _advertise(self, kind: type, topic: str, profile: QoSProfile) -> Any:
        publisher = self.create_publisher(kind, topic, profile)
        self._made.append(partial(self.destroy_publisher, publisher))
        return publisher

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe, accept goals."""
        topics = self._contract.deployment.topics
        reliable = qos.LOCKSTEP_SUBSCRIBE if self._lockstep else qos.STATE_SUBSCRIBE
        self._readers = [
            self.create_subscription(TaskStatus, topics.task_status, self._on_task, reliable),
            self.create_subscription(StateVector, topics.state, self._on_state, reliable),
            self.create_subscription(
                ControlStatus, topics.control_status, self._on_control, qos.LATCHED
            ),
        ]
        hz = None if self._lockstep else self._contract.deployment.command_hz
        self._monitor = self._diagnostics.watch(StreamMonitor('observations', hz))
        self._on_model()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End the goal in progress and listen no more."""
        self._goals.end('the node is being deactivated')
        self._unsubscribe()
        while self._readers:
            self.destroy_subscription(self._readers.pop())
        self._diagnostics.remove(self._monitor.name)
        self.observed = self._control = self._verdict = None
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Disconnect, stop the worker if it is ours, release publishers and clients."""
        self._frames.close()
        link, self.link = self.link, None
        if link is not None:
            link.close()
        while self._made:
            self._made.pop()()
        return TransitionCallbackReturn.SUCCESS

    def stop(self) -> None:
        """End the goal while callbacks still run."""
        self._goals.stop()

    def close(self) -> None:
        """Finalise, and destroy the action servers."""
        super().close()
        self._goals.close()

    # What the model wants to see

    def _on_model(self) -> None:
        link, goal, now = self.link, self._goals.goal, time.monotonic()
        plan = link.plan if link is not None else None
        known = self._plan
        # A model that came back goes on with the readers that a goal in progress has.
        if self._readers and plan is not None and (not known or plan.wanted != known.wanted):
            replaced = known is not None
            self._unsubscribe()
            self._plan = plan
            self.assembler = Assembler(self._contract, plan, self._lockstep)
            self._streams = [self._subscribe(stream) for stream in plan.streams]
            self._log_model()
            if goal is not None and replaced:
                goal.model_replaced()
        if goal is not None:
            goal.check(now)

    def _subscribe(self, stream: Stream) -> Any:
        deployment = self._contract.deployment
        topics = deployment.topics
        kind, topic = {
            'camera': lambda: (Image, self._contract.image_topic(stream.name)),
            'pose': lambda: (PoseStamped, deployment.arms[stream.name].pose_topic),
            'joints': lambda: (JointState, topics.joint_states),
            'privileged': lambda: (PrivilegedState, topics.privileged_state),
        }[stream.kind]()
        profile = qos.LOCKSTEP_SUBSCRIBE if self._lockstep else qos.SENSOR_SUBSCRIBE
        return self.create_subscription(kind, topic, partial(self._on_part, stream), profile)

    def _unsubscribe(self) -> None:
        for reader in self._streams:
            self.destroy_subscription(reader)
        self._streams, self._plan, self.assembler = [], None, None

    def _log_model(self) -> None:
        meta, plan = self.link.meta, self._plan
        sees = [*plan.cameras.values(), *plan.states]
        self.get_logger().info(
            f'model {meta.backend} {meta.checkpoint or "without checkpoint"} is ready; '
            f'it sees {", ".join(sees)}'
        )

    # Messages

    def _on_wake(self) -> None:
        if self.link is not None:
            self.link.deliver()
        if self._goals.goal is not None:
            self._goals.goal.settle()

    def _on_part(self, stream: Stream, message: Any) -> None:
        now = time.monotonic()
        if self.assembler is not None:
            self.assembler.add(stream, _stamp_ns(message), message, now)
            if self._goals.goal is not None:
                self._goals.goal.part_arrived(now)

    def _on_state(self, message: StateVector) -> None:
        observed = Observed(message, _stamp_ns(message), time.monotonic())
        self._monitor.tick(observed.stamp_ns / 1e9, int(message.observation_seq))
        before, self.observed = self.observed, observed
        if (
            before is not None
            and before.message.episode_uuid != message.episode_uuid
            and self.assembler is not None
        ):
            self.assembler.drop_before(observed.stamp_ns)
        if self._goals.goal is not None:
            self._goals.goal.observe(observed)

    def _on_control(self, message: ControlStatus) -> None:
        self._control = message
        if self._goals.goal is not None:
            self._goals.goal.control(
                message.lease_id,
                REASONS.get(message.reason_code, ''),
                message.reason,
                time.monotonic(),
            )

    def _on_task(self, message: TaskStatus) -> None:
        self._verdict = Verdict(
            message.episode_uuid,
            int(message.observation_seq),
            message.success,
            message.terminated,
            message.truncated,
        )
        if self._goals.goal is not None:
            self._goals.goal.verdict(self._verdict)

    # Output of goals

    def publish_command(
        self, lease_id: str, step: Step, values: np.ndarray, observed: Observed
    ) -> None:
        """See `World`."""
        source = self._settings.value.source
        message = model_messages.command_message(
            self._contract, source, lease_id, self._seq, step, values, observed
        )
        message.header.stamp = (
            message.observation_stamp if self._lockstep else self.get_clock().now().to_msg()
        )
        self._seq += 1
        self._requests.publish(message)
        self._frames.show(step.chunk_id, step.chunk_index)

    def publish_chunk(self, chunk_id: str, inferred: Inferred) -> ActionChunk:
        """See `World`."""
        policy_hz = self._policy_hz()
        message = model_messages.chunk_message(
            self._contract, self._settings.value.source, chunk_id, policy_hz, inferred
        )
        self._chunks.publish(message)
        if inferred.prediction.value is not None:
            self._values.publish(Float64(data=inferred.prediction.value))
        if self._frames.add(chunk_id, inferred, policy_hz) and isinstance(
            self._goals.goal, ChunkGoal
        ):
            self._frames.play(chunk_id)
        return message

    def _policy_hz(self) -> float:
        return self.link.meta.policy_hz or self._contract.interface.policy_hz

    def _frame_of(self, role: str) -> str:
        camera = self._plan.cameras.get(role) if self._plan is not None else None
        return self._contract.deployment.cameras[camera].frame if camera else ''

    # Goals

    def _begin_policy(self, goal_id: str, request: RunPolicy.Goal) -> PolicyGoal:
        p = self._settings.value
        self._frames.stop()
        options = run_options(p, self._contract, request)
        goal = PolicyGoal(self, goal_id, request.instruction, options)
        lease = LeaseClient(
            self._acquire,
            self._release,
            AcquireLease.Request(
                source=p.source,
                lease_id=goal_id,
                interface_hash=self._contract.interface_hash,
                duration=p.lease_s,
            ),
            renew_s=renewal_s(p),
            timeout_s=p.service_timeout_s,
            on_grant=lambda episode: self._granted(goal, episode),
            on_refusal=goal.refused,
        )
        goal.begin(lease, self._verdict)
        return goal

    def _granted(self, goal: PolicyGoal, episode_uuid: str) -> None:
        goal.granted(episode_uuid)
        if self._control is not None:
            # The status of the grant may have come before the grant's own answer.
            self._on_control(self._control)

    def _begin_chunk(self, goal_id: str, request: PredictChunk.Goal) -> ChunkGoal:
        self._frames.stop()
        return ChunkGoal(
            self,
            goal_id,
            request.instruction,
            patience_s=self._settings.value.observation_patience,
            max_age_s=None if self._lockstep else self._contract.deployment.max_age.state,
        )

    # Services and diagnostics

    def _trouble(self) -> Trouble | None:
        if self.link is None:
            return Trouble('unreachable', f'the node is {self.state_label}')
        return self.link.trouble

    def _model_info(
        self, _: GetModelInfo.Request, response: GetModelInfo.Response
    ) -> GetModelInfo.Response:
        trouble = self._trouble()
        if trouble is not None:
            response.error_code = int(FAULTS[trouble.kind][1])
            response.error_msg = trouble.message
        meta = self.link.meta if self.link is not None else None
        return response if meta is None else model_messages.model_info(meta, response)

    async def _reset_model(
        self, request: ResetModel.Request, response: ResetModel.Response
    ) -> ResetModel.Response:
        trouble = self._trouble()
        if self._goals.goal is not None:
            response.error_code = int(ErrorCode.BUSY)
            response.error_msg = 'a goal is in progress; it has reset the model at its start'
            return response
        if trouble is None and self.link.takes_calls:
            answered = Future(executor=self.executor)
            self.link.call('reset', answered.set_result, session_id=request.session_id)
            answer = await answered
            trouble = answer if isinstance(answer, Trouble) else None
        if trouble is not None:
            response.error_code = int(FAULTS[trouble.kind][1])
            response.error_msg = trouble.message
        response.success = trouble is None
        return response

    def _report(self) -> Report:
        goals = self._goals
        return model_report(self.link, self.statistics, goals.goal, goals.stale_observations)


def _stamp_ns(message: Any) -> int:
    return Time.from_msg(message.header.stamp).nanoseconds


def main(args: list[str] | None = None) -> int:
    """Run the node until it is interrupted."""
    keep_heap()
    share_interpreter()
    return run(ActionModelNode, args=args)


if __name__ == '__main__':
    raise SystemExit(main())
