# SPDX-License-Identifier: Apache-2.0
"""pi0.5 on the APXInf runtime, in this process or behind its own OpenPI server.

Source: infinigence/ApxInf 19bbb696: ``AutoPolicy.from_pretrained`` in this process, or the server
of RLinf/APXinf-robo 2e8e7fc4 (``apxinf-robo serve``), whose metadata states keys and sizes. The
engine's handle belongs to the thread that made it: load and predict on one, as a worker does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import Field

from praxis_models.adapters import apxinf as adapter
from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.wording import quoted
from praxis_models.workers.execution import execute_steps
from praxis_models.workers.foreign import bring
from praxis_models.workers.native_server import NativeServer

PACKAGE = 'ApxInf with its CUDA extension (github.com/RLinf/APXinf-robo)'


class Options(BackendOptions):
    """Which checkpoint on which robot."""

    preset: Literal['libero', 'dual_franka', 'yam'] = Field('libero', description='robot')
    checkpoint: str = Field(
        '', description='folder with model.safetensors, config.json and norm_stats.json'
    )
    endpoint: str = Field('', description="an APXInf server's ws://HOST:PORT instead")
    statistics: str = Field('', description="norm_stats.json; empty: the checkpoint's")
    cameras: dict[str, str] = Field({}, description="view's key = role; empty: the preset's")
    precision: Literal['auto', 'bf16', 'fp8', 'int8'] = Field('bf16', description='of the engine')
    calibration: str = Field('', description="FP8 scales; empty: the checkpoint's")
    tactics: str = Field('', description='tuned kernels; empty: as the engine chooses')
    horizon: Annotated[int, Field(ge=1)] | None = Field(
        None, description="steps the model predicts; none: the preset's"
    )
    return_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="steps of them to return; none: the preset's"
    )
    execute_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="steps to execute of a chunk; none: the preset's"
    )
    flow_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="steps of the flow that the checkpoint's config.json must state"
    )
    relative: bool | None = Field(
        None, description="the model predicts relative to the state; none: the preset's"
    )
    seed: Annotated[int, Field(ge=0)] = Field(0, description='of the noise')
    device: str = Field('cuda:0', description='cuda:N')
    connect_s: Annotated[float, Field(gt=0)] = Field(
        60.0, description='time a server has to be there, s'
    )
    reply_s: Annotated[float, Field(gt=0)] = Field(
        60.0, description='time an inference of a server may take, s'
    )
    interface_hash: str = Field('', description='contract that the checkpoint was trained for')


class ApxInfBackend(Backend):
    """A policy of APXInf's, or a server of one.

    Args:
        options: As given.
        policy: Has ``infer(observation) -> {'actions': ...}`` and ``close()``.
        told: What it says of itself: ``action_horizon``, ``image_keys``, ...
    """

    def __init__(self, options: Options, policy: Any, told: Mapping[str, Any]) -> None:
        preset = adapter.PRESETS[options.preset]
        horizon = int(told['action_horizon'])
        returned = min(options.return_steps or preset.return_steps, horizon)
        self._policy = policy
        self._preset = options.preset
        self._steps = returned
        self._relative = preset.relative if options.relative is None else options.relative
        self._cameras = options.cameras or preset.cameras
        self.meta = ModelMeta(
            backend='apxinf',
            checkpoint=options.checkpoint or options.endpoint,
            control=preset.control,
            camera_roles=tuple(self._cameras.values()),
            state_schema=preset.state_schema,
            chunk_size=returned,
            policy_hz=preset.policy_hz,
            execute_steps=execute_steps(options.execute_steps, preset.execute_steps, returned),
            interface_hash=options.interface_hash,
            metadata={
                'preset': options.preset,
                'horizon': horizon,
                'relative': self._relative,
                'precision': told.get('precision') or options.precision,
                'flow_steps': _flow_steps(options.checkpoint),
            },
        )

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`."""
        native = adapter.encode(self._preset, observation, self._cameras)
        try:
            actions = self._policy.infer(native)['actions']
            chunk = adapter.decode(
                self._preset, actions, observation, steps=self._steps, relative=self._relative
            )
        except (KeyError, ValueError, FloatingPointError) as error:
            raise BackendError(f'APXInf: {quoted(error)}') from error
        return Prediction(chunk)

    def close(self) -> None:
        """See `Backend.close`."""
        self._policy.close()


class _Remote:
    """An APXInf server in the place of a policy."""

    def __init__(self, options: Options, keys: tuple[str, ...], width: int) -> None:
        self.metadata: Mapping[str, Any] = {}
        self._keys, self._width = list(keys), width
        self._server = NativeServer(
            options.endpoint, self._greet, connect_s=options.connect_s, reply_s=options.reply_s
        )

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        return self._server.ask(observation)

    def close(self) -> None:
        self._server.close()

    def _greet(self, server: NativeServer, metadata: Mapping[str, Any]) -> None:
        for key, wanted in (('image_keys', self._keys), ('action_dim', self._width)):
            found = metadata.get(key)
            if found is None:
                raise BackendError(f'endpoint: its metadata has no {key}: is it one of APXInf?')
            if (list(found) if isinstance(wanted, list) else found) != wanted:
                raise BackendError(f'endpoint: {key}: expected {wanted} (got {found})')
        horizon = metadata.get('action_horizon')
        before = self.metadata.get('action_horizon')
        if not isinstance(horizon, int) or horizon < 1 or before not in (None, horizon):
            wanted = before or 'a number of steps'
            raise BackendError(f'endpoint: action_horizon: expected {wanted} (got {horizon})')
        self.metadata = dict(metadata)


def load(options: Options) -> ApxInfBackend:
    """Load a checkpoint, or join a server.

    Raises:
        BackendError: Neither or both are named, APXInf is not there, or it refuses them.
    """
    if bool(options.checkpoint) == bool(options.endpoint):
        raise BackendError('give either checkpoint or endpoint')
    preset = adapter.PRESETS[options.preset]
    keys = tuple(options.cameras or preset.cameras)
    if len(keys) != len(preset.cameras):
        raise BackendError(f'cameras: {options.preset} has {len(preset.cameras)} views')
    if options.endpoint:
        for name in ('statistics', 'calibration', 'tactics', 'horizon', 'flow_steps'):
            if getattr(options, name):
                raise BackendError(f'{name}: is for the server of the endpoint to choose')
        policy: Any = _Remote(options, keys, preset.control.action_dim)
    else:
        _check_flow_steps(options)
        policy = _local(options, preset, keys)
    try:
        return ApxInfBackend(options, policy, policy.metadata)
    except BaseException:
        policy.close()
        raise


def _local(options: Options, preset: adapter.Preset, keys: tuple[str, ...]) -> Any:
    engine = bring('apxinf', PACKAGE)
    bring('apxinf_py', PACKAGE)
    files = {'calibration': options.calibration, 'tactics': options.tactics}
    if options.statistics:
        files['norm_stats'] = options.statistics
    try:
        return engine.AutoPolicy.from_pretrained(
            options.checkpoint,
            device=options.device,
            precision=options.precision,
            action_dim=preset.control.action_dim,
            action_horizon=options.horizon or preset.horizon,
            image_keys=keys,
            state_key=adapter.STATE_KEY,
            prompt_key=adapter.PROMPT_KEY,
            discrete_state=preset.discrete_state,
            seed=options.seed,
            **{name: path for name, path in files.items() if path},
        )
    except TypeError as error:
        if options.statistics and 'norm_stats' in str(error):
            raise BackendError(
                "statistics: this version of APXInf reads the checkpoint's norm_stats.json only"
            ) from error
        raise
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise BackendError(f'checkpoint {options.checkpoint!r}: {quoted(error)}') from error


def _flow_steps(checkpoint: str) -> int | None:
    """Steps that a checkpoint's config.json states, under either of the engine's names."""
    if not checkpoint:
        return None
    try:
        found = json.loads((Path(checkpoint) / 'config.json').read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    steps = found.get('num_inference_steps', found.get('num_flow_steps'))
    return steps if isinstance(steps, int) else None


def _check_flow_steps(options: Options) -> None:
    stated = _flow_steps(options.checkpoint)
    if options.flow_steps is not None and options.flow_steps != stated:
        raise BackendError(
            f"flow_steps: APXInf takes them from the checkpoint's config.json: set "
            f'num_inference_steps to {options.flow_steps} there (it is {stated or "not stated"})'
        )
