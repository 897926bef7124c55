# SPDX-License-Identifier: Apache-2.0
import threading

import pytest
from praxis_core.testing import wait_until
from praxis_core.waiting import Waits, on_executor
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.task import Future


@pytest.fixture
def waiting(graph_probe):
    # simulated time stands still, as between two lockstep observations
    node = Node('waiting', parameter_overrides=[Parameter('use_sim_time', value=True)])
    waits = Waits(node, period=0.005)
    graph_probe.spin(node)
    yield node, waits
    node.destroy_node()


def run(node, coroutine):
    task = node.executor.create_task(coroutine)
    wait_until(task.done, message='end of the coroutine')
    return task.result()


def test_sleep_ends_at_its_deadline_and_blocks_no_callback(waiting):
    node, waits = waiting
    ticks = []
    node.create_timer(0.005, lambda: ticks.append(1), clock=waits._timer.clock)

    async def sleep():
        before = len(ticks)
        await waits.sleep(0.1)
        return len(ticks) - before

    assert run(node, sleep) >= 3


def test_sleep_ends_early_when_the_condition_holds(waiting):
    node, waits = waiting
    flags = []

    async def sleep():
        await waits.sleep(60.0, until=lambda: bool(flags))
        return 'awake'

    task = node.executor.create_task(sleep)
    flags.append(True)
    wait_until(task.done, message='early end')
    assert task.result() == 'awake'


def test_answer_gives_the_result_of_a_call(waiting):
    node, waits = waiting
    call = Future()

    async def ask():
        return await waits.answer(call, 60.0)

    task = node.executor.create_task(ask)
    call.set_result('yes')
    wait_until(task.done, message='answer')
    assert task.result() == 'yes'


def test_answer_is_none_after_the_timeout_and_a_late_one_is_ignored(waiting):
    node, waits = waiting
    call = Future()

    async def ask():
        return await waits.answer(call, 0.03)

    assert run(node, ask) is None
    call.set_result('late')


def test_a_failed_call_raises_where_it_is_awaited(waiting):
    node, waits = waiting
    call = Future()

    async def ask():
        try:
            await waits.answer(call, 60.0)
        except RuntimeError as error:
            return str(error)
        return 'nothing raised'

    task = node.executor.create_task(ask)
    call.set_exception(RuntimeError('server died'))
    wait_until(task.done, message='failure')
    assert task.result() == 'server died'


def test_a_call_is_made_on_the_executors_thread(waiting):
    node, _ = waiting
    thread = on_executor(node, threading.current_thread)
    assert thread is not threading.current_thread()
    assert on_executor(node, threading.current_thread) is thread


def test_what_a_call_raises_reaches_the_caller_and_spares_the_executor(waiting):
    node, _ = waiting
    with pytest.raises(ZeroDivisionError):
        on_executor(node, lambda: 1 / 0)
    assert on_executor(node, lambda: 'spins') == 'spins'


def test_a_call_that_came_too_late_is_not_made(rclpy_context):
    node, calls = Node('still'), []
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    with pytest.raises(TimeoutError, match='the executor of still does not spin'):
        on_executor(node, lambda: calls.append(1), timeout=0.01)
    executor.spin_once(timeout_sec=0.0)
    executor.shutdown()
    node.destroy_node()
    assert not calls
