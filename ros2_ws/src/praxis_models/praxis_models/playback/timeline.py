# SPDX-License-Identifier: Apache-2.0
"""Playback of predicted chunks, one step a tick. Imports no rclpy and reads no clock.

Its position counts the steps that were commanded. A chunk's origin is the position at which its
observation was taken, so what was commanded since then is what the chunk is late by: those steps
have passed, and are skipped. While nothing is commanded the robot stands, and nothing passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from praxis_models.playback.action_layout import ActionLayout
from praxis_models.playback.blending import blend, ensemble_weights

Blending = Literal['none', 'linear', 'exponential']


@dataclass(frozen=True)
class Chunk:
    """Steps predicted from one observation, absolute or delta as the robot executes them.

    Attributes:
        chunk_id: As published.
        actions: float64[N, A], one row a tick.
        steps: int[N], the model's own step of each row.
        origin: Position of the timeline at its observation.
    """

    chunk_id: str
    actions: np.ndarray
    steps: np.ndarray
    origin: int

    @property
    def end(self) -> int:
        """Position after its last step."""
        return self.origin + len(self.actions)


class Step(NamedTuple):
    """What to command in one tick: float64[A], and where it comes from."""

    values: np.ndarray
    chunk_id: str
    chunk_index: int


@dataclass(frozen=True)
class Playback:
    """How chunks are played; all in ticks.

    Attributes:
        execute: Steps of each chunk, 0: all.
        blending: Of chunks that overlap: ``none``, the newest alone; ``linear``, cross-fade over
            ``fade`` ticks; ``exponential``, the ensemble of every chunk that covers the tick.
        fade: Length of the cross-fade.
        ensemble_m: Rate of the exponential weights; 0: all the same.
        latency: A chunk is not used earlier than so many ticks after its observation, unless there
            is nothing else to play.
    """

    execute: int = 0
    blending: Blending = 'none'
    fade: int = 0
    ensemble_m: float = 0.01
    latency: int = 0


@dataclass
class _Layer:
    chunk: Chunk
    start: int
    end: int

    def covers(self, position: int) -> bool:
        return self.chunk.origin <= position < self.chunk.end

    def row(self, position: int) -> np.ndarray:
        return self.chunk.actions[position - self.chunk.origin]


class Timeline:
    """Decides the command of each tick from the chunks at hand."""

    def __init__(self, layout: ActionLayout, playback: Playback) -> None:
        self.position = 0
        self._layout = layout
        self._playback = playback
        self._layers: list[_Layer] = []
        self._early: Chunk | None = None

    @property
    def remaining(self) -> int:
        """Ticks that can still be commanded without another chunk."""
        if self._early is None:
            return self._left
        start = self._takes_over(self._early)
        return start - self.position + self._window(self._early, start)

    @property
    def _left(self) -> int:
        return max(0, self._layers[-1].end - self.position) if self._layers else 0

    def add(self, chunk: Chunk) -> bool:
        """Take in a chunk.

        Returns:
            Whether any of it will be played. One that is older than the chunk in use is not,
            except that it joins an ensemble; nor is one whose steps have all passed.
        """
        newest = self._early or (self._layers[-1].chunk if self._layers else None)
        if newest is not None and chunk.origin < newest.origin:
            return self._join_ensemble(chunk)
        if chunk.end <= self._takes_over(chunk):
            return False
        self._early = chunk
        return True

    def _takes_over(self, chunk: Chunk) -> int:
        """Position at which it is used at the latest."""
        due = chunk.origin + self._playback.latency
        return max(self.position, min(due, self.position + self._left))

    def _window(self, chunk: Chunk, start: int) -> int:
        left = chunk.end - start
        return max(0, min(left, self._playback.execute or left))

    def _join_ensemble(self, chunk: Chunk) -> bool:
        if self._playback.blending != 'exponential' or chunk.end <= self.position:
            return False
        if not self._layers:
            return False
        *older, active = self._layers
        older.append(_Layer(chunk, self.position, self.position))
        self._layers = [*sorted(older, key=lambda each: each.chunk.origin), active]
        return True

    def awaits(self, origin: int) -> bool:
        """Whether the chunk that is being predicted from this position is due at this tick."""
        return self.position >= origin + self._playback.latency or self.remaining == 0

    @property
    def has_early(self) -> bool:
        """A chunk is at hand whose time has not come; call `take_over` first."""
        return self._early is not None

    def take_over(self) -> None:
        """Use the chunk at hand if its time has come."""
        early = self._early
        if early is not None and self.position >= self._takes_over(early):
            self._early = None
            start = self.position
            self._layers.append(_Layer(early, start, start + self._window(early, start)))

    def step(self) -> Step | None:
        """Command of this tick, or None where there is none; the position advances with it."""
        self.take_over()
        if not self._layers or self.position >= self._layers[-1].end:
            return None
        active = self._layers[-1].chunk
        index = int(active.steps[self.position - active.origin])
        step = Step(self._values(), active.chunk_id, index)
        self.position += 1
        self._forget()
        return step

    def _values(self) -> np.ndarray:
        position, layers = self.position, self._layers
        if self._playback.blending == 'exponential':
            rows = np.array([each.row(position) for each in layers if each.covers(position)])
            weights = ensemble_weights(len(rows), self._playback.ensemble_m)
            return blend(rows, weights, self._layout)
        values = None
        for layer in layers:
            if not layer.covers(position):
                continue
            row, weight = layer.row(position), self._faded_in(layer)
            if values is None:
                values = row.copy()
            else:
                both = np.array([values, row])
                values = blend(both, np.array([1.0 - weight, weight]), self._layout)
        assert values is not None
        return values

    def _faded_in(self, layer: _Layer) -> float:
        if self._playback.blending != 'linear':
            return 1.0
        return min(1.0, (self.position - layer.start + 1) / (self._playback.fade + 1))

    def _forget(self) -> None:
        """Drop what can no longer have a part in a command."""
        layers = [each for each in self._layers[:-1] if each.covers(self.position)]
        layers.append(self._layers[-1])
        if self._playback.blending != 'exponential':
            whole = max(
                i for i, each in enumerate(layers) if i == 0 or self._faded_in(each) >= 1.0
            )
            layers = layers[whole:]
        self._layers = layers

    def clear(self) -> None:
        """Drop everything, after a takeover or a reset."""
        self._layers.clear()
        self._early = None
