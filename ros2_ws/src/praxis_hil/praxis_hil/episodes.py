# SPDX-License-Identifier: Apache-2.0
"""The episode recorder: which episode a message belongs to, and what becomes of each episode."""

from __future__ import annotations

import uuid as uuids
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from praxis_core.errors import ErrorCode
from praxis_data import messages
from praxis_data.bag import BagTopic
from praxis_data.log_time import LogClock, header_stamp_ns

from praxis_hil.acknowledgement import Observation, ObservationTracker
from praxis_hil.disk_space import DiskGuard
from praxis_hil.image_encoding import ImageEncoder
from praxis_hil.pipeline import Pipeline
from praxis_hil.saving import Saver
from praxis_hil.session import Saved, Session
from praxis_hil.status import RefusedError, State, Status, describe
from praxis_hil.topics import Kind, RecordedTopic

_MOST_EARLY = 256
"""Messages that wait for the first state to tell the time base, or for the episode to begin."""

_PATIENCE = 4
"""Calls of `watch` for which the state of the episode that was asked for is awaited."""


@dataclass(frozen=True)
class _Route:
    """Where the messages of a subscription go in the bag."""

    topic: RecordedTopic
    stored: BagTopic


class EpisodeRecorder:
    """Route messages to the episode in progress, from the subscriptions' thread.

    `start`, `stop`, `discard` and `ingest` are called on one thread; saving happens on another,
    so that the next episode may start meanwhile. Messages belong to the episode that was in
    progress when they arrived.

    Args:
        routes: Each subscription with the bag topic it is stored under; images under the name
            and type that `encoder` gives them.
        encoder: Encodes images while an episode is recorded.
        open_session: `(uuid, task, metadata JSON)` to an open session.
        tombstone: `(uuid, reason)`; marks a saved episode as deleted, or raises KeyError.
        disk: Guard of the volumes written to.
        on_status: Called on every change of state, on any thread.
        on_observation: Called when an observation is written whole, on the ingest thread.
        on_warning: Called with a fault that does not stop the recording.
        max_waiting_bytes: Of messages between subscription and bag; beyond it they are dropped
            and counted.
        workers: Threads that encode images.

    Attributes:
        implausible: Header stamps of the episode that were too far ahead to be true, by topic.
        pipeline: Messages on their way.
    """

    def __init__(
        self,
        routes: Iterable[tuple[RecordedTopic, BagTopic]],
        encoder: ImageEncoder,
        open_session: Callable[[str, str, str], Session],
        tombstone: Callable[[str, str], None],
        disk: DiskGuard,
        on_status: Callable[[Status], None] = lambda status: None,
        on_observation: Callable[[Observation], None] = lambda observation: None,
        on_warning: Callable[[str], None] = lambda text: None,
        max_waiting_bytes: int = 256 << 20,
        workers: int = 2,
    ) -> None:
        self._routes = {topic.name: _Route(topic, stored) for topic, stored in routes}
        self._encoder = encoder
        self._open_session = open_session
        self._disk = disk
        self._on_status = on_status
        self._on_observation = on_observation
        self._on_warning = on_warning
        self._clock = LogClock()
        self._tracker = ObservationTracker()
        self._session: Session | None = None
        self._sequence: dict[str, int] = {}
        self._remembered: dict[str, deque[bytes]] = {
            topic.name: deque(maxlen=topic.remembered) for topic, _ in routes if topic.remembered
        }
        # Of an episode whose log time has not begun; None otherwise.
        self._early: list[tuple[str, bytes, int]] | None = None
        # UUID of the environment's episode whose first state has not come yet.
        self._awaited = ''
        self._patience = 0
        self._warned_of_base = False
        self.implausible: Counter[str] = Counter()
        self._withheld: deque[Observation] = deque()
        self._last = Status()
        self._ended_alone: Future[Saved] | None = None
        self.pipeline = Pipeline(
            max_waiting_bytes, workers, lambda error: on_warning(f'recording failed: {error}')
        )
        self._saver = Saver(tombstone, self._conclude)

    @property
    def recording(self) -> bool:
        """An episode is in progress."""
        return self._session is not None

    @property
    def status(self) -> Status:
        """Of the episode in progress, else of the last one."""
        session = self._session
        if session is None:
            return self._last
        return describe(session, State.RECORDING)

    @property
    def session(self) -> Session | None:
        """The episode in progress."""
        return self._session

    @property
    def lost(self) -> dict[str, int]:
        """Losses since the start: messages refused, states and images that never came."""
        lost = {'refused': self.pipeline.refused, 'state': self._tracker.lost_states}
        return {**lost, **self._tracker.lost_images}

    def start(self, task: str, uuid: str, metadata: str, now_ns: int) -> Status:
        """Begin an episode with the observation that stands.

        Where that is of another episode of the environment than ``uuid``, the reset is on its way
        here, and the recording begins with its first state.

        Args:
            task: Instruction, not empty.
            uuid: Empty to make one.
            metadata: JSON object stored with the episode, or empty.
            now_ns: The node's clock.

        Raises:
            RefusedError: An episode is in progress, no task, no space, or files cannot be made.
        """
        if self._session is not None:
            raise RefusedError(
                ErrorCode.ALREADY_RECORDING, f'episode {self._session.uuid} is in progress'
            )
        if not task.strip():
            raise RefusedError(ErrorCode.INVALID_REQUEST, 'the task is empty')
        shortage = self._disk.shortage()
        if shortage:
            raise RefusedError(ErrorCode.NO_SPACE, shortage)
        try:
            session = self._open_session(uuid or str(uuids.uuid4()), task.strip(), metadata)
        except ValueError as error:
            raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from error
        except OSError as error:
            raise RefusedError(ErrorCode.WRITE_FAILED, str(error)) from error
        self._sequence.clear()
        self.implausible.clear()
        self._ended_alone = None
        self._session = session
        self._early = [
            (topic, data, now_ns)
            for topic, kept in self._remembered.items()
            if self._opens(self._routes[topic].topic)
            for data in kept
        ]
        self._awaited = uuid if uuid and not self._stands_in(uuid) else ''
        self._patience = _PATIENCE
        if self._clock.by_stamps is not None and not self._awaited:
            self._begin()
        self._announce(session, State.RECORDING)
        return self.status

    def _newest(self, wanted: Callable[[RecordedTopic], bool]) -> list[tuple[str, bytes]]:
        return [
            (name, data)
            for name, kept in self._remembered.items()
            if wanted(self._routes[name].topic)
            for data in kept
        ]

    def _opens(self, topic: RecordedTopic) -> bool:
        """Whether an episode begins with what is remembered of a topic.

        The standing observation opens it unless its command was executed before.
        """
        if topic.sequence:
            return False
        if topic.kind is Kind.OTHER:
            return True
        commands = self._newest(lambda topic: topic.sequence)
        return all(
            header_stamp_ns(command) < header_stamp_ns(state)
            for _, command in commands
            for _, state in self._newest(_is_state)
        )

    def _stands_in(self, uuid: str) -> bool:
        """Whether the standing state, if any, is of this episode of the environment."""
        found = [self._episode_of(topic, data) for topic, data in self._newest(_is_state)]
        return all(not episode or _same_uuid(episode, uuid) for episode in found)

    def _episode_of(self, topic: str, data: bytes) -> str:
        return messages.decode(self._routes[topic].topic.typename, data).episode_uuid

    def stop(self, outcome: int = 0, note: str = '') -> Future[Saved]:
        """End the episode; the result comes when it is durable.

        Raises:
            RefusedError: No episode is in progress.
        """
        if self._session is None:
            ended = self._ended_alone
            if ended is None:
                raise RefusedError(ErrorCode.NOT_RECORDING, 'no episode is in progress')
            self._ended_alone = None
            return ended
        return self._end('', outcome, note)

    def discard(self, uuid: str, reason: str) -> Future[Saved]:
        """Delete the episode in progress, or tombstone a saved one.

        Raises:
            RefusedError: No such episode.
        """
        session = self._session
        if session is not None and uuid in ('', session.uuid):
            session.message = reason or 'discarded'
            self._session = None
            if self._early is not None:
                self._begin()
            result: Future[Saved] = Future()
            self.pipeline.call(lambda: self._saver.discard(session, result))
            return result
        if not uuid:
            raise RefusedError(ErrorCode.NOT_RECORDING, 'no episode is in progress')
        # Behind the episodes that are being saved, which may include this one.
        return self._saver.bury(uuid, reason)

    def end(self, message: str) -> None:
        """End the episode in progress, if any, and keep it, for a reason nobody asked for."""
        if self._session is not None:
            self._on_warning(f'episode {self._session.uuid} ends: {message}')
            self._ended_alone = self._end(message, 0, '')

    def watch(self) -> None:
        """End the episode when the disk fills, the bag fails, or a stream has gone stale."""
        session = self._session
        if self._awaited:
            self._patience -= 1
            if not self._patience:
                # A name of the caller's own.
                self._begin()
        if session is not None:
            sink = session.sink
            stale = sink.ended if sink is not None else ''
            problem = session.write_error or stale or self._disk.shortage()
            if problem:
                self.end(problem)
        # A lagging dataset that caught up lets the source go on even if nothing arrives.
        self.pipeline.call(self._release)

    def ingest(self, topic: str, data: bytes, now_ns: int) -> None:
        """Take in one serialized message of a subscription.

        Args:
            topic: Name as in `routes`.
            data: CDR; must not change afterwards.
            now_ns: The node's clock on arrival.
        """
        route = self._routes[topic]
        if route.topic.remembered:
            self._remembered[topic].append(data)
        if route.topic.kind is Kind.STATE:
            self._judge(now_ns, header_stamp_ns(data))
        if self._early is None:
            self._ingest(route, data, now_ns)
            return
        self._early.append((topic, data, now_ns))
        if self._awaited:
            if route.topic.kind is Kind.STATE and _same_uuid(
                self._episode_of(topic, data), self._awaited
            ):
                self._awaited = ''
                self._forget_before(header_stamp_ns(data))
            elif len(self._early) <= _MOST_EARLY:
                return
        if self._clock.by_stamps is not None or len(self._early) > _MOST_EARLY:
            self._begin()

    def _judge(self, now_ns: int, stamp_ns: int) -> None:
        """Find out the time base, from states before the log time begins."""
        if self._session is not None and self._early is None:
            return
        if not now_ns and self._session is None:
            # Simulated time that has not arrived yet.
            return
        self._clock.judge(now_ns, stamp_ns)
        if self._clock.by_stamps and not self._warned_of_base:
            self._warned_of_base = True
            self._on_warning(
                f"states are stamped {stamp_ns * 1e-9:.3f} s but the recorder's clock says "
                f'{now_ns * 1e-9:.3f} s; log time follows the stamps. Set use_sim_time to true '
                'for simulated stamps, or set the clocks right'
            )

    def _forget_before(self, stamp_ns: int) -> None:
        """Leave messages of the episode before out of what this one begins with."""
        self._early = [
            (topic, data, now_ns)
            for topic, data, now_ns in self._early
            if not self._routes[topic].topic.stamped or header_stamp_ns(data) >= stamp_ns
        ]

    def _begin(self) -> None:
        """Let log time begin, and take in what came before."""
        early, self._early = self._early or [], None
        self._awaited = ''
        self._clock.begin()
        for topic, data, now_ns in early:
            self._ingest(self._routes[topic], data, now_ns)

    def _ingest(self, route: _Route, data: bytes, now_ns: int) -> None:
        recorded = route.topic
        stamp = header_stamp_ns(data) if recorded.stamped else 0
        log_time = 0
        if self._session is not None:
            self._clock.tick(now_ns)
            if recorded.stamped:
                self._accept(recorded, stamp)
            log_time = self._clock.now
        if recorded.kind is Kind.STATE:
            self._ingest_state(route, data, stamp, log_time)
        elif recorded.kind is Kind.IMAGE:
            self._ingest_image(route, data, stamp, log_time)
        elif self._session is not None:
            if recorded.sequence:
                self._count_gaps(self._session, route, data)
            self._offer(self._session, route.stored, data, log_time)

    def _accept(self, topic: RecordedTopic, stamp: int) -> None:
        before = self._clock.now
        if not self._clock.accept(stamp, topic.kind is Kind.STATE):
            self.implausible[topic.name] += 1
            if self.implausible[topic.name] == 1:
                self._on_warning(
                    f'{topic.name}: a header stamp is {(stamp - before) * 1e-9:.1f} s ahead of '
                    'the recording and makes no row; further ones are counted'
                )

    def _ingest_state(self, route: _Route, data: bytes, stamp: int, log_time: int) -> None:
        state = messages.decode(route.topic.typename, data)
        uuid, seq, cameras = state.episode_uuid, int(state.observation_seq), list(state.cameras)
        session = self._session
        if session is not None:
            if session.environment_uuid is None:
                session.environment_uuid = uuid
            elif session.environment_uuid != uuid:
                self.end('reset: the environment began another episode')
                session = None
        if session is not None:
            last = self._sequence.get('state')
            if last is not None and seq > last + 1:
                session.drop(route.stored.name, seq - last - 1)
            self._sequence['state'] = seq

        def take(payload: bytes) -> None:
            try:
                if session is not None:
                    session.ingest(route.stored, payload, log_time)
            finally:
                self._acknowledge(self._tracker.state(seq, uuid, stamp, cameras), session)

        if not self.pipeline.offer(data, take) and session is not None:
            session.drop(route.stored.name)

    def _ingest_image(self, route: _Route, data: bytes, stamp: int, log_time: int) -> None:
        session, camera = self._session, route.topic.camera

        def take(payload: bytes) -> None:
            try:
                if session is not None:
                    session.ingest(route.stored, payload, log_time)
            finally:
                self._acknowledge(self._tracker.image(camera, stamp), session)

        def failed(error: Exception) -> None:
            session.drop(route.stored.name)
            self._on_warning(f'{route.topic.name}: image left out: {error}')
            self._acknowledge(self._tracker.image(camera, stamp), session)

        raw = session is None or self._encoder.encoding == 'raw'
        encode = None if raw else self._encoder.encode
        kept = data if session is not None else b''
        if not self.pipeline.offer(kept, take, encode, failed) and session is not None:
            session.drop(route.stored.name)

    def _count_gaps(self, session: Session, route: _Route, data: bytes) -> None:
        seq = int(messages.decode(route.topic.typename, data).seq)
        last = self._sequence.get(route.topic.name)
        if last is not None and seq > last + 1:
            session.drop(route.stored.name, seq - last - 1)
        self._sequence[route.topic.name] = seq

    def _offer(self, session: Session, stored: BagTopic, data: bytes, log_time: int) -> None:
        if not self.pipeline.offer(
            data, lambda payload: session.ingest(stored, payload, log_time)
        ):
            session.drop(stored.name)

    def _acknowledge(self, observations: list[Observation], session: Session | None) -> None:
        self._withheld.extend(observations)
        if session is None or not session.lagging:
            self._release()

    def _release(self) -> None:
        session = self._session
        if session is not None and session.lagging:
            return
        while self._withheld:
            self._on_observation(self._withheld.popleft())

    def _end(self, message: str, outcome: int, note: str) -> Future[Saved]:
        if self._early is not None:
            self._begin()
        session, self._session = self._session, None
        session.message = message
        self._announce(session, State.SAVING)
        result: Future[Saved] = Future()
        # Through the queue, so that all that arrived before belongs to the episode.
        self.pipeline.call(lambda: self._saver.save(session, outcome, note, result))
        return result

    def _conclude(self, status: Status) -> None:
        """Announce an ended episode, and again the one in progress, which is the news."""
        session = self._session
        if session is None:
            self._last = status
        self._on_status(status)
        if session is not None:
            self._on_status(self.status)

    def _announce(self, session: Session, state: State) -> None:
        self._last = describe(session, state)
        self._on_status(self._last)

    def close(self, message: str = 'the recorder was shut down') -> None:
        """End the episode in progress and return when everything is durable."""
        self.end(message)
        self.pipeline.close()
        self._saver.close()


def _is_state(topic: RecordedTopic) -> bool:
    return topic.kind is Kind.STATE


def _same_uuid(one: str, other: str) -> bool:
    return one.replace('-', '').lower() == other.replace('-', '').lower()
