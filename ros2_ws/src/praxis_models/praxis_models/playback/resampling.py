# SPDX-License-Identifier: Apache-2.0
"""From the rate of a model's steps to the rate of commands."""

from __future__ import annotations

import numpy as np

from praxis_models.playback.action_layout import ActionLayout


def command_count(steps: int, policy_hz: float, command_hz: float) -> int:
    """Commands that H steps become: ``max(2, round(H * command_hz / policy_hz))``."""
    return max(2, round(steps * command_hz / policy_hz))


def resample(
    actions: np.ndarray, policy_hz: float, command_hz: float, layout: ActionLayout
) -> tuple[np.ndarray, np.ndarray]:
    """Resample a chunk.

    Absolute fields are interpolated linearly with both ends kept, at ``linspace(0, H-1, count)``.
    Offsets are spread in proportion to time, so that what moves within one step moves in the
    commands of that step. A gripper keeps its step's value.

    Args:
        actions: float[H, A] at ``policy_hz``.
        policy_hz: Hz.
        command_hz: Hz.
        layout: Of the A fields.

    Returns:
        The commands float64[N, A], and int64[N], the step that each belongs to.
    """
    actions = layout.normalised(actions)
    steps = len(actions)
    if policy_hz == command_hz:
        return actions, np.arange(steps)
    count = command_count(steps, policy_hz, command_hz)
    if layout.delta:
        edges = np.linspace(0.0, steps, count + 1)
        travelled = np.vstack([np.zeros(layout.size), np.cumsum(actions, axis=0)])
        commands = np.diff(_at(edges, travelled), axis=0)
        places = edges[:-1]
    else:
        places = np.linspace(0.0, steps - 1, count)
        commands = layout.normalised(_at(places, layout.aligned(actions)))
    # The smallest offset keeps a place that should be a whole number from falling short of it.
    held = np.minimum(np.floor(places + 1e-9).astype(int), steps - 1)
    for index in layout.grippers:
        commands[:, index] = actions[held, index]
    return commands, held


def _at(places: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Linear interpolation of float[M, A] at float[N] row numbers."""
    known = np.arange(len(rows))
    return np.column_stack([np.interp(places, known, column) for column in rows.T])
