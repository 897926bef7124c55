# SPDX-License-Identifier: Apache-2.0
"""Cosmos3, a world-action model, behind SGLang's POST /v1/actions/generations (LIBERO).

The model runs in SGLang's own process (``Cosmos3OmniDiffusersPipeline``); this worker is its
client. Source of the protocol: sgl-project/sglang 0350f48f, ``multimodal_gen/runtime/entrypoints/
action/{api,protocol}.py``: MessagePack with arrays, both ways.
"""

from __future__ import annotations

import http.client
import json
import logging
import time
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import Field

from praxis_models.adapters import cosmos3 as adapter
from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.normalisation import Statistics, StatisticsError, load_statistics
from praxis_models.transport import wire
from praxis_models.wording import quoted

ROUTE = '/v1/actions/generations'
METADATA_ROUTE = '/v1/actions/metadata'
_PAUSE_S = 0.5
_MAX_REPLY = 64 * 1024 * 1024

logger = logging.getLogger('praxis_models.cosmos3')


class Options(BackendOptions):
    """Where SGLang serves Cosmos3, and how it is asked."""

    endpoint: str = Field(description='http://HOST:PORT of SGLang')
    statistics: str = Field(
        '',
        description='libero_native_frame_wise_relative_rot6d.json of cosmos-framework; empty only '
        'with server_denormalises',
    )
    server_denormalises: bool = Field(
        False, description='SGLang was started with statistics of its own and applies them'
    )
    checkpoint: str = Field('', description='name of the model; empty: what the server says')
    domain: str = Field('libero', description='embodiment whose action head is used')
    view_point: str = Field('ego_view', description="kind of view in the server's caption")
    flow_steps: Annotated[int, Field(ge=1)] = Field(30, description='steps of denoising')
    seed: Annotated[int, Field(ge=0)] = Field(1140, description='of the noise of every chunk')
    binarise_gripper: bool = Field(True, description='open or close, and nothing between')
    execute_steps: Annotated[int, Field(ge=1, le=adapter.CHUNK_SIZE)] = Field(
        adapter.CHUNK_SIZE, description='steps to execute of a chunk'
    )
    timeout_s: Annotated[float, Field(gt=0)] = Field(600.0, description='of an inference, s')
    connect_timeout_s: Annotated[float, Field(gt=0)] = Field(
        30.0, description='of connecting and of asking for the metadata, s'
    )
    ready_timeout_s: Annotated[float, Field(ge=0)] = Field(
        600.0, description='how long to wait for SGLang to load the model, s'
    )
    interface_hash: str = Field('', description='contract that the checkpoint was trained for')


class ServerError(RuntimeError):
    """SGLang refused or failed; ``status`` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f'SGLang answers {status}: {text}')
        self.status = status


class ActionServer:
    """HTTP client of one SGLang server, with one connection that is kept."""

    def __init__(self, endpoint: str, timeout_s: float, connect_timeout_s: float) -> None:
        """Take the address; nothing is connected yet.

        Raises:
            BackendError: It is none.
        """
        parts = urlsplit(endpoint if '://' in endpoint else f'http://{endpoint}')
        try:
            self._host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise BackendError(f'endpoint: {error} (got {endpoint!r})') from None
        if parts.scheme not in ('http', 'https') or not self._host:
            raise BackendError(f'endpoint: must be http://HOST:PORT (got {endpoint!r})')
        self._kind = (
            http.client.HTTPSConnection if parts.scheme == 'https' else http.client.HTTPConnection
        )
        self._prefix = parts.path.rstrip('/')
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self.name = f'{parts.scheme}://{parts.netloc}{self._prefix}'

    def metadata(self) -> dict[str, Any]:
        """What the server says of its model.

        Raises:
            OSError: It cannot be reached.
            ServerError: It does not know the route, or fails.
        """
        reply = self._exchange('GET', METADATA_ROUTE, None, self._connect_timeout_s)
        return dict(reply) if isinstance(reply, Mapping) else {}

    def generate(self, request: Mapping[str, Any]) -> Any:
        """Ask for a chunk; a connection that the server had closed is opened again.

        Raises:
            OSError: It cannot be reached, or does not answer in time.
            ServerError: It refuses the request, or fails.
        """
        body = wire.pack(request)
        kept = self._connection is not None
        try:
            return self._exchange('POST', ROUTE, body, self._timeout_s)
        except (ConnectionError, http.client.HTTPException):
            if not kept:
                raise
            return self._exchange('POST', ROUTE, body, self._timeout_s)

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _exchange(self, method: str, route: str, body: bytes | None, timeout_s: float) -> Any:
        headers = {'Accept': 'application/msgpack'}
        if body is not None:
            headers['Content-Type'] = 'application/msgpack'
        try:
            connection = self._connected(timeout_s)
            connection.request(method, f'{self._prefix}{route}', body, headers)
            response = connection.getresponse()
            data = response.read(_MAX_REPLY + 1)
            length = response.headers.get('Content-Length')
            if length is not None and len(data) < min(int(length), _MAX_REPLY):
                raise http.client.IncompleteRead(data, int(length) - len(data))
        except BaseException:
            # an answer that comes late must not be taken for that of the next request
            self.close()
            raise
        if len(data) > _MAX_REPLY:
            self.close()
            raise ServerError(response.status, f'more than {_MAX_REPLY} bytes')
        kind = response.headers.get('Content-Type', '')
        if response.status != 200:
            raise ServerError(response.status, _reason(data))
        try:
            return wire.unpack(data) if 'msgpack' in kind else json.loads(data)
        except ValueError as error:
            raise ServerError(response.status, f'what is no answer: {error}') from None

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._kind(self._host, self._port, timeout=self._connect_timeout_s)
            self._connection.connect()
        self._connection.sock.settimeout(timeout_s)
        return self._connection


class Cosmos3Backend(Backend):
    """Cosmos3 as SGLang serves it; every chunk is sampled with the same seed."""

    def __init__(
        self,
        options: Options,
        server: ActionServer,
        found: Mapping[str, Any],
        statistics: Statistics | None,
    ) -> None:
        self.meta = ModelMeta(
            backend='cosmos3',
            checkpoint=options.checkpoint or str(found.get('model_path') or ''),
            control=adapter.CONTROL,
            camera_roles=adapter.CAMERAS,
            state_schema={},
            chunk_size=adapter.CHUNK_SIZE,
            policy_hz=adapter.POLICY_HZ,
            execute_steps=options.execute_steps,
            interface_hash=options.interface_hash,
            metadata={
                'endpoint': server.name,
                'flow_steps': options.flow_steps,
                'seed': options.seed,
                'domain': options.domain,
            },
        )
        self._server = server
        self._statistics = statistics
        self._binarise = options.binarise_gripper
        self._sampling = adapter.Sampling(
            options.flow_steps, options.seed, options.domain, options.view_point
        )

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`."""
        request = adapter.encode(observation, self._sampling)
        try:
            reply = self._server.generate(request)
            actions = adapter.decode(
                _values(reply), self._statistics, binarise_gripper=self._binarise
            )
        except TimeoutError as error:
            raise BackendError(f'{self._server.name} does not answer in time') from error
        except (OSError, http.client.HTTPException) as error:
            raise BackendError(f'{self._server.name} is lost: {quoted(error)}') from error
        except (ServerError, ValueError) as error:
            raise BackendError(quoted(error)) from error
        return Prediction(actions, metadata={'request_id': str(reply.get('id', ''))})

    def close(self) -> None:
        """See `Backend.close`; SGLang goes on."""
        self._server.close()


def load(options: Options) -> Cosmos3Backend:
    """Wait for SGLang and look at what it serves.

    Raises:
        BackendError: It does not come, serves another model, or the statistics do not fit.
    """
    statistics = _statistics(options)
    server = ActionServer(options.endpoint, options.timeout_s, options.connect_timeout_s)
    found = _awaited(server, options.ready_timeout_s)
    family = found.get('policy_family')
    if family not in (None, 'cosmos3'):
        raise BackendError(f'{server.name} serves a model of the family {family!r}, not cosmos3')
    return Cosmos3Backend(options, server, found, statistics)


def _statistics(options: Options) -> Statistics | None:
    if options.server_denormalises:
        if options.statistics:
            raise BackendError('statistics: server_denormalises applies them already')
        return None
    if not options.statistics:
        raise BackendError('statistics: needed, the server answers normalised actions')
    try:
        return load_statistics(
            options.statistics,
            adapter.STATISTICS_KEY,
            needs=('q01', 'q99'),
            size=adapter.RAW_ACTION_DIM,
        )
    except StatisticsError as error:
        raise BackendError(f'statistics: {error}') from error


def _awaited(server: ActionServer, timeout_s: float) -> dict[str, Any]:
    """Metadata, once the server gives it; empty where it is too old to have the route."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return server.metadata()
        except ServerError as error:
            if error.status == 404:
                logger.warning('%s has no %s: not checked', server.name, METADATA_ROUTE)
                return {}
            reason = quoted(error)
            if error.status < 500:
                raise BackendError(reason) from error
        except (OSError, http.client.HTTPException) as error:
            reason = f'{server.name} cannot be reached: {quoted(error)}'
        if time.monotonic() >= end:
            raise BackendError(reason)
        time.sleep(_PAUSE_S)


def _values(reply: Any) -> Any:
    """Actions of the one record of an answer.

    Raises:
        ValueError: There is none.
    """
    data = reply.get('data') if isinstance(reply, Mapping) else None
    if isinstance(data, list) and len(data) == 1 and isinstance(data[0], Mapping):
        action = data[0].get('action')
        if isinstance(action, Mapping) and 'values' in action:
            return action['values']
    raise ValueError('SGLang answers without data[0].action.values')


def _reason(data: bytes) -> str:
    try:
        found = json.loads(data)
        text = found.get('detail') or found.get('error') or found
    except (ValueError, AttributeError):
        text = data[:400].decode('utf-8', 'replace')
    return quoted(text) or 'nothing'
