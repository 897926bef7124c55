# SPDX-License-Identifier: Apache-2.0
"""What a worker answers to one frame, apart from how frames travel."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from praxis_core.exchange_error import ExchangeError, described
from praxis_core.model_exchange import PhysicalObservation, check_reply, check_request, reply_of
from praxis_core.schema import unknown

from praxis_models.backend import Backend, BackendError, Session
from praxis_models.transport import wire
from praxis_models.wording import one_line
from praxis_models.workers.inference import Inference, OverloadError, SkippedError
from praxis_models.workers.sessions import Sessions

logger = logging.getLogger('praxis_models.worker')

METHODS = ('reset', 'session.register', 'session.close')

LARGE_FRAME = 4 * 1024 * 1024
"""Bytes above which a frame is read off the event loop."""


@dataclass
class Client:
    """One connection.

    Attributes:
        wanted: Whether it is still there; called on the model's thread.
        session: Its own session, from its first request without a session id on.
        previous_ms: Time its last request took, from its arrival until the reply was sent.
    """

    wanted: Callable[[], bool] = lambda: True
    session: Session | None = None
    previous_ms: float | None = None


class ModelService:
    """A model and its sessions.

    Args:
        name: Of the back end.
        inference: Thread that the model lives on.
        sessions: Empty register.
    """

    def __init__(self, name: str, inference: Inference, sessions: Sessions) -> None:
        self._name = name
        self._inference = inference
        self._sessions = sessions
        self._backend: Backend | None = None

    @property
    def loaded(self) -> bool:
        """The model can be asked."""
        return self._backend is not None

    @property
    def metadata(self) -> bytes:
        """First frame of a connection, once loaded."""
        return wire.pack(self._model.meta.to_wire())

    @property
    def _model(self) -> Backend:
        assert self._backend is not None
        return self._backend

    async def load(self, load: Callable[[], Backend]) -> None:
        """Load the model on its thread; raises what that raises."""
        self._backend = await self._inference.run(load, housekeeping=True)

    async def answer(self, client: Client, frame: bytes | str) -> bytes | str:
        """Answer a request; a text is a refusal or a fault, on one line."""
        arrived = time.perf_counter()
        try:
            request = await self._read(frame)
            if 'method' in request:
                return wire.pack(await self._control(client, request))
            return await self._infer(client, request, arrived)
        except (ExchangeError, wire.WireError, BackendError, OverloadError, SkippedError) as error:
            refusal = one_line(error)
            logger.warning('refused: %s', refusal)
            return refusal
        except Exception as error:
            logger.exception('%s failed', self._name)
            return one_line(f'{self._name} failed: {type(error).__name__}: {error}')

    async def leave(self, client: Client) -> None:
        """Drop the session that belongs to a connection."""
        if client.session is not None:
            session, client.session = client.session, None
            try:
                self._sessions.close(session.id)
            except ExchangeError:
                return  # closed by its id
            await self._forget([session])

    async def sweep(self) -> None:
        """Drop sessions that have expired."""
        await self._forget(self._sessions.sweep())

    async def close(self) -> None:
        """Drop all sessions, then the model."""
        await self._forget(self._sessions.clear())
        if self._backend is not None:
            backend, self._backend = self._backend, None
            await self._inference.run(backend.close, housekeeping=True)

    async def _read(self, frame: bytes | str) -> dict[Any, Any]:
        if isinstance(frame, str):
            raise ExchangeError('request', 'a binary frame', 'a text frame')
        if len(frame) > LARGE_FRAME:
            request = await asyncio.to_thread(wire.unpack, frame)
        else:
            request = wire.unpack(frame)
        if not isinstance(request, dict):
            raise ExchangeError('request', 'a mapping', described(request))
        return request

    async def _infer(self, client: Client, request: dict[Any, Any], arrived: float) -> bytes:
        session = self._session_of(client, request)
        observation = check_request(self._model.meta, request)
        self._sessions.begin(session.id)
        try:
            return await self._inference.run(
                lambda: self._predict(observation, session, arrived, client.previous_ms),
                wanted=client.wanted,
            )
        finally:
            self._sessions.end(session.id)

    def _predict(
        self,
        observation: PhysicalObservation,
        session: Session,
        arrived: float,
        previous_ms: float | None,
    ) -> bytes:
        started = time.perf_counter()
        prediction = self._model.predict(observation, session)
        timing = {
            'infer_ms': 1e3 * (time.perf_counter() - started),
            'queue_ms': 1e3 * (started - arrived),
        }
        if previous_ms is not None:
            timing['prev_total_ms'] = previous_ms
        try:
            reply = reply_of(prediction)
            check_reply(self._model.meta, reply)
            policy_timing = prediction.metadata.get('policy_timing')
            if policy_timing is not None:
                reply['policy_timing'] = policy_timing
            return wire.pack({**reply, 'server_timing': timing})
        except (ExchangeError, wire.WireError) as error:
            logger.error('%s gave an invalid reply: %s', self._name, error)
            raise BackendError(f'{self._name} gave an invalid reply: {error}') from None

    async def _control(self, client: Client, request: dict[Any, Any]) -> dict[str, Any]:
        method = request['method']
        if not isinstance(method, str) or method not in METHODS:
            reason = unknown(str(method), METHODS).replace('unknown key, ', '')
            raise ExchangeError('method', f'a known one, {reason}', described(method))
        if method == 'session.register':
            await self.sweep()
            session = self._sessions.register(request.get('session_id') or '')
        elif method == 'session.close':
            session = self._sessions.close(request.get('session_id'))
            if client.session is session:
                client.session = None
            await self._forget([session])
        else:
            session = self._session_of(client, request)
            await self._inference.run(lambda: self._model.reset(session))
        return {'ok': True, 'session_id': session.id}

    def _session_of(self, client: Client, request: dict[Any, Any]) -> Session:
        session_id = request.get('session_id')
        if session_id is not None and session_id != '':
            return self._sessions.touch(session_id)
        if client.session is None:
            client.session = self._sessions.register(pinned=True)
        return client.session

    async def _forget(self, sessions: list[Session]) -> None:
        for session in sessions:
            try:
                await self._inference.run(
                    lambda s=session: self._model.reset(s), housekeeping=True
                )
            except Exception:
                logger.exception('%s could not reset session %s', self._name, session.id)
            session.memory.clear()
