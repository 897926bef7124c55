# SPDX-License-Identifier: Apache-2.0
"""A source's lease at the arbiter: asked for, kept alive, and given back.

Service clients are passed in, so that this imports no rclpy. Nothing here waits: `look` is called
from time to time, with a steady clock in s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from praxis_core.errors import ErrorCode
from praxis_interfaces.srv import AcquireLease, ReleaseLease

TRIES = 2
"""A request before the discovery of the server is lost, and so may its answer be."""


class LeaseClient:
    """One lease.

    Args:
        acquire: Client of ``acquire_lease``.
        release: Client of ``release_lease``.
        request: What is asked for.
        renew_s: Silence after which it is asked for again.
        timeout_s: For an answer of the arbiter.
        on_grant: Called with the episode at each grant.
        on_refusal: Called with code and message.
    """

    def __init__(
        self,
        acquire: Any,
        release: Any,
        request: AcquireLease.Request,
        *,
        renew_s: float,
        timeout_s: float,
        on_grant: Callable[[str], None],
        on_refusal: Callable[[ErrorCode, str], None],
    ) -> None:
        self.granted = False
        self._acquire, self._release = acquire, release
        self._request = request
        self._renew_s = renew_s
        self._timeout_s = timeout_s
        self._on_grant, self._on_refusal = on_grant, on_refusal
        self._call: Any = None
        self._called = 0.0
        self._since: float | None = None
        self._active = 0.0
        self._over = False

    def used(self, now: float) -> None:
        """A request was sent under it, which renews it."""
        self._active = now

    def look(self, now: float) -> None:
        """Ask for the lease, or again for it, or give up."""
        if self._over:
            return
        if self._since is None:
            if self.granted and now - self._active < self._renew_s:
                return
            self._since = now
        if self._call is not None and now - self._called > self._timeout_s / TRIES:
            self._acquire.remove_pending_request(self._call)
            self._call = None
        if now - self._since > self._timeout_s:
            self._over = True
            self._on_refusal(ErrorCode.TIMEOUT, 'the arbiter does not answer')
        elif self._call is None and self._acquire.service_is_ready():
            self._called = now
            self._call = call = self._acquire.call_async(self._request)
            call.add_done_callback(lambda done: self._answered(done, now))

    def _answered(self, call: Any, now: float) -> None:
        if call is not self._call:
            return
        self._call = self._since = None
        answer = call.result()
        if answer.success:
            self.granted = True
            self._active = max(self._active, now)
        if self._over:
            if answer.success:
                self._give_back()
        elif answer.success:
            self._on_grant(answer.episode_uuid)
        else:
            self._over = True
            self._on_refusal(ErrorCode(answer.error_code), answer.error_msg)

    def close(self) -> Any:
        """Give it back.

        Returns:
            Future of the answer, None where there is nothing to give back or nobody to take it. A
            grant that is still on its way is given back when it comes.
        """
        self._over = True
        return self._give_back() if self.granted and self._call is None else None

    def _give_back(self) -> Any:
        self.granted = False
        if not self._release.service_is_ready():
            return None
        return self._release.call_async(ReleaseLease.Request(lease_id=self._request.lease_id))
