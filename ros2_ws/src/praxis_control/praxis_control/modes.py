# SPDX-License-Identifier: Apache-2.0
"""Modes of the arbiter, who may change them, and the reasons it gives. Imports no rclpy."""

from __future__ import annotations

from enum import Enum, IntEnum, unique


@unique
class Mode(IntEnum):
    """Values of ``ControlStatus.mode``."""

    HOLD = 0
    AUTONOMOUS = 1
    TELEOP = 2
    ESTOP = 3


@unique
class Reason(IntEnum):
    """Values of ``ControlStatus.reason_code``."""

    NONE = 0
    NON_FINITE = 1
    WRONG_SHAPE = 2
    WRONG_HASH = 3
    WRONG_ACTION_SPACE = 4
    NO_LEASE = 5
    LEASE_EXPIRED = 6
    STALE_REQUEST = 7
    STALE_STATE = 8
    SOFT_LIMIT = 9
    SOURCE_SILENT = 10
    RESET = 11
    TAKEOVER = 12
    OPERATOR = 13
    ESTOP = 14
    STALE_CAMERA = 15
    SECOND_PUBLISHER = 16
    WRONG_EPISODE = 17
    FROZEN_STATE = 18
    RELEASED = 19


@unique
class Actor(Enum):
    """Who asks for a mode."""

    OPERATOR = 'operator'
    HUMAN = 'human'
    AUTONOMOUS = 'autonomous source'


_ANYONE = frozenset(Actor)
_PEOPLE = frozenset({Actor.OPERATOR, Actor.HUMAN})
_OPERATOR = frozenset({Actor.OPERATOR})

TRANSITIONS: dict[tuple[Mode, Mode], frozenset[Actor]] = {
    (Mode.HOLD, Mode.AUTONOMOUS): _PEOPLE,
    (Mode.HOLD, Mode.TELEOP): _PEOPLE,
    (Mode.HOLD, Mode.ESTOP): _ANYONE,
    (Mode.AUTONOMOUS, Mode.HOLD): _ANYONE,
    (Mode.AUTONOMOUS, Mode.TELEOP): _PEOPLE,
    (Mode.AUTONOMOUS, Mode.ESTOP): _ANYONE,
    (Mode.TELEOP, Mode.HOLD): _PEOPLE,
    (Mode.TELEOP, Mode.AUTONOMOUS): _PEOPLE,
    (Mode.TELEOP, Mode.ESTOP): _ANYONE,
    (Mode.ESTOP, Mode.HOLD): _OPERATOR,
}
"""Every change of mode there is, and who may ask for it. A mode may always be asked for again."""


def transition_refusal(current: Mode, wanted: Mode, actor: Actor) -> str | None:
    """Say why a change of mode is refused; None where it is allowed."""
    if current is wanted:
        return None
    allowed = TRANSITIONS.get((current, wanted))
    change = f'{current.name.lower()} to {wanted.name.lower()}'
    if allowed is None:
        ways = [to.name.lower() for (origin, to) in TRANSITIONS if origin is current]
        return f'there is no change from {change}; {current.name.lower()} leaves to {ways}'
    if actor not in allowed:
        names = ' or '.join(sorted(a.value for a in allowed))
        return f'{change} may be asked for by {names} only, this caller counts as {actor.value}'
    return None
