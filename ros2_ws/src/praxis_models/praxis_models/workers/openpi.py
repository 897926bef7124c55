# SPDX-License-Identifier: Apache-2.0
"""pi0, pi0-FAST and pi0.5 through openpi's own policy.

Source: Physical-Intelligence/openpi 15a9616a, ``scripts/serve_policy.py``: a training
configuration by name, and ``create_trained_policy`` from a checkpoint, in JAX or PyTorch.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import Field

from praxis_models.adapters import openpi as adapter
from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.normalisation import StatisticsError, load_statistics
from praxis_models.wording import quoted
from praxis_models.workers import openpi_dummy
from praxis_models.workers.execution import execute_steps
from praxis_models.workers.foreign import bring

PACKAGE = 'openpi (github.com/Physical-Intelligence/openpi)'
DUMMY = 'dummy'

logger = logging.getLogger('praxis_models.openpi')


class Options(BackendOptions):
    """Which of openpi's policies, and how it is run."""

    checkpoint: str = Field(
        description='folder of the checkpoint, gs://openpi-assets/checkpoints/NAME, or '
        f'{DUMMY}: random weights of little width'
    )
    config: str = Field('pi05_libero', description="name of openpi's training configuration")
    preset: Literal['', 'libero', 'droid', 'droid_position', 'aloha'] = Field(
        '', description="robot; empty: by the configuration's name"
    )
    cameras: dict[str, str] = Field(
        {}, description="openpi's name of a view = role; empty: the preset's"
    )
    statistics: str = Field(
        '', description="norm_stats.json; empty: the checkpoint's for its configuration"
    )
    flow_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="steps of the flow; none: openpi's 10"
    )
    execute_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="steps to execute of a chunk; none: as openpi's example"
    )
    seed: Annotated[int, Field(ge=0)] = Field(0, description='of the noise and of dummy weights')
    device: str = Field('', description='cpu, cuda or cuda:N; empty: the best there is')
    warm_up: bool = Field(True, description='compile before the first client is served')
    interface_hash: str = Field('', description='contract that the checkpoint was trained for')


class OpenPiBackend(Backend):
    """A policy of openpi's.

    The noise of a chunk is drawn here, so that a reset repeats an episode's chunks.
    """

    def __init__(
        self,
        options: Options,
        policy: Any,
        *,
        preset: str,
        chunk_size: int,
        noise_dim: int | None,
        model_type: str,
    ) -> None:
        spec = adapter.PRESETS[preset]
        self._cameras = options.cameras or spec.cameras
        self.meta = ModelMeta(
            backend='openpi',
            checkpoint=options.checkpoint,
            control=spec.control,
            camera_roles=tuple(self._cameras.values()),
            state_schema=spec.state_schema,
            chunk_size=chunk_size,
            policy_hz=spec.policy_hz,
            execute_steps=execute_steps(options.execute_steps, spec.execute_steps, chunk_size),
            interface_hash=options.interface_hash,
            metadata={
                'config': options.config,
                'model_type': model_type,
                'preset': preset,
                'flow_steps': options.flow_steps,
            },
        )
        self._policy = policy
        self._preset = preset
        self._seed = options.seed
        self._noise_shape = None if noise_dim is None else (chunk_size, noise_dim)
        self._random = np.random.default_rng(options.seed)

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`."""
        native = adapter.encode(self._preset, observation, self._cameras)
        more = {}
        if self._noise_shape is not None:
            more['noise'] = self._random.standard_normal(self._noise_shape, dtype=np.float32)
        try:
            actions = self._policy.infer(native, **more)['actions']
            return Prediction(adapter.decode(self._preset, actions))
        except ValueError as error:
            raise BackendError(f'openpi: {error}') from error

    def reset(self, session: Session) -> None:
        """See `Backend.reset`."""
        super().reset(session)
        self._random = np.random.default_rng(self._seed)

    def warm_up(self) -> None:
        """Run one inference, which compiles the model."""
        schema = self.meta.state_schema
        state = {name: np.zeros(size, np.float32) for name, size in schema.items()}
        if 'eef_quaternion_xyzw' in state:
            state['eef_quaternion_xyzw'][:] = (0.0, 0.0, 0.0, 1.0)
        images = {role: np.zeros((224, 224, 3), np.uint8) for role in self.meta.camera_roles}
        self.predict(PhysicalObservation(images, state, 'wait'), Session('warm_up'))
        self._random = np.random.default_rng(self._seed)


def load(options: Options) -> OpenPiBackend:
    """Load a policy.

    Raises:
        BackendError: openpi is not there, or it refuses the configuration or the checkpoint.
    """
    preset = options.preset or adapter.preset_of(options.config)
    if not preset:
        raise BackendError(
            f'preset: the name of config {options.config!r} does not tell the robot; give one of '
            f'{", ".join(adapter.PRESETS)}'
        )
    _check_cameras(preset, options.cameras)
    _choose_device(options.device)
    training = bring('openpi.training.config', PACKAGE)
    bring('openpi.policies.policy_config', PACKAGE)
    try:
        config = training.get_config(options.config)
    except ValueError as error:
        raise BackendError(f'config: {error}') from error
    model_type = config.model.model_type.value
    sample = {}
    if options.flow_steps is not None:
        if model_type == 'pi0_fast':
            raise BackendError('flow_steps: pi0-FAST has no flow, it writes tokens')
        sample['num_steps'] = options.flow_steps
    with tempfile.TemporaryDirectory(prefix='praxis_openpi_') as scratch:
        checkpoint = options.checkpoint
        if checkpoint == DUMMY:
            config = openpi_dummy.narrow(config)
            openpi_dummy.provide_tokenizer(Path(scratch) / 'home')
            checkpoint = str(Path(scratch) / DUMMY)
            openpi_dummy.write_checkpoint(config, Path(checkpoint), options.seed)
        policy = _policy(options, config, checkpoint, sample)
    backend = OpenPiBackend(
        options,
        policy,
        preset=preset,
        chunk_size=config.model.action_horizon,
        noise_dim=None if model_type == 'pi0_fast' else config.model.action_dim,
        model_type=model_type,
    )
    if options.warm_up:
        backend.warm_up()
    return backend


def _policy(options: Options, config: Any, checkpoint: str, sample: Mapping[str, Any]) -> Any:
    creator = bring('openpi.policies.policy_config', PACKAGE)
    try:
        return creator.create_trained_policy(
            config,
            checkpoint,
            sample_kwargs=dict(sample) or None,
            norm_stats=_statistics(options.statistics),
            pytorch_device=options.device or None,
        )
    except (FileNotFoundError, ValueError) as error:
        logger.exception('openpi refuses the checkpoint')
        raise BackendError(f'checkpoint {options.checkpoint!r}: {quoted(error)}') from error


def _statistics(path: str) -> Any:
    """Read a file of openpi's statistics; None where it is left to the checkpoint."""
    if not path:
        return None
    file = Path(path)
    file = file / 'norm_stats.json' if file.is_dir() else file
    try:
        for key in ('state', 'actions'):
            load_statistics(file, f'norm_stats/{key}', needs=('mean', 'std'))
    except StatisticsError as error:
        raise BackendError(f'statistics: {error}') from error
    normalize = bring('openpi.shared.normalize', PACKAGE)
    return normalize.deserialize_json(file.read_text(encoding='utf-8'))


def _check_cameras(preset: str, cameras: Mapping[str, str]) -> None:
    if not cameras:
        return
    known = adapter.ALOHA_CAMERAS if preset == 'aloha' else tuple(adapter.PRESETS[preset].cameras)
    for name in cameras:
        if name not in known:
            raise BackendError(f'cameras: openpi has no view {name!r}; it has {", ".join(known)}')
    needed = ('cam_high',) if preset == 'aloha' else known
    for name in needed:
        if name not in cameras:
            raise BackendError(f'cameras: {name} has no role')


def _choose_device(device: str) -> None:
    """Tell JAX, which reads the environment when it is imported."""
    if not device:
        return
    kind, _, index = device.partition(':')
    if kind not in ('cpu', 'cuda') or (index and not index.isdigit()):
        raise BackendError(f'device: must be cpu, cuda or cuda:N (got {device!r})')
    os.environ['JAX_PLATFORMS'] = kind
    if index:
        os.environ.setdefault('CUDA_VISIBLE_DEVICES', index)
