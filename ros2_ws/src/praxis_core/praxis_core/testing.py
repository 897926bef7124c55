# SPDX-License-Identifier: Apache-2.0
"""Pytest plugin: a ROS domain of one's own, processes that do not outlive a test, graph probes.

Loads by itself where praxis_core is installed, otherwise by ``-p praxis_core.testing``. Importing
it imports no rclpy, so packages without ROS can use it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

DOMAINS = (*range(50, 101), *range(215, 232))
"""ROS domain ids that tests may take: their ports lie outside Linux's ephemeral range."""

POLL_S = 0.01


def pytest_configure(config: pytest.Config) -> None:
    """Judge properties by their outcome, not by how busy the machine is."""
    try:
        from hypothesis import HealthCheck, Phase, settings
    except ImportError:
        return
    slow = [HealthCheck.too_slow]
    settings.register_profile('praxis', deadline=None, suppress_health_check=slow)
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile('unshrunk', settings.get_profile('praxis'), phases=phases)
    if not config.getoption('hypothesis_profile', None):
        settings.load_profile(os.environ.get('PRAXIS_HYPOTHESIS_PROFILE', 'praxis'))


def wait_until(
    condition: Callable[[], Any], timeout: float = 60.0, message: str | Callable[[], str] = ''
) -> Any:
    """Poll until the condition is true.

    Args:
        condition: Called every 10 ms.
        timeout: Seconds of the steady clock.
        message: What was waited for, or a function that says so at the end.

    Returns:
        What the condition returned.

    Raises:
        AssertionError: It did not become true in time.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() >= deadline:
            text = message() if callable(message) else message
            raise AssertionError(f'not within {timeout:g} s: {text or "condition"}')
        pause.wait(POLL_S)


def _take_domain(folder: Path) -> tuple[int, IO[str]]:
    folder.mkdir(mode=0o777, parents=True, exist_ok=True)
    for domain in DOMAINS:
        try:
            lock = (folder / f'{domain}.lock').open('a')
        except PermissionError:
            continue  # another user's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        return domain, lock
    raise RuntimeError(f'all {len(DOMAINS)} ROS domains for tests are taken ({folder})')


@pytest.fixture(scope='session')
def ros_domain() -> Iterator[int]:
    """Take a ROS domain id that no other test process of this machine uses, and set it."""
    domain, lock = _take_domain(Path(tempfile.gettempdir()) / 'praxis_ros_domains')
    names = ('ROS_DOMAIN_ID', 'ROS_AUTOMATIC_DISCOVERY_RANGE')
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(ROS_DOMAIN_ID=str(domain), ROS_AUTOMATIC_DISCOVERY_RANGE='LOCALHOST')
    try:
        yield domain
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        lock.close()


@pytest.fixture
def rclpy_context(ros_domain: int) -> Iterator[Any]:
    """Initialise rclpy in the test's own domain; gives the default context."""
    import rclpy

    rclpy.init(args=[], domain_id=ros_domain)
    try:
        yield rclpy.get_default_context()
    finally:
        rclpy.try_shutdown()


class Spawned:
    """A process in a group of its own, with its output collected."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        self.command = [str(part) for part in command]
        self._process = subprocess.Popen(
            self.command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors='replace',
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self._process.pid

    @property
    def output(self) -> str:
        """Standard output and error so far."""
        return ''.join(self._lines)

    @property
    def returncode(self) -> int | None:
        """Exit status, negative after a signal, None while it runs."""
        return self._process.poll()

    def expect(self, pattern: str, timeout: float = 20.0) -> re.Match[str]:
        """Wait until its output matches a regular expression.

        Raises:
            AssertionError: Not in time, or it ended without.
        """

        def found() -> Any:
            ended = self.returncode is not None and not self._reader.is_alive()
            return re.search(pattern, self.output) or ended

        result = wait_until(found, timeout, lambda: f'{pattern!r} in\n{self.report()}')
        match = re.search(pattern, self.output) if result is True else result
        assert match, f'ended without {pattern!r}:\n{self.report()}'
        return match

    def send_signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        self._process.send_signal(number)

    def wait(self, timeout: float = 20.0) -> int:
        """Wait for its end and give its exit status.

        Raises:
            AssertionError: It still runs.
        """
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f'still runs after {timeout:g} s: {self.report()}') from None
        self._reader.join(1.0)
        return code

    def stop(self, number: int = signal.SIGINT, timeout: float = 20.0) -> int:
        """Send a signal and wait for the end."""
        self.send_signal(number)
        return self.wait(timeout)

    def kill_group(self) -> None:
        """Kill it and every process it started; harmless where none is left."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(1.0)

    def report(self) -> str:
        """Command, exit status and the end of the output."""
        return f'{" ".join(self.command)} (exit {self.returncode})\n{self.output[-8000:]}'


@pytest.fixture
def spawn(ros_domain: int) -> Iterator[Callable[..., Spawned]]:
    """Start processes in the test's ROS domain: ``spawn(command, env={}, cwd=None)``.

    Whatever is left of them and of their children is killed when the test ends.
    """
    started: list[Spawned] = []

    def start(
        command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Any = None
    ) -> Spawned:
        whole = {
            **os.environ,
            'PYTHONUNBUFFERED': '1',
            'ROS_DOMAIN_ID': str(ros_domain),
            **(env or {}),
        }
        process = Spawned(command, whole, None if cwd is None else str(cwd))
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in reversed(started):
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
        for process in reversed(started):
            with contextlib.suppress(AssertionError):
                process.wait(5.0)
            process.kill_group()
            print(process.report())  # pytest shows it where the test failed


class Collected:
    """Messages of one topic, in order of arrival."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.messages: list[Any] = []

    def append(self, message: Any) -> None:
        """Take in one message."""
        self.messages.append(message)

    def wait(self, count: int = 1, timeout: float = 60.0) -> list[Any]:
        """Wait for a number of messages in all and give those so far."""
        wait_until(
            lambda: len(self.messages) >= count,
            timeout,
            lambda: f'{count} messages on {self.topic}, got {len(self.messages)}',
        )
        return list(self.messages)

    def wait_for(self, wanted: Callable[[Any], bool], timeout: float = 60.0) -> Any:
        """Wait for a message that fulfils a condition and give it."""

        def found() -> list[Any]:
            return [message for message in list(self.messages) if wanted(message)]

        return wait_until(
            found, timeout, lambda: f'a wanted message on {self.topic} of {len(self.messages)}'
        )[0]


class GraphProbe:
    """A node that spins in a thread of its own, to watch and drive the graph from a test."""

    def __init__(self, name: str = 'probe', namespace: str = '') -> None:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        self.node = rclpy.create_node(name, namespace=namespace)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._ended = rclpy.task.Future()
        self._thread = threading.Thread(
            target=self._executor.spin_until_future_complete, args=(self._ended,), daemon=True
        )
        self._thread.start()

    def spin(self, node: Any) -> Any:
        """Let another node of the same process spin with the probe."""
        self._executor.add_node(node)
        self._executor.wake()
        return node

    def on_executor(self, call: Callable[[], Any]) -> Any:
        """Carry out a call on the spinning thread, see `waiting.on_executor`."""
        from praxis_core.waiting import on_executor

        return on_executor(self.node, call)

    def collect(self, message_type: type, topic: str, qos: Any = 10) -> Collected:
        """Subscribe to a topic."""
        collected = Collected(topic)
        self.node.create_subscription(message_type, topic, collected.append, qos)
        return collected

    def publisher(self, message_type: type, topic: str, qos: Any = 10, readers: int = 0) -> Any:
        """Create a publisher and wait until it has a number of readers."""
        publisher = self.node.create_publisher(message_type, topic, qos)
        wait_until(
            lambda: publisher.get_subscription_count() >= readers,
            message=f'{readers} readers of {topic}',
        )
        return publisher

    def call(
        self, service_type: type, name: str, request: Any = None, timeout: float = 60.0
    ) -> Any:
        """Call a service and give its response."""
        client = self.node.create_client(service_type, name)
        try:
            wait_until(client.service_is_ready, timeout, f'service {name}')
            future = client.call_async(request or service_type.Request())
            wait_until(future.done, timeout, f'response of {name}')
            return future.result()
        finally:
            self.node.destroy_client(client)

    def wait_for_node(self, name: str, timeout: float = 60.0) -> None:
        """Wait until a node of that name is in the graph."""
        wait_until(lambda: name in self.node.get_node_names(), timeout, f'node {name}')

    def close(self) -> None:
        """Stop spinning and destroy the node."""
        self._ended.set_result(None)
        self._thread.join(10.0)
        self._executor.shutdown()
        self.node.destroy_node()


@pytest.fixture
def graph_probe(rclpy_context: Any) -> Iterator[GraphProbe]:
    """Give a probe node that spins beside the test."""
    probe = GraphProbe()
    try:
        yield probe
    finally:
        probe.close()
