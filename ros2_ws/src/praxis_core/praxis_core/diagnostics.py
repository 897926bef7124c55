# SPDX-License-Identifier: Apache-2.0
"""Health of a node on /diagnostics: rates, ages and losses of its streams, and what it adds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile


class Level(IntEnum):
    """Levels of ``DiagnosticStatus``, as numbers."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


Report = tuple[int, str, Mapping[str, Any]]

START_S = 30.0
"""Steady s that a stack may take to start; until then a stream without a sample is no error."""


class StreamMonitor:
    """Rate, age and losses of one stream, from its first sample on.

    Args:
        name: As shown.
        expected_hz: Rate it should have; None where it comes on demand and only losses count.
        warn_ratio: A rate below this share of the expected one is a warning.
        error_ratio: A rate below this share is an error.
        warn_age: Seconds without a sample that are a warning; None: three periods.
        error_age: Seconds without a sample that are an error; None: 1 s, at least ten periods.
        window: Seconds over which the rate is measured.
        grace: Steady s until the lack of a first sample is an error.
        clock: Time in s; None: the steady clock, or what `Diagnostics.watch` chooses.
    """

    def __init__(
        self,
        name: str,
        expected_hz: float | None = None,
        *,
        warn_ratio: float = 0.9,
        error_ratio: float = 0.5,
        warn_age: float | None = None,
        error_age: float | None = None,
        window: float = 2.0,
        grace: float = START_S,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self.expected_hz = expected_hz
        self.total = 0
        self.dropped = 0
        period = 1.0 / expected_hz if expected_hz else None
        self._warn_ratio = warn_ratio
        self._error_ratio = error_ratio
        self._warn_age = warn_age if warn_age is not None or period is None else 3.0 * period
        self._error_age = (
            error_age if error_age is not None or period is None else max(1.0, 10.0 * period)
        )
        self._window = max(window, 5.0 * period) if period else window
        self._grace = grace
        self._clock = clock
        self._steady = clock or time.monotonic
        self._created = self._steady()
        self._started = 0.0
        self._arrivals: deque[float] = deque()
        self._last: float | None = None
        self._seq: int | None = None
        self._stamp_s: float | None = None
        self._reported_drops = 0
        self._lock = threading.Lock()

    def tick(self, stamp_s: float | None = None, seq: int | None = None) -> None:
        """Take note of one sample.

        Args:
            stamp_s: Its capture time in s of node time.
            seq: Its number; a gap counts as samples lost, a step back as a restart.
        """
        with self._lock:
            now = self._now()
            self.total += 1
            # Simulated time is 0 until it is known, and starts again with its publisher.
            if self._last is None or self._last <= 0.0 or now < self._last:
                self._started = now
                self._arrivals.clear()
            else:
                self._arrivals.append(now)
                self._forget(now)
            self._last = now
            if seq is not None:
                if self._seq is not None and seq > self._seq + 1:
                    self.dropped += seq - self._seq - 1
                self._seq = seq
            self._stamp_s = stamp_s

    def follow(self, clock: Callable[[], float]) -> None:
        """Judge by this clock, unless one was chosen at the start; call before the first tick."""
        self._clock = self._clock or clock

    def _now(self) -> float:
        return (self._clock or self._steady)()

    def _forget(self, now: float) -> None:
        # half-open, so that a window holds window x rate samples, not one more
        while self._arrivals and now - self._arrivals[0] >= self._window - 1e-6:
            self._arrivals.popleft()

    @property
    def rate(self) -> float:
        """Samples per second over the window, or since the first while that is shorter."""
        with self._lock:
            return self._rate(self._now())

    def _rate(self, now: float) -> float:
        self._forget(now)
        span = min(self._window, now - self._started)
        return len(self._arrivals) / span if span > 0 else 0.0

    @property
    def age(self) -> float:
        """Seconds since the last sample; steady ones since the start while there is none."""
        with self._lock:
            return self._age(self._now())

    def _age(self, now: float) -> float:
        return self._steady() - self._created if self._last is None else now - self._last

    def report(self) -> Report:
        """Give level, message and values; losses since the last report are a warning."""
        with self._lock:
            now = self._now()
            rate, age = self._rate(now), self._age(now)
            lost, self._reported_drops = self.dropped - self._reported_drops, self.dropped
            values = {
                'rate_hz': f'{rate:.2f}',
                'age_s': f'{age:.3f}',
                'total': self.total,
                'dropped': self.dropped,
            }
            if self.expected_hz:
                values['expected_hz'] = f'{self.expected_hz:g}'
            if self._stamp_s is not None:
                values['stamp_s'] = f'{self._stamp_s:.3f}'
            level, message = self._judge(rate, age, lost, now)
        return level, message, values

    def _judge(self, rate: float, age: float, lost: int, now: float) -> tuple[Level, str]:
        if self._last is None and self.expected_hz:
            level = Level.WARN if age < self._grace else Level.ERROR
            return level, f'no sample yet, waiting for {age:.0f} s'
        if self._error_age is not None and age > self._error_age:
            return Level.ERROR, f'no sample for {age:.2f} s'
        settled = now - self._started >= self._window
        share = rate / self.expected_hz if self.expected_hz and settled else 1.0
        if share < self._error_ratio:
            return Level.ERROR, f'{rate:.1f} Hz of {self.expected_hz:g} Hz'
        if self._warn_age is not None and age > self._warn_age:
            return Level.WARN, f'no sample for {age:.2f} s'
        if share < self._warn_ratio:
            return Level.WARN, f'{rate:.1f} Hz of {self.expected_hz:g} Hz'
        if lost:
            return Level.WARN, f'{lost} samples lost'
        return Level.OK, f'{rate:.1f} Hz'


class Diagnostics:
    """Publishes the reports of a node on /diagnostics, and logs when a level changes.

    Args:
        node: Owner of publisher and timer.
        hardware_id: Robot, simulator or machine that is reported on.
        period: Seconds of the steady clock between two messages.
    """

    def __init__(self, node: Node, hardware_id: str, *, period: float = 1.0) -> None:
        self._node = node
        self._hardware_id = hardware_id
        self._sources: dict[str, Callable[[], Report]] = {}
        self._levels: dict[str, Level] = {}
        self._quiet_until: dict[str, float] = {}
        self._publisher = node.create_publisher(
            DiagnosticArray, '/diagnostics', QoSProfile(depth=10)
        )
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = node.create_timer(period, self.publish, clock=steady)
        if node.get_clock().ros_time_is_active:
            self.add('clock', self._report_clock, patience=START_S)

    def watch(self, monitor: StreamMonitor) -> StreamMonitor:
        """Report a stream.

        Where the node follows simulated time, the stream is judged in it: in lockstep time may
        stand still, and nothing is due meanwhile. That nobody publishes the clock any more is
        reported on its own.
        """
        if self._node.get_clock().ros_time_is_active:
            monitor.follow(self._node_time)
        self.add(monitor.name, monitor.report, patience=START_S)
        return monitor

    def add(self, name: str, report: Callable[[], Report], *, patience: float = 0.0) -> None:
        """Report what a function says: level (0 OK, 1 warning, 2 error), message, values.

        Args:
            name: As shown.
            report: The function.
            patience: Steady s within which a warning is published but not logged, because a stack
                that starts is not whole at once.
        """
        self._sources[name] = report
        self._quiet_until[name] = time.monotonic() + patience

    def remove(self, name: str) -> None:
        """Stop reporting."""
        self._sources.pop(name, None)
        self._levels.pop(name, None)
        self._quiet_until.pop(name, None)

    def publish(self) -> None:
        """Ask every source and publish one message."""
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        message.status = [self._status(name, report) for name, report in [*self._sources.items()]]
        self._publisher.publish(message)

    def _node_time(self) -> float:
        return self._node.get_clock().now().nanoseconds * 1e-9

    def _report_clock(self) -> Report:
        now = self._node_time()
        publishers = self._node.count_publishers(self._node.resolve_topic_name('/clock'))
        values = {'time_s': f'{now:.3f}', 'publishers': publishers}
        if publishers:
            return Level.OK, f'{now:.3f} s', values
        if now > 0.0:
            return Level.ERROR, f'simulated time stopped at {now:.3f} s: no publisher', values
        return Level.WARN, 'no publisher of simulated time yet', values

    def _status(self, name: str, report: Callable[[], Report]) -> DiagnosticStatus:
        try:
            level, text, values = report()
        except Exception as error:
            level, text, values = Level.ERROR, f'report failed: {error}', {}
        level = Level(level[0] if isinstance(level, bytes) else level)
        self._log_change(name, level, text)
        return DiagnosticStatus(
            level=bytes([level]),
            name=f'{self._node.get_name()}: {name}',
            message=text,
            hardware_id=self._hardware_id,
            values=[KeyValue(key=str(key), value=str(value)) for key, value in values.items()],
        )

    def _log_change(self, name: str, level: Level, text: str) -> None:
        if level == self._levels.get(name, Level.OK):
            return
        if level == Level.WARN and time.monotonic() < self._quiet_until.get(name, 0.0):
            return
        self._levels[name] = level
        log = self._node.get_logger()
        if level == Level.OK:
            log.info(f'{name}: well again, {text}')
        elif level == Level.WARN:
            log.warning(f'{name}: {text}')
        else:
            log.error(f'{name}: {text}')

    def close(self) -> None:
        """Stop the timer and the publisher."""
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)
