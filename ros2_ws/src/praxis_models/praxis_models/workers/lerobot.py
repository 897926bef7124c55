# SPDX-License-Identifier: Apache-2.0
"""A policy checkpoint of LeRobot: config.json, model.safetensors, pre- and postprocessor.

Written for lerobot >= 0.4.0, < 0.7: checkpoints with processors, `get_policy_class`,
`make_pre_post_processors` and `prepare_observation_for_inference` (huggingface/lerobot 7427f318
and the releases 0.4.0 and 0.4.4). The steps are those of its ``async_inference/policy_server.py``;
with 0.4.4, chunks of ACT and of diffusion are those of its ``predict_action``, number for number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

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

from praxis_models.adapters import lerobot as adapter
from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.normalisation import StatisticsError, load_statistics
from praxis_models.wording import quoted
from praxis_models.workers.execution import execute_steps
from praxis_models.workers.foreign import bring

PACKAGE = 'lerobot >= 0.4.0, < 0.7, with the extra of the policy'
CONTROLS = {each.embodiment: each for each in (LIBERO_7D, ROBOTWIN_QPOS14, ROBOTWIN_EEF16)}
_FLOW_FIELDS = ('num_inference_steps', 'num_steps')


class Options(BackendOptions):
    """Which checkpoint, and what its features are on the robot."""

    checkpoint: str = Field(description='folder of a pretrained model, or its name on the hub')
    control: str = Field(
        description=f'{", ".join(CONTROLS)}, or the path of the robot contract it was trained on'
    )
    cameras: dict[str, str] = Field(
        {}, description="view of the checkpoint = role; where the contract's names do not tell"
    )
    states: dict[str, Annotated[int, Field(ge=1)]] = Field(
        {},
        description='physical states that make up observation.state, in order, and their '
        "lengths; empty: the contract's whole state",
    )
    fit: Literal['pad', 'stretch', 'as_is'] = Field(
        'pad', description="images of another size than the checkpoint's"
    )
    statistics: str = Field(
        '', description="a data set's meta/stats.json; empty: as the checkpoint's processors have"
    )
    flow_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="steps of the flow or diffusion; none: the checkpoint's"
    )
    execute_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="steps to execute of a chunk; none: the checkpoint's n_action_steps"
    )
    policy_hz: Annotated[float, Field(gt=0)] | None = Field(
        None, description="rate of the steps, Hz; none: the contract's"
    )
    seed: Annotated[int, Field(ge=0)] = Field(0, description='of the noise')
    device: str = Field('', description="torch's device; empty: the best there is")


class LeRobotBackend(Backend):
    """A policy, fed as LeRobot's own inference server feeds it."""

    def __init__(
        self,
        options: Options,
        *,
        policy: Any,
        processors: tuple[Any, Any],
        features: adapter.Features,
        control: NativeControl,
        cameras: Mapping[str, str],
        interface_hash: str,
    ) -> None:
        config = policy.config
        self._torch = bring('torch', PACKAGE)
        self._prepare = bring('lerobot.policies.utils', PACKAGE).prepare_observation_for_inference
        self._policy = policy
        self._preprocess, self._postprocess = processors
        self._features = features
        self._cameras = cameras
        self._libero = control == LIBERO_7D
        states = adapter.LIBERO_STATE if self._libero else options.states
        self._states = dict(states or {'state': features.state}) if features.state else {}
        self._fit = options.fit
        self._seed = options.seed
        self._device = self._torch.device(config.device)
        # a policy with a history of its own gives its steps one by one
        self._steps = None if hasattr(config, 'chunk_size') else int(config.n_action_steps)
        chunk_size = self._steps or int(config.chunk_size)
        usual = int(getattr(config, 'n_action_steps', chunk_size))
        self.meta = ModelMeta(
            backend='lerobot',
            checkpoint=options.checkpoint,
            control=control,
            camera_roles=tuple(dict.fromkeys(cameras[name] for name in features.views)),
            state_schema=self._states,
            chunk_size=chunk_size,
            policy_hz=options.policy_hz,
            execute_steps=execute_steps(options.execute_steps, usual, chunk_size),
            interface_hash=interface_hash,
            metadata={'policy': str(config.type), 'views': dict(cameras)},
        )
        self._begin()

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`."""
        native = adapter.encode(
            self._features,
            observation,
            cameras=self._cameras,
            states=tuple(self._states),
            libero=self._libero,
            fit=self._fit,
        )
        try:
            with self._torch.inference_mode():
                batch = self._prepare(native, self._device, observation.instruction, '')
                rows = self._chunk(self._preprocess(batch))
            return Prediction(adapter.decode(self._features, rows, libero=self._libero))
        except (KeyError, ValueError) as error:
            raise BackendError(f'LeRobot: {type(error).__name__}: {quoted(error)}') from error

    def reset(self, session: Session) -> None:
        """See `Backend.reset`."""
        super().reset(session)
        self._begin()

    def _begin(self) -> None:
        self._torch.manual_seed(self._seed)
        self._policy.reset()
        for processor in (self._preprocess, self._postprocess):
            processor.reset()

    def _chunk(self, batch: Any) -> np.ndarray:
        """Steps of one chunk, each through the postprocessor, which takes [B, A]."""
        if self._steps is None:
            chunk = self._policy.predict_action_chunk(batch)
            steps = [chunk[:, index] for index in range(chunk.shape[1])]
        else:
            # its history is of every frame, and a client of chunks sends one of many: begin with
            # this frame, as at the start of an episode
            self._policy.reset()
            steps = [self._policy.select_action(batch) for _ in range(self._steps)]
        return np.stack([_numpy(self._postprocess(step))[0] for step in steps])


def load(options: Options) -> LeRobotBackend:
    """Load a checkpoint.

    Raises:
        BackendError: LeRobot is not there, the checkpoint is none, or its features are not the
            robot's.
    """
    control, contract = _control(options.control)
    bring('torch', PACKAGE)
    factory = bring('lerobot.policies.factory', PACKAGE)
    configs = bring('lerobot.configs.policies', PACKAGE)
    where = f'checkpoint {options.checkpoint!r}'
    try:
        config = configs.PreTrainedConfig.from_pretrained(options.checkpoint)
        if options.device:
            config.device = options.device
        _set_flow_steps(config, options.flow_steps)
        policy = factory.get_policy_class(config.type).from_pretrained(
            options.checkpoint, config=config
        )
        processors = factory.make_pre_post_processors(
            config, pretrained_path=options.checkpoint, **_overrides(options, config.device)
        )
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise BackendError(f'{where}: {type(error).__name__}: {quoted(error)}') from error
    try:
        features = adapter.read_features(
            _plain(config.input_features), _plain(config.output_features), _renamed(processors[0])
        )
    except ValueError as error:
        raise BackendError(f'{where}: {error}') from error
    _check(options, features, control, contract)
    hz = options.policy_hz or (contract.interface.policy_hz if contract else None)
    return LeRobotBackend(
        options.model_copy(update={'policy_hz': hz}),
        policy=policy,
        processors=processors,
        features=features,
        control=control,
        cameras=_roles(options, features, control, contract),
        interface_hash=contract.interface_hash if contract else '',
    )


def _control(name: str) -> tuple[NativeControl, Any]:
    """Control, and the contract that states it, None for one of `CONTROLS`."""
    if name in CONTROLS:
        return CONTROLS[name], None
    from praxis_core.contract import ContractError, load_contract

    try:
        contract = load_contract(name)
    except (ContractError, OSError) as error:
        known = ', '.join(CONTROLS)
        raise BackendError(f'control: neither {known} nor a contract: {error}') from None
    control = control_of(contract)
    return CONTROLS.get(control.embodiment, control), contract


def _set_flow_steps(config: Any, steps: int | None) -> None:
    if steps is None:
        return
    for name in _FLOW_FIELDS:
        if hasattr(config, name):
            setattr(config, name, steps)
            return
    raise BackendError(f'flow_steps: a policy of the type {config.type} has none')


def _overrides(options: Options, device: str) -> dict[str, Any]:
    before: dict[str, Any] = {'device_processor': {'device': device}}
    after: dict[str, Any] = {'device_processor': {'device': 'cpu'}}
    if options.statistics:
        try:
            load_statistics(options.statistics, adapter.ACTION)
        except StatisticsError as error:
            raise BackendError(f'statistics: {error}') from error
        with open(options.statistics, encoding='utf-8') as file:
            stats = json.load(file)
        before['normalizer_processor'] = {'stats': stats}
        after['unnormalizer_processor'] = {'stats': stats}
    return {'preprocessor_overrides': before, 'postprocessor_overrides': after}


def _plain(features: Mapping[str, Any] | None) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        key: (getattr(feature.type, 'value', str(feature.type)), tuple(feature.shape))
        for key, feature in (features or {}).items()
    }


def _renamed(preprocessor: Any) -> dict[str, str]:
    """Renaming that a preprocessor begins with."""
    for step in getattr(preprocessor, 'steps', ()):
        names = getattr(step, 'rename_map', None)
        if names:
            return dict(names)
    return {}


def _check(
    options: Options, features: adapter.Features, control: NativeControl, contract: Any
) -> None:
    where = f'checkpoint {options.checkpoint!r}'
    if features.action != control.action_dim:
        raise BackendError(
            f'{where}: its actions have {features.action} numbers, those of '
            f'{control.embodiment} {control.action_dim}'
        )
    if not features.state:
        return
    if control == LIBERO_7D:
        size, what = 8, 'position, axis-angle and fingers'
    elif options.states:
        size, what = sum(options.states.values()), f'states {", ".join(options.states)}'
    elif contract is not None:
        size, what = contract.state_dim, "the contract's state"
    else:
        raise BackendError(
            f'states: name those that make up observation.state ({features.state} numbers)'
        )
    if size != features.state:
        raise BackendError(
            f'{where}: observation.state has {features.state} numbers, {what} {size}'
        )


def _roles(
    options: Options, features: adapter.Features, control: NativeControl, contract: Any
) -> dict[str, str]:
    """Role of each view: as given, by the contract's camera of that name, or the name itself."""
    for name in options.cameras:
        if name not in features.views:
            raise BackendError(
                f'cameras: the checkpoint has no view {name!r}; it has {", ".join(features.views)}'
            )
    known: dict[str, str] = {}
    if control == LIBERO_7D:
        known.update(adapter.LIBERO_CAMERAS)
    if contract is not None:
        cameras = contract.interface.cameras
        known.update((camera.role, camera.role) for camera in cameras.values())
        known.update((name, camera.role) for name, camera in cameras.items())
    known.update(options.cameras)
    roles = {}
    for name in features.views:
        if name not in known:
            offer = ', '.join(dict.fromkeys(known.values())) or "the robot's"
            raise BackendError(f'cameras: {name} has no role; give {name}=ROLE, of {offer}')
        roles[name] = known[name]
    return roles


def _numpy(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().float().numpy()
