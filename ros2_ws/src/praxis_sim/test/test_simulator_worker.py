# SPDX-License-Identifier: Apache-2.0
"""The simulator node with its platform in a worker process."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from praxis_core.errors import ErrorCode
from praxis_core.testing import wait_until

sys.path.insert(0, str(Path(__file__).parent))
from simulator_rig import Driver, simulator

WORKER = 'praxis_sim.worker'


def workers(pid):
    """Process ids of the workers that a process has started."""
    found = []
    for folder in Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            parent = int((folder / 'stat').read_text().rsplit(')', 1)[1].split()[1])
            if parent == pid and WORKER in (folder / 'cmdline').read_text():
                found.append(int(folder.name))
    return found


def alive(pid):
    with contextlib.suppress(OSError):
        return Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
    return False


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_process_group_ends_node_and_worker_in_order(spawn, graph_probe, number):
    process = spawn(simulator(platform_process=sys.executable, stepping='realtime'))
    driver = Driver(graph_probe)
    driver.wait(5)
    (worker,) = workers(process.pid)
    assert os.getpgid(worker) != process.pid, 'or it could die before the node has closed it'
    os.killpg(process.pid, number)
    assert process.wait() == 0
    assert 'FATAL' not in process.output and 'Traceback' not in process.output
    wait_until(lambda: not alive(worker), message='the end of the worker')


def test_a_reset_recovers_from_a_worker_that_died(spawn, graph_probe):
    process = spawn(simulator(platform_process=sys.executable))
    diagnostics = graph_probe.collect(DiagnosticArray, '/diagnostics')
    driver = Driver(graph_probe)
    driver.ready()
    driver.reset(seed=3)
    first, _ = driver.wait(1)
    (worker,) = workers(process.pid)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not alive(worker))
    driver.answer(first, np.zeros(7))
    process.expect('the simulation stopped: PlatformError: worker of .* died of SIGKILL')
    diagnostics.wait_for(
        lambda array: any(
            'SIGKILL' in status.message and status.level == DiagnosticStatus.ERROR
            for status in array.status
        )
    )
    response = driver.reset(seed=3)
    assert response.success and response.error_code == ErrorCode.NONE
    again, _ = driver.wait(2)
    assert again.values == first.values
    assert again.episode_uuid != first.episode_uuid
    assert again.observation_seq == first.observation_seq + 1
    driver.answer(again, [0.5] + [0.0] * 6)
    moved, _ = driver.wait(3)
    assert moved.values[0] > again.values[0]
    well = len(diagnostics.messages)
    wait_until(
        lambda: any(
            status.name == 'simulator: simulation' and status.level == DiagnosticStatus.OK
            for array in diagnostics.messages[well:]
            for status in array.status
        )
    )
    assert workers(process.pid) != [worker]
    assert process.stop(signal.SIGINT) == 0
