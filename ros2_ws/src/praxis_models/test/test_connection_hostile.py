# SPDX-License-Identifier: Apache-2.0
"""A server may do what it likes: an outcome in bounded time, and recovery when it gets well."""

import contextlib
import re
import struct
import sys
import threading
import time
from pathlib import Path

import msgpack
import numpy as np
import pytest
from praxis_core.model_exchange import check_reply
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import LIBERO_7D
from praxis_core.testing import wait_until

sys.path.insert(0, str(Path(__file__).parent))

from connection_rig import SLACK_S, Answers, fixture_connect, ready  # noqa: F401
from hostile_server import META, HostileServer, model, refusing_port
from praxis_models.transport import wire

LIBERO = ModelMeta(backend='noop', control=LIBERO_7D, chunk_size=2)
GOOD = {'actions': np.zeros((2, 7), dtype=np.float32)}


def after_request(*steps):
    """A script: greets, takes one request, then does the steps."""

    def script(peer):
        peer.greet()
        assert peer.receive() is not None
        for step in steps:
            step(peer)

    return script


def send(*messages):
    return lambda peer: peer.send(*messages)


def silence(peer):
    peer.be_silent()


def hang_up(peer):
    peer.hang_up()


def reset(peer):
    peer.reset()


def read_on(peer):
    while peer.receive() is not None:
        pass


def ask(connection, **arguments):
    """Outcome of one request, and the seconds that it took."""
    began = time.monotonic()
    outcome = connection.call({'number': 1}, **arguments)
    return outcome, time.monotonic() - began


def recovers(connection):
    """The connection finds the next, good server by itself."""
    ready(connection)
    outcome, _ = ask(connection)
    assert outcome.ok, outcome


# --- no connection ---


def http_garbage(peer):
    peer.socket.recv(4096)
    peer.raw(b'SSH-2.0-OpenSSH_9.2\r\n\r\n')
    peer.be_silent()


def half_a_handshake(peer):
    peer.socket.recv(4096)
    peer.raw(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: webso')
    peer.be_silent()


def dripping_handshake(peer):
    peer.socket.recv(4096)
    peer.drip(b'HTTP/1.1 101 Switching Protocols\r\nX-Padding: ' + b'x' * 4000, 0.02)


def wrong_key(peer):
    peer.socket.recv(4096)
    peer.raw(
        b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
        b'Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n'
    )
    peer.be_silent()


def endless_headers(peer):
    peer.socket.recv(4096)
    peer.raw(b'HTTP/1.1 101 Switching Protocols\r\n')
    while not peer.stopped.is_set():
        peer.raw(b'X-Padding: ' + b'x' * 1000 + b'\r\n')


OPENINGS = {
    'silent': (silence, 'lost', 'no answer to the handshake within 0.5 s'),
    'hangs up': (hang_up, 'lost', 'closed the connection during the handshake|Connection reset'),
    'reset': (reset, 'lost', 'Connection reset|closed the connection during the handshake'),
    'half a handshake': (half_a_handshake, 'lost', 'no answer to the handshake within 0.5 s'),
    'dripping': (dripping_handshake, 'lost', 'no answer to the handshake within 0.5 s'),
    'not HTTP': (http_garbage, 'refused', 'no WebSocket there'),
    'wrong key': (wrong_key, 'refused', 'no WebSocket there'),
    'endless headers': (endless_headers, 'refused', 'no WebSocket there'),
    'HTTP 403': (lambda peer: peer.deny(403, 'no token\n'), 'refused', 'HTTP 403 Forbidden: no'),
    'HTTP 503': (lambda peer: peer.deny(503, '{"status":"loading"}'), 'refused', 'loading'),
    'HTTP 302': (lambda peer: peer.deny(302, ''), 'refused', 'HTTP 302 Found'),
    'no metadata': (lambda peer: [peer.accept(), silence(peer)], 'refused', 'no metadata within'),
    'text': (
        lambda peer: [peer.accept(), peer.send('not today\nnor ever'), silence(peer)],
        'refused',
        'refused: not today$',
    ),
    'text and close': (
        lambda peer: [peer.accept(), peer.send('not today'), peer.close(1011)],
        'refused',
        'refused: not today',
    ),
    'garbage': (
        lambda peer: [peer.accept(), peer.send(b'\xc1\xff\x00'), silence(peer)],
        'refused',
        'metadata cannot be read',
    ),
    'a list': (lambda peer: [peer.greet([1, 2]), silence(peer)], 'refused', 'no dictionary'),
    'an array of objects': (
        lambda peer: [
            peer.accept(),
            peer.send(msgpack.packb({b'__ndarray__': True, b'dtype': '|O', b'shape': [1]})),
            silence(peer),
        ],
        'refused',
        'metadata cannot be read',
    ),
    'oversized': (
        lambda peer: [peer.greet({'x': b'0' * 300_000}), silence(peer)],
        'lost',
        'above the limit',
    ),
    'dripping metadata': (
        lambda peer: [peer.accept(), peer.drip(peer.frame(wire.pack({'x': 'y' * 500})), 0.02)],
        'refused',
        'no metadata within 0.4 s',
    ),
    'two messages': (
        lambda peer: [peer.accept(), peer.send(wire.pack(META), wire.pack({})), silence(peer)],
        'refused|lost',
        'out of turn',
    ),
    'closes instead': (
        lambda peer: [peer.accept(), peer.close(1013, 'try later')],
        'lost',
        'closed the connection: 1013 try later',
    ),
    'broken frame': (
        lambda peer: [peer.accept(), peer.raw(b'\xff\xff\xff\xff'), silence(peer)],
        'lost',
        'broken WebSocket',
    ),
}


@pytest.mark.parametrize('case', OPENINGS)
def test_an_opening_that_goes_wrong_is_told_and_tried_again(connect, case):
    script, phase, reason = OPENINGS[case]
    with HostileServer(script, model()) as server:
        answers, seen = Answers(), []
        connection = connect(
            server.endpoint,
            start=False,
            max_message_bytes=200_000,
            on_change=lambda: seen.append(connection.status),
        )
        connection.submit({}, answers)
        began = time.monotonic()
        connection.start()
        outcome = answers.wait()
        assert answers.times[0] - began < 1.0 + SLACK_S
        bad = next(status for status in seen if status.phase != 'ready')
        assert re.fullmatch(phase, bad.phase), bad
        assert re.search(reason, bad.reason), bad
        assert outcome.kind == bad.phase and outcome.message == bad.reason
        recovers(connection)


def test_a_refusing_port_is_lost_and_found_when_somebody_listens(connect):
    port = refusing_port()
    connection = connect(f'127.0.0.1:{port}')
    assert connection.wait(5.0, 'lost').phase == 'lost'
    outcome, took = ask(connection)
    assert outcome.kind == 'lost' and 'Connection refused' in outcome.message
    assert took < 0.2 + SLACK_S
    with HostileServer(model(), port=port):
        recovers(connection)


# --- no reply ---


def half_a_frame(peer):
    peer.raw(peer.frame(wire.pack(GOOD))[:40])


REPLIES = {
    'silent': (after_request(silence), 'timeout', 'no reply within 0.8 s'),
    'reads on': (after_request(read_on), 'timeout', 'no reply within 0.8 s'),
    'dripping': (
        after_request(lambda peer: peer.drip(peer.frame(wire.pack(GOOD)), 0.05)),
        'timeout',
        'no reply within 0.8 s',
    ),
    'half a reply': (after_request(half_a_frame, silence), 'timeout', 'no reply within'),
    'half a reply and hang up': (after_request(half_a_frame, hang_up), 'lost', 'closed|reset'),
    'hangs up': (after_request(hang_up), 'lost', 'closed the connection'),
    'reset': (after_request(reset), 'lost', 'Connection reset|closed the connection'),
    'closes': (after_request(lambda peer: peer.close(1001, 'bye')), 'lost', '1001 bye'),
    'oversized': (
        after_request(send(wire.pack({'x': b'0' * 300_000})), silence),
        'invalid',
        'above the limit',
    ),
    'claims 2^62 bytes': (
        after_request(lambda peer: peer.raw(b'\x82\x7f' + struct.pack('!Q', 1 << 62)), silence),
        'invalid',
        'above the limit',
    ),
    'broken frame': (
        after_request(lambda peer: peer.raw(b'\xff\xff'), silence),
        'invalid',
        'broken WebSocket',
    ),
    'masked frame': (
        after_request(lambda peer: peer.raw(b'\x82\x81\x00\x00\x00\x00a'), silence),
        'invalid',
        'broken WebSocket',
    ),
}


@pytest.mark.parametrize('case', REPLIES)
def test_a_request_without_a_reply_ends_and_the_next_server_is_found(connect, case):
    script, kind, message = REPLIES[case]
    with HostileServer(script, model()) as server:
        connection = ready(connect(server.endpoint, max_message_bytes=200_000))
        outcome, took = ask(connection)
        assert (outcome.kind, outcome.generation) == (kind, 1), outcome
        assert re.search(message, outcome.message), outcome
        assert took < 0.8 + SLACK_S
        recovers(connection)
        assert connection.generation == 2


def test_a_request_that_waits_behind_a_lost_one_is_told_at_once(connect):
    with HostileServer(after_request(lambda peer: peer.be_silent(0.2), reset)) as server:
        connection = ready(connect(server.endpoint, backoff_s=(5.0, 5.0)))
        answers = Answers()
        for _ in range(3):
            connection.submit({}, answers)
        answers.wait(3)
        assert [outcome.kind for outcome in answers.outcomes] == ['lost'] * 3
        assert answers.times[2] - answers.times[0] < 0.2 + SLACK_S


def test_the_first_reply_may_take_longer_than_the_others(connect):
    pauses = iter([0.6, 0.0, 0.6])

    def slow(peer):
        peer.greet()
        while peer.receive() is not None:
            peer.be_silent(next(pauses))
            peer.send(wire.pack({}))

    with HostileServer(slow) as server:
        connection = ready(connect(server.endpoint, first_reply_timeout_s=5.0))
        assert ask(connection)[0].ok
        assert ask(connection)[0].ok
        outcome, took = ask(connection)
        assert outcome.kind == 'timeout' and outcome.message == 'no reply within 0.4 s'
        assert 0.4 <= took < 0.4 + SLACK_S


def test_a_control_call_does_not_use_up_the_first_replys_time(connect):
    pauses = iter([0.0, 0.6])

    def slow(peer):
        peer.greet()
        while peer.receive() is not None:
            peer.be_silent(next(pauses))
            peer.send(wire.pack({}))

    with HostileServer(slow) as server:
        connection = ready(connect(server.endpoint, first_reply_timeout_s=5.0))
        assert connection.call({'method': 'reset', 'session_id': 's_1'}).ok
        assert ask(connection)[0].ok


def test_a_control_call_is_not_given_the_first_replys_time(connect):
    with HostileServer(after_request(silence)) as server:
        connection = ready(connect(server.endpoint, first_reply_timeout_s=60.0))
        outcome = connection.call({'method': 'reset', 'session_id': 's_1'})
        assert (outcome.kind, outcome.message) == ('timeout', 'no reply within 0.4 s')


def test_a_request_may_have_a_time_of_its_own(connect):
    with HostileServer(after_request(silence), model()) as server:
        connection = ready(connect(server.endpoint, first_reply_timeout_s=60.0))
        outcome, took = ask(connection, timeout_s=0.1)
        assert outcome.kind == 'timeout' and took < 0.1 + SLACK_S


# --- refusals ---


def test_openpis_traceback_and_close_is_a_refusal_and_the_next_request_passes(connect):
    traceback = 'Traceback (most recent call last):\n  File "a.py"\nKeyError: \'state\'\n'

    def openpi(peer):
        peer.greet()
        peer.receive()
        peer.send(traceback)
        peer.close(1011, 'Internal server error. Traceback included in previous frame.')

    with HostileServer(openpi, model()) as server:
        connection = ready(connect(server.endpoint))
        answers = Answers()
        for _ in range(2):  # the second one is queued when the refusal comes
            connection.submit({}, answers)
        answers.wait(2)
        refused, passed = answers.outcomes
        assert (refused.kind, refused.message) == ('refused', "KeyError: 'state'")
        assert passed.ok and passed.generation == 2, passed


def test_a_refusal_that_keeps_the_connection_open_is_one(connect):
    def polite(peer):
        peer.greet()
        peer.receive()
        peer.send('state: expected numbers of shape [8] (got nothing)')
        while peer.receive() is not None:
            peer.send(wire.pack({}))

    with HostileServer(polite) as server:
        connection = ready(connect(server.endpoint))
        outcome, _ = ask(connection)
        assert outcome.kind == 'refused'
        assert outcome.message == 'state: expected numbers of shape [8] (got nothing)'
        assert ask(connection)[0].ok
        assert connection.generation == 1 and len(server.peers) == 1


def test_a_refusal_may_be_empty_or_no_utf_8(connect):
    def script(peer):
        peer.greet()
        peer.receive()
        peer.send('')
        peer.receive()
        peer.raw(b'\x81\x03a\xff\n')
        peer.be_silent()

    with HostileServer(script) as server:
        connection = ready(connect(server.endpoint))
        assert ask(connection)[0].message == 'the server gave no reason'
        assert ask(connection)[0].message == 'a\ufffd'


# --- replies that are none ---


def array(dtype, shape, data):
    return {b'__ndarray__': True, b'dtype': dtype, b'shape': shape, b'data': data}


NAN = {'actions': np.full((2, 7), np.nan, dtype=np.float32)}
NO_REPLIES = {
    'nan': wire.pack(NAN),
    'wrong shape': wire.pack({'actions': np.zeros((2, 8), dtype=np.float32)}),
    'wrong length': wire.pack({'actions': np.zeros((3, 7), dtype=np.float32)}),
    'flat': wire.pack({'actions': np.zeros(14, dtype=np.float32)}),
    'bool': wire.pack({'actions': np.zeros((2, 7), dtype=bool)}),
    'text': wire.pack({'actions': np.full((2, 7), '0')}),
    'a list': wire.pack({'actions': [[0.0] * 7] * 2}),
    'nothing': wire.pack({}),
    'a list of replies': wire.pack([GOOD]),
    'nil': wire.pack(None),
    'empty': b'',
    'truncated': wire.pack(GOOD)[:-3],
    'extra data': wire.pack(GOOD) + b'\x00',
    'garbage': b'\xc1' * 100,
    'objects': msgpack.packb({'actions': array('|O', [1], b'\x00' * 8)}),
    'huge claim': msgpack.packb({'actions': array('<f4', [1 << 40, 7], b'\x00' * 56)}),
    'negative': msgpack.packb({'actions': array('<f4', [-2, -7], b'\x00' * 56)}),
    'deep': b'\x91' * 100_000 + b'\x00',
    'ext type': msgpack.packb({'actions': msgpack.ExtType(4, b'abc')}),
}


@pytest.mark.parametrize('case', NO_REPLIES)
def test_a_reply_that_is_none_is_invalid_and_the_connection_goes_on(connect, case):
    def script(peer):
        peer.greet()
        for reply in (NO_REPLIES[case], wire.pack(GOOD)):
            peer.receive()
            peer.send(reply)
        read_on(peer)

    def parse(reply):
        return check_reply(LIBERO, reply)

    with HostileServer(script) as server:
        connection = ready(connect(server.endpoint))
        outcome, took = ask(connection, parse=parse)
        assert outcome.kind == 'invalid' and outcome.message.startswith('reply: '), outcome
        assert '\n' not in outcome.message and len(outcome.message) < 400
        assert took < SLACK_S
        outcome, _ = ask(connection, parse=parse)
        assert outcome.ok and outcome.value.actions.shape == (2, 7)
        assert connection.generation == 1


# --- out of turn ---


def test_two_replies_to_one_request_are_not_taken_for_the_next_ones(connect):
    two = after_request(send(wire.pack({'n': 1}), wire.pack({'n': 2})), read_on)
    with HostileServer(two, model(reply=lambda request: {'n': 3})) as server:
        connection = ready(connect(server.endpoint))
        answers = Answers()
        for _ in range(2):
            connection.submit({}, answers)
        answers.wait(2)
        assert answers.outcomes[0].reply == {'n': 1}
        assert answers.outcomes[1].kind == 'lost' or answers.outcomes[1].reply['n'] == 3
        wait_until(lambda: connection.generation == 2, 5.0)
        assert ask(connection)[0].reply['n'] == 3


@pytest.mark.parametrize('message', [wire.pack(GOOD), 'CUDA error: out of memory'])
def test_a_message_that_nobody_asked_for_ends_the_connection(connect, message):
    def script(peer):
        peer.greet()
        peer.be_silent(0.1)
        peer.send(message)
        read_on(peer)

    with HostileServer(script, model()) as server:
        seen = []
        connection = connect(server.endpoint, on_change=lambda: seen.append(connection.status))
        wait_until(lambda: any(status.phase == 'lost' for status in seen), 5.0)
        reason = next(status.reason for status in seen if status.phase == 'lost')
        assert 'out of turn' in reason
        assert isinstance(message, bytes) or message in reason
        recovers(connection)


# --- a peer that dies between requests ---


@pytest.mark.parametrize(
    'end',
    [hang_up, reset, lambda peer: peer.close(1001, 'shutting down')],
    ids=['fin', 'rst', 'close'],
)
def test_a_loss_between_requests_is_seen_at_once(connect, end):
    go = threading.Event()

    def script(peer):
        peer.greet()
        go.wait(10.0)
        end(peer)

    with HostileServer(script, model()) as server:
        lost = []

        def changed():
            if connection.status.phase == 'lost':
                lost.append(time.monotonic())

        connection = ready(connect(server.endpoint, ping_interval_s=30.0, on_change=changed))
        began = time.monotonic()
        go.set()
        wait_until(lambda: lost, 5.0)
        assert lost[0] - began < 0.5
        recovers(connection)


def test_a_half_open_peer_is_found_by_pings(connect):
    def half_open(peer):
        peer.greet()
        silence(peer)

    with HostileServer(half_open, model()) as server:
        seen = []
        connection = connect(server.endpoint, on_change=lambda: seen.append(connection.status))
        ready(connection)
        began = time.monotonic()
        wait_until(lambda: any(status.phase == 'lost' for status in seen), 5.0)
        assert time.monotonic() - began < 0.15 + 0.25 + SLACK_S
        assert 'no answer to a ping within 0.25 s' in seen[1].reason
        recovers(connection)


def test_a_server_that_computes_need_not_answer_pings(connect):
    busy = after_request(
        lambda peer: peer.be_silent(1.0), lambda peer: peer.send(wire.pack(GOOD)), read_on
    )
    with HostileServer(busy) as server:
        connection = ready(connect(server.endpoint, first_reply_timeout_s=5.0))
        assert ask(connection)[0].ok
        assert connection.generation == 1


def test_a_peer_that_stops_reading_does_not_hold_the_connection(connect):
    def deaf(peer):
        peer.greet()
        silence(peer)

    large = {'image': np.zeros((30, 720, 1280, 3), dtype=np.uint8)}
    with HostileServer(deaf) as server:
        connection = ready(connect(server.endpoint))
        began = time.monotonic()
        outcome = connection.call(large)
        assert outcome.kind == 'timeout' and time.monotonic() - began < 0.8 + SLACK_S
        ready(connection)
        answers = Answers()
        connection.submit(large, answers)
        wait_until(lambda: connection._conversation.present, 5.0)
        began = time.monotonic()
        connection.close()
        assert time.monotonic() - began < 1.0
        assert answers.outcomes[0].kind == 'closed'


def test_pings_of_a_peer_that_reads_nothing_do_not_pile_up(connect):
    def flood(peer):
        peer.greet()
        while not peer.stopped.is_set():
            peer.raw((b'\x89\x7d' + b'p' * 125) * 1000)

    with HostileServer(flood, model()) as server:
        seen = []
        connection = connect(
            server.endpoint, ping_interval_s=60.0, on_change=lambda: seen.append(connection.status)
        )
        wait_until(lambda: any(status.phase == 'lost' for status in seen), 30.0)
        assert 'does not read' in next(s.reason for s in seen if s.phase == 'lost')
        recovers(connection)


def test_a_flooding_peer_does_not_hold_up_a_request_or_the_end(connect):
    def flood(peer):
        peer.greet()
        threading.Thread(target=drain, args=(peer,), daemon=True).start()
        while not peer.stopped.is_set():
            peer.raw((b'\x89\x00') * 100_000)

    def drain(peer):
        with contextlib.suppress(OSError):
            while peer.socket.recv(1 << 20):
                pass

    with HostileServer(flood) as server:
        connection = ready(connect(server.endpoint))
        outcome, took = ask(connection)
        assert outcome.kind == 'timeout' and took < 0.8 + SLACK_S
        wait_until(lambda: connection.generation == 2, 10.0)
        began = time.monotonic()
        connection.close()
        assert time.monotonic() - began < 1.0
        assert connection.status.phase == 'closed' and not connection._thread.is_alive()
