# SPDX-License-Identifier: Apache-2.0
"""What the parameters of the node `action_model` mean for its parts. Imports no rclpy node."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from praxis_core.contract import Contract
from praxis_core.model_meta import ModelMeta
from praxis_core.parameters import ParameterError

from praxis_models.action_model_parameters import ActionModelParameters
from praxis_models.goals.policy_driver import Pace
from praxis_models.goals.policy_goal import RunOptions
from praxis_models.goals.policy_run import Limits
from praxis_models.model_link import LinkSettings
from praxis_models.playback.timeline import Playback
from praxis_models.request_format import read_format
from praxis_models.secret import read_secret
from praxis_models.supervision.specification import WorkerSpec, worker_arguments

TOKEN_VARIABLE = 'PRAXIS_MODEL_TOKEN'


def link_settings(p: ActionModelParameters, contract: Contract, namespace: str) -> LinkSettings:
    """Which model is started or joined.

    Raises:
        ParameterError: The token cannot be read.
    """
    token = os.environ.get(TOKEN_VARIABLE, '').strip()
    arguments = worker_arguments(p.checkpoint, p.worker_options)
    if p.token_file:
        try:
            token = read_secret(p.token_file)
        except ValueError as error:
            raise ParameterError(f'parameter token_file: {error}') from None
        arguments += ('--token-file', str(Path(p.token_file).expanduser().absolute()))
    worker = None
    if not p.endpoint:
        worker = WorkerSpec(
            name=f'{namespace.strip("/")}/{p.backend}'.strip('/'),
            backend=p.backend,
            arguments=arguments,
            python=p.python or sys.executable,
            root=p.root,
            device=p.device,
            ready_timeout_s=p.worker_ready_timeout_s,
        )
    return LinkSettings(
        contract=contract,
        backend=p.backend.rpartition('.')[2],  # a module of one's own goes by its last name
        endpoint=p.endpoint,
        worker=worker,
        dialect=read_format(p.dialect),
        token=token,
        connect_timeout_s=p.connect_timeout_s,
        receive_timeout_s=p.receive_timeout_s,
        first_reply_timeout_s=p.first_reply_timeout_s,
    )


def run_options(p: ActionModelParameters, contract: Contract, request: Any) -> RunOptions:
    """How a goal is run.

    Args:
        p: Parameters.
        contract: Of the robot.
        request: ``RunPolicy.Goal``.
    """
    interface, deployment = contract.interface, contract.deployment
    # In real time the arbiter takes a request at its next tick, past the next observation.
    reaction = int(p.stepping != 'lockstep') if p.reaction_ticks < 0 else p.reaction_ticks

    def pace(meta: ModelMeta) -> Pace:
        return Pace(
            policy_hz=meta.policy_hz or interface.policy_hz,
            command_hz=deployment.command_hz,
            execute_steps=request.execute_steps or p.execute_steps or meta.execute_steps or 0,
            prefetch_steps=p.prefetch_steps,
            resample=p.resample,
            lockstep=p.stepping == 'lockstep',
            reaction_ticks=reaction,
        )

    def playback(pace: Pace) -> Playback:
        return Playback(
            execute=max(1, pace.ticks(pace.execute_steps)) if pace.execute_steps else 0,
            blending=p.blending,
            fade=pace.ticks(p.blend_steps),
            ensemble_m=p.ensemble_m,
            latency=p.latency_ticks,
        )

    clip = None
    if p.clip_deltas and interface.action_kind == 'delta':
        limits = [deployment.limits[name] for name in interface.action.names]
        clip = np.array([each.min for each in limits]), np.array([each.max for each in limits])
    return RunOptions(
        limits=Limits(
            max_chunks=request.max_chunks,
            timeout_s=request.timeout,
            model_patience_s=p.model_patience_s,
            observation_patience_s=p.observation_patience,
        ),
        pace=pace,
        playback=playback,
        clip=clip,
        lockstep=p.stepping == 'lockstep',
    )


def renewal_s(p: ActionModelParameters) -> float:
    """Silence after which a lease is renewed, well before it would end."""
    if p.lease_s > 0.0:
        return p.lease_s / 3.0
    return 5.0 if p.stepping == 'lockstep' else 0.3
