# SPDX-License-Identifier: Apache-2.0
"""Deadlines for coroutines of a single-threaded executor: waiting that blocks no callback."""

from __future__ import annotations

import time
from collections.abc import Callable

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
