# SPDX-License-Identifier: Apache-2.0
"""Recorded actions, chunk by chunk: what a demonstration did, whatever is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import Field

from praxis_models.adapters.recorded_actions import (
    Chunks,
    Recording,
    RecordingError,
    read_dataset,
    read_npz,
)
from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.workers.controls import CONTROLS, Chosen, choose

_CURSOR = 'chunk'


class Options(BackendOptions):
    """What to replay."""

    checkpoint: Path = Field(
        description='.npz file with actions [N, A] or [K, H, A], or folder of a LeRobot dataset'
    )
    episode: Annotated[int, Field(ge=0)] = Field(0, description='episode of a dataset')
    control: str = Field(
        '',
        description=f'{", ".join(CONTROLS)}, or the path of a robot contract; '
        'empty: the contract that the dataset holds',
    )
    chunk_size: Annotated[int, Field(ge=1)] = Field(
        10, description='steps of a chunk, unless whole chunks were recorded'
    )
    execute_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description='rows from one chunk to the next; none: a whole chunk'
    )
    at_end: Literal['hold', 'refuse'] = Field(
        'hold', description='after the last row: stay where the robot is, or refuse'
    )
    cameras: tuple[str, ...] = Field(
        (), description='roles of images to demand, which are not looked at'
    )


class ReplayBackend(Backend):
    """Each session has a cursor of its own; a reset puts it at the beginning."""

    def __init__(self, options: Options, recording: Recording, chosen: Chosen) -> None:
        advance = options.execute_steps or options.chunk_size
        fields = chosen.control.action_schema
        self._chunks = Chunks(recording, options.chunk_size, advance, fields, chosen.is_delta)
        self._refuse = options.at_end == 'refuse'
        if options.execute_steps is not None and options.execute_steps > self._chunks.length:
            raise BackendError(
                f'execute_steps: {options.execute_steps} is more than a chunk of '
                f'{self._chunks.length} steps'
            )
        self.meta = ModelMeta(
            backend='replay',
            checkpoint=str(options.checkpoint),
            control=chosen.control,
            camera_roles=options.cameras,
            chunk_size=self._chunks.length,
            execute_steps=options.execute_steps,
            policy_hz=recording.hz or chosen.policy_hz,
            uses_sessions=True,
            interface_hash=chosen.interface_hash,
            metadata={'episode': options.episode, 'chunks': self._chunks.count},
        )

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`; ``metadata.chunk`` of the reply is the chunk's number."""
        index = session.memory.get(_CURSOR, 0)
        ended = index >= self._chunks.count
        if ended and self._refuse:
            raise BackendError(f'the recording has ended after {self._chunks.count} chunks')
        session.memory[_CURSOR] = index + 1
        return Prediction(self._chunks.chunk(index), metadata={'chunk': index, 'ended': ended})


def load(options: Options) -> ReplayBackend:
    """Read the recording.

    Raises:
        BackendError: It cannot be read, or its actions are not those of the control.
    """
    path = options.checkpoint
    try:
        recording = read_dataset(path, options.episode) if path.is_dir() else read_npz(path)
    except RecordingError as error:
        raise BackendError(str(error)) from None
    chosen = choose(options.control) if options.control else _stored_control(path)
    fields = chosen.control.action_schema
    size = recording.actions.shape[-1]
    if recording.names and recording.names != fields:
        raise BackendError(
            f'{path}: actions are {", ".join(recording.names)}; '
            f'{chosen.control.embodiment} has {", ".join(fields)}'
        )
    if size != len(fields):
        raise BackendError(
            f'{path}: actions have {size} values; {chosen.control.embodiment} has {len(fields)}'
        )
    return ReplayBackend(options, recording, chosen)


def _stored_control(root: Path) -> Chosen:
    """Control of the contracts that a dataset keeps; they differ in their deployment at most."""
    chosen = [choose(str(path)) for path in sorted((root / 'meta' / 'contracts').glob('*.yaml'))]
    if len({each.interface_hash for each in chosen}) != 1:
        raise BackendError(f'control: must be given, {root} holds {len(chosen)} contracts')
    return chosen[0]
