# SPDX-License-Identifier: Apache-2.0
"""One command out of the steps that overlapping chunks propose for the same tick."""

from __future__ import annotations

import numpy as np

from praxis_models.playback.action_layout import ActionLayout


def ensemble_weights(count: int, m: float) -> np.ndarray:
    """Weights of temporal ensembling, oldest prediction first.

    ``w_i = exp(-m i)``, normalised to sum 1; Zhao et al., Learning Fine-Grained Bimanual
    Manipulation with Low-Cost Hardware (ACT), RSS 2023, section IV-A.
    """
    weights = np.exp(-m * np.arange(count))
    return weights / weights.sum()


def blend(proposals: np.ndarray, weights: np.ndarray, layout: ActionLayout) -> np.ndarray:
    """Weighted mean of proposals.

    The grippers of proposals that want different things are not averaged: the side of the greater
    weight decides, and only its proposals are averaged. On a tie the last proposal decides.

    Args:
        proposals: float64[K, A], oldest first.
        weights: float64[K], sum 1.
        layout: Of the A fields.
    """
    if len(proposals) == 1:
        return proposals[0].copy()
    result = layout.normalised(weights @ layout.aligned(proposals))
    for index in layout.grippers:
        side = proposals[:, index] > layout.gripper_middle
        above = float(weights[side].sum())
        below = float(weights[~side].sum())
        wins = side[-1] if abs(above - below) < 1e-12 else above > below
        chosen = side == wins
        result[index] = np.average(proposals[chosen, index], weights=weights[chosen])
    return result
