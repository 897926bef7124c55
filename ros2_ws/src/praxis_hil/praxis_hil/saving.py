# SPDX-License-Identifier: Apache-2.0
"""Save or delete episodes that have ended, one after another, while the next is recorded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from praxis_core.errors import ErrorCode

from praxis_hil.session import Saved, Session
from praxis_hil.status import RefusedError, State, Status, describe


class Saver:
    """A thread that ends episodes in the order in which they were handed over.

    Args:
        tombstone: `(uuid, reason)`; marks a saved episode as deleted, or raises KeyError.
        on_status: Called with what became of an episode, before its result is set.
    """

    def __init__(
        self, tombstone: Callable[[str, str], None], on_status: Callable[[Status], None]
    ) -> None:
        self._tombstone = tombstone
        self._on_status = on_status
        self._pool = ThreadPoolExecutor(1, thread_name_prefix='save')

    def save(self, session: Session, outcome: int, note: str, result: Future[Saved]) -> None:
        """Make an episode durable; `result` comes when it is."""
        self._pool.submit(self._save, session, outcome, note, result)

    def discard(self, session: Session, result: Future[Saved]) -> None:
        """Delete an episode that was never saved."""
        self._pool.submit(self._discard, session, result)

    def bury(self, uuid: str, reason: str) -> Future[Saved]:
        """Put a tombstone on a saved episode, or one that is on its way to be."""
        return self._pool.submit(self._bury, uuid, reason)

    def close(self) -> None:
        """Return when everything is done."""
        self._pool.shutdown(wait=True)

    def _save(self, session: Session, outcome: int, note: str, result: Future[Saved]) -> None:
        try:
            saved = session.finish(outcome, note)
        except Exception as error:
            saved = Saved(session.uuid, bag_path=str(session.bag.path), error=repr(error))
        status = replace(
            describe(session, State.FAILED if saved.error else State.SAVED),
            index=saved.index,
            dataset_path=saved.dataset_path,
            message='; '.join(filter(None, (saved.message, saved.error))),
        )
        self._conclude(status, saved, result)

    def _discard(self, session: Session, result: Future[Saved]) -> None:
        try:
            saved = session.discard()
        except Exception as error:
            result.set_exception(error)
            return
        status = replace(
            describe(session, State.DISCARDED), bag_path=saved.bag_path, dataset_path=''
        )
        self._conclude(status, saved, result)

    def _conclude(self, status: Status, saved: Saved, result: Future[Saved]) -> None:
        try:
            self._on_status(status)
        finally:
            result.set_result(saved)

    def _bury(self, uuid: str, reason: str) -> Saved:
        try:
            self._tombstone(uuid, reason)
        except KeyError:
            raise RefusedError(ErrorCode.NOT_FOUND, f'no saved episode {uuid}') from None
        return Saved(uuid, message=reason)
