# SPDX-License-Identifier: Apache-2.0
import sys
import time
from pathlib import Path

import pytest
from praxis_models.transport.zmtp import RequestSocket, ZmtpError, address

sys.path.insert(0, str(Path(__file__).parent))
from fakes.zmtp_server import GREETING, ReplyServer


@pytest.fixture
def server():
    server = ReplyServer(lambda body: body[::-1])
    yield server
    server.close()


@pytest.fixture
def client(server):
    client = RequestSocket('127.0.0.1', server.port)
    yield client
    client.close()


@pytest.mark.parametrize('size', [0, 1, 255, 256, 3_000_000])
def test_bodies_of_every_length_come_back(client, size):
    body = bytes(range(256)) * (size // 256) + b'x' * (size % 256)
    assert client.request(body, 5.0) == body[::-1]


def test_one_connection_serves_many_requests(server, client):
    for _ in range(4):
        client.request(b'abc', 5.0)
    assert server.connections == 1


def test_commands_between_messages_are_passed_over(server, client):
    server.before = b'\x04\x07\x04PING\x00\x0a'
    assert client.request(b'abc', 5.0) == b'cba'


def test_a_server_that_does_not_answer_is_given_up_in_time(server, client):
    server.hold = True
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        client.request(b'abc', 0.2)
    assert time.monotonic() - started < 2.0


def test_a_late_answer_is_not_taken_for_the_next(server, client):
    server.hold = True
    with pytest.raises(TimeoutError):
        client.request(b'first', 0.2)
    server.hold = False
    assert client.request(b'second', 5.0) == b'dnoces'
    assert server.connections == 2


@pytest.mark.parametrize(
    ('greeting', 'what'),
    [
        (b'HTTP/1.1 400 Bad Request'.ljust(64, b' '), 'does not speak ZMTP 3'),
        (GREETING[:10] + b'\x01' + GREETING[11:], 'does not speak ZMTP 3'),
        (GREETING[:12] + b'CURVE'.ljust(20, b'\0') + GREETING[32:], 'a mechanism other than NULL'),
    ],
    ids=['http', 'old', 'curve'],
)
def test_a_server_of_another_protocol_is_named(server, client, greeting, what):
    server.greeting = greeting
    with pytest.raises(ZmtpError, match=what):
        client.request(b'abc', 5.0)


@pytest.mark.parametrize(
    ('raw', 'what'),
    [
        (b'\x00\x01x', 'got 1 frames'),
        (b'\x01\x01x\x00\x01x', 'expected an empty frame'),
        (b'\xff', 'flags 0xff'),
        (b'\x02' + b'\xff' * 8, 'a frame of 18446744073709551615 bytes'),
    ],
    ids=['one', 'full', 'flags', 'huge'],
)
def test_what_is_no_answer_is_refused_and_the_connection_left(server, client, raw, what):
    server.raw = raw
    with pytest.raises(ZmtpError, match=what):
        client.request(b'abc', 5.0)
    server.raw = None
    assert client.request(b'abc', 5.0) == b'cba'


def test_a_server_that_is_gone_is_an_error_and_comes_back(server, client):
    assert client.request(b'abc', 5.0) == b'cba'
    server.close()
    with pytest.raises(OSError):
        client.request(b'abc', 1.0)
    again = ReplyServer(lambda body: body, server.port)
    assert client.request(b'abc', 5.0) == b'abc'
    again.close()


def test_addresses_are_read():
    assert address('tcp://10.0.0.2:5555') == ('10.0.0.2', 5555)
    assert address('localhost:5555') == ('localhost', 5555)
    for wrong in ('ipc:///x', 'localhost', 'http://a:1'):
        with pytest.raises(ValueError, match=r'must be tcp://HOST:PORT'):
            address(wrong)
