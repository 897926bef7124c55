# SPDX-License-Identifier: Apache-2.0
"""The actions `run_policy` and `predict_chunk` towards their clients, one goal at a time.

A goal's coroutine only waits for its end; what happens meanwhile reaches the goal by callbacks, so
a cancel is answered as soon as the executor is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from praxis_core.errors import ErrorCode
from praxis_core.lifecycle import AutostartNode
from praxis_interfaces.action import PredictChunk, RunPolicy
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.task import Future

from praxis_models.goals.chunk_goal import ChunkGoal
from praxis_models.goals.goal import Goal
from praxis_models.goals.policy_goal import PolicyGoal
from praxis_models.goals.policy_run import End

CHECK_S = 0.05
RELEASE_S = 0.02
"""How long a result waits for the arbiter to take the lease back."""
STOP_S = 1.0


class GoalServers:
    """Action servers of a node.

    Args:
        node: Its lifecycle decides whether goals are accepted.
        begin_policy: Makes and begins a goal of `run_policy`, of its id and request.
        begin_chunk: The same of `predict_chunk`.
        feedback_hz: Rate of feedback, Hz.

    Attributes:
        goal: In progress, None while there is none.
        stale_observations: Of earlier goals.
    """

    def __init__(
        self,
        node: AutostartNode,
        begin_policy: Callable[[str, Any], PolicyGoal],
        begin_chunk: Callable[[str, Any], ChunkGoal],
        feedback_hz: Callable[[], float],
    ) -> None:
        self.goal: Goal | None = None
        self.stale_observations = 0
        self._node = node
        self._feedback_hz = feedback_hz
        self._feedback_at = 0.0
        self._handle: Any = None
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._group = group = ReentrantCallbackGroup()
        self._timer = node.create_timer(
            CHECK_S, self._check, clock=self._steady, callback_group=group
        )
        self._timer.cancel()

        def accepted(begin: Callable[[str, Any], Goal], handle: Any) -> None:
            self.goal, self._handle = begin(goal_id(handle), handle.request), handle
            self._feedback_at = self.goal.started
            self._timer.reset()
            handle.execute()

        self._servers = [
            ActionServer(
                node,
                kind,
                name,
                execute_callback=execute,
                goal_callback=lambda _, name=name: self._accept(name),
                handle_accepted_callback=lambda handle, begin=begin: accepted(begin, handle),
                cancel_callback=self._cancel,
                callback_group=group,
                result_timeout=900,
            )
            for kind, name, begin, execute in (
                (RunPolicy, 'run_policy', begin_policy, self._run_policy),
                (PredictChunk, 'predict_chunk', begin_chunk, self._predict_chunk),
            )
        ]

    def _accept(self, name: str) -> GoalResponse:
        node = self._node
        why = '' if node.is_active else f'the node is {node.state_label}'
        if self.goal is not None:
            why = 'busy with another goal'
        if why:
            node.get_logger().warning(f'{name} rejected: {why}')
            return GoalResponse.REJECT
        return GoalResponse.ACCEPT

    def _cancel(self, handle: Any) -> CancelResponse:
        if self.goal is not None and self.goal.goal_id == goal_id(handle):
            self.goal.cancel()
        return CancelResponse.ACCEPT

    def _check(self) -> None:
        now, goal = time.monotonic(), self.goal
        if goal is None:
            return
        goal.check(now)
        if goal.end is None and now >= self._feedback_at:
            self._feedback_at = now + 1.0 / self._feedback_hz()
            self._handle.publish_feedback(_feedback(goal, now))

    async def _run_policy(self, handle: Any) -> RunPolicy.Result:
        goal = self.goal
        assert isinstance(goal, PolicyGoal) and goal.lease is not None
        await self._ended(goal)
        run = goal.run
        released = goal.lease.close()
        if released is not None:
            await self._within(RELEASE_S, released)
        self.stale_observations += run.stale_observations
        result = RunPolicy.Result(outcome=run.outcome, chunks=run.chunks, commands=run.commands)
        return self._finished(handle, goal, result)

    async def _predict_chunk(self, handle: Any) -> PredictChunk.Result:
        goal = self.goal
        assert isinstance(goal, ChunkGoal)
        await self._ended(goal)
        result = PredictChunk.Result()
        if goal.message is not None:
            result.chunk = goal.message
        return self._finished(handle, goal, result)

    def _finished(self, handle: Any, goal: Goal, result: Any) -> Any:
        self._timer.cancel()
        self.goal = self._handle = None
        end = goal.end
        assert end is not None
        if handle.is_cancel_requested and end.status != 'canceled':
            end = End('canceled', 'cancelled', ErrorCode.CANCELLED, 'cancelled by the client')
        if end.status == 'aborted':
            self._node.get_logger().warning(f'goal aborted: {end.reason}: {end.message}')
        {'succeeded': handle.succeed, 'canceled': handle.canceled, 'aborted': handle.abort}[
            end.status
        ]()
        result.error_code, result.error_msg = int(end.code), end.message
        result.termination_reason = end.reason
        return result

    def _ended(self, goal: Goal) -> Future:
        future = Future(executor=self._node.executor)
        goal.when_ended(lambda: future.set_result(None))
        return future

    def _within(self, seconds: float, call: Future) -> Future:
        """Future that is done with the call, or after so many seconds."""
        future = Future(executor=self._node.executor)

        def done(_: Any = None) -> None:
            if not future.done():
                self._node.destroy_timer(timer)
                future.set_result(None)

        timer = self._node.create_timer(
            seconds, done, clock=self._steady, callback_group=self._group
        )
        call.add_done_callback(done)
        return future

    def end(self, message: str) -> None:
        """End the goal in progress because the node ends its work."""
        if self.goal is not None:
            self.goal.abort('deactivated', ErrorCode.NOT_ACTIVE, message)

    def stop(self) -> None:
        """End it from another thread, while callbacks run, and give it time to answer."""
        if self.goal is not None:
            self._node.executor.create_task(self.end, 'the node is shutting down')
            deadline = time.monotonic() + STOP_S
            while self.goal is not None and time.monotonic() < deadline:
                time.sleep(CHECK_S)

    def close(self) -> None:
        """Destroy the servers."""
        for server in self._servers:
            server.destroy()


def _feedback(goal: Goal, now: float) -> Any:
    if not isinstance(goal, PolicyGoal):
        return PredictChunk.Feedback(elapsed=now - goal.started)
    return RunPolicy.Feedback(
        elapsed=goal.run.elapsed,
        queue_depth=goal.queue_depth,
        inference_ms=goal.inference_ms,
        stale_observations=goal.run.stale_observations,
        chunks=goal.run.chunks,
    )


def goal_id(handle: Any) -> str:
    """UUID of a goal as 32 hex digits."""
    return bytes(handle.goal_id.uuid).hex()
