# SPDX-License-Identifier: Apache-2.0
"""Asks a model server over HTTP whether it is ready."""

from __future__ import annotations

import http.client
from typing import NamedTuple

from praxis_models.transport.endpoint import Endpoint

PATH = '/healthz'


class Health(NamedTuple):
    """What a server answered.

    Attributes:
        state: 'ready', 'loading' (HTTP 503), 'other' (another answer) or 'silent'.
        detail: The answer or the error in a few words.
    """

    state: str
    detail: str


def ask(endpoint: Endpoint, timeout: float) -> Health:
    """Get /healthz.

    Args:
        endpoint: Of the server.
        timeout: Seconds for each step of the exchange.
    """
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)
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
