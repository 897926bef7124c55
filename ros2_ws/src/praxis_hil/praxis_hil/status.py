# SPDX-License-Identifier: Apache-2.0
"""What the recorder says of an episode, and of a request that it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from praxis_core.errors import ErrorCode

from praxis_hil.session import Progress, Session


class State(IntEnum):
    """Values of `EpisodeStatus.state`."""

    IDLE = 0
    RECORDING = 1
    SAVING = 2
    SAVED = 3
    DISCARDED = 4
    FAILED = 5


class RefusedError(RuntimeError):
    """A request that cannot be carried out.

    Attributes:
        code: For the service's answer.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Status:
    """What `EpisodeStatus` says of one episode."""

    state: State = State.IDLE
    uuid: str = ''
    index: int = -1
    task: str = ''
    progress: Progress = field(default_factory=Progress)
    bag_path: str = ''
    dataset_path: str = ''
    message: str = ''


def describe(session: Session, state: State) -> Status:
    """Return the status of an episode whose files are open."""
    return Status(
        state,
        session.uuid,
        task=session.task,
        progress=session.progress(),
        bag_path=str(session.bag.path),
        dataset_path=session.dataset_path,
        message=session.message,
    )
