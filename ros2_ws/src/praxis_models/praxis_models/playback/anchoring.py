# SPDX-License-Identifier: Apache-2.0
"""Relative chunks become absolute once, at the state of the observation they came from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from praxis_core.exchange_error import ExchangeError
from praxis_core.model_meta import ModelMeta

from praxis_models.playback.action_layout import ActionLayout


def check_anchors(meta: ModelMeta, layout: ActionLayout) -> None:
    """Refuse anchors that the robot's action space has no place for.

    Raises:
        ExchangeError: Anchored fields in a delta space, or a part of a quaternion.
    """
    for field, anchor in meta.anchors.items():
        index = meta.control.action_schema.index(field)
        if layout.delta:
            expected = 'no anchors, since the action space is of deltas'
            raise ExchangeError(f'anchors.{field}', expected, anchor)
        if any(index in part for part in layout.quaternions):
            expected = 'no anchor, since quaternions do not add up'
            raise ExchangeError(f'anchors.{field}', expected, anchor)


def anchored(actions: np.ndarray, meta: ModelMeta, state: Mapping[str, np.ndarray]) -> np.ndarray:
    """Absolute actions float64[H, A].

    Args:
        actions: float[H, A] as the model gave them.
        meta: Says which fields are offsets, and from what.
        state: Of the observation that they were predicted from, name -> float[n].
    """
    absolute = np.array(actions, dtype=float)
    for field, name, index in meta.anchored():
        absolute[:, field] += float(state[name][index])
    return absolute
