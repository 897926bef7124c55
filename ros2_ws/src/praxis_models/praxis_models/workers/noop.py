# SPDX-License-Identifier: Apache-2.0
"""Zero motion after a given time: what remains of a model when there is none.

For benchmarks of everything around a model, and for trying a robot's wiring.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import (
    LIBERO_7D,
    ROBOTWIN_EEF16,
    ROBOTWIN_QPOS14,
    NativeControl,
    control_of,
)
from pydantic import Field

from praxis_models.backend import Backend, BackendError, BackendOptions, Session

CONTROLS = {each.embodiment: each for each in (LIBERO_7D, ROBOTWIN_QPOS14, ROBOTWIN_EEF16)}


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

    def __init__(self, options: Options, control: NativeControl) -> None:
        self.meta = ModelMeta(
            backend='noop',
            control=control,
            camera_roles=options.cameras,
            state_schema=options.state_schema,
            chunk_size=options.chunk_size,
            execute_steps=options.execute_steps,
            policy_hz=options.policy_hz,
            uses_sessions=options.uses_sessions,
            interface_hash=options.interface_hash,
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
    control = _control(options.control)
    if options.load_s:
        time.sleep(options.load_s)
    if options.hold:
        size = options.state_schema.get(options.hold)
        if size != control.action_dim:
            raise BackendError(
                f'hold: {options.hold!r} must be a state of {control.action_dim} values in '
                f'state_schema (got {size})'
            )
    elif '.delta.' not in control.action_space:
        raise BackendError(
            f'zeros are no rest in {control.action_space}: name with hold the state that is'
        )
    return NoopBackend(options, control)


def _control(name: str) -> NativeControl:
    if name in CONTROLS:
        return CONTROLS[name]
    if not Path(name).is_file():
        raise BackendError(
            f'control: {name!r} is neither {", ".join(CONTROLS)} nor the file of a contract'
        )
    from praxis_core.contract import ContractError, load_contract

    try:
        return control_of(load_contract(name))
    except ContractError as error:
        raise BackendError(f'control: {error}') from None
