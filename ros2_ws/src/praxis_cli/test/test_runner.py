# SPDX-License-Identifier: Apache-2.0
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from praxis_cli import guard
from praxis_core.testing import wait_until

# Ignores Ctrl-C and has a child of its own in the same process group.
STUBBORN = 'bash -c \'trap "" INT; sleep 1234 & echo ready; while true; do sleep 0.05; done\''
DEAF = 'bash -c \'trap "" INT TERM; sleep 1234 & echo ready; while true; do sleep 0.05; done\''


class Launched:
    """A running `praxis launch` and what it has printed."""

    def __init__(self, path: Path, log: Path) -> None:
        self.log = log
        with log.open('w') as file:
            self.process = subprocess.Popen(
                [sys.executable, '-m', 'praxis_cli.main', 'launch', '--builtin', str(path)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | {'ROS_LOG_DIR': str(log.parent / 'log')},
                start_new_session=True,
            )

    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, count: int = 1, timeout: float = 20.0) -> None:
        wait_until(lambda: self.output().count(text) >= count, timeout, self.output)

    def groups(self) -> list[int]:
        return [int(pid) for pid in re.findall(r'started with pid \[(\d+)\]', self.output())]


@pytest.fixture
def launch(tmp_path):
    """Return a function that launches YAML actions; nothing outlives the test."""
    started = []

    def launch(text: str) -> Launched:
        path = tmp_path / 'x.launch.yaml'
        path.write_text('launch:\n' + text.strip('\n') + '\n')
        started.append(Launched(path, tmp_path / 'output'))
        return started[-1]

    yield launch
    for item in started:
        item.process.kill()
        item.process.wait()
        for group in item.groups():
            if guard.alive(group):
                os.killpg(group, signal.SIGKILL)


def executable(command: str, **fields: object) -> str:
    lines = [f'- executable:\n    cmd: {quoted(command)}\n    output: screen\n']
    lines += [f'    {name}: {value}\n' for name, value in fields.items()]
    return ''.join(lines)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_output_is_prefixed_and_the_end_is_reported(launch):
    launched = launch(
        executable('echo hello') + executable("bash -c 'printf tail; echo bad >&2; exit 3'")
    )
    assert launched.process.wait(20) == 0
    output = launched.output()
    assert '[echo-1] hello\n' in output
    assert '[bash-2] tail\n' in output
    assert '[bash-2] bad\n' in output
    assert re.search(r'\[INFO\] \[echo-1\]: process started with pid \[\d+\]\n', output)
    assert re.search(r'\[INFO\] \[echo-1\]: process has finished cleanly \[pid \d+\]\n', output)
    assert re.search(
        r"\[ERROR\] \[bash-2\]: process has died \[pid \d+, exit code 3, cmd 'bash -c ", output
    )


def test_log_output_shows_errors_only_and_files_both(launch, tmp_path):
    text = '- executable: {cmd: "bash -c \'echo quiet; echo loud >&2\'"}'
    launched = launch(text)
    assert launched.process.wait(20) == 0
    assert '[bash-1] loud' in launched.output()
    assert '[bash-1] quiet' not in launched.output()
    log = (tmp_path / 'log/latest/launch.log').read_text()
    assert '[bash-1] quiet' in log
    assert '[bash-1] loud' in log


def test_a_command_that_does_not_exist_does_not_stop_the_others(launch):
    launched = launch(executable('no-such-command') + executable('echo hello'))
    assert launched.process.wait(20) == 0
    assert '[ERROR] [no-such-command-1]: exception occurred' in launched.output()
    assert '[echo-2] hello' in launched.output()


def test_a_missing_node_executable_starts_nothing_and_exits_1(launch):
    launched = launch(executable('echo hello') + '- node: {pkg: no_such_package, exec: n}')
    assert launched.process.wait(20) == 1
    assert "package 'no_such_package' not found" in launched.output()
    assert 'process started' not in launched.output()


def test_interrupt_ends_all_and_exits_0(launch):
    launched = launch(executable('sleep 1234') + executable('sleep 1234'))
    launched.wait_for('process started', 2)
    launched.process.send_signal(signal.SIGINT)
    assert launched.process.wait(20) == 0
    assert launched.output().count("sending signal 'SIGINT'") == 2
    assert not any(guard.alive(group) for group in launched.groups())


def test_sigterm_ends_all_and_exits_1_as_the_real_launch(launch):
    launched = launch(executable('sleep 1234'))
    launched.wait_for('process started')
    launched.process.send_signal(signal.SIGTERM)
    assert launched.process.wait(20) == 1
    assert not any(guard.alive(group) for group in launched.groups())


def test_escalates_from_sigint_to_sigterm_to_sigkill_over_the_whole_group(launch):
    launched = launch(
        executable(STUBBORN, sigterm_timeout=0.3, sigkill_timeout=0.3)
        + executable(DEAF, sigterm_timeout=0.3, sigkill_timeout=0.3)
    )
    launched.wait_for('] ready', 2)
    launched.process.send_signal(signal.SIGINT)
    assert launched.process.wait(20) == 0
    output = launched.output()
    assert "[bash-1] failed to terminate '0.3' seconds after receiving 'SIGINT'" in output
    assert "sending signal 'SIGTERM' to process[bash-1]" in output
    assert "sending signal 'SIGKILL' to process[bash-1]" not in output
    assert "sending signal 'SIGKILL' to process[bash-2]" in output
    assert not any(guard.alive(group) for group in launched.groups())


def test_further_interrupts_escalate_at_once(launch):
    launched = launch(executable(DEAF, sigterm_timeout=60.0, sigkill_timeout=60.0))
    launched.wait_for('] ready')
    for step in ('SIGINT', 'SIGTERM', 'SIGKILL'):
        launched.process.send_signal(signal.SIGINT)
        launched.wait_for(f"sending signal '{step}'")
    assert launched.process.wait(20) == 0


def test_the_end_of_a_required_process_ends_all(launch):
    launched = launch(
        executable('sleep 1234') + executable("bash -c 'exit 2'", on_exit='shutdown')
    )
    assert launched.process.wait(20) == 0
    assert 'process[bash-2] was required: shutting down launched system' in launched.output()


def test_respawn_starts_again_up_to_its_limit(launch):
    launched = launch(
        executable("bash -c 'exit 1'", respawn="'true'", respawn_delay=0.01, respawn_max_retries=2)
    )
    assert launched.process.wait(20) == 0
    assert launched.output().count('process started') == 3


def test_what_a_process_leaves_behind_is_ended(launch):
    launched = launch(executable("bash -c 'sleep 1234 & exit 0'") + executable('sleep 1234'))
    launched.wait_for('finished cleanly')
    assert not guard.alive(launched.groups()[0])
    assert launched.process.poll() is None


def test_nothing_outlives_a_killed_launcher(launch):
    launched = launch(executable('sleep 1234') + executable(STUBBORN))
    launched.wait_for('] ready')
    launched.process.kill()
    wait_until(lambda: not any(guard.alive(group) for group in launched.groups()))


def test_guard_ends_the_groups_of_a_closed_pipe_only():
    def sleeper() -> subprocess.Popen:
        return subprocess.Popen(['sleep', '1234'], start_new_session=True)

    kept, ended = sleeper(), sleeper()
    try:
        watcher = subprocess.Popen(
            [sys.executable, '-I', '-S', guard.__file__], stdin=subprocess.PIPE, text=True
        )
        watcher.communicate(f'+{kept.pid}\n+{ended.pid}\n-{kept.pid}\n', timeout=20)
        assert ended.wait(20) == -signal.SIGINT
        assert kept.poll() is None
    finally:
        kept.kill()
        kept.wait()
