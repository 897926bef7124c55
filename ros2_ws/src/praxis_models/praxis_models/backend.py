# SPDX-License-Identifier: Apache-2.0
"""What a model must offer to be served by a worker. Imports no rclpy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import BaseModel, ConfigDict


class BackendError(RuntimeError):
    """A model cannot be loaded or asked; its text is one line for the user."""


class BackendOptions(BaseModel):
    """Options of a back end; descriptions of the fields are its command line's help."""

    model_config = ConfigDict(frozen=True, extra='forbid', protected_namespaces=())


@dataclass
class Session:
    """One client's episode.

    Attributes:
        id: As the client names it.
        memory: What the back end keeps of the episode between two calls.
    """

    id: str
    memory: dict[str, Any] = field(default_factory=dict)


class Backend(ABC):
    """A loaded model. All methods are called on one thread, one call at a time.

    Attributes:
        meta: What it is and what it expects; constant while it lives.
    """

    meta: ModelMeta

    @abstractmethod
    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """Predict a chunk of actions from an observation that was checked against ``meta``.

        Raises:
            BackendError: The model refuses the observation; the text goes to the client.
        """

    def reset(self, session: Session) -> None:
        """Forget what is remembered of a session's episode."""
        session.memory.clear()

    def close(self) -> None:
        """Release the model."""
        return
