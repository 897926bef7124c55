# SPDX-License-Identifier: Apache-2.0
"""Where a model server listens. Imports no rclpy."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit


class Endpoint(NamedTuple):
    """Where a model server listens."""

    host: str
    port: int
    path: str = '/'

    @property
    def address(self) -> str:
        """``HOST:PORT``, with brackets around an IPv6 address."""
        return f'[{self.host}]:{self.port}' if ':' in self.host else f'{self.host}:{self.port}'

    @property
    def url(self) -> str:
        """WebSocket URL."""
        return f'ws://{self.address}{self.path}'


def endpoint_of(text: str) -> Endpoint:
    """Read ``ws://HOST:PORT[/PATH]``, ``http://HOST:PORT`` or ``HOST:PORT``.

    Raises:
        ValueError: It is none of them.
    """
    wanted = f'endpoint must be ws://HOST:PORT (got {text!r})'
    parts = urlsplit(text if '://' in text else f'ws://{text}')
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(wanted) from None
    if parts.scheme not in ('ws', 'http') or not host or not port or parts.username is not None:
        raise ValueError(wanted)
    if re.search(r'[\s\x00-\x1f]', text) or parts.query or parts.fragment:
        raise ValueError(wanted)
    return Endpoint(host, port, parts.path or '/')
