# SPDX-License-Identifier: Apache-2.0
"""A project's own WebSocket server as a worker sees it: metadata first, then one reply each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from praxis_models.backend import BackendError
from praxis_models.transport.connection import Connection


class NativeServer:
    """Calls a server and waits for its answer; for the model's thread.

    Args:
        endpoint: ``ws://HOST:PORT``.
        greet: Called with the server's metadata at each new connection, to check it and to say
            what a new client must; raises `BackendError`.
        connect_s: How long the server may take to appear.
        reply_s: How long one answer may take.

    Raises:
        BackendError: The endpoint is none, no server is there, or `greet` refuses it.
    """

    def __init__(
        self,
        endpoint: str,
        greet: Callable[[NativeServer, Mapping[str, Any]], None],
        *,
        connect_s: float,
        reply_s: float,
    ) -> None:
        try:
            self._connection = Connection(
                endpoint, receive_timeout_s=reply_s, first_reply_timeout_s=reply_s
            )
        except ValueError as error:
            raise BackendError(f'endpoint: {error}') from None
        self._greet = greet
        self._greeted = 0
        self._connection.start()
        try:
            status = self._connection.wait(connect_s)
            if status.phase != 'ready':
                raise BackendError(f'endpoint: {status.reason or "no server"}')
            self._introduce()
        except BaseException:
            self.close()
            raise

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and give the reply, after a new greeting where the server was restarted.

        Raises:
            BackendError: One line with the server's or the connection's reason.
        """
        for _ in range(2):
            if self._connection.generation != self._greeted:
                self._introduce()
            generation = self._greeted
            outcome = self._connection.call(dict(request), generation=generation)
            if outcome.reply is not None:
                return outcome.reply
            if self._connection.generation == generation:
                break
        raise BackendError(f'{self._connection.endpoint.url}: {outcome.message}')

    def close(self) -> None:
        """End the connection; the server is left alone."""
        self._connection.close()

    def _introduce(self) -> None:
        generation, metadata = self._connection.generation, self._connection.metadata
        if metadata is None:
            raise BackendError(f'endpoint: {self._connection.status.reason}')
        before, self._greeted = self._greeted, generation
        try:
            self._greet(self, metadata)
        except BaseException:
            self._greeted = before
            raise
