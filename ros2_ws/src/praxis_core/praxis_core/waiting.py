# SPDX-License-Identifier: Apache-2.0
"""Waiting with a single-threaded executor: in its coroutines, or beside it in other threads."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.task import Future


class Waits:
    """Futures that are done at a deadline of the steady clock at the latest.

    Use it from callbacks of the node only; their coroutines await what it returns.

    Args:
        node: Whose executor runs the coroutines.
        period: Seconds between looks at the deadlines.
    """

    def __init__(self, node: Node, period: float = 0.02) -> None:
        self._node = node
        self._pending: list[tuple[Future, float, Callable[[], bool] | None]] = []
        self._timer = node.create_timer(
            period,
            self._look,
            clock=Clock(clock_type=ClockType.STEADY_TIME),
            callback_group=ReentrantCallbackGroup(),
        )

    def sleep(self, seconds: float, until: Callable[[], bool] | None = None) -> Future:
        """Future that is done after ``seconds``, or once ``until`` is true."""
        future = Future(executor=self._node.executor)
        self._pending.append((future, time.monotonic() + seconds, until))
        return future

    def answer(self, call: Future, timeout: float) -> Future:
        """Future of a call's result or exception, None if it takes longer than ``timeout`` s."""
        future = self.sleep(timeout)

        def done(finished: Future) -> None:
            if future.done():
                return
            failure = finished.exception()
            if failure is None:
                future.set_result(finished.result())
            else:
                future.set_exception(failure)

        call.add_done_callback(done)
        return future

    def _look(self) -> None:
        pending, self._pending = self._pending, []
        now = time.monotonic()
        for entry in pending:
            future, deadline, until = entry
            if future.done():
                continue
            if now >= deadline or (until is not None and until()):
                future.set_result(None)
            else:
                self._pending.append(entry)

    def close(self) -> None:
        """Stop looking; what still waits stays undone."""
        self._node.destroy_timer(self._timer)


def on_executor(node: Node, call: Callable[[], Any], timeout: float = 60.0) -> Any:
    """Carry out a call on the executor's thread, from another one, and give what it returns.

    Action clients need it: rclpy's notes a request after it was sent, so that a response which the
    executor reads meanwhile is dropped as unexpected.

    Args:
        node: Its executor spins.
        call: What it raises is raised here.
        timeout: Seconds until the call must have begun.

    Raises:
        TimeoutError: The executor did not come to it; the call will not be made.
    """
    answer: concurrent.futures.Future = concurrent.futures.Future()

    def carry_out() -> None:
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

    node.executor.create_task(carry_out)
    done, _ = concurrent.futures.wait([answer], timeout)
    if not done and answer.cancel():
        raise TimeoutError(f'the executor of {node.get_name()} does not spin')
    return answer.result()
