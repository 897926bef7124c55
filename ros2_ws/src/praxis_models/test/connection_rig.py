# SPDX-License-Identifier: Apache-2.0
"""A connection with short limits that is held to leave nothing behind."""

import threading
import time

import pytest
from praxis_core.testing import wait_until
from praxis_models.transport.connection import Connection

QUICK = {
    'connect_timeout_s': 0.5,
    'receive_timeout_s': 0.4,
    'first_reply_timeout_s': 0.8,
    'backoff_s': (0.02, 0.1),
    'cancel_grace_s': 0.15,
    'ping_interval_s': 0.15,
    'ping_timeout_s': 0.25,
}
SLACK_S = 1.5
"""What a loaded machine may add to a bound."""


class Answers:
    """Collects outcomes, and when they came."""

    def __init__(self):
        self.outcomes = []
        self.times = []
        self._come = threading.Condition()

    def __call__(self, outcome):
        with self._come:
            self.outcomes.append(outcome)
            self.times.append(time.monotonic())
            self._come.notify_all()

    def wait(self, count=1, timeout=10.0):
        with self._come:
            come = self._come.wait_for(lambda: len(self.outcomes) >= count, timeout)
            assert come, f'{len(self.outcomes)} of {count} outcomes within {timeout} s'
            return self.outcomes[count - 1]


@pytest.fixture(name='connect')
def fixture_connect():
    """Make a started connection; at the end it must close fast and leave no thread."""
    before = set(threading.enumerate())
    made = []

    def make(endpoint, *, start=True, **limits):
        connection = Connection(endpoint, **{**QUICK, **limits})
        made.append(connection)
        if start:
            connection.start()
        return connection

    yield make
    for connection in made:
        began = time.monotonic()
        connection.close()
        assert time.monotonic() - began < 1.0
        assert connection.status.phase == 'closed'

    def left():
        names = [thread.name for thread in set(threading.enumerate()) - before]
        return [name for name in names if name.startswith('model connection')]

    wait_until(lambda: not left(), 2.0, 'threads to end')


def ready(connection, timeout=10.0):
    """Wait until the connection is ready."""
    status = connection.wait(timeout)
    assert status.phase == 'ready', status
    return connection
