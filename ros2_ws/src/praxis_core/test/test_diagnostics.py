# SPDX-License-Identifier: Apache-2.0
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from hypothesis import given
from hypothesis import strategies as st
from praxis_core.diagnostics import Diagnostics, Level, StreamMonitor
from praxis_core.testing import wait_until
from rclpy.node import Node
from rclpy.parameter import Parameter


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


def test_a_stream_that_never_came_is_an_error_after_a_while(clock):
    monitor = StreamMonitor('wrist', 20.0, clock=clock)
    assert monitor.report()[0] == Level.OK
    clock.now += 1.5
    assert monitor.report()[:2] == (Level.ERROR, 'no sample for 1.50 s')


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
def diagnosed(graph_probe):
    node = Node('device', parameter_overrides=[Parameter('use_sim_time', value=True)])
    diagnostics = Diagnostics(node, 'panda', period=0.05)
    graph_probe.spin(node)
    yield node, diagnostics, graph_probe.collect(DiagnosticArray, '/diagnostics')
    node.destroy_node()


def test_reports_reach_the_topic_though_simulated_time_stands_still(diagnosed):
    _, diagnostics, received = diagnosed
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


def test_a_removed_report_is_gone(diagnosed):
    _, diagnostics, received = diagnosed
    diagnostics.add('disk', lambda: (0, '', {}))
    received.wait_for(lambda message: len(message.status) == 1)
    diagnostics.remove('disk')
    received.wait_for(lambda message: not message.status)
