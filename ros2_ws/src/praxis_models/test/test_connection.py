# SPDX-License-Identifier: Apache-2.0
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from praxis_core.testing import wait_until

sys.path.insert(0, str(Path(__file__).parent))

from connection_rig import SLACK_S, Answers, fixture_connect, ready  # noqa: F401
from hostile_server import META, HostileServer, model, refusing_port
from praxis_models.transport import wire
from praxis_models.transport.channel import Channel
from praxis_models.transport.connection import Connection
from praxis_models.transport.endpoint import endpoint_of

OTHER = {**META, 'model': 'second'}


def echo(request):
    return {'echo': request.get('number', -1)}


def held(release, seen=None):
    """A model whose replies wait for ``release``."""

    def reply(request):
        if seen is not None:
            seen.append(request.get('number'))
        release.wait(10.0)
        return echo(request)

    return model(reply=reply)


# --- requests ---


def test_a_request_is_answered_by_the_reply_to_it(connect):
    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint))
        assert connection.metadata == META
        assert connection.generation == 1
        for number in range(5):
            outcome = connection.call({'number': number, 'x': np.arange(3, dtype='f4')})
            assert outcome.ok and outcome.reply == {'model': 'first', 'echo': number}
            assert outcome.generation == 1
            timing = outcome.timing
            assert 0 < timing.submitted <= timing.sent <= timing.ended
            assert 0 < timing.round_trip_ms < 1e4


def test_requests_that_are_submitted_early_wait_for_the_first_attempt(connect):
    with HostileServer(model(reply=echo)) as server:
        connection = connect(server.endpoint, start=False)
        answers = Answers()
        for number in range(3):
            connection.submit({'number': number}, answers)
        connection.start()
        answers.wait(3)
        assert [outcome.reply['echo'] for outcome in answers.outcomes] == [0, 1, 2]


def test_a_request_is_made_when_its_turn_comes(connect):
    release, seen = threading.Event(), []
    with HostileServer(held(release, seen)) as server:
        connection = ready(connect(server.endpoint))
        answers, newest = Answers(), [1]
        connection.submit({'number': 0}, answers)
        wait_until(lambda: seen == [0], 5.0)
        connection.submit(lambda: {'number': newest[0]}, answers)
        newest[0] = 2
        release.set()
        assert answers.wait(2).reply['echo'] == 2


def test_outcomes_come_on_the_connections_thread_and_submit_does_not_wait(connect):
    release = threading.Event()
    with HostileServer(held(release)) as server:
        connection = ready(connect(server.endpoint))
        threads, answers = [], Answers()

        def done(outcome):
            threads.append(threading.current_thread())
            answers(outcome)

        connection.submit({}, done)
        assert threads == []
        release.set()
        answers.wait()
        assert threads[0].name.startswith('model connection')


def test_what_fails_in_a_callback_stays_there(connect, caplog):
    def fail(*_):
        raise RuntimeError('of the receiver')

    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint, on_change=fail))
        ticket = connection.submit({'number': 1}, fail)
        wait_until(lambda: ticket.outcome, 5.0)
        assert connection.call({'number': 2}).reply['echo'] == 2
    assert 'of the receiver' in caplog.text


def test_a_request_that_cannot_be_made_is_invalid_and_not_sent(connect):
    seen = []

    def stale():
        raise LookupError('the observation is 3 s old')

    with HostileServer(model(reply=lambda request: seen.append(request) or {})) as server:
        connection = ready(connect(server.endpoint))
        answers = Answers()
        connection.submit(stale, answers)
        outcome = answers.wait()
        assert (outcome.kind, outcome.message) == (
            'invalid',
            'request: the observation is 3 s old',
        )
        assert isinstance(outcome.error, LookupError) and outcome.generation == 0
        for bad in ({'x': np.array([object()])}, {'x': object()}, ['no', 'mapping', object()]):
            assert connection.call(bad).kind == 'invalid'
        assert connection.call({'number': 1}).ok
        assert [request['number'] for request in seen] == [1]


def test_parse_makes_the_value_or_an_invalid_outcome(connect):
    def parse(reply):
        if reply['echo'] < 0:
            raise ValueError('actions[3].gripper: expected a finite number (got nan)')
        return reply['echo'] * 10

    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint))
        assert connection.call({'number': 4}, parse=parse).value == 40
        outcome = connection.call({'number': -1}, parse=parse)
        assert outcome.kind == 'invalid' and outcome.value is None
        assert outcome.message.startswith('reply: actions[3].gripper: expected a finite')
        assert isinstance(outcome.error, ValueError)
        assert connection.generation == 1


def test_the_token_goes_into_the_handshake(connect):
    with HostileServer(model()) as server:
        ready(connect(server.endpoint, token='secret'))
        ready(connect(server.endpoint))
        assert server.peers[0].headers['Authorization'] == 'Api-Key secret'
        assert 'Authorization' not in server.peers[1].headers


def test_many_threads_get_one_outcome_for_each_request(connect):
    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint))
        answers, count = [[] for _ in range(8)], 40

        def work(index):
            for number in range(count):
                ticket = connection.submit(
                    {'number': index * count + number}, answers[index].append
                )
                if number % 3 == 0:
                    ticket.cancel()

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: all(len(one) >= count for one in answers), 20.0)
        assert connection.call({'number': 7}).reply['echo'] == 7
        for index, outcomes in enumerate(answers):
            assert len(outcomes) == count
            replies = [outcome.reply['echo'] for outcome in outcomes if outcome.ok]
            assert replies == sorted(replies) and len(set(replies)) == len(replies)
            assert all(index * count <= number < (index + 1) * count for number in replies)
            assert {outcome.kind for outcome in outcomes} <= {'reply', 'cancelled'}
            assert len(replies) >= count - (count + 2) // 3


@pytest.mark.parametrize('half', ['sleep', 'collect'])
def test_a_fault_of_our_own_ends_the_request_and_the_connection_comes_back(
    connect, monkeypatch, half
):
    def broken(channel, message):
        monkeypatch.undo()
        raise RuntimeError('a fault')

    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint))
        monkeypatch.setattr(Channel, half, broken)
        outcome = connection.call({'number': 1})
        assert outcome.kind == 'lost' and outcome.message.endswith('RuntimeError: a fault')
        wait_until(lambda: connection.generation == 2, 10.0)
        assert connection.call({'number': 2}).reply['echo'] == 2


def test_the_thread_sleeps_while_nothing_happens(connect, monkeypatch):
    pause, waits, sleep = threading.Event(), [], Channel.sleep

    def counted(channel, deadline):
        waits.append(deadline)
        return sleep(channel, deadline)

    with HostileServer(model(reply=lambda request: pause.wait(0.5) or {})) as server:
        connection = ready(connect(server.endpoint, ping_interval_s=30.0))
        monkeypatch.setattr(Channel, 'sleep', counted)
        assert connection.call({}).ok
        pause.wait(0.5)
        assert len(waits) <= 4


# --- cancel ---


def test_cancel_ends_a_request_at_once_and_its_late_reply_is_dropped(connect):
    release, seen = threading.Event(), []
    limits = {'cancel_grace_s': 10.0, 'receive_timeout_s': 10.0}
    with HostileServer(held(release, seen)) as server:
        connection = ready(connect(server.endpoint, **limits))
        answers, threads, parsed = Answers(), [], []

        def done(outcome):
            threads.append(threading.current_thread())
            answers(outcome)

        ticket = connection.submit({'number': 1}, done, parse=parsed.append)
        wait_until(lambda: seen == [1], 5.0)
        began = time.monotonic()
        assert ticket.cancel()
        assert answers.outcomes[0].kind == 'cancelled'
        assert answers.times[0] - began < 0.05
        assert threads == [threading.current_thread()]
        assert not ticket.cancel()
        connection.submit({'number': 2}, answers)
        release.set()
        assert answers.wait(2).reply['echo'] == 2
        assert seen == [1, 2] and len(server.peers) == 1 and parsed == []
        assert len(answers.outcomes) == 2


def test_a_request_cancelled_in_the_queue_is_never_sent(connect):
    release, seen = threading.Event(), []
    with HostileServer(held(release, seen)) as server:
        connection = ready(connect(server.endpoint))
        answers = Answers()
        connection.submit({'number': 1}, answers)
        wait_until(lambda: seen == [1], 5.0)
        waiting = connection.submit({'number': 2}, answers)
        connection.submit({'number': 3}, answers)
        assert waiting.cancel() and answers.outcomes[0].kind == 'cancelled'
        release.set()
        answers.wait(3)
        assert seen == [1, 3]


def test_a_request_cancelled_while_it_is_made_is_never_sent(connect):
    making, cancelled, seen = threading.Event(), threading.Event(), []
    with HostileServer(model(reply=lambda request: seen.append(request) or {})) as server:
        connection = ready(connect(server.endpoint))
        answers = Answers()

        def make():
            making.set()
            cancelled.wait(5.0)
            return {'number': 1}

        ticket = connection.submit(make, answers)
        assert making.wait(5.0)
        ticket.cancel()
        cancelled.set()
        assert connection.call({'number': 2}).ok
        assert [request['number'] for request in seen] == [2]
        assert [outcome.kind for outcome in answers.outcomes] == ['cancelled']


def test_cancel_after_the_reply_changes_nothing(connect):
    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint))
        answers = Answers()
        ticket = connection.submit({'number': 1}, answers)
        answers.wait()
        assert not ticket.cancel()
        assert [outcome.kind for outcome in answers.outcomes] == ['reply']


def test_cancels_at_random_moments_never_mix_up_replies(connect):
    pause, chance = threading.Event(), random.Random(11)

    def reply(request):
        pause.wait(request['takes'])
        return echo(request)

    limits = {'receive_timeout_s': 10.0, 'first_reply_timeout_s': 10.0, 'cancel_grace_s': 5.0}
    with HostileServer(model(reply=reply)) as server:
        connection = ready(connect(server.endpoint, **limits))
        answers = Answers()
        for number in range(200):
            request = {'number': number, 'takes': chance.uniform(0, 0.003)}
            ticket = connection.submit(request, answers)
            pause.wait(chance.uniform(0, 0.004))
            ticket.cancel()
            outcome = answers.wait(number + 1)
            assert outcome.kind == 'cancelled' or outcome.reply['echo'] == number
        assert connection.call({'number': -5, 'takes': 0.0}).reply['echo'] == -5
        assert connection.generation == 1 and len(answers.outcomes) == 200


def test_a_server_that_stays_silent_after_a_cancel_is_replaced_for_who_waits(connect):
    def stalled(peer):
        peer.greet()
        peer.receive()
        peer.be_silent()

    limits = {'receive_timeout_s': 20.0, 'first_reply_timeout_s': 20.0}
    with HostileServer(stalled, model(OTHER, echo)) as server:
        phases = []
        connection = connect(
            server.endpoint, on_change=lambda: phases.append(connection.status.phase), **limits
        )
        ready(connection)
        ticket = connection.submit({'number': 1}, Answers())
        wait_until(lambda: ticket.sent, 5.0)
        ticket.cancel()
        began = time.monotonic()
        outcome = connection.call({'number': 2})
        assert outcome.ok and outcome.reply['model'] == 'second'
        assert time.monotonic() - began < 0.15 + SLACK_S
        assert connection.generation == 2
        assert 'lost' not in phases


def test_the_grace_after_a_cancel_follows_the_models_own_pace(connect):
    limits = {'cancel_grace_s': 0.01, 'receive_timeout_s': 10.0}
    pause = threading.Event()

    def reply(request):
        pause.wait(0.3)
        return echo(request)

    with HostileServer(model(reply=reply)) as server:
        connection = ready(connect(server.endpoint, **limits))
        assert connection.call({'number': 0}).ok
        ticket = connection.submit({'number': 1}, Answers())
        wait_until(lambda: ticket.sent, 5.0)
        ticket.cancel()
        assert connection.call({'number': 2}).reply['echo'] == 2
        assert connection.generation == 1


def test_a_connection_is_kept_while_nobody_waits_for_a_cancelled_request(connect):
    release = threading.Event()

    def slow(peer):
        peer.greet()
        while (message := peer.receive()) is not None:
            while not release.wait(0.05):
                peer.raw(b'\x89\x00')  # a ping
            peer.send(wire.pack(echo(wire.unpack(message))))

    limits = {'cancel_grace_s': 0.01, 'receive_timeout_s': 10.0, 'first_reply_timeout_s': 10.0}
    with HostileServer(slow) as server:
        connection = ready(connect(server.endpoint, **limits))
        ticket = connection.submit({'number': 1}, Answers())
        wait_until(lambda: ticket.sent, 5.0)
        ticket.cancel()
        assert connection.wait(0.5, 'lost', 'connecting').phase == 'ready'
        release.set()
        wait_until(lambda: connection._conversation.present is None, 5.0)
        assert connection.call({'number': 2}).reply['echo'] == 2
        assert connection.generation == 1


# --- status and generation ---


def test_the_status_tells_each_phase_with_a_reason(connect):
    port, seen = refusing_port(), []
    connection = connect(
        f'127.0.0.1:{port}', start=False, on_change=lambda: seen.append(connection.status)
    )
    assert connection.status[:2] == ('connecting', 'not started')
    connection.start()
    assert connection.wait(5.0, 'lost').phase == 'lost'
    assert connection.metadata is None and connection.generation == 0
    with HostileServer(model(), port=port):
        ready(connection)
        assert connection.status.reason == ''
    assert connection.wait(5.0, 'lost').phase == 'lost'
    connection.close()
    assert connection.status[:2] == ('closed', 'closed')
    phases = [status.phase for status in seen]
    assert phases[0] == 'lost' and 'ready' in phases and phases[-1] == 'closed'
    assert f'ws://127.0.0.1:{port}/: cannot connect: Connection refused' == seen[0].reason
    assert all(status.reason for status in seen if status.phase != 'ready')


def test_another_model_behind_the_endpoint_is_another_generation(connect):
    first = HostileServer(model(reply=echo))
    connection = ready(connect(first.endpoint))
    assert connection.call({}, generation=1).ok
    first.stop()
    assert connection.wait(5.0, 'lost').phase == 'lost'
    assert connection.metadata is None
    with HostileServer(model(OTHER, echo), port=first.port):
        ready(connection)
        assert connection.metadata == OTHER and connection.generation == 2
        stale = connection.call({}, generation=1)
        assert stale.kind == 'lost' and 'replaced' in stale.message and stale.timing.sent == 0
        assert connection.call({}, generation=2).reply['model'] == 'second'


def test_pauses_between_attempts_double_up_to_the_longest(connect):
    times = []

    def refuse(peer):
        times.append(time.monotonic())
        peer.deny(503, 'loading')

    with HostileServer(refuse) as server:
        connection = connect(server.endpoint, backoff_s=(0.05, 0.4))
        wait_until(lambda: len(times) >= 7, 20.0)
        gaps = np.diff(times)
        for gap, pause in zip(gaps, (0.05, 0.1, 0.2, 0.4, 0.4, 0.4), strict=False):
            assert 0.5 * pause <= gap < pause + SLACK_S
        assert connection.status.attempts >= 6


def test_a_server_that_closes_after_its_metadata_is_not_run_against_at_full_speed(connect):
    times = []

    def fickle(peer):
        times.append(time.monotonic())
        peer.greet()
        peer.close(1000)

    with HostileServer(fickle) as server:
        connect(server.endpoint, backoff_s=(0.05, 0.4))
        wait_until(lambda: len(times) >= 6, 20.0)
        assert np.diff(times)[3:].min() >= 0.2


@pytest.mark.parametrize(
    ('text', 'url'),
    [
        ('127.0.0.1:8000', 'ws://127.0.0.1:8000/'),
        ('ws://gpu-box:8220', 'ws://gpu-box:8220/'),
        ('http://localhost:1', 'ws://localhost:1/'),
        ('ws://[::1]:8000/policy', 'ws://[::1]:8000/policy'),
    ],
)
def test_endpoints_are_read(text, url):
    assert endpoint_of(text).url == url


@pytest.mark.parametrize(
    'text',
    [
        '',
        'localhost',
        ':8000',
        'ws://host',
        'host:99999',
        'host:abc',
        'wss://host:1',
        'tcp://host:1',
        'ws://me:secret@host:1',
        'ws://host:1?a=b',
        'ho st:1',
        'host:1\r\nX: y',
    ],
)
def test_what_is_no_endpoint_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match=r'endpoint must be ws://HOST:PORT'):
        Connection(text)


def test_a_name_that_does_not_exist_is_lost_with_a_reason(connect):
    connection = connect('nowhere.invalid:1')
    status = connection.wait(10.0, 'lost')
    assert status.phase == 'lost' and 'nowhere.invalid' in status.reason


# --- close ---


def test_close_ends_what_waits(connect):
    release, seen = threading.Event(), []
    with HostileServer(held(release, seen)) as server:
        connection = ready(connect(server.endpoint))
        answers = Answers()
        for number in range(3):
            connection.submit({'number': number}, answers)
        wait_until(lambda: seen == [0], 5.0)
        connection.close()
        assert [outcome.kind for outcome in answers.outcomes] == ['closed'] * 3
        assert connection.call({}).kind == 'closed'
        release.set()


def test_close_says_good_bye(connect):
    with HostileServer(model()) as server:
        ready(connect(server.endpoint)).close()
        wait_until(lambda: server.peers[0].close_code == 1000, 5.0)


def test_close_before_the_start_and_twice(connect):
    connection = connect('127.0.0.1:1', start=False)
    answers = Answers()
    connection.submit({}, answers)
    connection.close()
    connection.close()
    assert answers.outcomes[0].kind == 'closed'
    with pytest.raises(RuntimeError):
        connection.start()


def test_a_connection_may_be_closed_by_its_own_callback(connect):
    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint))
        ended = threading.Event()

        def done(_):
            connection.close()
            ended.set()

        connection.submit({'number': 1}, done)
        assert ended.wait(5.0)
        assert connection.status.phase == 'closed'


def test_close_does_not_wait_for_a_callback_that_hangs():
    release, entered = threading.Event(), threading.Event()
    with HostileServer(model(reply=echo)) as server:
        connection = Connection(server.endpoint)
        connection.start()
        ready(connection)

        def hang():
            entered.set()
            release.wait(10.0)
            return {}

        answers = Answers()
        connection.submit(hang, answers)
        assert entered.wait(5.0)
        connection.submit({}, answers)
        began = time.monotonic()
        connection.close()
        assert time.monotonic() - began < 1.0
        assert [outcome.kind for outcome in answers.outcomes] == ['closed', 'closed']
        release.set()


# --- the wire on the way ---


def test_a_reply_in_fragments_with_pings_between_them_is_put_together(connect):
    payload = wire.pack({'actions': np.arange(12, dtype='f4').reshape(4, 3)})

    def script(peer):
        peer.greet()
        peer.receive()
        ping = b'\x89\x02hi'
        peer.raw(peer.frame(payload[:10], fin=False) + ping)
        peer.raw(peer.frame(payload[10:20], fin=False, follows=True) + ping)
        peer.raw(peer.frame(payload[20:], follows=True))
        assert peer.receive() is not None
        peer.send(wire.pack({'pongs': 0}))

    with HostileServer(script) as server:
        connection = ready(connect(server.endpoint))
        reply = connection.call({}).reply
        np.testing.assert_array_equal(reply['actions'], np.arange(12, dtype='f4').reshape(4, 3))
        assert connection.call({}).ok
        assert server.failures == []


def test_large_messages_pass_both_ways(connect):
    def reply(request):
        return {'future': request['image'][::-1].copy()}

    image = np.random.default_rng(0).integers(0, 256, (4, 720, 1280, 3), dtype=np.uint8)
    with HostileServer(model(reply=reply)) as server:
        connection = ready(
            connect(server.endpoint, receive_timeout_s=20.0, first_reply_timeout_s=20.0)
        )
        outcome = connection.call({'image': image})
        np.testing.assert_array_equal(outcome.reply['future'], image[::-1])


def test_an_idle_connection_stays_while_the_server_answers_pings(connect):
    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint))
        assert connection.wait(1.2, 'lost', 'connecting').phase == 'ready'
        assert connection.call({'number': 1}).ok and connection.generation == 1


# --- sending in the thread that submits ---


def test_a_quick_request_leaves_in_the_thread_that_submits_it(connect):
    threads, ended = [], threading.Event()

    def make():
        threads.append(threading.current_thread())
        return {'number': 1}

    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint))
        ticket = connection.submit(make, lambda _: ended.set(), at_once=True)
        assert ended.wait(5.0)
        assert ticket.outcome.reply['echo'] == 1
        assert threads == [threading.current_thread()]


def test_a_quick_request_waits_its_turn_while_another_is_under_way(connect):
    go, outcomes, both = threading.Event(), [], threading.Event()

    def slow(request):
        if request['number'] == 1:
            go.wait(5.0)
        return echo(request)

    def note(outcome):
        outcomes.append(outcome.reply['echo'])
        if len(outcomes) == 2:
            both.set()

    with HostileServer(model(reply=slow)) as server:
        connection = ready(connect(server.endpoint))
        for number in (1, 2):
            connection.submit({'number': number}, note, at_once=True)
        go.set()
        assert both.wait(5.0)
        assert outcomes == [1, 2]


def test_a_quick_request_that_cannot_be_made_harms_nothing(connect):
    with HostileServer(model(reply=echo)) as server:
        connection = ready(connect(server.endpoint))

        def broken():
            raise KeyError('wrist')

        outcome = connection.call(broken, at_once=True)
        assert (outcome.kind, outcome.message) == ('invalid', "request: 'wrist'")
        assert connection.call({'number': 2}, at_once=True).reply['echo'] == 2


def test_a_quick_request_is_given_up_when_no_reply_comes(connect):
    # The thread sleeps for longer than the reply may take when the request is launched.
    never = threading.Event()
    with HostileServer(model(reply=lambda _: never.wait(5.0) or {})) as server:
        connection = ready(
            connect(
                server.endpoint,
                receive_timeout_s=0.3,
                first_reply_timeout_s=0.3,
                ping_interval_s=60.0,
            )
        )
        assert connection.call({}, at_once=True).kind == 'timeout'
        never.set()


def test_every_quick_request_ends_once_while_the_server_comes_and_goes(connect):
    def unreliable(request):
        if request['number'] % 7 == 3:
            raise ConnectionAbortedError
        return echo(request)

    counts, replies, lock = {}, [], threading.Lock()
    with HostileServer(model(reply=unreliable)) as server:
        connection = ready(connect(server.endpoint, backoff_s=(0.01, 0.02)))

        def ask(first):
            for number in range(first, first + 40):
                ended = threading.Event()

                def note(outcome, number=number, ended=ended):
                    with lock:
                        counts[number] = counts.get(number, 0) + 1
                        replies.append((number, outcome.reply['echo'] if outcome.ok else number))
                    ended.set()

                connection.submit({'number': number}, note, at_once=True)
                assert ended.wait(10.0)

        threads = [threading.Thread(target=ask, args=(100 * index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(counts) == 160 and set(counts.values()) == {1}
    assert all(number == echoed for number, echoed in replies)
