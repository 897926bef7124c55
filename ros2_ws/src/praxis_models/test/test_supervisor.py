# SPDX-License-Identifier: Apache-2.0
"""Workers as real processes: how they become ready, how they fail, how they end."""

import contextlib
import dataclasses
import http.client
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from praxis_core.testing import wait_until
from praxis_models.supervision import process as process_module
from praxis_models.supervision.specification import WorkerSpec as Spec
from praxis_models.supervision.supervisor import Supervisor, Times

HERE = Path(__file__).parent
QUICK = Times(
    probe_s=0.05,
    health_s=0.05,
    health_timeout_s=5.0,
    health_failures=2,
    eof_s=20.0,
    term_s=20.0,
    backoff_s=(0.05, 0.2),
)


@pytest.fixture
def events():
    return []


@pytest.fixture
def supervisor(events):
    with started(events) as supervisor:
        yield supervisor


@contextlib.contextmanager
def started(events, **times):
    supervisor = Supervisor(events.append, times=dataclasses.replace(QUICK, **times))
    try:
        yield supervisor
    finally:
        for worker in supervisor.workers:  # whatever a failed test has left
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGKILL)
        supervisor.stop()


@pytest.fixture
def spec(tmp_path):
    def make(*arguments, name='fake', **fields):
        given = {'root': str(HERE), 'ready_timeout_s': 60.0, 'log_dir': tmp_path / 'log'} | fields
        return Spec(name, 'noop', tuple(map(str, arguments)), module='fake_worker', **given)

    return make


def runs(pid):
    try:
        state = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]
    except OSError:
        return False
    return state not in 'ZX'


def get(worker, path):
    host, port = worker.endpoint.removeprefix('ws://').split(':')
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request('GET', path)
        connection.getresponse().read()


def facts(path):
    return json.loads(wait_until(lambda: path.exists() and path.read_text()))


def phases(events):
    return [(event.worker.name, event.phase) for event in events]


def guard_of(pid):
    return int(Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[1])


# --- becoming ready ---


def test_worker_becomes_ready_and_ends_by_itself_when_stopped(supervisor, spec, events):
    worker = supervisor.start(spec())
    assert worker.wait_ready(60)
    assert worker.endpoint.startswith('ws://127.0.0.1:')
    assert runs(worker.pid)
    pid, guard = worker.pid, guard_of(worker.pid)
    supervisor.stop()
    assert (worker.phase, worker.endpoint, worker.pid) == ('stopped', '', None)
    assert not runs(pid) and not runs(guard)
    text = worker.log.read_text()
    assert 'end of standard input' in text and 'SIGTERM' not in text and 'status 0' in text
    assert phases(events) == [('fake', 'starting'), ('fake', 'ready'), ('fake', 'stopped')]


def test_worker_is_ready_only_when_its_model_is_loaded(supervisor, spec):
    worker = supervisor.start(spec('--loading', 8))
    wait_until(lambda: worker.endpoint)
    assert worker.phase == 'starting'
    assert worker.reason.startswith('loading for ')
    assert worker.wait_ready(60)
    assert worker.reason == ''


def test_worker_that_never_listens_fails_after_its_time(supervisor, spec):
    worker = supervisor.start(spec('--no-port', ready_timeout_s=1.0))
    assert not worker.wait_ready(60)
    assert worker.phase == 'failed'
    assert worker.reason.startswith('not ready within 1 s: it does not listen')
    assert worker.pid is None


def test_worker_that_loads_for_too_long_fails_with_what_it_said(supervisor, spec):
    worker = supervisor.start(spec('--loading', 10**6, ready_timeout_s=5.0))
    assert not worker.wait_ready(60)
    assert 'not ready within 5 s: HTTP 503 {"status": "loading"}' in worker.reason


def test_death_while_loading_fails_at_once_with_status_and_log(supervisor, spec):
    worker = supervisor.start(spec('--die', 3))
    assert not worker.wait_ready(60)
    first, *tail = worker.reason.splitlines()
    assert first == f'exited with 3 while loading: no such checkpoint (log {worker.log})'
    assert tail == ['fake worker noop begins', 'no such checkpoint']
    assert worker.restarts == 0


@pytest.mark.parametrize('python', ['/nowhere/python', 'no_such_python'])
def test_missing_python_fails_and_is_named(supervisor, spec, python):
    worker = supervisor.start(spec(python=python))
    assert not worker.wait_ready(60)
    assert worker.phase == 'failed'
    assert python in worker.reason


def test_file_that_is_no_program_fails_and_is_named(supervisor, spec, tmp_path):
    python = tmp_path / 'python'
    python.write_bytes(b'\x7fnothing')
    python.chmod(0o755)
    worker = supervisor.start(spec(python=str(python)))
    assert not worker.wait_ready(60)
    assert worker.reason.startswith('cannot be started: ')
    assert str(python) in worker.reason


def test_missing_root_fails_and_is_named(supervisor, spec):
    worker = supervisor.start(spec(root='/nowhere/model'))
    assert not worker.wait_ready(60)
    assert worker.reason == "root: expected a folder (got '/nowhere/model')"


def test_worker_runs_in_its_root_with_its_environment(supervisor, spec, tmp_path):
    path = tmp_path / 'facts.json'
    worker = supervisor.start(spec('--facts', path, device='cpu', environment={'COLOUR': 'red'}))
    assert worker.wait_ready(60)
    known = facts(path)
    assert known['pid'] == known['group'] == worker.pid
    assert known['directory'] == str(HERE)
    assert known['environment']['COLOUR'] == 'red'
    assert known['environment']['CUDA_VISIBLE_DEVICES'] == ''
    assert known['environment']['PYTHONPATH'].split(os.pathsep)[0] == str(HERE)


def test_names_are_unique_until_a_worker_is_over(supervisor, spec):
    worker = supervisor.start(spec())
    with pytest.raises(ValueError, match="'fake' is there already"):
        supervisor.start(spec())
    with pytest.raises(ValueError, match="'fake' is there already"):
        supervisor.join('fake', 'ws://127.0.0.1:1')
    worker.stop()
    assert supervisor.start(spec()).wait_ready(60)
    assert len(supervisor.workers) == 1


@pytest.mark.parametrize(
    'fields', [{'restart': 'always'}, {'ready_timeout_s': 0.0}, {'name': '/'}], ids=str
)
def test_invalid_specification_is_refused(spec, fields):
    with pytest.raises(ValueError, match=f'{next(iter(fields))}: expected'):
        spec(**fields)


# --- failing later ---


def test_worker_that_crashes_is_restarted_where_it_was(supervisor, spec, events):
    worker = supervisor.start(spec())
    assert worker.wait_ready(60)
    endpoint, pid = worker.endpoint, worker.pid
    get(worker, '/die')
    wait_until(lambda: len(events) == 4)
    assert (worker.restarts, worker.endpoint) == (1, endpoint)
    assert worker.pid != pid and not runs(pid)
    assert phases(events) == [('fake', phase) for phase in ('starting', 'ready') * 2]
    first = events[2].reason.splitlines()[0]
    assert first.startswith('restart in 0.05 s: exited with 7 while ready: the model has lost')


def test_restarted_worker_listens_elsewhere_when_its_port_is_taken(events, spec):
    with started(events, backoff_s=(2.0, 2.0)) as supervisor:
        worker = supervisor.start(spec())
        assert worker.wait_ready(60)
        port = int(worker.endpoint.rpartition(':')[2])
        get(worker, '/die')
        wait_until(lambda: worker.phase == 'starting')
        with http.server.HTTPServer(('127.0.0.1', port), http.server.BaseHTTPRequestHandler):
            wait_until(lambda: worker.phase == 'ready')
            assert worker.restarts == 2
            assert worker.endpoint != f'ws://127.0.0.1:{port}'


def test_crash_loop_ends_in_failure_with_its_reason(events, spec, tmp_path):
    needed = tmp_path / 'weights'
    needed.touch()
    with started(events, max_restarts=3) as supervisor:
        worker = supervisor.start(spec('--die-unless', needed))
        assert worker.wait_ready(60)
        needed.unlink()
        get(worker, '/die')
        wait_until(lambda: worker.phase == 'failed')
        assert worker.restarts == 3
        assert worker.reason.startswith('given up after 3 restarts in a row: exited with 5')
        assert worker.log.read_text().count('=== ') == 8  # header and end of four runs


def test_restarts_are_forgotten_after_healthy_time(events, spec):
    with started(events, max_restarts=1, healthy_s=0.3) as supervisor:
        worker = supervisor.start(spec())
        for count in range(1, 4):
            assert worker.wait_ready(60)
            since = time.monotonic()
            wait_until(lambda since=since: time.monotonic() > since + 0.5)
            get(worker, '/die')
            wait_until(lambda count=count: worker.restarts == count)
        assert worker.wait_ready(60)


def test_worker_is_not_restarted_against_its_policy(supervisor, spec):
    worker = supervisor.start(spec(restart='never'))
    assert worker.wait_ready(60)
    get(worker, '/die')
    wait_until(lambda: worker.phase == 'failed')
    assert worker.reason.startswith('exited with 7 while ready')
    assert worker.restarts == 0


def test_worker_that_answers_no_more_is_replaced(events, spec):
    with started(events, health_timeout_s=0.5) as supervisor:
        worker = supervisor.start(spec())
        assert worker.wait_ready(60)
        pid = worker.pid
        get(worker, '/hang')
        wait_until(lambda: worker.restarts and worker.phase == 'ready')
        assert not runs(pid)
        text = worker.log.read_text()
        assert 'SIGTERM to its group' in text and 'end of standard input' not in text
        reasons = [event.reason for event in events if 'restart in' in event.reason]
        assert 'does not answer: no answer within 0.5 s' in reasons[0]


def test_worker_killed_from_outside_is_named_so(supervisor, spec):
    worker = supervisor.start(spec(restart='never'))
    assert worker.wait_ready(60)
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: worker.phase == 'failed')
    assert worker.reason.startswith('died of SIGKILL (out of memory?) while ready')


def test_worker_does_not_survive_its_guard(supervisor, spec):
    worker = supervisor.start(spec(restart='never'))
    assert worker.wait_ready(60)
    pid = worker.pid
    os.kill(guard_of(pid), signal.SIGKILL)
    wait_until(lambda: worker.phase == 'failed')
    assert worker.reason.startswith('lost its guard process while ready')
    wait_until(lambda: not runs(pid))


def test_a_fault_in_the_callback_does_not_stop_the_supervision(spec):
    seen = []

    def fail(event):
        seen.append(event.phase)
        raise RuntimeError('callback')

    with Supervisor(fail, times=QUICK) as supervisor:
        assert supervisor.start(spec()).wait_ready(60)
    assert seen == ['starting', 'ready', 'stopped']


# --- stopping ---


def test_deaf_worker_is_terminated(events, spec):
    with started(events, eof_s=0.3) as supervisor:
        worker = supervisor.start(spec('--ignore-eof'))
        assert worker.wait_ready(60)
        supervisor.stop()
        text = worker.log.read_text()
        assert text.index('end of standard input') < text.index('SIGTERM to its group')
        assert 'status -15' in text and 'SIGKILL' not in text


def test_stubborn_worker_is_killed(events, spec):
    with started(events, eof_s=0.3, term_s=0.3) as supervisor:
        worker = supervisor.start(spec('--ignore-eof', '--ignore-term'))
        assert worker.wait_ready(60)
        pid = worker.pid
        since = time.monotonic()
        supervisor.stop()
        assert time.monotonic() - since > 0.6
        assert not runs(pid)
        text = worker.log.read_text()
        assert text.index('SIGTERM to its group') < text.index('SIGKILL to its group')
        assert 'status -9' in text


def test_stop_while_loading_does_not_wait_for_a_voluntary_end(supervisor, spec, tmp_path):
    path = tmp_path / 'facts.json'
    worker = supervisor.start(spec('--no-port', '--ignore-eof', '--facts', path))
    pid = facts(path)['pid']
    waiting = threading.Thread(target=worker.wait_ready)
    waiting.start()
    since = time.monotonic()
    worker.stop()
    assert time.monotonic() - since < QUICK.eof_s / 2
    assert worker.phase == 'stopped' and not runs(pid)
    waiting.join(10)
    assert not waiting.is_alive()


def test_stop_right_after_the_start_leaves_nothing(supervisor, spec, tmp_path):
    path = tmp_path / 'facts.json'
    worker = supervisor.start(spec('--facts', path))
    worker.stop()
    assert worker.phase == 'stopped'
    assert not path.exists() or not runs(facts(path)['pid'])


def test_stop_before_a_restart_is_the_end(events, spec):
    with started(events, backoff_s=(60.0, 60.0)) as supervisor:
        worker = supervisor.start(spec())
        assert worker.wait_ready(60)
        get(worker, '/die')
        wait_until(lambda: worker.phase == 'starting')
        since = time.monotonic()
        worker.stop()
        assert time.monotonic() - since < 30
        assert (worker.phase, worker.restarts) == ('stopped', 0)


def test_workers_are_stopped_in_reverse_order_of_their_start(supervisor, spec, events):
    for name in 'abc':
        supervisor.start(spec(name=name))
    for worker in supervisor.workers:
        assert worker.wait_ready(60)
    supervisor.stop()
    ended = [event.worker.name for event in events if event.phase == 'stopped']
    assert ended == ['c', 'b', 'a']


def test_stop_from_several_threads_and_again_is_one_stop(supervisor, spec, events):
    worker = supervisor.start(spec())
    assert worker.wait_ready(60)
    threads = [threading.Thread(target=supervisor.stop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
        assert worker.phase == 'stopped'
    supervisor.stop()
    assert phases(events).count(('fake', 'stopped')) == 1


def test_callback_can_stop_its_worker(spec):
    with Supervisor(lambda event: event.worker.stop(), times=QUICK) as supervisor:
        worker = supervisor.start(spec())
        wait_until(lambda: worker.phase == 'stopped')


def test_what_the_worker_has_started_ends_with_it(events, spec, tmp_path):
    path = tmp_path / 'facts.json'
    with started(events) as supervisor:
        worker = supervisor.start(spec('--children', '--facts', path))
        assert worker.wait_ready(60)
        children = facts(path)['children']
        assert len(children) == 2 and all(map(runs, children))
        supervisor.stop()
        assert not any(map(runs, children))


def test_children_of_a_crashed_worker_end_before_it_is_restarted(supervisor, spec, tmp_path):
    path = tmp_path / 'facts.json'
    worker = supervisor.start(spec('--children', '--facts', path))
    assert worker.wait_ready(60)
    children = facts(path)['children']
    get(worker, '/die')
    wait_until(lambda: worker.restarts == 1)
    assert not any(map(runs, children))


def test_stop_reaches_a_worker_whose_guard_hangs(events, spec, monkeypatch):
    monkeypatch.setattr('praxis_models.supervision.owned_worker.REST_S', 0.1)
    monkeypatch.setattr('praxis_models.supervision.owned_worker.KILL_S', 1.0)
    with started(events, eof_s=0.1, term_s=0.1) as supervisor:
        worker = supervisor.start(spec('--ignore-eof', '--ignore-term'))
        assert worker.wait_ready(60)
        pid, guard = worker.pid, guard_of(worker.pid)
        os.kill(guard, signal.SIGSTOP)
        supervisor.stop()
        assert worker.phase == 'stopped'
        wait_until(lambda: not runs(pid) and not runs(guard))


# --- the parent's death ---

PARENT = """
import os, sys
from praxis_models.supervision.supervisor import Supervisor, Times, WorkerSpec
supervisor = Supervisor(times=Times(probe_s=0.05, eof_s=0.5, term_s=0.5))
root, log, fork, *arguments = sys.argv[1:]
worker = supervisor.start(
    WorkerSpec('fake', 'noop', tuple(arguments), root=root, log_dir=log, module='fake_worker')
)
assert worker.wait_ready(60), worker.reason
if fork == 'fork' and os.fork() == 0:  # holds the pipe to the guard open
    import signal
    signal.pause()
print(worker.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ('fork', 'arguments'),
    [
        ('', ()),
        ('', ('--ignore-eof',)),
        ('', ('--ignore-eof', '--ignore-term', '--children')),
        ('fork', ()),
        ('guard too', ('--ignore-eof', '--ignore-term')),
    ],
    ids=['orderly', 'deaf', 'stubborn', 'forked', 'guard_too'],
)
def test_worker_does_not_survive_a_killed_parent(tmp_path, fork, arguments):
    path = tmp_path / 'facts.json'
    command = [sys.executable, '-c', textwrap.dedent(PARENT), str(HERE), str(tmp_path), fork]
    temporary = tmp_path / 'temporary'
    temporary.mkdir()
    with subprocess.Popen(
        [*command, '--facts', str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {'TMPDIR': str(temporary)},
    ) as parent:
        try:
            pid = int(parent.stdout.readline())
            family = [pid, guard_of(pid), *facts(path)['children']]
            assert all(map(runs, family))
            parent.kill()
            if fork == 'guard too':
                os.kill(family[1], signal.SIGKILL)
            wait_until(lambda: not any(map(runs, family)))
            assert fork == 'guard too' or list(temporary.iterdir()) == []
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)


def test_interrupt_of_the_terminal_does_not_reach_the_worker(supervisor, spec):
    worker = supervisor.start(spec())
    assert worker.wait_ready(60)
    group = os.getpgrp()
    assert os.getpgid(worker.pid) != group
    assert os.getpgid(guard_of(worker.pid)) != group


# --- logs ---


def test_log_keeps_every_start_with_a_header(supervisor, spec):
    worker = supervisor.start(spec(name='left_arm/pi05'))
    assert worker.wait_ready(60)
    get(worker, '/die')
    wait_until(lambda: worker.restarts == 1 and worker.phase == 'ready')
    supervisor.stop()
    assert worker.log.name == 'left_arm_pi05.log'
    lines = worker.log.read_text().splitlines()
    headers = [line for line in lines if ' of left_arm/pi05, pid ' in line]
    assert len(headers) == 2
    assert 'start 1' in headers[0] and 'start 2' in headers[1]
    assert '-m fake_worker noop --host 127.0.0.1 --port 0 --port-file' in headers[0]
    assert lines.count('fake worker noop begins') == 2


@pytest.mark.parametrize('words', [('--api-token', 'secret'), ('--api-token=secret',)])
def test_log_does_not_show_tokens(supervisor, spec, words):
    worker = supervisor.start(spec(*words, '--token-file', 'token.txt'))
    worker.wait_ready(60)
    text = worker.log.read_text()
    assert '--api-token' in text and '***' in text and '--token-file token.txt' in text
    assert 'secret' not in text


def test_full_log_is_rotated(supervisor, spec, monkeypatch):
    monkeypatch.setattr(process_module, 'LOG_BYTES', 200_000)
    worker = supervisor.start(spec('--chatter', 900_000))
    assert worker.wait_ready(60)
    supervisor.stop()
    files = sorted(path.name for path in worker.log.parent.iterdir())
    assert files == ['fake.log', 'fake.log.1', 'fake.log.2']
    assert all(path.stat().st_size <= 200_000 for path in worker.log.parent.iterdir())
    assert 'status 0' in worker.log.read_text()


# --- servers of others ---


class Server:
    """A server that is not ours, with a status that a test sets."""

    def __init__(self, port=0):
        outer = self
        self.status = 200

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.mark.parametrize('form', ['ws://127.0.0.1:{}', 'http://127.0.0.1:{}', '127.0.0.1:{}'])
def test_joined_server_is_ready_when_it_answers_and_is_never_stopped(supervisor, server, form):
    worker = supervisor.join('theirs', form.format(server.port))
    assert worker.wait_ready(60)
    assert (worker.pid, worker.log) == (None, None)
    supervisor.stop()
    assert worker.phase == 'stopped'
    again = supervisor.join('theirs', form.format(server.port))
    assert again.wait_ready(60)


def test_joined_server_is_followed_through_its_end_and_return(supervisor, events):
    server = Server()
    server.status = 503
    worker = supervisor.join('theirs', f'ws://127.0.0.1:{server.port}')
    wait_until(lambda: worker.reason == 'loading: HTTP 503')
    server.status = 200
    assert worker.wait_ready(60)
    server.close()
    wait_until(lambda: worker.phase == 'failed')
    assert 'does not answer' in worker.reason
    assert worker.restarts == 0
    back = Server(server.port)
    try:
        wait_until(lambda: worker.phase == 'ready')
    finally:
        back.close()
    assert [phase for _, phase in phases(events)][:3] == ['starting', 'ready', 'failed']


@pytest.mark.parametrize('status', [404, 426])
def test_joined_server_without_healthz_is_ready(supervisor, server, status):
    server.status = status
    assert supervisor.join('theirs', f'ws://127.0.0.1:{server.port}').wait_ready(60)


def test_joined_server_that_hangs_does_not_delay_the_stop(events):
    with (
        socket.create_server(('127.0.0.1', 0)) as listening,
        started(events, health_timeout_s=60.0) as patient,
    ):
        worker = patient.join('theirs', f'ws://127.0.0.1:{listening.getsockname()[1]}')
        connection, _ = listening.accept()
        with connection:
            since = time.monotonic()
            patient.stop()
            assert time.monotonic() - since < 30
            assert worker.phase == 'stopped'
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
        wait_until(lambda: 'worker theirs' not in [each.name for each in threading.enumerate()])
        assert [event.phase for event in events] == ['starting', 'stopped']


@pytest.mark.parametrize('endpoint', ['', 'ftp://host:1', 'ws://', 'ws://host:port'])
def test_joining_what_is_no_endpoint_is_refused(supervisor, endpoint):
    with pytest.raises(ValueError, match='endpoint must be ws://HOST:PORT'):
        supervisor.join('theirs', endpoint)
