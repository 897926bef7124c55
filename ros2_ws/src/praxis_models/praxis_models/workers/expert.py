# SPDX-License-Identifier: Apache-2.0
"""Scripted teacher of the tabletop's tasks as a model: it sees the ground truth, not pixels."""

from __future__ import annotations

from typing import Annotated

from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import NativeControl
from pydantic import Field

from praxis_models.adapters import tabletop_teacher as teacher
from praxis_models.backend import Backend, BackendError, BackendOptions, Session

TABLETOP_7D = NativeControl(
    embodiment='tabletop_7d',
    action_space='tabletop.osc_pose.delta.v1',
    action_schema=(
        *(f'delta_{axis}' for axis in 'xyz'),
        *(f'delta_axis_angle_{axis}' for axis in 'xyz'),
        'gripper',
    ),
)
"""The tabletop's Panda; gripper -1 open, +1 close."""


class Options(BackendOptions):
    """How much the teacher plans ahead."""

    chunk_size: Annotated[int, Field(ge=1, le=64)] = Field(8, description='steps of a chunk')
    execute_steps: Annotated[int, Field(ge=1)] = Field(
        4, description='steps to execute of a chunk'
    )
    cameras: tuple[str, ...] = Field(
        (), description='roles of images to demand, which are not looked at'
    )
    interface_hash: str = Field('', description='contract that it is for, empty: not compared')


class ExpertBackend(Backend):
    """Follows waypoints; a session remembers the stage of its episode."""

    def __init__(self, options: Options) -> None:
        self._steps = options.chunk_size
        self.meta = ModelMeta(
            backend='expert',
            control=TABLETOP_7D,
            camera_roles=options.cameras,
            state_schema=dict(teacher.STATE),
            chunk_size=options.chunk_size,
            execute_steps=min(options.execute_steps, options.chunk_size),
            policy_hz=20.0,
            uses_sessions=True,
            interface_hash=options.interface_hash,
            metadata={'privileged': True, 'instructions': list(teacher.TASKS)},
        )

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`; ``metadata.stage`` of the reply names the stage."""
        task = ' '.join(observation.instruction.lower().split()).rstrip('.')
        if task not in teacher.TASKS:
            known = ', '.join(repr(each) for each in teacher.TASKS)
            raise BackendError(f'instruction: expected one of {known} (got {task!r})')
        remembered = session.memory.get('stage', '') if session.memory.get('task') == task else ''
        seen = teacher.scene(observation.state)
        stage = teacher.stage_of(task, remembered, seen)
        session.memory.update(task=task, stage=stage)
        actions = teacher.chunk(task, stage, seen, self._steps)
        return Prediction(actions, metadata={'stage': stage})


def load(options: Options) -> ExpertBackend:
    """Make the teacher."""
    return ExpertBackend(options)
