# SPDX-License-Identifier: Apache-2.0
"""The calls that the gateway carries to a worker. Imports no rclpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from praxis_core.exchange_error import ExchangeError, described
from praxis_core.model_exchange import check_reply, check_request, request_of
from praxis_core.model_meta import ModelMeta, read_meta
from praxis_core.schema import unknown

from praxis_models.gateway import observations
from praxis_models.transport.connection import Connection


class CallError(ValueError):
    """A call that is refused; its text goes to the client."""


class Gateway:
    """Carries calls to a worker.

    Args:
        connection: To the worker.
        views: Camera roles of the three views, as far as they are given.
        timeout_s: For a reply of the worker.
        max_batch: Largest batch.
    """

    def __init__(
        self,
        connection: Connection,
        views: tuple[str, str, str] = ('', '', ''),
        timeout_s: float = 300.0,
        max_batch: int = 16,
    ) -> None:
        self._connection = connection
        self._views = views
        self._timeout_s = timeout_s
        self._max_batch = max_batch
        self._open: dict[str, Callable[..., Any]] = {
            'healthz': self.healthz,
            'vla.predict': self.vla_predict,
            'predict': self.predict_png,
            'wam.get_model_meta': self.model_meta,
            'wam.capabilities': self.model_meta,
            'wam.predict': self.wam_predict,
        }
        self._guarded: dict[str, Callable[..., Any]] = {
            'session.register': self.register,
            'session.close': self.close_session,
            'wam.reset': self.reset,
        }

    def call(self, body: Any, trusted: bool) -> Any:
        """Carry out one call.

        Args:
            body: ``method``, ``args``, ``kwargs`` and ``session_id``.
            trusted: The caller has the token.

        Raises:
            CallError, ExchangeError: It is refused.
        """
        if not isinstance(body, dict):
            raise CallError(f'a call is an object (got {described(body)})')
        method, args = body.get('method'), body.get('args') or []
        kwargs, session_id = body.get('kwargs') or {}, body.get('session_id') or ''
        if not isinstance(method, str) or not isinstance(args, list):
            raise CallError('method must be text and args a list')
        if not isinstance(kwargs, dict) or not isinstance(session_id, str):
            raise CallError('kwargs must be an object and session_id text')
        if method == 'shutdown':
            raise CallError('shutdown is refused: this gateway only reads')
        function = self._open.get(method)
        if function is None and method in self._guarded:
            if not trusted:
                raise CallError(f'{method} needs the header Authorization: Bearer TOKEN')
            function = self._guarded[method]
        if function is None:
            hint = unknown(method, [*self._open, *self._guarded]).replace('key', 'method')
            raise CallError(f'{method!r:.60}: {hint}')
        if set(kwargs) & {'session_id', 'self'}:
            raise CallError('kwargs: session_id belongs beside them')
        try:
            return function(*args, session_id=session_id, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                text = str(error).replace('Gateway.', '')
                raise CallError(f'{method}: {text}') from None
            raise

    def healthz(self, *, session_id: str = '') -> dict[str, str]:
        """Whether the worker's model can be asked."""
        status = self._connection.status
        if status.phase != 'ready':
            raise CallError(f'the worker is {status.phase}: {status.reason}')
        return {'status': 'ok'}

    def model_meta(self, *, session_id: str = '') -> dict[str, Any]:
        """Metadata of the worker."""
        return self._meta().to_wire()

    def vla_predict(
        self, observation: Any, options: Any = None, *, session_id: str = ''
    ) -> np.ndarray:
        """Actions float32[B, H, A] of a batch of observations, see `observations`."""
        if options is not None and options != {'mode': 'eval'}:
            raise ExchangeError('options', "{'mode': 'eval'} or null", described(options))
        meta = self._meta()
        views = observations.views_of(meta, *self._views)
        batch = observations.observations_of(meta, views, observation)
        if len(batch) > self._max_batch:
            raise ExchangeError('batch', f'at most {self._max_batch}', str(len(batch)))
        if meta.uses_sessions and len(batch) > 1:
            raise ExchangeError('batch', '1, since this model remembers', str(len(batch)))
        chunks = [
            self._predict(meta, request_of(meta, each), session_id)['actions'] for each in batch
        ]
        if len({len(chunk) for chunk in chunks}) != 1:
            raise CallError('chunks of different lengths cannot be one array: send batches of 1')
        return np.stack(chunks)

    def predict_png(
        self,
        instruction: Any,
        images: Any,
        state: Any,
        mode: Any = 'eval',
        *,
        session_id: str = '',
    ) -> dict[str, Any]:
        """`vla_predict` as older clients call it, with PNG images and lists."""
        batch = observations.batch_of_one(instruction, images, state)
        actions = self.vla_predict(batch, {'mode': mode}, session_id=session_id)
        return {
            'actions': actions.tolist(), 'shape': list(actions.shape), 'dtype': 'float32'
        }  # fmt: skip

    def wam_predict(self, request: Any, *, session_id: str = '') -> dict[str, Any]:
        """Actions and what else the model predicts from a physical observation."""
        meta = self._meta()
        return self._predict(meta, observations.physical_request(meta, request), session_id)

    def register(self, *, session_id: str = '') -> dict[str, Any]:
        """Begin a session."""
        return self._ask({'method': 'session.register', 'session_id': session_id})

    def close_session(self, *, session_id: str = '') -> dict[str, Any]:
        """End a session."""
        return self._ask({'method': 'session.close', 'session_id': session_id})

    def reset(self, *, session_id: str = '') -> dict[str, Any]:
        """Forget a session's episode; nothing to do where the model keeps none."""
        if not self._meta().uses_sessions:
            return {'ok': True}
        self._ask({'method': 'reset', 'session_id': _bound(session_id)})
        return {'ok': True}

    def _predict(
        self, meta: ModelMeta, request: dict[str, Any], session_id: str
    ) -> dict[str, Any]:
        check_request(meta, request)
        if meta.uses_sessions:
            request['session_id'] = _bound(session_id)
        reply = self._ask(request)
        prediction = check_reply(meta, reply)
        result: dict[str, Any] = {'actions': prediction.actions}
        if prediction.future_observation is not None:
            result['future_observation'] = dict(prediction.future_observation)
        if prediction.value is not None:
            result['value'] = prediction.value
        result['metadata'] = {
            **prediction.metadata,
            'backend': meta.backend,
            'checkpoint': meta.checkpoint,
            'embodiment': meta.control.embodiment,
            'action_space': meta.control.action_space,
            'action_schema': list(meta.control.action_schema),
        }
        return result

    def _meta(self) -> ModelMeta:
        self.healthz()
        metadata = self._connection.metadata
        if metadata is None:
            raise CallError('the worker has just gone')
        return read_meta(metadata)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        outcome = self._connection.call(request, timeout_s=self._timeout_s)
        if outcome.reply is None:
            what = '' if outcome.kind == 'refused' else f'{outcome.kind}: '
            raise CallError(f'{what}{outcome.message}')
        return outcome.reply


def _bound(session_id: str) -> str:
    if not session_id:
        raise CallError('this model remembers episodes: call session.register first')
    return session_id
