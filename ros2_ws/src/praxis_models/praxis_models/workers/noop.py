# SPDX-License-Identifier: Apache-2.0
"""Zero motion after a given time: what remains of a model when there is none.

For benchmarks of everything around a model, and for trying a robot's wiring.
"""

from __future__ import annotations

import time
from typing import Annotated

import numpy as np
from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import Field

from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.workers.controls import CONTROLS, Chosen, choose


class Options(BackendOptions):
    """What the empty model claims to be."""

    control: str = Field(
        'libero_7d',
        description=f'{", ".join(CONTROLS)}, or the path of a robot contract',
    )
    cameras: tuple[str, ...] = Field(
        ('primary', 'wrist'), description='roles of the images it wants'
    )
    state_schema: dict[str, Annotated[int, Field(ge=1)]] = Field(
        {'state': 8}, description='states it wants and their lengths'
    )
    chunk_size: Annotated[int, Field(ge=1)] = Field(10, description='steps of a chunk')
    execute_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description='steps to execute of a chunk; none: all'
    )
    policy_hz: Annotated[float, Field(gt=0)] | None = Field(
        None, description="rate of the steps, Hz; none: the contract's"
    )
    delay_ms: Annotated[float, Field(ge=0)] = Field(0.0, description='time an inference takes, ms')
    load_s: Annotated[float, Field(ge=0)] = Field(0.0, description='time that loading takes, s')
    hold: str = Field(
        '',
        description='absolute action spaces: state whose values are the action that holds still',
    )
    uses_sessions: bool = Field(False, description='count the calls of each session')
    interface_hash: str = Field('', description='contract it claims to be trained for')


class NoopBackend(Backend):
    """Answers zeros, or in absolute action spaces the state named by ``hold``.

    With sessions, ``metadata.step`` of a reply counts the session's calls from 0.
    """

    def __init__(self, options: Options, chosen: Chosen) -> None:
        self.meta = ModelMeta(
            backend='noop',
            control=chosen.control,
            camera_roles=options.cameras,
            state_schema=options.state_schema,
            chunk_size=options.chunk_size,
            execute_steps=options.execute_steps,
            policy_hz=options.policy_hz or chosen.policy_hz,
            uses_sessions=options.uses_sessions,
            interface_hash=options.interface_hash or chosen.interface_hash,
        )
        self._hold = options.hold
        self._delay_s = options.delay_ms / 1e3

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`."""
        if self._delay_s:
            time.sleep(self._delay_s)
        steps, dim = self.meta.chunk_size, self.meta.control.action_dim
        actions = np.zeros((steps, dim), np.float32)
        if self._hold:
            actions[:] = observation.state[self._hold]
        metadata = {}
        if self.meta.uses_sessions:
            metadata['step'] = session.memory.get('step', 0)
            session.memory['step'] = metadata['step'] + 1
        return Prediction(actions, metadata=metadata)


def load(options: Options) -> NoopBackend:
    """Make the back end.

    Raises:
        BackendError: The control is unknown, or zeros would move the robot.
    """
    chosen = choose(options.control)
    control = chosen.control
    if options.load_s:
        time.sleep(options.load_s)
    if options.hold:
        size = options.state_schema.get(options.hold)
        if size != control.action_dim:
            raise BackendError(
                f'hold: {options.hold!r} must be a state of {control.action_dim} values in '
                f'state_schema (got {size})'
            )
    elif not chosen.is_delta:
        raise BackendError(
            f'zeros are no rest in {control.action_space}: name with hold the state that is'
        )
    return NoopBackend(options, chosen)
