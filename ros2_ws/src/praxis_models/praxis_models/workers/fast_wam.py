# SPDX-License-Identifier: Apache-2.0
"""Fast-WAM, a world-action model: actions without imagining the future (LIBERO, RoboTwin).

Source: yuantianyuan01/FastWAM 45d8e145: the model of ``configs/sim_libero.yaml`` or
``configs/sim_robotwin.yaml``, ``load_checkpoint``, ``infer_action`` and ``infer_joint`` of
``src/fastwam/models/wan22``. It runs in that project's environment.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import Field

from praxis_models.adapters import fast_wam as adapter
from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.normalisation import StatisticsError
from praxis_models.wording import quoted
from praxis_models.workers.foreign import bring
from praxis_models.workers.instructions import CachedInstructions

PACKAGE = 'FastWAM (github.com/yuantianyuan01/FastWAM)'

logger = logging.getLogger('praxis_models.fast_wam')


class Options(BackendOptions):
    """Which checkpoint of Fast-WAM, and how it is run."""

    checkpoint: str = Field(description='file such as libero_uncond_2cam224.pt')
    preset: Literal['libero', 'robotwin'] = Field('libero', description='robot')
    statistics: str = Field(
        '', description='dataset_stats.json; empty: CHECKPOINT_dataset_stats.json beside it'
    )
    config: str = Field(
        '',
        description='resolved YAML with the mapping `model`, or name of a task of the project; '
        "empty: that of the project's evaluation",
    )
    text_embeddings: str = Field(
        '', description='file of python -m praxis_models.embeddings; empty: T5 runs'
    )
    cached_instructions_only: bool = Field(
        False,
        description='refuse instructions that text_embeddings has not got; T5 is not loaded',
    )
    flow_steps: Annotated[int, Field(ge=1)] = Field(10, description='steps of denoising')
    seed: Annotated[int, Field(ge=0)] = Field(42, description='of the noise of every chunk')
    predict_future: bool = Field(False, description='imagine the frames too, which takes longer')
    binarise_gripper: bool = Field(True, description='LIBERO: open or close, nothing between')
    view_size: Annotated[int, Field(ge=16, multiple_of=16)] = Field(
        224, description='LIBERO: side of a view in the picture, as in the training'
    )
    execute_steps: Annotated[int, Field(ge=1, le=adapter.CHUNK_SIZE)] | None = Field(
        None, description="steps to execute of a chunk; none: as the project's evaluation"
    )
    device: str = Field('cuda', description='cuda, cuda:N or cpu')
    precision: Literal['bfloat16', 'float16', 'float32'] = Field(
        'bfloat16', description='of the weights'
    )
    interface_hash: str = Field('', description='contract that the checkpoint was trained for')


class FastWamBackend(Backend):
    """A model of Fast-WAM's; every chunk is sampled with the same seed."""

    def __init__(
        self,
        options: Options,
        torch: Any,
        model: Any,
        normalisers: tuple[adapter.Normaliser, adapter.Normaliser],
        cached: CachedInstructions,
    ) -> None:
        spec = adapter.PRESETS[options.preset]
        self.meta = ModelMeta(
            backend='fast_wam',
            checkpoint=options.checkpoint,
            control=spec.control,
            camera_roles=spec.cameras,
            state_schema=spec.state_schema,
            chunk_size=adapter.CHUNK_SIZE,
            returns_future_observation=options.predict_future,
            policy_hz=spec.policy_hz,
            execute_steps=options.execute_steps or spec.execute_steps,
            interface_hash=options.interface_hash,
            metadata={
                'preset': options.preset,
                'flow_steps': options.flow_steps,
                'seed': options.seed,
                **cached.metadata,
            },
        )
        self._options = options
        self._torch = torch
        self._model = model
        self._state, self._action = normalisers
        self._cached = cached
        self._infer = model.infer_joint if options.predict_future else model.infer_action
        self._sampling = _sampling(options, self._infer)

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`."""
        options = self._options
        native = adapter.encode(options.preset, observation, self._state, options.view_size)
        text = self._text(observation.instruction, native.pop('prompt'))
        tensors = {name: self._torch.from_numpy(value) for name, value in native.items()}
        with self._torch.no_grad():
            found = self._infer(**tensors, **text, **self._sampling)
        try:
            actions = adapter.decode(
                options.preset,
                found['action'].detach().cpu().numpy(),
                self._action,
                binarise_gripper=options.binarise_gripper,
            )
        except ValueError as error:
            raise BackendError(str(error)) from error
        if not options.predict_future:
            return Prediction(actions)
        frames = [np.asarray(frame, dtype=np.uint8) for frame in found['video']]
        return Prediction(actions, adapter.views(options.preset, frames))

    def _text(self, instruction: str, prompt: str) -> dict[str, Any]:
        """The embedded prompt, or the prompt for the model to embed."""
        entry = self._cached.find(instruction)
        if entry is None:
            return {'prompt': prompt}
        values = entry.values
        if entry.mask is not None:
            # padding is seen by the model as zeros, as when it embeds by itself
            values = np.where(entry.mask[:, None], values, np.float32(0.0))
        return {
            'prompt': None,
            'context': self._torch.from_numpy(values[None]),
            'context_mask': self._torch.from_numpy(np.ones((1, len(values)), bool)),
        }


def load(options: Options) -> FastWamBackend:
    """Load a model.

    Raises:
        BackendError: The project is not there, or a file of the options is not, or does not fit.
    """
    cached = CachedInstructions(options.text_embeddings, options.cached_instructions_only)
    try:
        normalisers = adapter.load_normalisers(_statistics(options), options.preset)
    except StatisticsError as error:
        raise BackendError(f'statistics: {error}') from error
    if not Path(options.checkpoint).expanduser().is_file():
        raise BackendError(f'checkpoint: {options.checkpoint} is not there')
    project = bring('fastwam', PACKAGE)
    torch = bring('torch', PACKAGE)
    settings = _settings(options, Path(project.__file__).resolve().parents[2])
    _check(options, settings)
    settings.update(
        load_text_encoder=not options.cached_instructions_only,
        skip_dit_load_from_pretrain=True,
        action_dit_pretrained_path=None,
    )
    model = bring('hydra.utils', PACKAGE).instantiate(
        settings, model_dtype=getattr(torch, options.precision), device=options.device
    )
    model.load_checkpoint(str(Path(options.checkpoint).expanduser()))
    model = model.to(options.device).eval()
    return FastWamBackend(options, torch, model, normalisers, cached)


def _statistics(options: Options) -> Path:
    if options.statistics:
        return Path(options.statistics).expanduser()
    checkpoint = Path(options.checkpoint).expanduser()
    return checkpoint.with_name(f'{checkpoint.stem}_dataset_stats.json')


def _settings(options: Options, root: Path) -> dict[str, Any]:
    """The model's configuration with its references resolved."""
    omega = bring('omegaconf', PACKAGE).OmegaConf
    if options.config.endswith(('.yaml', '.yml')):
        path = Path(options.config).expanduser()
        if not path.is_file():
            raise BackendError(f'config: {path} is not there')
        found = omega.load(str(path))
    else:
        found = _composed(options, root / 'configs')
    model = found.get('model')
    if model is None:
        raise BackendError(f'config: {options.config or "the project"} has no mapping `model`')
    return dict(omega.to_container(model, resolve=True))


def _composed(options: Options, folder: Path) -> Any:
    """Configuration of the project's evaluation, as its own policy composes it."""
    if not folder.is_dir():
        raise BackendError(
            f'config: {folder} is not there: install the project with pip install -e, or give a '
            'resolved YAML'
        )
    hydra = bring('hydra', PACKAGE)
    overrides = [f'task={options.config}'] if options.config else []
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            hydra.initialize_config_dir(version_base='1.3', config_dir=str(folder))
        )
        try:
            return hydra.compose(config_name=f'sim_{options.preset}', overrides=overrides)
        except Exception as error:  # hydra has no common class of its errors
            logger.exception('the configuration cannot be composed')
            raise BackendError(f'config: {quoted(error)}') from error


def _check(options: Options, settings: Mapping[str, Any]) -> None:
    spec = adapter.PRESETS[options.preset]
    found = {
        'proprio_dim': settings.get('proprio_dim'),
        'action_dit_config.action_dim': (settings.get('action_dit_config') or {}).get(
            'action_dim'
        ),
    }
    expected = dict(zip(found, (spec.state_dim, spec.control.action_dim), strict=True))
    for name, value in found.items():
        if value != expected[name]:
            raise BackendError(
                f'config: model.{name}: expected {expected[name]} for {options.preset} '
                f'(got {value})'
            )


def _sampling(options: Options, infer: Any) -> dict[str, Any]:
    """What the project's evaluations pass besides the observation."""
    more: dict[str, Any] = {
        'action_horizon': adapter.CHUNK_SIZE,
        'negative_prompt': '',
        'text_cfg_scale': 1.0,
        'num_inference_steps': options.flow_steps,
        'sigma_shift': None,
        'seed': options.seed,
        'rand_device': 'cpu',
        'tiled': False,
    }
    known = inspect.signature(infer).parameters
    if 'num_video_frames' in known:
        more['num_video_frames'] = adapter.VIDEO_FRAMES
    if 'test_action_with_infer_action' in known:
        # a second inference that only compares
        more['test_action_with_infer_action'] = False
    return more
