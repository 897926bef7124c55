# SPDX-License-Identifier: Apache-2.0
"""Asks a model server over HTTP whether it is ready."""

from __future__ import annotations

import http.client
from typing import NamedTuple
from urllib.parse import urlsplit

PATH = '/healthz'
_SECURE = {'ws': False, 'http': False, 'wss': True, 'https': True}


class Health(NamedTuple):
    """What a server answered.

    Attributes:
        state: 'ready', 'loading' (HTTP 503), 'other' (another answer) or 'silent'.
        detail: The answer or the error in a few words.
    """

    state: str
    detail: str


class Address(NamedTuple):
    """Where a server listens."""

    secure: bool
    host: str
    port: int


def parse_endpoint(endpoint: str) -> Address:
    """Read ``ws://host:port``, ``http://host:port`` (or with TLS) or ``host:port``.

    Raises:
        ValueError: It is none of these.
    """
    parts = urlsplit(endpoint if '://' in endpoint else f'ws://{endpoint}')
    try:
        if parts.scheme in _SECURE and parts.hostname:
            secure = _SECURE[parts.scheme]
            return Address(secure, parts.hostname, parts.port or (443 if secure else 80))
    except ValueError:  # of the port
        pass
    raise ValueError(f'endpoint: expected ws://HOST:PORT (got {endpoint!r})')


def ask(address: Address, timeout: float) -> Health:
    """Get /healthz.

    Args:
        address: Of the server.
        timeout: Seconds for each step of the exchange.
    """
    kind = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=timeout)
    try:
        connection.request('GET', PATH)
        answer = connection.getresponse()
        body = answer.read(200).decode(errors='replace').strip()
    except TimeoutError:
        return Health('silent', f'no answer within {timeout:g} s')
    except (OSError, http.client.HTTPException) as error:
        return Health('silent', str(error) or type(error).__name__)
    finally:
        connection.close()
    if answer.status == http.client.OK:
        return Health('ready', body)
    state = 'loading' if answer.status == http.client.SERVICE_UNAVAILABLE else 'other'
    return Health(state, ' '.join(filter(None, [f'HTTP {answer.status}', body])))
