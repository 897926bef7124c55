# SPDX-License-Identifier: Apache-2.0
"""LingBot-VLA behind its own WebSocket server, for RoboTwin's end-effector poses.

Source: Robbyant/lingbot-vla 8b187998, ``deploy/lingbot_vla_policy.py`` and
``deploy/websocket_policy_server.py``. That server has no transform of features until it is told
the robot's name by a request with ``reset``; the launcher of RLinf/RPent 0a95f12f, whose metadata
says ``runtime: lingbotvla``, gives it the transform at its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import Field

from praxis_models.adapters import lingbot as adapter
from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.workers.execution import execute_steps
from praxis_models.workers.native_server import NativeServer

_EXPECTED = {
    'camera_order': list(adapter.CAMERAS),
    'state_layout': 'eef16',
    'action_layout': 'eef16',
}
"""What the metadata of RPent's launcher must say (``robots/robotwin/env_spec.py``, 0a95f12f)."""


class Options(BackendOptions):
    """Where LingBot-VLA listens."""

    endpoint: str = Field(description="its own server, ws://HOST:PORT (LingBot's default: 8006)")
    robot_name: str = Field(
        'robotwin_eef',
        description='robot configuration that a server without one of its own is to load',
    )
    execute_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description='steps to execute of a chunk; none: all that the server returns'
    )
    policy_hz: Annotated[float, Field(gt=0)] | None = Field(
        None, description="rate of the steps, Hz; none: the contract's"
    )
    connect_s: Annotated[float, Field(gt=0)] = Field(
        60.0, description='time the server has to be there, s'
    )
    reply_s: Annotated[float, Field(gt=0)] = Field(
        120.0, description='time an inference may take, s'
    )
    interface_hash: str = Field('', description='contract that the checkpoint was trained for')


class LingBotBackend(Backend):
    """Client of a LingBot-VLA server."""

    def __init__(self, options: Options) -> None:
        self._robot_name = options.robot_name
        self._told: Mapping[str, Any] = {}
        self._server = NativeServer(
            options.endpoint, self._greet, connect_s=options.connect_s, reply_s=options.reply_s
        )
        try:
            chunk_size = len(self._ask(_still()))
            steps = execute_steps(options.execute_steps, chunk_size, chunk_size)
        except BaseException:
            self._server.close()
            raise
        self.meta = ModelMeta(
            backend='lingbot',
            checkpoint=options.endpoint,
            control=adapter.CONTROL,
            camera_roles=tuple(adapter.CAMERAS.values()),
            state_schema=adapter.STATE_SCHEMA,
            chunk_size=chunk_size,
            policy_hz=options.policy_hz,
            execute_steps=steps,
            interface_hash=options.interface_hash,
            metadata={'server': dict(self._told)},
        )

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`."""
        return Prediction(self._ask(observation))

    def close(self) -> None:
        """See `Backend.close`."""
        self._server.close()

    def _ask(self, observation: PhysicalObservation) -> np.ndarray:
        reply = self._server.ask(adapter.encode(observation))
        try:
            return adapter.decode(reply, observation)
        except (TypeError, ValueError) as error:
            raise BackendError(f'LingBot-VLA: {error}') from error

    def _greet(self, server: NativeServer, metadata: Mapping[str, Any]) -> None:
        self._told = {key: value for key, value in metadata.items() if isinstance(key, str)}
        if 'runtime' in metadata:
            for key, wanted in _EXPECTED.items():
                found = metadata.get(key)
                if (list(found) if isinstance(found, (list, tuple)) else found) != wanted:
                    raise BackendError(
                        f'endpoint: {key}: expected {wanted} (got {found}): the server must be '
                        f"one of RoboTwin's end-effector policies"
                    )
        elif self._robot_name:
            server.ask({'reset': True, 'robo_name': self._robot_name})


def load(options: Options) -> LingBotBackend:
    """Join the server, and ask it once for the length of its chunks.

    Raises:
        BackendError: It is not there, or serves another policy.
    """
    return LingBotBackend(options)


def _still() -> PhysicalObservation:
    """Two arms at their bases before three black cameras of RoboTwin's size."""
    pose = np.array([0, 0, 0, 1, 0, 0, 0], np.float32)
    one = np.ones(1, np.float32)
    state = {name: pose if size == 7 else one for name, size in adapter.STATE_SCHEMA.items()}
    images = {role: np.zeros((240, 320, 3), np.uint8) for role in adapter.CAMERAS.values()}
    return PhysicalObservation(images, state, 'wait')
