# SPDX-License-Identifier: Apache-2.0
import threading

import pytest
from praxis_sim.physics_thread import PhysicsThread


@pytest.fixture
def failures():
    return []


@pytest.fixture
def thread(failures):
    thread = PhysicsThread(failures.append)
    yield thread
    thread.close()


def test_everything_runs_on_one_thread_in_order(thread):
    ran = []
    for index in range(20):
        thread.post(lambda index=index: ran.append((index, threading.get_ident())))
    identity = thread.call(threading.get_ident)
    assert ran == [(index, identity) for index in range(20)]
    assert identity != threading.get_ident()


def test_call_raises_what_the_job_raises(thread, failures):
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 / 0)
    assert failures == []


def test_a_posted_job_that_fails_is_reported_and_the_thread_goes_on(thread, failures):
    thread.post(lambda: 1 / 0)
    assert thread.call(lambda: 7) == 7
    assert isinstance(failures[0], ZeroDivisionError)


def test_the_background_runs_again_after_the_time_it_asks_for(thread):
    enough = threading.Event()
    runs = []

    def background():
        runs.append(None)
        if len(runs) == 5:
            enough.set()
        return 0.001

    thread.set_background(background)
    thread.post(lambda: None)
    assert enough.wait(5.0)


def test_a_failing_background_is_dropped_and_reported(thread, failures):
    thread.set_background(lambda: 1 / 0)
    thread.call(lambda: None)
    thread.call(lambda: None)
    assert len(failures) == 1


def test_a_closed_thread_refuses_calls(failures):
    thread = PhysicsThread(failures.append)
    thread.close()
    with pytest.raises(RuntimeError, match='closed'):
        thread.call(lambda: None)
