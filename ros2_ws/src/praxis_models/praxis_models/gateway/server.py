# SPDX-License-Identifier: Apache-2.0
"""HTTP gateway to a worker: the reference's remote calls, ``POST /call`` with JSON.

Its clients can ask one of our workers for actions. They cannot change it: whatever touches
sessions needs a token, and nobody can shut it down from here.
"""

from __future__ import annotations

import hmac
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Request, Response
from praxis_core.exchange_error import ExchangeError
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from praxis_models.gateway import codec
from praxis_models.gateway.calls import CallError, Gateway
from praxis_models.transport.connection import Connection
from praxis_models.wording import one_line
from praxis_models.workers import options, settings
from praxis_models.workers.process import listen, watch_stdin, write_atomically

logger = logging.getLogger('praxis_models.gateway')

TOKEN_VARIABLE = 'PRAXIS_GATEWAY_TOKEN'
PROGRAM = 'gateway'
REFUSED = 2


class GatewayOptions(BaseModel):
    """Where the worker is, and how the gateway listens."""

    model_config = ConfigDict(frozen=True, extra='forbid')

    endpoint: str = Field(description='of the worker, ws://HOST:PORT')
    worker_token_file: Path | None = Field(
        None, description=f"file with the worker's token; default: ${settings.TOKEN_VARIABLE}"
    )
    host: str = Field(
        '127.0.0.1', description='address to listen on; all but loopback need a token'
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(0, description='0: any free one')
    port_file: Path | None = Field(None, description='file to write the port to')
    token_file: Path | None = Field(
        None, description=f'file with the token for sessions; default: ${TOKEN_VARIABLE}'
    )
    main: str = Field('', description='camera role of main_images; empty: the likeliest')
    wrist: str = Field('', description='camera role of wrist_images; empty: the likeliest')
    extra: str = Field('', description='camera role of extra_view_images; empty: the likeliest')
    max_message_mb: Annotated[float, Field(gt=0, le=4096)] = Field(
        64.0, description='largest body of a call, MiB'
    )
    max_batch: Annotated[int, Field(ge=1)] = Field(16, description='largest batch of a call')
    timeout_s: Annotated[float, Field(gt=0)] = Field(300.0, description='for a reply, s')
    exit_on_stdin_eof: bool = Field(False, description='stop when standard input is closed')


def make_app(gateway: Gateway, *, token: str, open_calls: bool, max_bytes: int) -> FastAPI:
    """Make the web application.

    Args:
        gateway: Carries the calls.
        token: For sessions, empty: nobody has it.
        open_calls: Reading needs no token.
        max_bytes: Largest body.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    expected = f'Bearer {token}'.encode()

    async def answer(request: Request) -> Any:
        if 'origin' in request.headers:
            raise CallError('pages in a browser are turned away')
        if request.headers.get('content-type', '').partition(';')[0] != 'application/json':
            raise CallError('the body must be application/json')
        given = request.headers.get('authorization', '').encode('utf-8', 'replace')
        trusted = bool(token) and hmac.compare_digest(given, expected)
        body = await _body(request, max_bytes)

        def carry_out() -> Any:
            call = codec.loads(body)
            is_health = isinstance(call, dict) and call.get('method') == 'healthz'
            if not (trusted or open_calls or is_health):
                raise CallError('expected the header Authorization: Bearer TOKEN')
            return codec.dumps({'ok': True, 'result': gateway.call(call, trusted)})

        return await run_in_threadpool(carry_out)

    @app.post('/call')
    async def call(request: Request) -> Response:
        try:
            content = await answer(request)
        except (CallError, ExchangeError, codec.CodecError) as error:
            content = codec.dumps({'ok': False, 'error': one_line(error)})
        except Exception as error:
            logger.exception('a call failed')
            content = codec.dumps(
                {'ok': False, 'error': f'the gateway failed: {type(error).__name__}'}
            )
        return Response(content, media_type='application/json')

    @app.get('/healthz')
    def healthz() -> Response:
        try:
            gateway.healthz()
        except CallError as error:
            return Response(f'{error}\n', status_code=503, media_type='text/plain')
        return Response('OK\n', media_type='text/plain')

    return app


async def _body(request: Request, max_bytes: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise CallError(f'the body is above {max_bytes} bytes')
        parts.append(part)
    return b''.join(parts)


class _Server(uvicorn.Server):
    """Says when it listens, leaves signals to `serve`, and lets waiting calls go at its end."""

    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], end: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready, self._end = ready, end

    def capture_signals(self) -> Any:
        """See `uvicorn.Server.capture_signals`."""
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server.startup`."""
        await super().startup(sockets=sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server.shutdown`."""
        self._end()
        await super().shutdown(sockets=sockets)


def serve(chosen: GatewayOptions, token: str, worker_token: str) -> int:
    """Serve until SIGINT or SIGTERM; gives the exit status."""
    max_bytes = int(chosen.max_message_mb * 1024 * 1024)
    connection = Connection(
        chosen.endpoint, token=worker_token, receive_timeout_s=chosen.timeout_s
    )
    gateway = Gateway(
        connection, (chosen.main, chosen.wrist, chosen.extra), chosen.timeout_s, chosen.max_batch
    )
    app = make_app(
        gateway,
        token=token,
        open_calls=settings.is_loopback(chosen.host),
        max_bytes=max_bytes,
    )
    try:
        listening = listen(chosen.host, chosen.port)
    except OSError as error:
        print(f'{PROGRAM}: cannot listen on {chosen.host}:{chosen.port}: {error}', file=sys.stderr)
        return 1
    port = listening.getsockname()[1]

    def ready() -> None:
        host = {'0.0.0.0': '127.0.0.1', '::': '::1'}.get(chosen.host, chosen.host)
        if chosen.port_file is not None:
            write_atomically(chosen.port_file, f'{port}\n')
        url = f'http://[{host}]:{port}' if ':' in host else f'http://{host}:{port}'
        print(f'RPC server listening on {url}', flush=True)

    config = uvicorn.Config(
        app, log_level='warning', lifespan='off', timeout_graceful_shutdown=5,
        limit_concurrency=64, server_header=False,
    )  # fmt: skip
    server = _Server(config, ready, connection.close)

    def stop(*_: Any) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    if chosen.exit_on_stdin_eof:
        watch_stdin(stop)
    connection.start()
    try:
        server.run(sockets=[listening])
    finally:
        connection.close()
        listening.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0 if server.started else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry the reference's HTTP calls to a worker until stopped; gives the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = options.parser(PROGRAM, "Carry the reference's HTTP calls (POST /call) to a worker.")
    options.add_options(parser, PROGRAM, GatewayOptions)
    try:
        given: Mapping[str, Any] = options.parse(parser, words)
        chosen = options.build(GatewayOptions, given)
        token = settings.read_token(chosen.token_file, chosen.host, TOKEN_VARIABLE)
        worker_token = settings.read_token(chosen.worker_token_file, '127.0.0.1')
        logging.basicConfig(
            level=logging.INFO, format='%(asctime)s %(levelname)s %(name)s: %(message)s'
        )
        return serve(chosen, token, worker_token)
    except (options.OptionError, settings.SettingsError, ValueError) as error:
        print(f'{PROGRAM}: {error}', file=sys.stderr)
        return REFUSED
