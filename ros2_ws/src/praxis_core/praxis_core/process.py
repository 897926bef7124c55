# SPDX-License-Identifier: Apache-2.0
"""Life of a node's process: start, spin, and an orderly end on SIGINT and SIGTERM."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import rclpy
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.task import Future

from praxis_core.contract import ContractError
from praxis_core.parameters import ParameterError

SIGNALS = (signal.SIGINT, signal.SIGTERM)

OK = 0
FAILED = 1
REFUSED = 2
"""The node did not start: its parameters or its contract are not valid."""


REPEAT_S = 0.5
"""Terminal and launcher both pass on one Ctrl-C; within this time it is the same one."""


class _Stop:
    """Set by the first signal; the same signal again ends the process at once.

    SIGTERM after SIGINT does not: launchers escalate so while an episode is still being saved.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self._seen: dict[int, float] = {}

    def on_signal(self, number: int, _: Any) -> None:
        now = time.monotonic()
        if now - self._seen.setdefault(number, now) > REPEAT_S:
            os.write(2, b'second signal: ending at once, nothing more is saved\n')
            os._exit(128 + number)
        self.event.set()


@contextlib.contextmanager
def _signals(stop: _Stop) -> Iterator[None]:
    before = {number: signal.signal(number, stop.on_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Spinner:
    """Spins an executor in a thread of its own, so that signals reach the main thread at once."""

    def __init__(self, executor: Executor, stop: _Stop) -> None:
        self.error: BaseException | None = None
        self._executor = executor
        self._stop = stop
        self._ended = Future()
        self._thread = threading.Thread(target=self._spin, name='spin')
        self._thread.start()

    def _spin(self) -> None:
        try:
            self._executor.spin_until_future_complete(self._ended)
        except ExternalShutdownException:
            pass
        except BaseException as error:
            self.error = error
        self._stop.event.set()

    def end(self) -> None:
        """Stop, and wait until no callback runs any more."""
        self._ended.set_result(None)
        self._thread.join()
        pool = getattr(self._executor, '_executor', None)
        if pool is not None:  # rclpy leaves the workers of a multi-threaded executor running
            pool.shutdown(wait=True)
        self._executor.shutdown()


def _call(nodes: Sequence[Node], hook: str) -> bool:
    done = True
    for node in nodes:
        function = getattr(node, hook, None)
        if function is not None:
            try:
                function()
            except Exception:
                traceback.print_exc()
                done = False
    return done


def _spin(nodes: Sequence[Node], executor: Executor, stop: _Stop) -> bool:
    for node in nodes:
        executor.add_node(node)
    spinner = _Spinner(executor, stop)
    stop.event.wait()
    done = _call(nodes, 'stop') if spinner.error is None else False
    spinner.end()
    if spinner.error is not None:
        traceback.print_exception(spinner.error)
    return done


def run(
    make_node: Callable[[], Node | Sequence[Node]],
    *,
    executor: Callable[[], Executor] | Executor | None = None,
    args: Sequence[str] | None = None,
) -> int:
    """Run a node until SIGINT, SIGTERM or the shutdown of its context.

    At the end, in this order: ``node.stop()`` if it is defined, while callbacks still run, to end
    goals and motion; the spin threads are joined; ``node.close()`` if it is defined, when no
    callback runs any more, to finalise files; the node is destroyed; rclpy is shut down. The same
    signal a second time skips all of that.

    Args:
        make_node: Creates the node, or several that share the executor.
        executor: Class or function that creates it; single-threaded if None.
        args: Command line, ``sys.argv`` if None.

    Returns:
        Exit status: 0, also after a signal; 1 after an exception; 2 if the node refused its
        parameters or its contract.
    """
    stop = _Stop()
    with _signals(stop):
        arguments = sys.argv if args is None else list(args)
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
        nodes: list[Node] = []
        status = OK
        try:
            made = make_node()
            nodes = [made] if isinstance(made, Node) else list(made)
            # What the start has made stays; a full collection would stop callbacks to walk it.
            gc.collect()
            gc.freeze()
            if executor is None:
                executor = SingleThreadedExecutor
            spinning = executor if isinstance(executor, Executor) else executor()
            if not _spin(nodes, spinning, stop):
                status = FAILED
        except (ParameterError, ContractError) as error:
            print(error, file=sys.stderr)
            status = REFUSED
        except Exception:
            traceback.print_exc()
            status = FAILED
        finally:
            if not _call(nodes, 'close'):
                status = FAILED
            for node in nodes:
                node.destroy_node()
            rclpy.try_shutdown()
        return status
