# SPDX-License-Identifier: Apache-2.0
import signal
import sys
import textwrap

import pytest

SINGLE = 'None'
MULTI = 'rclpy.executors.MultiThreadedExecutor'


@pytest.fixture
def program(spawn, tmp_path):
    def start(body, *arguments):
        path = tmp_path / 'node.py'
        path.write_text(
            'import sys, threading\n'
            'import rclpy, rclpy.executors\n'
            'from rclpy.node import Node\n'
            'from praxis_core.process import run\n' + textwrap.dedent(body)
        )
        return spawn([sys.executable, str(path), *arguments])

    return start


NODE = """
    class Quiet(Node):
        def __init__(self):
            super().__init__('quiet')
            self.create_timer(0.01, self.tick)
            self.create_timer(0.2, lambda: print('spinning'))
            self.ticks = 0
            self.closed = False

        def tick(self):
            assert not self.closed, 'callback after close'
            self.ticks += 1

        def stop(self):
            before, done = self.ticks, threading.Event()
            while self.ticks < before + 3:
                done.wait(0.01)
            print('stopped while callbacks run')

        def close(self):
            self.closed = True
            print('closed', threading.active_count(), 'threads, context', self.context.ok())

    code = run(Quiet, executor={executor})
    print('returned', code, rclpy.ok(), threading.active_count())
    sys.exit(code)
"""


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize('executor', [SINGLE, MULTI])
def test_signal_ends_with_status_0_after_every_finaliser(program, number, executor):
    process = program(NODE.replace('{executor}', executor))
    process.expect('spinning')
    assert process.stop(number) == 0
    lines = [line for line in process.output.splitlines() if line != 'spinning']
    assert lines == [
        'stopped while callbacks run',
        'closed 1 threads, context True',
        'returned 0 False 1',
    ]


def test_a_full_collection_does_not_walk_what_the_start_has_made(program):
    process = program("""
        class Heavy(Node):
            def __init__(self):
                super().__init__('heavy')
                self.kept = [[] for _ in range(100_000)]
                self.create_timer(0.1, self.look)

            def look(self):
                import gc
                print('walked', len(gc.get_objects()), 'kept out', gc.get_freeze_count() > 100_000)

        sys.exit(run(Heavy))
    """)
    found = process.expect(r'walked (\d+) kept out True')
    assert int(found[1]) < 20_000
    assert process.stop() == 0


def test_signal_while_the_node_is_made_ends_with_status_0(program):
    process = program("""
        def make():
            print('making')
            threading.Event().wait(0.5)
            return Node('slow')

        sys.exit(run(make))
    """)
    process.expect('making')
    assert process.stop(signal.SIGTERM) == 0


STUCK = """
    class Stuck(Node):
        def __init__(self):
            super().__init__('stuck')
            self.create_timer(0.05, lambda: print('spinning'))

        def close(self):
            pause = threading.Event()
            for second in range(60):
                print('closing', second)
                pause.wait(1.0)

    sys.exit(run(lambda: Stuck()))
"""


def test_second_signal_forces_the_end(program):
    process = program(STUCK)
    process.expect('spinning')
    process.send_signal(signal.SIGINT)
    process.expect('closing 1')
    assert process.stop(signal.SIGINT, timeout=5.0) == 128 + signal.SIGINT
    assert 'second signal' in process.output


def test_an_echo_of_the_signal_and_an_escalation_do_not_force_the_end(program):
    process = program(STUCK)
    process.expect('spinning')
    process.send_signal(signal.SIGINT)
    process.expect('closing 0')
    process.send_signal(signal.SIGINT)
    process.expect('closing 1')
    process.send_signal(signal.SIGTERM)
    process.expect('closing 2')
    assert process.returncode is None


def test_exception_in_a_callback_ends_with_status_1_and_still_closes(program):
    process = program("""
        class Faulty(Node):
            def __init__(self):
                super().__init__('faulty')
                self.create_timer(0.05, self.tick)

            def tick(self):
                raise RuntimeError('broken sensor')

            def close(self):
                print('closed')

        sys.exit(run(Faulty))
    """)
    assert process.wait() == 1
    assert 'RuntimeError: broken sensor' in process.output
    assert 'closed' in process.output


def test_exception_in_close_ends_with_status_1(program):
    process = program("""
        class Faulty(Node):
            def close(self):
                raise OSError('disk full')

        sys.exit(run(lambda: (print('made'), Faulty('faulty'))[1:]))
    """)
    process.expect('made')
    assert process.stop() == 1
    assert 'OSError: disk full' in process.output


def test_refused_parameter_ends_with_status_2_and_no_traceback(program):
    process = program(
        """
        from praxis_core.parameters import ParameterModel, declare
        from pydantic import Field

        class Model(ParameterModel):
            rate: float = Field(20.0, ge=1.0, le=100.0, description='Hz')

        class Strict(Node):
            def __init__(self):
                super().__init__('strict')
                declare(self, Model)

        sys.exit(run(Strict))
    """,
        '--ros-args',
        '-p',
        'rate:=200.0',
    )
    assert process.wait() == 2
    assert process.output == 'parameter rate: must be at most 100 (got 200.0)\n'


def test_several_nodes_share_the_executor(program):
    process = program("""
        def make():
            one, two = Node('one'), Node('two')
            one.create_timer(0.01, lambda: print('tick one'))
            two.create_timer(0.01, lambda: print('tick two'))
            return [one, two]

        sys.exit(run(make))
    """)
    process.expect('(?s)tick one.*tick two|tick two.*tick one')
    assert process.stop() == 0


def test_shutdown_of_the_context_ends_with_status_0(program):
    process = program("""
        class Brief(Node):
            def __init__(self):
                super().__init__('brief')
                self.create_timer(0.05, rclpy.shutdown)

        sys.exit(run(Brief))
    """)
    assert process.wait() == 0
