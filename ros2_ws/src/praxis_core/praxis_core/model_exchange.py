# SPDX-License-Identifier: Apache-2.0
"""What is said to an action model and what it answers, and the checks on both sides.

A request and a reply are plain dictionaries of numpy arrays and JSON values. The observation is
physical: named sensors and states in SI units, no model's normalisation. Imports no rclpy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from praxis_core.exchange_error import ExchangeError, described
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import NativeControl


@dataclass(frozen=True)
class PhysicalObservation:
    """What sensors saw and joints did at one time.

    Attributes:
        images: Role -> uint8[H, W, 3], RGB, origin at the top left.
        state: Name -> float32[n], SI units.
        instruction: What is to be done, in words.
    """

    images: Mapping[str, np.ndarray]
    state: Mapping[str, np.ndarray]
    instruction: str


@dataclass(frozen=True)
class Prediction:
    """What a model answers.

    Attributes:
        actions: float32[H, A], in the order of the control's action_schema.
        future_observation: Role -> uint8[T, H, W, 3], frames that it expects, or None.
        value: Value of the observation, or None.
        metadata: JSON values, such as timings.
    """

    actions: np.ndarray
    future_observation: Mapping[str, np.ndarray] | None = None
    value: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def request_of(
    meta: ModelMeta, observation: PhysicalObservation, *, session_id: str = ''
) -> dict[str, Any]:
    """Request dictionary of an observation."""
    request: dict[str, Any] = {
        'images': dict(observation.images),
        'state': dict(observation.state),
        'instruction': observation.instruction,
        'embodiment': meta.control.embodiment,
        'action_space': meta.control.action_space,
    }
    if session_id:
        request['session_id'] = session_id
    return request


def check_request(meta: ModelMeta, request: Any) -> PhysicalObservation:
    """Check a request before inference, as the server does.

    Raises:
        ExchangeError: Names the field, what was expected and what came.
    """
    _expect_mapping('request', request)
    for key in ('embodiment', 'action_space'):
        _expect_equal(key, getattr(meta.control, key), request.get(key))
    instruction = request.get('instruction')
    if not isinstance(instruction, str) or not instruction.strip():
        raise ExchangeError('instruction', 'a sentence', _got(request, 'instruction'))
    images = _named(request, 'images', meta.camera_roles)
    for role, image in images.items():
        _check_image(f'images.{role}', image, 3)
    state = _named(request, 'state', meta.state_schema)
    return PhysicalObservation(
        images=images,
        state={
            name: _vector(f'state.{name}', state[name], size)
            for name, size in meta.state_schema.items()
        },
        instruction=instruction,
    )


def reply_of(prediction: Prediction) -> dict[str, Any]:
    """Reply dictionary of a prediction."""
    reply: dict[str, Any] = {'actions': np.asarray(prediction.actions, dtype=np.float32)}
    if prediction.future_observation is not None:
        reply['future_observation'] = dict(prediction.future_observation)
    if prediction.value is not None:
        reply['value'] = float(prediction.value)
    if prediction.metadata:
        reply['metadata'] = dict(prediction.metadata)
    return reply


def check_reply(meta: ModelMeta, reply: Any) -> Prediction:
    """Check a reply before anything of it is executed, as the client does.

    Raises:
        ExchangeError: Names the field, what was expected and what came.
    """
    _expect_mapping('reply', reply)
    future = reply.get('future_observation')
    if future is not None:
        _expect_mapping('future_observation', future)
        for role, frames in future.items():
            _check_image(f'future_observation.{role}', frames, 4)
    metadata = reply.get('metadata')
    if metadata is not None:
        _expect_mapping('metadata', metadata)
    return Prediction(
        actions=_actions(meta, reply),
        future_observation=future,
        value=_value(reply.get('value')),
        metadata=metadata or {},
    )


def check_meta(
    meta: ModelMeta, control: NativeControl, *, backend: str = '', interface_hash: str = ''
) -> None:
    """Check that a model is the one wanted and speaks the robot's control.

    Args:
        meta: What the server says of itself.
        control: What the robot executes.
        backend: Back end that is wanted, empty: any.
        interface_hash: Contract of the robot; not compared where the model does not know its own.

    Raises:
        ExchangeError: Names the field, what was expected and what came.
    """
    if backend:
        _expect_equal('backend', backend, meta.backend)
    for key in ('embodiment', 'action_space', 'action_schema'):
        _expect_equal(f'control.{key}', getattr(control, key), getattr(meta.control, key))
    if control.action_type is not None:
        _expect_equal('control.action_type', control.action_type, meta.control.action_type)
    if interface_hash and meta.interface_hash:
        _expect_equal('interface_hash', interface_hash, meta.interface_hash)


def _actions(meta: ModelMeta, reply: Mapping[str, Any]) -> np.ndarray:
    actions = reply.get('actions')
    steps, dim = meta.chunk_size, meta.control.action_dim
    expected = f'numbers of shape [{"H" if steps is None else steps}, {dim}]'
    if (
        not isinstance(actions, np.ndarray)
        or actions.dtype.kind not in 'iuf'
        or actions.ndim != 2
        or actions.shape[1] != dim
        or (actions.shape[0] == 0 if steps is None else actions.shape[0] != steps)
    ):
        raise ExchangeError('actions', expected, _got(reply, 'actions'))
    with np.errstate(over='ignore'):
        converted = np.asarray(actions, dtype=np.float32)
    finite = np.isfinite(converted)
    if not finite.all():
        step, index = (int(part) for part in np.argwhere(~finite)[0])
        name = meta.control.action_schema[index]
        raise ExchangeError(
            f'actions[{step}].{name}', 'a finite number', str(actions[step, index])
        )
    return converted


def _value(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, (np.ndarray, np.generic)) and value.size == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ExchangeError('value', 'a finite number', described(value))
    return float(value)


def _got(mapping: Mapping[str, Any], key: str) -> str:
    return described(mapping[key]) if key in mapping else 'nothing'


def _expect_mapping(where: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ExchangeError(where, 'a mapping', described(value))


def _expect_equal(where: str, expected: Any, got: Any) -> None:
    if isinstance(got, str) != isinstance(expected, str) or got != expected:
        raise ExchangeError(where, _listed(expected), 'nothing' if got is None else _listed(got))


def _listed(value: Any) -> str:
    return ', '.join(value) if isinstance(value, tuple) else described(value)


def _named(request: Mapping[str, Any], key: str, names: Iterable[str]) -> Mapping[str, Any]:
    """Take a mapping that must have these names and no other."""
    names = list(names)
    found = request.get(key, {} if not names else None)
    if not isinstance(found, Mapping):
        raise ExchangeError(key, 'a mapping', _got(request, key))
    for name in names:
        if name not in found:
            raise ExchangeError(f'{key}.{name}', 'a value', 'nothing')
    for name in found:
        if name not in names:
            expected = f'one of {", ".join(names)}' if names else 'no key'
            raise ExchangeError(key, expected, described(name))
    return found


def _check_image(where: str, image: Any, ndim: int) -> None:
    if (
        not isinstance(image, np.ndarray)
        or image.dtype != np.uint8
        or image.ndim != ndim
        or image.shape[-1] != 3
        or 0 in image.shape
    ):
        shape = 'uint8[H, W, 3]' if ndim == 3 else 'uint8[T, H, W, 3]'
        raise ExchangeError(where, shape, described(image))


def _vector(where: str, value: Any, size: int) -> np.ndarray:
    if (
        not isinstance(value, np.ndarray)
        or value.dtype.kind not in 'iuf'
        or value.shape != (size,)
    ):
        raise ExchangeError(where, f'numbers of shape [{size}]', described(value))
    with np.errstate(over='ignore'):
        vector = np.asarray(value, dtype=np.float32)
    finite = np.isfinite(vector)
    if not finite.all():
        index = int(np.argmin(finite))
        raise ExchangeError(f'{where}[{index}]', 'a finite number', str(value[index]))
    return vector
