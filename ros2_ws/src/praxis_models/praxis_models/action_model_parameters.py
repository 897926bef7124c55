# SPDX-License-Identifier: Apache-2.0
"""Parameters of the node `action_model`."""

from __future__ import annotations

from typing import Literal

from praxis_core.parameters import ParameterModel
from praxis_core.schema import Problem, refuse
from pydantic import Field, model_validator

from praxis_models.request_format import read_format
from praxis_models.supervision.specification import worker_arguments

_FIXED = {'read_only': True}
_OF_WORKER = ('checkpoint', 'python', 'root', 'device', 'worker_options')


class ActionModelParameters(ParameterModel):
    """See the descriptions. Those that are not read-only count from the next goal on."""

    contract: str = Field(
        description='path of the robot contract', min_length=1, json_schema_extra=_FIXED
    )
    stepping: Literal['realtime', 'lockstep'] = Field(
        'realtime',
        description='realtime: the newest image within its max_age; lockstep: images of the very '
        'observation, and simulated time waits for the answer',
        json_schema_extra=_FIXED,
    )
    source: str = Field(
        'policy',
        min_length=1,
        description="name under which commands are requested; one of the arbiter's sources",
        json_schema_extra=_FIXED,
    )

    # The model
    backend: str = Field(
        '',
        description='back end of the worker that is started; with an endpoint the one that is '
        'expected there, empty: any',
        json_schema_extra=_FIXED,
    )
    endpoint: str = Field(
        '',
        description='ws://HOST:PORT of a running worker, which is joined and never stopped; '
        'empty: one is started',
        json_schema_extra=_FIXED,
    )
    checkpoint: str = Field(
        '', description='checkpoint of the worker that is started', json_schema_extra=_FIXED
    )
    python: str = Field(
        '',
        description="Python executable, or folder, of the model's own environment; empty: this "
        'one',
        json_schema_extra=_FIXED,
    )
    root: str = Field(
        '',
        description='working directory of the worker, first on its module path; empty: neither',
        json_schema_extra=_FIXED,
    )
    device: str = Field(
        '',
        description='cpu, cuda, cuda:1 or 0,1: what the worker sees; empty: everything',
        json_schema_extra=_FIXED,
    )
    worker_options: str = Field(
        '',
        description='JSON object of further options of the back end, as its --help lists them; '
        'those that are empty texts are left out',
        json_schema_extra=_FIXED,
    )
    dialect: str = Field(
        '',
        description='how a server that is none of ours wants its requests: openpi_libero, '
        'openpi_droid, openpi_aloha, rlt, or a JSON object; empty: our protocol',
        json_schema_extra=_FIXED,
    )
    worker_ready_timeout_s: float = Field(
        300.0,
        ge=1.0,
        le=7200.0,
        description='time a worker may take to load its model (s)',
        json_schema_extra=_FIXED,
    )
    token_file: str = Field(
        '',
        description='file with the token for the worker; empty: PRAXIS_MODEL_TOKEN, if it is set',
        json_schema_extra=_FIXED,
    )

    # Playback
    execute_steps: int = Field(
        0, ge=0, le=10000, description="steps executed of each chunk; 0: the model's, or all"
    )
    prefetch_steps: int = Field(
        -1,
        ge=-1,
        le=10000,
        description='the next inference begins so many steps before the execution of the present '
        'chunk ends; 0: when it has ended; -1: as many as inferences took lately, in lockstep 0',
    )
    blending: Literal['none', 'linear', 'exponential'] = Field(
        'none',
        description='of overlapping chunks. none: the newest; linear: cross-fade over '
        'blend_steps; exponential: temporal ensembling of all, as ACT does',
    )
    blend_steps: int = Field(4, ge=1, le=1000, description='steps of a linear cross-fade')
    ensemble_m: float = Field(
        0.01,
        ge=0.0,
        le=10.0,
        description='exponential: the i-th oldest prediction weighs exp(-m i); 0: all the same',
    )
    latency_ticks: int = Field(
        0,
        ge=0,
        le=1000,
        description='a chunk is used no earlier than so many ticks after its observation while '
        'another plays; lockstep: exactly then, however fast the machine is',
    )
    reaction_ticks: int = Field(
        -1,
        ge=-1,
        le=100,
        description='commands that were sent and that the next observation does not show yet; a '
        'chunk begins with them, and they are skipped; -1: 1 in real time, in lockstep 0',
    )
    resample: bool = Field(
        True,
        description='convert steps at policy_hz to commands at command_hz; false: one step a tick',
    )
    clip_deltas: bool = Field(
        True,
        description='clip the commands of a delta action space to min and max of the contract, '
        'which the arbiter would refuse as a whole',
    )

    # Patience
    connect_timeout_s: float = Field(
        5.0,
        ge=0.1,
        le=600.0,
        description='TCP and WebSocket handshake (s)',
        json_schema_extra=_FIXED,
    )
    receive_timeout_s: float = Field(
        30.0, ge=0.05, le=3600.0, description='a reply of the model (s)', json_schema_extra=_FIXED
    )
    first_reply_timeout_s: float = Field(
        120.0,
        ge=0.05,
        le=7200.0,
        description='the first reply of a connection, for which a model may compile (s)',
        json_schema_extra=_FIXED,
    )
    model_patience_s: float = Field(
        10.0,
        ge=0.0,
        le=3600.0,
        description='a run goes on for so long without a model, or with one that fails (s)',
    )
    observation_patience_s: float = Field(
        0.0,
        ge=0.0,
        le=600.0,
        description='a run goes on for so long without a whole and fresh observation (s); '
        '0: 1 in real time, 30 in lockstep',
    )
    lease_s: float = Field(
        0.0,
        ge=0.0,
        le=600.0,
        description="silence that ends the arbiter's lease (s); 0: the arbiter's own",
    )
    service_timeout_s: float = Field(
        3.0, ge=0.1, le=60.0, description='the arbiter grants a lease within this time (s)'
    )
    feedback_hz: float = Field(5.0, ge=2.0, le=10.0, description='rate of feedback (Hz)')

    @property
    def observation_patience(self) -> float:
        """``observation_patience_s``, or what 0 stands for."""
        return self.observation_patience_s or (30.0 if self.stepping == 'lockstep' else 1.0)

    @model_validator(mode='after')
    def _one_model(self) -> ActionModelParameters:
        problems = []
        if self.endpoint:
            problems += [
                Problem(name, f'must be empty, since endpoint {self.endpoint} is joined', value)
                for name in _OF_WORKER
                if (value := getattr(self, name)) and not _says_nothing(name, value)
            ]
        elif not self.backend:
            reason = 'is needed to start a worker; or give the endpoint of one that runs'
            problems.append(Problem('backend', reason, self.backend))
        try:
            read_format(self.dialect)
        except ValueError as error:
            problems.append(Problem('dialect', str(error), self.dialect))
        try:
            worker_arguments(self.checkpoint, self.worker_options)
        except ValueError as error:
            problems.append(Problem('worker_options', str(error), self.worker_options))
        refuse(problems)
        return self


def _says_nothing(name: str, value: str) -> bool:
    """Whether these are options of a worker of which none is given."""
    try:
        return name == 'worker_options' and not worker_arguments('', value)
    except ValueError:
        return False
