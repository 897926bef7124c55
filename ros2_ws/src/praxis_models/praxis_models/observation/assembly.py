# SPDX-License-Identifier: Apache-2.0
"""From messages of the graph to the physical observation that a model asks for. Imports no rclpy.

One observation is one stamp: the state comes last and lists the cameras captured with it. What is
kept of every stream are the messages as received; they are viewed when a request is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from praxis_core.contract import Contract
from praxis_core.images import ImageError, rgb_array
from praxis_core.model_exchange import PhysicalObservation

from praxis_models.observation.plan import STATE, ObservationPlan, StaleError, Stream

KEPT = 4
"""Messages of a stream: the newest, and what came early for observations still on their way."""


@dataclass(frozen=True)
class Snapshot:
    """Messages of one observation.

    Attributes:
        plan: What the model wants of them.
        seq: ``observation_seq`` of the state.
        stamp_ns: Header stamp of the state, ns.
        messages: By stream, state included.
        received: Steady s at which the last of them arrived.
    """

    plan: ObservationPlan
    seq: int
    stamp_ns: int
    messages: Mapping[Stream, Any]
    received: float

    def state(self) -> dict[str, np.ndarray]:
        """Physical states, name -> float32[n].

        Raises:
            StaleError: A message lacks what the contract says it has.
        """
        return {
            name: np.asarray(read(self.messages), dtype=np.float32)
            for name, read in self.plan.states.items()
        }

    def observation(self, instruction: str) -> PhysicalObservation:
        """View the messages as what the model asks for; images in rgb8 are not copied.

        Raises:
            StaleError: A message is no image, or lacks what the contract says it has.
        """
        images = {}
        for role, camera in self.plan.cameras.items():
            try:
                images[role] = rgb_array(self.messages[Stream('camera', camera)])
            except ImageError as error:
                raise StaleError(f'camera {camera}: {error}') from None
        return PhysicalObservation(images=images, state=self.state(), instruction=instruction)


class _Kept(NamedTuple):
    stamp_ns: int
    message: Any
    received: float


@dataclass
class Assembler:
    """Newest messages of every stream, and the observations they make up.

    Attributes:
        contract: Ages after which a stream is stale.
        plan: Streams to expect.
        lockstep: What an observation lists must have its very stamp.
    """

    contract: Contract
    plan: ObservationPlan
    lockstep: bool
    _kept: dict[Stream, deque[_Kept]] = field(default_factory=dict)

    def add(self, stream: Stream, stamp_ns: int, message: Any, now: float) -> None:
        """Take in a message of a stream other than the state, received at steady s ``now``."""
        kept = self._kept.setdefault(stream, deque(maxlen=KEPT))
        if kept and stamp_ns < kept[-1].stamp_ns:  # late, or of a clock that went back
            return
        kept.append(_Kept(stamp_ns, message, now))

    def is_whole(self, state: Any, stamp_ns: int) -> bool:
        """Whether everything that was taken together with this state has arrived."""
        return all(
            self._at(stream, stamp_ns) is not None
            for stream in self.plan.streams
            if self._belongs(stream, state)
        )

    def snapshot(self, state: Any, stamp_ns: int, received: float) -> Snapshot:
        """Make up the observation of a state.

        Args:
            state: ``StateVector``.
            stamp_ns: Its header stamp, ns.
            received: Steady s at which it arrived.

        Raises:
            StaleError: A stream has nothing, or nothing fresh; names the first.
        """
        messages = {STATE: state}
        for stream in self.plan.streams:
            exact = self._at(stream, stamp_ns) if self._belongs(stream, state) else None
            kept = exact or self._fresh(stream, state, stamp_ns)
            messages[stream] = kept.message
            received = max(received, kept.received)
        return Snapshot(self.plan, int(state.observation_seq), stamp_ns, messages, received)

    def drop_before(self, stamp_ns: int) -> None:
        """Forget what is older, when an episode begins."""
        for kept in self._kept.values():
            while kept and kept[0].stamp_ns < stamp_ns:
                kept.popleft()

    def _belongs(self, stream: Stream, state: Any) -> bool:
        """Whether the message of this stream has the state's stamp."""
        if stream.kind == 'camera':
            return stream.name in state.cameras
        return stream.kind != 'joints' or self.lockstep

    def _at(self, stream: Stream, stamp_ns: int) -> _Kept | None:
        for kept in reversed(self._kept.get(stream, ())):
            if kept.stamp_ns == stamp_ns:
                return kept
        return None

    def _fresh(self, stream: Stream, state: Any, stamp_ns: int) -> _Kept:
        kept = self._kept.get(stream)
        if not kept:
            raise StaleError(f'{stream}: nothing received yet')
        if self.lockstep and self._belongs(stream, state):
            raise StaleError(f'{stream}: nothing of stamp {stamp_ns / 1e9:.3f} s yet')
        newest = kept[-1]
        age = (stamp_ns - newest.stamp_ns) / 1e9
        limit = self._max_age(stream)
        if age > limit:
            raise StaleError(f'{stream}: {age:.3f} s old, limit {limit:g} s')
        return newest

    def _max_age(self, stream: Stream) -> float:
        deployment = self.contract.deployment
        if stream.kind == 'camera':
            return deployment.cameras[stream.name].max_age
        return deployment.max_age.state
