# SPDX-License-Identifier: Apache-2.0
"""Cosmos Policy, a world-action model: actions, the views they lead to and their value (LIBERO).

Source: NVlabs/cosmos-policy b8ffbb42, ``cosmos_policy/experiments/robot/cosmos_utils.py``:
``get_model``, ``load_dataset_stats``, ``get_action``. It runs in that project's environment, with
its repository as working directory. Text embeddings come from a file of
`praxis_models.embeddings`; the project's own cache, a pickle, is not opened.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import Field

from praxis_models.adapters import cosmos_policy as adapter
from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.workers.foreign import bring
from praxis_models.workers.instructions import CachedInstructions

PACKAGE = 'cosmos-policy (github.com/NVlabs/cosmos-policy)'
STATISTICS = 'libero_dataset_statistics.json'

SETTINGS = {
    'suite': 'libero',
    'use_third_person_image': True,
    'num_third_person_images': 1,
    'use_wrist_image': True,
    'num_wrist_images': 1,
    'use_proprio': True,
    'normalize_proprio': True,
    'unnormalize_actions': True,
    'use_jpeg_compression': True,
    'trained_with_image_aug': True,
    'use_variance_scale': False,
    'chunk_size': adapter.CHUNK_SIZE,
}
"""What ``PolicyEvalConfig`` of the project's LIBERO evaluation says of the released checkpoint."""


class Options(BackendOptions):
    """Which checkpoint of Cosmos Policy, and how it is run."""

    checkpoint: str = Field(
        'nvidia/Cosmos-Policy-LIBERO-Predict2-2B',
        description='repository on Hugging Face, folder or .pt file',
    )
    statistics: str = Field(
        '', description=f'JSON file; empty: {STATISTICS} beside the checkpoint'
    )
    config: str = Field(
        'cosmos_predict2_2b_480p_libero__inference_only', description='name of the experiment'
    )
    config_file: str = Field(
        'cosmos_policy/config/config.py', description="project's configuration, from its folder"
    )
    text_embeddings: str = Field(
        '', description='file of python -m praxis_models.embeddings; empty: T5 runs'
    )
    cached_instructions_only: bool = Field(
        False, description='refuse instructions that text_embeddings has not got; T5 never runs'
    )
    flow_steps: Annotated[int, Field(ge=1)] = Field(5, description='steps of denoising')
    seed: Annotated[int, Field(ge=0)] = Field(1, description='of the noise of every chunk')
    predict_future: bool = Field(False, description='decode predicted views, give the value')
    execute_steps: Annotated[int, Field(ge=1, le=adapter.CHUNK_SIZE)] = Field(
        adapter.CHUNK_SIZE, description='steps to execute of a chunk'
    )
    device: str = Field('cuda', description='cuda or cuda:N; the project runs on no other')
    interface_hash: str = Field('', description='contract that the checkpoint was trained for')


class CosmosPolicyBackend(Backend):
    """A policy of Cosmos Policy's; every chunk is sampled with the same seed."""

    def __init__(
        self,
        options: Options,
        project: Any,
        settings: SimpleNamespace,
        model: Any,
        statistics: Any,
        cached: CachedInstructions,
    ) -> None:
        self.meta = ModelMeta(
            backend='cosmos_policy',
            checkpoint=options.checkpoint,
            control=adapter.CONTROL,
            camera_roles=tuple(adapter.CAMERAS.values()),
            state_schema=adapter.STATE_SCHEMA,
            chunk_size=adapter.CHUNK_SIZE,
            returns_future_observation=options.predict_future,
            returns_value=options.predict_future,
            policy_hz=adapter.POLICY_HZ,
            execute_steps=options.execute_steps,
            interface_hash=options.interface_hash,
            metadata={
                'config': options.config,
                'flow_steps': options.flow_steps,
                'seed': options.seed,
                'image_size': adapter.IMAGE_SIZE,
                **cached.metadata,
            },
        )
        self._options = options
        self._project = project
        self._settings = settings
        self._model = model
        self._statistics = statistics
        self._cached = cached

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`."""
        try:
            native = adapter.encode(observation)
            found = self._project.get_action(
                self._settings,
                self._model,
                self._statistics,
                native,
                self._text(observation.instruction),
                seed=self._options.seed,
                randomize_seed=False,
                num_denoising_steps_action=self._options.flow_steps,
                generate_future_state_and_value_in_parallel=self._options.predict_future,
            )
            actions = adapter.decode(found['actions'])
        except ValueError as error:
            raise BackendError(str(error)) from error
        if not self._options.predict_future:
            return Prediction(actions)
        return Prediction(
            actions,
            future_observation=adapter.decode_future(found['future_image_predictions']),
            value=float(found['value_prediction']),
        )

    def _text(self, instruction: str) -> str | np.ndarray:
        """Embedding float32[1, L, D], or the instruction for the project to embed."""
        entry = self._cached.find(instruction)
        return instruction if entry is None else entry.values[None]


def load(options: Options) -> CosmosPolicyBackend:
    """Load a policy.

    Raises:
        BackendError: The project is not there, or a file of the options is not.
    """
    cached = CachedInstructions(options.text_embeddings, options.cached_instructions_only)
    _choose_device(options.device)
    # the project makes its autoencoder repeatable where it finds this
    os.environ['DETERMINISTIC'] = 'True'
    project = bring('cosmos_policy.experiments.robot.cosmos_utils', PACKAGE)
    bring('cosmos_policy.utils.utils', PACKAGE).set_seed_everywhere(options.seed)
    weights = _weights(options.checkpoint)
    settings = SimpleNamespace(
        **SETTINGS, config=options.config, config_file=options.config_file, ckpt_path=weights
    )
    statistics = project.load_dataset_stats(_statistics(options))
    model, config = project.get_model(settings)
    trained = config.dataloader_train.dataset.chunk_size
    if trained != adapter.CHUNK_SIZE:
        raise BackendError(
            f'checkpoint: expected chunks of {adapter.CHUNK_SIZE} (got {trained}): '
            f'{options.config} is not a LIBERO policy'
        )
    return CosmosPolicyBackend(options, project, settings, model, statistics, cached)


def _weights(checkpoint: str) -> str:
    """What the project's ``get_model`` takes; it finds a Hugging Face repository by itself."""
    folder = Path(checkpoint).expanduser()
    if folder.is_file():
        return str(folder)
    if not folder.is_dir():
        if checkpoint.count('/') == 1 and not checkpoint.startswith(('/', '.', '~')):
            return checkpoint
        raise BackendError(f'checkpoint: {checkpoint} is not there')
    if (folder / 'model').is_dir():
        return str(folder / 'model')
    found = sorted(folder.glob('*.pt'))
    if len(found) != 1:
        raise BackendError(f'checkpoint: {folder} has {len(found)} .pt files, expected one')
    return str(found[0])


def _statistics(options: Options) -> str:
    """What the project's ``load_dataset_stats`` takes: a file, or ORGANISATION/REPOSITORY/FILE."""
    checkpoint = Path(options.checkpoint).expanduser()
    found = options.statistics or f'{options.checkpoint}/{STATISTICS}'
    if not options.statistics and checkpoint.exists():
        found = str((checkpoint if checkpoint.is_dir() else checkpoint.parent) / STATISTICS)
    remote = found.count('/') == 2 and not found.startswith(('/', '.', '~'))
    if not remote and not Path(found).expanduser().is_file():
        raise BackendError(f'statistics: {found} is not there')
    return found


def _choose_device(device: str) -> None:
    """Show the project, which takes the first device, the one that is meant."""
    kind, _, index = device.partition(':')
    if kind != 'cuda' or (index and not index.isdigit()):
        raise BackendError(f'device: must be cuda or cuda:N (got {device!r})')
    if index:
        visible = os.environ.get('CUDA_VISIBLE_DEVICES', '')
        shown = visible.split(',') if visible else [str(n) for n in range(int(index) + 1)]
        if int(index) >= len(shown):
            raise BackendError(f'device: {device} is not among CUDA_VISIBLE_DEVICES={visible}')
        os.environ['CUDA_VISIBLE_DEVICES'] = shown[int(index)]
