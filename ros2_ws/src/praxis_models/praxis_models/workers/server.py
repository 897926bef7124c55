# SPDX-License-Identifier: Apache-2.0
"""Serves a model by OpenPI's protocol: WebSocket, MessagePack with numpy, metadata first.

The socket is bound at once and the model loads meanwhile; `/healthz` says which. Pings are
answered whatever the model does, since it has a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hmac
import http
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import State

from praxis_models.backend import Backend, BackendError
from praxis_models.latency import keep_heap
from praxis_models.wording import one_line
from praxis_models.workers.inference import Inference
from praxis_models.workers.process import (
    listen,
    signals,
    watch_stdin,
    write_atomically,
)
from praxis_models.workers.service import Client, ModelService
from praxis_models.workers.sessions import Sessions
from praxis_models.workers.settings import ServerOptions

logger = logging.getLogger('praxis_models.worker')

OK, FAILED = 0, 1

_SWEEP_S = 60.0
_CLOSE_S = 2.0
_WRITE_BUFFER = 4 * 1024 * 1024
_BAD_LOAD, _GOING = 1011, 1001


class ModelServer:
    """Serves one back end.

    Args:
        name: Of the back end.
        load: Loads the model; called on the model's thread.
        options: How to listen.
        token: What clients must send as ``Authorization: Api-Key TOKEN``; empty: nothing.
        inference: Thread that the model lives on.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Backend],
        options: ServerOptions,
        token: str,
        inference: Inference,
    ) -> None:
        self._name = name
        self._load_model = load
        self._options = options
        self._authorization = f'Api-Key {token}'.encode() if token else b''
        self._inference = inference
        sessions = Sessions(time.monotonic, idle_s=options.idle_s, limit=options.max_sessions)
        self._service = ModelService(name, inference, sessions)
        self._started = time.monotonic()
        self._connections: set[ServerConnection] = set()
        self._answering = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._loaded = asyncio.Event()
        self.port = 0
        self.reason = ''

    def stop(self) -> None:
        """End orderly; may be called from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)

    async def run(self, on_bound: Callable[[int], None] = lambda port: None) -> int:
        """Serve until `stop` or until loading fails.

        Args:
            on_bound: Called with the port once it listens.

        Returns:
            Exit status.
        """
        self._loop = asyncio.get_running_loop()
        with listen(self._options.host, self._options.port) as listening:
            self.port = listening.getsockname()[1]
            server = await serve(
                self._handle,
                sock=listening,
                origins=[None],  # a browser names its page: no page may drive a robot
                compression=None,
                process_request=self._screen,
                max_size=self._options.max_message_bytes,
                max_queue=4,
                write_limit=_WRITE_BUFFER,
                ping_interval=20,
                ping_timeout=60,
                close_timeout=_CLOSE_S,
            )
            on_bound(self.port)
            tasks = {asyncio.create_task(self._load()), asyncio.create_task(self._stop.wait())}
            sweeping = asyncio.create_task(self._sweep())
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if self._service.loaded:
                    await self._stop.wait()
            finally:
                for task in (*tasks, sweeping):
                    task.cancel()
                await self._end(server)
        return FAILED if self.reason else OK

    async def _load(self) -> None:
        try:
            await self._service.load(self._load_model)
        except BackendError as error:
            if error.__cause__ is not None:
                traceback.print_exc()
            self.reason = one_line(error)
            return
        except Exception as error:
            traceback.print_exc()
            self.reason = one_line(f'{type(error).__name__}: {error}')
            return
        gc.collect()
        gc.freeze()  # a full collection would walk the model's objects between two answers
        logger.info('%s loaded in %.1f s', self._name, time.monotonic() - self._started)
        self._loaded.set()
        await self._stop.wait()

    async def _wait_loaded(self, connection: ServerConnection) -> bool:
        """Wait for the model, or for the client to give up."""
        waits = [
            asyncio.ensure_future(self._loaded.wait()),
            asyncio.ensure_future(connection.wait_closed()),
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self._loaded.is_set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_S, self._options.idle_s / 4))
            await self._service.sweep()

    async def _end(self, server: Server) -> None:
        self._inference.stop()
        deadline = time.monotonic() + self._options.stop_s
        if not self._service.loaded:
            deadline = 0.0  # what is being loaded is not worth a wait
        await self._wait_answered(deadline)
        self._inference.abandon()
        await self._wait_answered(time.monotonic() + _CLOSE_S / 4)
        code, reason = _GOING, 'the worker is stopping'
        if self.reason:
            code, reason = _BAD_LOAD, 'the model could not be loaded'
        closing = [connection.close(code, reason) for connection in self._connections]
        await asyncio.gather(*closing, return_exceptions=True)
        server.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.wait_closed(), _CLOSE_S + 1.0)
        if not self._inference.busy:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._service.close(), _CLOSE_S)
        self._inference.close()

    async def _wait_answered(self, deadline: float) -> None:
        while self._answering and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    def _screen(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer `/healthz`; turn away whoever has no token or comes when all seats are taken."""
        if request.path == '/healthz':
            return self._health(connection)
        if self._authorization:
            given = request.headers.get('Authorization', '').encode('utf-8', 'replace')
            if not hmac.compare_digest(given, self._authorization):
                response = connection.respond(
                    http.HTTPStatus.UNAUTHORIZED,
                    'expected Authorization: Api-Key TOKEN\n',
                )
                response.headers['WWW-Authenticate'] = 'Api-Key'
                return response
        if self._stop.is_set():
            return connection.respond(
                http.HTTPStatus.SERVICE_UNAVAILABLE, 'the worker is stopping\n'
            )
        count = len(self._connections)
        if count >= self._options.max_connections:
            return connection.respond(
                http.HTTPStatus.SERVICE_UNAVAILABLE, f'{count} clients are here already\n'
            )
        return None

    def _health(self, connection: ServerConnection) -> Response:
        if self._service.loaded and not self._stop.is_set():
            return connection.respond(http.HTTPStatus.OK, 'OK\n')
        status = 'stopping' if self._stop.is_set() else 'loading'
        text = json.dumps({'status': status, 'for_s': round(time.monotonic() - self._started, 1)})
        response = connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, text)
        del response.headers['Content-Type']
        response.headers['Content-Type'] = 'application/json'
        return response

    async def _handle(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        logger.info('client %s connected', _peer(connection))
        client = Client(wanted=lambda: connection.state is State.OPEN)
        try:
            if not await self._wait_loaded(connection):
                return
            await connection.send(self._service.metadata)
            async for frame in connection:
                self._answering += 1
                started = time.perf_counter()
                try:
                    await connection.send(await self._service.answer(client, frame))
                finally:
                    self._answering -= 1
                client.previous_ms = 1e3 * (time.perf_counter() - started)
        except ConnectionClosed:
            pass
        finally:
            self._connections.discard(connection)
            logger.info('client %s left', _peer(connection))
            if not self._stop.is_set():
                await self._service.leave(client)


def _peer(connection: ServerConnection) -> str:
    address = connection.remote_address
    return f'{address[0]}:{address[1]}' if address else 'unknown'


def run(name: str, load: Callable[[], Backend], options: ServerOptions, token: str = '') -> int:
    """Serve a back end until SIGINT, SIGTERM or the end of standard input.

    The model gets the calling thread, the sockets another one.

    Returns:
        Exit status: 0 after a stop, 1 where the model could not be loaded or the port not bound.
    """
    inference = Inference(options.max_waiting)
    server = ModelServer(name, load, options, token, inference)
    status = [FAILED]

    def announce(port: int) -> None:
        if options.port_file is not None:
            write_atomically(options.port_file, f'{port}\n')
        print(f'model worker {name} listening on {url(options.host, port)}', flush=True)
        if options.exit_on_stdin_eof:
            watch_stdin(server.stop)

    def serve_clients() -> None:
        try:
            status[0] = asyncio.run(server.run(announce))
        except OSError as error:
            server.reason = one_line(f'cannot listen on {options.host}:{options.port}: {error}')
        except BaseException as error:
            traceback.print_exc()
            server.reason = one_line(f'{type(error).__name__}: {error}')
        finally:
            inference.stop()
            inference.close()
            if server.reason:
                print(f'model worker {name}: {server.reason}', file=sys.stderr, flush=True)
            if inference.busy:
                sys.stdout.flush()
                os._exit(status[0])  # the model does not come back; the sockets are closed

    keep_heap()
    with signals(server.stop):
        thread = threading.Thread(target=serve_clients, name='server')
        thread.start()
        inference.work()
        thread.join()
    return status[0]


def url(host: str, port: int) -> str:
    """Endpoint for a client on this machine."""
    host = {'0.0.0.0': '127.0.0.1', '::': '::1'}.get(host, host)
    return f'ws://[{host}]:{port}' if ':' in host else f'ws://{host}:{port}'
