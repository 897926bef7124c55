# SPDX-License-Identifier: Apache-2.0
import os
import signal
import sys

import pytest
from praxis_core.testing import GraphProbe, _take_domain, wait_until
from std_msgs.msg import String


def test_wait_until_returns_what_the_condition_returned():
    values = iter([0, None, 'ready'])
    assert wait_until(lambda: next(values)) == 'ready'


def test_wait_until_says_what_it_waited_for():
    with pytest.raises(AssertionError, match=r'^not within 0\.02 s: the moon$'):
        wait_until(lambda: False, 0.02, 'the moon')


def test_domains_of_concurrent_holders_differ(tmp_path):
    first, lock = _take_domain(tmp_path)
    second, other = _take_domain(tmp_path)
    assert first != second
    lock.close()
    third, again = _take_domain(tmp_path)
    assert third == first
    other.close()
    again.close()


def test_ros_domain_reaches_spawned_processes(ros_domain, spawn):
    code = 'import os; print("domain", os.environ["ROS_DOMAIN_ID"])'
    process = spawn([sys.executable, '-c', code])
    assert process.expect(r'domain (\d+)').group(1) == str(ros_domain)
    assert process.wait() == 0


def test_spawned_process_and_its_children_are_killed(spawn):
    code = (
        'import signal, subprocess, sys, time\n'
        'signal.signal(signal.SIGINT, signal.SIG_IGN)\n'
        'child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])\n'
        'print("child", child.pid)\n'
        'time.sleep(60)\n'
    )
    process = spawn([sys.executable, '-c', code])
    child = int(process.expect(r'child (\d+)').group(1))
    process.kill_group()
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not _runs(child), message='end of the child')


def _runs(pid):
    try:
        with open(f'/proc/{pid}/stat') as stat:
            return stat.read().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def test_expect_reports_an_early_end(spawn):
    process = spawn([sys.executable, '-c', 'print("only this")'])
    with pytest.raises(AssertionError, match=r'(?s)ended without .*only this'):
        process.expect('never')


def test_probe_collects_messages_in_order(graph_probe):
    received = graph_probe.collect(String, 'chatter')
    publisher = graph_probe.publisher(String, 'chatter', readers=1)
    for word in ('one', 'two', 'three'):
        publisher.publish(String(data=word))
    assert [message.data for message in received.wait(3)] == ['one', 'two', 'three']
    assert received.wait_for(lambda message: message.data == 'two').data == 'two'


def test_probe_is_in_the_domain_of_the_test(ros_domain, rclpy_context):
    assert rclpy_context.get_domain_id() == ros_domain == int(os.environ['ROS_DOMAIN_ID'])
    probe = GraphProbe('other')
    probe.wait_for_node('other')
    probe.close()
