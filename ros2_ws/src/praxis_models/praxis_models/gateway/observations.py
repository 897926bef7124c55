# SPDX-License-Identifier: Apache-2.0
"""The reference's observations for an action model, as physical observations of ours.

``vla.predict`` gets a batch: ``main_images``, ``wrist_images``, ``extra_view_images`` uint8[B, H,
W, 3], ``states`` [B, D] and ``task_descriptions``. Which role a view has, and what the D values
are, the worker's metadata decides.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from praxis_core.exchange_error import ExchangeError, described
from praxis_core.model_exchange import PhysicalObservation
from praxis_core.model_meta import ModelMeta

from praxis_models.rotations import axis_angle_to_quaternion

LIBERO_STATE = {'eef_position': 3, 'eef_quaternion_xyzw': 4, 'gripper_qpos': 2}
"""What LIBERO's eight values hold: position, axis-angle and gripper joints."""

MAX_PIXELS = 4096 * 4096


class Views(NamedTuple):
    """Roles of the three views, empty: not used."""

    main: str
    wrist: str
    extra: str


def views_of(meta: ModelMeta, main: str = '', wrist: str = '', extra: str = '') -> Views:
    """Choose the roles of the views; those that are given come first.

    Raises:
        ExchangeError: A role that is given is none of the model's, or a role has no view.
    """
    left = list(meta.camera_roles)
    for name in (main, wrist, extra):
        if name and name not in left:
            raise ExchangeError('camera role', ' or '.join(meta.camera_roles) or 'none', name)
        if name:
            left.remove(name)

    def take(given: str, *wanted: str) -> str:
        if given:
            return given
        found = next((name for want in wanted for name in left if want in name), '')
        if found:
            left.remove(found)
        return found

    wrist = take(wrist, 'wrist')
    main = take(main, 'primary', 'head', 'main', '')
    extra = take(extra, '')
    if left:
        raise ExchangeError('camera roles', 'at most three', ', '.join(meta.camera_roles))
    return Views(main, wrist, extra)


def observations_of(meta: ModelMeta, views: Views, batch: Any) -> list[PhysicalObservation]:
    """Take a batch apart.

    Raises:
        ExchangeError: Names the field, what was expected and what came.
    """
    if not isinstance(batch, Mapping):
        raise ExchangeError('observation', 'a mapping', described(batch))
    main = _view(batch, 'main_images', None)
    count = len(main)
    images = {'main_images': main}
    for key in ('wrist_images', 'extra_view_images'):
        if batch.get(key) is not None:
            images[key] = _view(batch, key, count)
    roles: dict[str, np.ndarray] = {}
    for role, key in zip(views, ('main_images', 'wrist_images', 'extra_view_images'), strict=True):
        if role and key not in images:
            raise ExchangeError(key, f'the view that the model calls {role!r}', 'nothing')
        if role:
            roles[role] = images[key]
    states = np.asarray(batch.get('states'))
    if states.dtype.kind not in 'iuf' or states.ndim != 2 or len(states) != count:
        raise ExchangeError('states', f'numbers of shape [{count}, D]', described(states))
    texts = batch.get('task_descriptions')
    if not isinstance(texts, (list, tuple)) or len(texts) != count:
        raise ExchangeError('task_descriptions', f'{count} sentences', described(texts))
    return [
        PhysicalObservation(
            images={role: view[index] for role, view in roles.items()},
            state=named_state(meta, states[index].astype(np.float32)),
            instruction=str(texts[index]),
        )
        for index in range(count)
    ]


def named_state(meta: ModelMeta, values: np.ndarray) -> dict[str, np.ndarray]:
    """Name the D values of a state as the model's metadata does.

    A model that wants ``state`` gets them as they are; one that wants LIBERO's physical states
    gets what LIBERO's eight values hold.

    Raises:
        ExchangeError: They do not hold what the model wants.
    """
    known: dict[str, np.ndarray] = {'state': values}
    if values.size == 8:
        known['eef_position'] = values[:3]
        known['eef_quaternion_xyzw'] = axis_angle_to_quaternion(values[3:6]).astype(np.float32)
        known['gripper_qpos'] = values[6:]
    for name, size in meta.state_schema.items():
        if name not in known or known[name].size != size:
            wanted = ', '.join(f'{key}[{length}]' for key, length in meta.state_schema.items())
            raise ExchangeError('states', f'what holds {wanted}', f'{values.size} values')
    return {name: known[name] for name in meta.state_schema}


def physical_request(meta: ModelMeta, request: Any) -> dict[str, Any]:
    """Bring a request of ``wam.predict`` to what the worker takes.

    Platforms send all that they see; what the model does not want is left out. States may be
    lists.
    """
    if not isinstance(request, Mapping):
        raise ExchangeError('request', 'a mapping', described(request))
    images, state = request.get('images'), request.get('state')
    taken = {key: request.get(key) for key in ('instruction', 'embodiment', 'action_space')}
    if isinstance(images, Mapping):
        images = {role: images[role] for role in meta.camera_roles if role in images}
    if isinstance(state, Mapping):
        state = {
            name: np.asarray(state[name]) if isinstance(state[name], list) else state[name]
            for name in meta.state_schema
            if name in state
        }
    return {**taken, 'images': images, 'state': state}


def batch_of_one(instruction: Any, images: Any, state: Any) -> dict[str, Any]:
    """Batch from an older client's call, whose images are PNG in base64.

    Raises:
        ExchangeError: An image is none.
    """
    if not isinstance(images, Mapping):
        raise ExchangeError('images', 'a mapping', described(images))
    batch: dict[str, Any] = {'task_descriptions': [instruction], 'states': state}
    keys = {'main': 'main_images', 'wrist': 'wrist_images', 'extra': 'extra_view_images'}
    for name, key in keys.items():
        batch[key] = _png(f'images.{name}', images[name])[None] if images.get(name) else None
    return batch


def _view(batch: Mapping[str, Any], key: str, count: int | None) -> np.ndarray:
    view = batch.get(key)
    if (
        not isinstance(view, np.ndarray)
        or view.dtype != np.uint8
        or view.ndim != 4
        or view.shape[-1] != 3
        or 0 in view.shape
        or count not in (None, len(view))
    ):
        size = 'B' if count is None else count
        raise ExchangeError(key, f'uint8[{size}, H, W, 3]', described(view))
    return view


def _png(where: str, block: Any) -> np.ndarray:
    import cv2

    data = block.get('data') if isinstance(block, Mapping) else None
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ExchangeError(where, 'a PNG in base64', described(block)) from None
    # Its header says the size before anything is unpacked.
    if raw[:8] != b'\x89PNG\r\n\x1a\n' or len(raw) < 24:
        raise ExchangeError(where, 'a PNG', f'{len(raw)} other bytes')
    width, height = int.from_bytes(raw[16:20], 'big'), int.from_bytes(raw[20:24], 'big')
    if width * height > MAX_PIXELS:
        raise ExchangeError(where, f'at most {MAX_PIXELS} pixels', f'{width}x{height}')
    image = cv2.imdecode(np.frombuffer(raw, np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        raise ExchangeError(where, 'a PNG', 'one that cannot be read')
    return np.ascontiguousarray(image[..., ::-1])
