# SPDX-License-Identifier: Apache-2.0
"""One row of an episode, as the assembler makes it and the dataset stores it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Row:
    """One tick of an episode.

    Attributes:
        index: Position in the episode, contiguous from 0.
        tick_ns: Tick t_k in the time base of the header stamps, ns.
        state: float64[S], contract order and units.
        action: float64[A], the command executed over [t_k, t_k+1).
        requested_action: float64[A], what the source of that command asked for.
        intervention: A human commanded the robot.
        control_mode: `ControlStatus.mode`, -1 while none is known.
        observation_seq: Of the state.
        stamps: Header stamp by stream (`state`, `action`, cameras), ns.
        stale: By stream: the sample is older than the stream's period, a repeat.
        images: uint8[H, W, 3] RGB by camera; a repeat is the same array.
    """

    index: int
    tick_ns: int
    state: np.ndarray
    action: np.ndarray
    requested_action: np.ndarray
    intervention: bool
    control_mode: int
    observation_seq: int
    stamps: dict[str, int]
    stale: dict[str, bool]
    images: dict[str, np.ndarray]
