# SPDX-License-Identifier: Apache-2.0
"""The lease of an autonomous source: one at a time, renewed by use. Imports no rclpy.

Time is a steady clock in s, passed in.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

from praxis_core.errors import ErrorCode

from praxis_control.command import Options, Reply
from praxis_control.gate import Refusal
from praxis_control.modes import Reason

_LEASE_ID = re.compile(r'[0-9a-f]{32}')
_REMEMBERED = 64


@dataclass
class Lease:
    """Right of one source to command the robot.

    Attributes:
        lease_id: UUID of the goal, 32 hex digits.
        source: Name of the source.
        episode_uuid: Episode it is bound to.
        duration: Silence in s after which it ends.
        renewed_at: Steady time in s of its grant or of the last accepted request.
        used: A request was accepted under it.
    """

    lease_id: str
    source: str
    episode_uuid: str
    duration: float
    renewed_at: float
    used: bool = False

    def expires_at(self) -> float:
        """Steady time in s at which it ends if it is not renewed."""
        return self.renewed_at + self.duration


def lease_refusal(
    options: Options,
    robot_hash: str,
    source: str,
    lease_id: str,
    interface_hash: str,
    duration: float,
) -> Reply | None:
    """Say what is wrong with an application for a lease; None where nothing is.

    Args:
        options: Sources and the longest duration.
        robot_hash: Interface hash of the robot.
        source: Who applies.
        lease_id: UUID of its goal.
        interface_hash: What it was built for.
        duration: s, 0 for the default.
    """
    if source not in options.sources:
        known = ', '.join(options.sources)
        return Reply(ErrorCode.SOURCE_UNKNOWN, f'source {source!r} is none of {known}')
    if _LEASE_ID.fullmatch(lease_id) is None:
        text = f'lease_id {lease_id!r} is not 32 lower-case hex digits'
        return Reply(ErrorCode.INVALID_REQUEST, text)
    if not 0.0 <= duration <= options.max_lease_s:
        text = f'duration {duration:g} s is not within 0 to {options.max_lease_s:g} s'
        return Reply(ErrorCode.INVALID_REQUEST, text)
    if interface_hash != robot_hash:
        text = f'interface hash {interface_hash[:12]!r}, the robot has {robot_hash[:12]!r}'
        return Reply(ErrorCode.WRONG_INTERFACE, text)
    return None


class LeaseHolder:
    """At most one lease, and why earlier ones ended."""

    def __init__(self) -> None:
        self.current: Lease | None = None
        self._ended: OrderedDict[str, Reason] = OrderedDict()

    def grant(self, lease: Lease) -> None:
        """Put a lease in force; a lease with the same id may be granted again after its end."""
        self._ended.pop(lease.lease_id, None)
        self.current = lease

    def renew(self, now: float) -> None:
        """Count the silence anew; called for every accepted request."""
        if self.current is not None:
            self.current.renewed_at = now
            self.current.used = True

    def refusal(self, lease_id: str, source: str) -> Refusal | None:
        """Say why a source may not command; None where it holds the lease in force."""
        lease = self.current
        if lease is not None and (lease.lease_id, lease.source) == (lease_id, source):
            return None
        ended = self.why_ended(lease_id)
        if ended is Reason.LEASE_EXPIRED:
            return Refusal(ended, f'{source} refused: lease {lease_id[:8]} expired')
        if ended is not None:
            why = f'lease {lease_id[:8]} ended by {ended.name.lower()}'
        elif lease is not None:
            why = f'{lease.source} holds the lease'
        else:
            why = 'it holds no lease'
        return Refusal(Reason.NO_LEASE, f'{source} refused: {why}')

    def expired(self, now: float) -> bool:
        """Whether the lease in force has been silent for too long."""
        return self.current is not None and now > self.current.expires_at()

    def end(self, reason: Reason) -> Lease | None:
        """End the lease in force.

        Returns:
            The lease that ended, None if there was none.
        """
        lease, self.current = self.current, None
        if lease is not None:
            self._ended[lease.lease_id] = reason
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)
        return lease

    def why_ended(self, lease_id: str) -> Reason | None:
        """Why an earlier lease ended; None if it is not known."""
        return self._ended.get(lease_id)
