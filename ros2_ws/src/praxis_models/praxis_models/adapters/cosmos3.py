# SPDX-License-Identifier: Apache-2.0
"""Physical observation to a request for Cosmos3 behind SGLang, and its answer to controls.

Sources: sgl-project/sglang 21d4b30e, ``multimodal_gen/runtime/entrypoints/action/cosmos3.py`` for
the request; NVIDIA/cosmos-framework 5eee9ed5, ``simulation/libero/closed_loop_eval.py`` and
``data/generator/action/datasets/libero_lerobot_dataset.py`` for images, prompt and actions;
RLinf/RLinf 47b612a0 (pull request 1487), ``evaluations/libero`` and
``models/embodiment/cosmos3/sglang_adapter.py``, for the values of the parameters.
Imports no rclpy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from praxis_core.model_exchange import PhysicalObservation
from praxis_core.native_control import LIBERO_7D

from praxis_models.normalisation import Statistics, from_unit_range
from praxis_models.pixels import beside, flip_horizontal, resize, shrink_with_mirror
from praxis_models.rotations import matrix_to_axis_angle, rot6d_to_matrix

CONTROL = LIBERO_7D
CAMERAS = ('primary', 'wrist')
"""Roles of the views from left to right."""

VIEW_SIZE = 256
HEIGHT, WIDTH = 192, 320
CHUNK_SIZE = 16
POLICY_HZ = 20.0
RAW_ACTION_DIM = 10
"""Translation 3, first two columns of the rotation 6, gripper 1."""

STATISTICS_KEY = 'global_raw'
"""Statistics of the normalisation quantile_rot."""

SENTENCES = (
    'This video contains concatenated views from multiple camera perspectives.',
    'The left half shows the third-person view; the right half shows the wrist-mounted camera.',
)
"""What the training set says of its images after the task."""


class Sampling(NamedTuple):
    """How an answer is sampled.

    Attributes:
        steps: Steps of denoising.
        seed: Of the noise.
        domain: Embodiment whose action head is used.
        view_point: Kind of view that the server's own caption speaks of.
    """

    steps: int = 30
    seed: int = 1140
    domain: str = 'libero'
    view_point: str = 'ego_view'


DEFAULT = Sampling()


def encode(observation: PhysicalObservation, sampling: Sampling = DEFAULT) -> dict[str, Any]:
    """Request of one chunk, with the image as an array.

    LIBERO's training images are turned by 180 degrees from the simulator's, whose origin is at the
    bottom: left and right of an upright image change places.
    """
    return {
        'input': {
            'prompt': prompt(observation.instruction),
            'input_reference': picture([observation.images[role] for role in CAMERAS]),
        },
        'parameters': {
            'action_mode': 'policy',
            'raw_action_dim': RAW_ACTION_DIM,
            'num_frames': CHUNK_SIZE + 1,
            'action_fps': POLICY_HZ,
            'fps': int(POLICY_HZ),
            'action_view_point': sampling.view_point,
            'num_inference_steps': sampling.steps,
            'seed': sampling.seed,
            'height': HEIGHT,
            'width': WIDTH,
            'domain_name': sampling.domain,
        },
        'runtime': {'response_format': 'envelope', 'output_format': 'numpy'},
    }


def picture(views: list[np.ndarray]) -> np.ndarray:
    """Views side by side, scaled to 320x160 and mirrored below: uint8[192, 320, 3]."""
    row = [resize(flip_horizontal(view), VIEW_SIZE, VIEW_SIZE) for view in views]
    return shrink_with_mirror(beside(row), HEIGHT, WIDTH)


def prompt(instruction: str) -> str:
    """Task and what the image shows, as sentences."""
    text = instruction.rstrip()
    for sentence in SENTENCES:
        if sentence not in text:
            text += (' ' if text.endswith('.') else '. ') + sentence
    return text


def decode(
    values: Any, statistics: Statistics | None, *, binarise_gripper: bool = True
) -> np.ndarray:
    """Chunk float32[16, 7] of what the server answers; gripper -1 open, +1 close.

    The translation and the six numbers of the rotation are de-normalised by quantiles and the
    rotation made orthogonal (Gram-Schmidt, first column first). The raw gripper is 1 open, 0
    close.

    Args:
        values: float[16, n] with n >= 10; what is beyond 10 is padding.
        statistics: Those of the training, None: the server de-normalises.
        binarise_gripper: To -1 and +1, as RLinf's evaluation; otherwise 1 - 2 g, clipped, as
            cosmos-framework's.

    Raises:
        ValueError: It is of another shape, or its rotation is none.
    """
    raw = np.asarray(values, dtype=np.float64)
    if raw.ndim != 2 or raw.shape[0] != CHUNK_SIZE or raw.shape[1] < RAW_ACTION_DIM:
        raise ValueError(
            f'actions: expected [{CHUNK_SIZE}, {RAW_ACTION_DIM}] (got {list(raw.shape)})'
        )
    raw = raw[:, :RAW_ACTION_DIM]
    if not np.isfinite(raw).all():
        raise ValueError('actions: expected finite numbers')
    if statistics is not None:
        low, high = statistics.pair('quantile')
        raw = from_unit_range(raw, low, high, epsilon=0.0)
    turn = matrix_to_axis_angle(rot6d_to_matrix(raw[:, 3:9], 'columns'))
    gripper = 1.0 - 2.0 * raw[:, 9:]
    gripper = np.sign(gripper) if binarise_gripper else np.clip(gripper, -1.0, 1.0)
    return np.concatenate([raw[:, :3], turn, gripper], axis=1).astype(np.float32)
