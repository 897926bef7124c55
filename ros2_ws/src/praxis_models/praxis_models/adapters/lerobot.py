# SPDX-License-Identifier: Apache-2.0
"""Features of a LeRobot policy, and observations and chunks in their terms.

Source of the schema: huggingface/lerobot 7427f318: ``configs/policies.py`` for a checkpoint's
``config.json`` (input and output features with type and shape), ``policies/utils.py`` for what
its own inference takes: named arrays, images uint8[H, W, 3]. LIBERO: ``envs/libero.py`` and
``processor/env_processor.py``. Imports no rclpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from praxis_core.model_exchange import PhysicalObservation

from praxis_models import pixels
from praxis_models.adapters.openpi import libero_state

IMAGES = 'observation.images.'
IMAGE = 'observation.image'
STATE = 'observation.state'
ACTION = 'action'

LIBERO_STATE: Mapping[str, int] = MappingProxyType(
    {'eef_position': 3, 'eef_quaternion_xyzw': 4, 'gripper_qpos': 2}
)
LIBERO_CAMERAS: Mapping[str, str] = MappingProxyType(
    {'image': 'primary', 'image2': 'wrist', 'wrist_image': 'wrist'}
)
"""Names of the views in LeRobot's LIBERO data sets -> roles."""

Fit = Literal['pad', 'stretch', 'as_is']


@dataclass(frozen=True)
class Features:
    """What a policy takes and gives.

    Attributes:
        views: Name of a view, without its prefix -> (height, width).
        keys: Name of a view -> key of the observation that it goes into.
        state: Length of the state, 0: it takes none.
        action: Length of an action.
    """

    views: Mapping[str, tuple[int, int]]
    keys: Mapping[str, str]
    state: int
    action: int


def read_features(
    inputs: Mapping[str, tuple[str, Sequence[int]]],
    outputs: Mapping[str, tuple[str, Sequence[int]]],
    renamed: Mapping[str, str] | None = None,
) -> Features:
    """Read the features of a configuration.

    Args:
        inputs: Key -> (type, shape); images are [C, H, W].
        outputs: Likewise.
        renamed: Key that goes in -> key that the policy knows it by, as the checkpoint's
            preprocessor renames them.

    Raises:
        ValueError: A feature that no observation has.
    """
    outside = {inner: outer for outer, inner in (renamed or {}).items()}
    views: dict[str, tuple[int, int]] = {}
    keys: dict[str, str] = {}
    state = 0
    for inner, (kind, shape) in inputs.items():
        key = outside.get(inner, inner)
        if kind == 'VISUAL':
            if len(shape) != 3 or shape[0] != 3:
                raise ValueError(f'{inner}: expected an image [3, H, W] (got {list(shape)})')
            name = key.removeprefix(IMAGES) if key.startswith(IMAGES) else key.split('.')[-1]
            views[name] = (int(shape[1]), int(shape[2]))
            keys[name] = key
        elif kind == 'STATE' and inner == STATE:
            state = _length(inner, shape)
        elif kind != 'LANGUAGE':
            raise ValueError(f'{inner}: no observation has a feature of the type {kind}')
    if ACTION not in outputs:
        raise ValueError(f'{ACTION}: is not among the output features')
    return Features(views, keys, state, _length(ACTION, outputs[ACTION][1]))


def encode(
    features: Features,
    observation: PhysicalObservation,
    *,
    cameras: Mapping[str, str],
    states: Sequence[str],
    libero: bool = False,
    fit: Fit = 'pad',
) -> dict[str, np.ndarray]:
    """Named arrays of one inference: images uint8[H, W, 3], state float32[n].

    Args:
        features: Of the policy.
        observation: With the images of `cameras` and the `states`.
        cameras: Name of a view -> role.
        states: Physical states that make up the state, in order.
        libero: As LeRobot's LIBERO environment: images turned by 180 degrees against the
            simulator's, which mirrors upright ones, and the state in axis-angle.
        fit: What to do with an image of another size than the policy's.
    """
    native: dict[str, np.ndarray] = {}
    for name, size in features.views.items():
        image = observation.images[cameras[name]]
        image = pixels.flip_horizontal(image) if libero else np.ascontiguousarray(image)
        native[features.keys[name]] = _fitted(image, size, fit)
    if features.state:
        vector = (
            libero_state(observation)
            if libero
            else np.concatenate([observation.state[name] for name in states])
        )
        native[STATE] = np.ascontiguousarray(vector, dtype=np.float32)
    return native


def decode(features: Features, actions: np.ndarray, *, libero: bool = False) -> np.ndarray:
    """Chunk float32[H, A] of what the postprocessor gave, which is in the data set's units.

    Raises:
        ValueError: It is of another shape.
    """
    actions = np.array(actions, dtype=np.float32)
    if actions.ndim != 2 or actions.shape[1] != features.action or not len(actions):
        raise ValueError(f'actions: expected [H, {features.action}] (got {list(actions.shape)})')
    return np.clip(actions, -1.0, 1.0) if libero else actions


def _fitted(image: np.ndarray, size: tuple[int, int], fit: Fit) -> np.ndarray:
    if image.shape[:2] == size or fit == 'as_is':
        return image
    return pixels.resize_with_pad(image, *size) if fit == 'pad' else pixels.resize(image, *size)


def _length(key: str, shape: Sequence[int]) -> int:
    if len(shape) != 1:
        raise ValueError(f'{key}: expected a vector (got the shape {list(shape)})')
    return int(shape[0])
