# SPDX-License-Identifier: Apache-2.0
import time
from types import SimpleNamespace

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from hypothesis import given
from hypothesis import strategies as st
from praxis_core.diagnostics import Diagnostics, Level, StreamMonitor
from praxis_core.testing import wait_until
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.time import Time
from rosgraph_msgs.msg import Clock as ClockMessage


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def feed(monitor, clock, hz, seconds, **tick):
    for _ in range(round(hz * seconds)):
        clock.now += 1.0 / hz
        monitor.tick(**tick)


def test_a_stream_at_its_rate_is_well(clock):
    monitor = StreamMonitor('wrist', 20.0, clock=clock)
    feed(monitor, clock, 20.0, 5.0, stamp_s=12.5)
    level, message, values = monitor.report()
    assert (level, message) == (Level.OK, '20.0 Hz')
    assert values['rate_hz'] == '20.00'
    assert values['age_s'] == '0.000'
    assert values['stamp_s'] == '12.500'
    assert values['total'] == 100
    assert values['expected_hz'] == '20'


@pytest.mark.parametrize(
    ('hz', 'level'), [(18.5, Level.OK), (17.0, Level.WARN), (9.0, Level.ERROR)]
)
def test_a_slow_stream_is_a_warning_then_an_error(clock, hz, level):
    monitor = StreamMonitor('wrist', 20.0, clock=clock)
    feed(monitor, clock, hz, 6.0)
    assert monitor.report()[0] == level


def test_thresholds_are_those_given(clock):
    monitor = StreamMonitor('wrist', 20.0, warn_ratio=0.5, error_ratio=0.1, clock=clock)
    feed(monitor, clock, 9.0, 6.0)
    assert monitor.report()[:2] == (Level.WARN, '9.0 Hz of 20 Hz')


def test_silence_is_a_warning_then_an_error(clock):
    monitor = StreamMonitor('wrist', 20.0, clock=clock)
    feed(monitor, clock, 20.0, 5.0)
    clock.now += 0.16
    assert monitor.report()[:2] == (Level.WARN, 'no sample for 0.16 s')
    clock.now += 1.0
    assert monitor.report()[:2] == (Level.ERROR, 'no sample for 1.16 s')
    clock.now += 100.0
    assert monitor.age == pytest.approx(101.16)
    assert monitor.rate == 0.0


def test_a_stream_that_never_came_is_a_warning_then_an_error(clock):
    monitor = StreamMonitor('wrist', 20.0, grace=5.0, clock=clock)
    clock.now += 4.9
    assert monitor.report()[:2] == (Level.WARN, 'no sample yet, waiting for 5 s')
    clock.now += 0.2
    assert monitor.report()[0] == Level.ERROR
    monitor.tick()
    assert monitor.report()[0] == Level.OK


def test_a_stream_is_judged_from_its_first_sample_on(clock):
    monitor = StreamMonitor('wrist', 20.0, clock=clock)
    clock.now += 25.0
    feed(monitor, clock, 20.0, 0.5)
    assert monitor.report()[:2] == (Level.OK, '20.0 Hz')


@pytest.mark.parametrize('began', [0.0, 500.0], ids=['unknown', 'of an earlier publisher'])
def test_time_that_becomes_known_or_starts_again_is_no_gap(clock, began):
    clock.now = began
    monitor = StreamMonitor('wrist', 20.0, clock=clock)
    monitor.tick()
    clock.now = 40.0
    for _ in range(41):
        clock.now += 0.05
        monitor.tick()
        assert monitor.report()[0] == Level.OK


def test_a_stream_on_demand_may_be_silent(clock):
    monitor = StreamMonitor('requests', clock=clock)
    clock.now += 1000.0
    assert monitor.report()[0] == Level.OK


def test_lost_samples_are_a_warning_once(clock):
    monitor = StreamMonitor('command', clock=clock)
    for seq in (1, 2, 5, 6):
        monitor.tick(seq=seq)
    level, message, values = monitor.report()
    assert (level, message, values['dropped']) == (Level.WARN, '2 samples lost', 2)
    monitor.tick(seq=7)
    assert monitor.report()[0] == Level.OK
    assert monitor.dropped == 2


def test_a_restarted_publisher_loses_nothing(clock):
    monitor = StreamMonitor('command', clock=clock)
    for seq in (100, 101, 0, 1, 2):
        monitor.tick(seq=seq)
    assert monitor.dropped == 0


@given(st.sets(st.integers(0, 300), min_size=1))
def test_drops_are_the_numbers_left_out(seen):
    monitor = StreamMonitor('command', clock=lambda: 0.0)
    for seq in sorted(seen):
        monitor.tick(seq=seq)
    assert monitor.dropped == max(seen) - min(seen) + 1 - len(seen)


@pytest.fixture
def diagnose(graph_probe):
    nodes = []

    def diagnose(**parameters):
        overrides = [Parameter(name, value=value) for name, value in parameters.items()]
        node = Node('device', parameter_overrides=overrides)
        nodes.append(node)
        diagnostics = Diagnostics(node, 'panda', period=0.05)
        graph_probe.spin(node)
        return node, diagnostics, graph_probe.collect(DiagnosticArray, '/diagnostics')

    yield diagnose
    for node in nodes:
        node.destroy_node()


@pytest.fixture
def diagnosed(diagnose):
    return diagnose()


class SimulatedTime:
    """Publishes /clock, a step at a time."""

    def __init__(self, probe, node):
        self.node, self.probe = node, probe
        self.publisher = probe.publisher(ClockMessage, '/clock', readers=1)

    def show(self, seconds):
        message = ClockMessage(clock=Time(seconds=seconds).to_msg())

        def shown():
            self.publisher.publish(message)
            return self.node.get_clock().now().nanoseconds == round(seconds * 1e9)

        wait_until(shown, message=f'time {seconds}')


def named(message, name):
    return next(status for status in message.status if status.name == f'device: {name}')


def test_simulated_time_that_stands_still_makes_nothing_stale(diagnose, graph_probe):
    node, diagnostics, received = diagnose(use_sim_time=True)
    monitor = diagnostics.watch(StreamMonitor('wrist', 20.0, error_age=0.2))
    simulated = SimulatedTime(graph_probe, node)
    for step in range(1, 6):
        simulated.show(1.0 + step / 20)
        monitor.tick()
    began = time.monotonic()
    last = received.wait_for(lambda _: time.monotonic() - began > 0.6)
    since = received.messages[received.messages.index(last) :]
    assert {named(message, 'wrist').level for message in since} == {DiagnosticStatus.OK}
    simulated.show(2.0)
    received.wait_for(lambda m: named(m, 'wrist').level == DiagnosticStatus.ERROR)


def test_a_dead_publisher_of_simulated_time_is_an_error(diagnose, graph_probe):
    node, _, received = diagnose(use_sim_time=True)
    received.wait_for(lambda m: named(m, 'clock').level == DiagnosticStatus.WARN)
    simulated = SimulatedTime(graph_probe, node)
    simulated.show(3.0)
    received.wait_for(lambda m: named(m, 'clock').level == DiagnosticStatus.OK)
    graph_probe.node.destroy_publisher(simulated.publisher)
    dead = received.wait_for(lambda m: named(m, 'clock').level == DiagnosticStatus.ERROR)
    assert named(dead, 'clock').message == 'simulated time stopped at 3.000 s: no publisher'


def test_reports_reach_the_topic_though_simulated_time_stands_still(diagnose):
    _, diagnostics, received = diagnose(use_sim_time=True)
    diagnostics.remove('clock')
    diagnostics.watch(StreamMonitor('wrist'))
    diagnostics.add('disk', lambda: (1, 'nearly full', {'free_gb': 3}))
    message = received.wait_for(lambda message: len(message.status) == 2)
    stream, disk = message.status
    assert (stream.name, stream.level, stream.hardware_id) == (
        'device: wrist',
        DiagnosticStatus.OK,
        'panda',
    )
    assert (disk.name, disk.level, disk.message) == (
        'device: disk',
        DiagnosticStatus.WARN,
        'nearly full',
    )
    assert [(value.key, value.value) for value in disk.values] == [('free_gb', '3')]
    assert len(received.wait(len(received.messages) + 3)) >= 3


def test_a_report_that_raises_is_an_error_and_stops_no_other(diagnosed):
    _, diagnostics, received = diagnosed
    diagnostics.add('broken', lambda: 1 / 0)
    diagnostics.add('well', lambda: (DiagnosticStatus.OK, 'fine', {}))
    broken, well = received.wait_for(lambda message: len(message.status) == 2).status
    assert broken.level == DiagnosticStatus.ERROR
    assert broken.message == 'report failed: division by zero'
    assert well.level == DiagnosticStatus.OK


def test_only_a_change_of_level_is_logged(rclpy_context):
    from praxis_core.testing import GraphProbe
    from rcl_interfaces.msg import Log

    probe = GraphProbe()
    node = Node('device')
    diagnostics = Diagnostics(node, 'panda', period=1000.0)
    logs = probe.collect(Log, '/rosout', 100)
    wait_until(lambda: node.count_subscribers('/rosout'), message='reader of /rosout')
    for level in (0, 0, 1, 1, 1, 2, 2, 0, 0):
        diagnostics.add('disk', lambda level=level: (level, f'level {level}', {}))
        diagnostics.publish()
    diagnostics.add('disk', lambda: (1, 'last', {}))
    diagnostics.publish()
    logs.wait_for(lambda log: log.msg == 'disk: last')
    assert [log.msg for log in logs.messages if log.name == 'device'] == [
        'disk: level 1',
        'disk: level 2',
        'disk: well again, level 0',
        'disk: last',
    ]
    node.destroy_node()
    probe.close()


def test_a_warning_while_a_stack_starts_is_logged_when_it_lasts(rclpy_context, monkeypatch):
    from praxis_core.testing import GraphProbe
    from rcl_interfaces.msg import Log

    now = time.monotonic()
    monkeypatch.setattr('praxis_core.diagnostics.time', SimpleNamespace(monotonic=lambda: now))
    probe = GraphProbe()
    node = Node('device')
    diagnostics = Diagnostics(node, 'panda', period=1000.0)
    logs = probe.collect(Log, '/rosout', 100)
    wait_until(lambda: node.count_subscribers('/rosout'), message='reader of /rosout')
    diagnostics.add('state', lambda: (1, 'none yet', {}), patience=30.0)
    diagnostics.publish()
    diagnostics.add('broken', lambda: (2, 'at once', {}), patience=30.0)
    diagnostics.publish()
    now += 30.0
    diagnostics.publish()
    logs.wait_for(lambda log: log.msg == 'state: none yet')
    assert [log.msg for log in logs.messages if log.name == 'device'] == [
        'broken: at once',
        'state: none yet',
    ]
    node.destroy_node()
    probe.close()


def test_a_removed_report_is_gone(diagnosed):
    _, diagnostics, received = diagnosed
    diagnostics.add('disk', lambda: (0, '', {}))
    received.wait_for(lambda message: len(message.status) == 1)
    diagnostics.remove('disk')
    received.wait_for(lambda message: not message.status)
