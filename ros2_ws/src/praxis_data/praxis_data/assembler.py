# SPDX-License-Identifier: Apache-2.0
"""The one ingest path: serialized messages in arrival order become the rows of an episode.

The recorder feeds what it writes to the bag, the converter what it reads from it, so a converted
episode is the live one. Rows depend on header stamps alone; log time only decides when a row is
closed. Any order of arrival gives the same rows as long as each message arrives less than
`watermark_s` after its stamp.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from praxis_core.contract import Contract

from praxis_data.content import Command, Content, Image
from praxis_data.log_time import MAX_LEAD_NS, LogClock
from praxis_data.messages import Codec, codec, stamp_ns
from praxis_data.row import Row
from praxis_data.streams import FOLLOWED, GAP, Sample, Stream

# Stamps and ticks are rounded to ns separately; this much later still counts as on the tick.
TOLERANCE_NS = 10_000
COMMAND_MAX_AGE_S = 0.5
MODE_UNKNOWN = -1

STOPPED = 'stopped'
RESET = 'reset'
STALE = 'stale'

_SECOND = 1_000_000_000


class Assembler:
    """Turn messages into rows.

    Args:
        contract: Names, shapes, rates, age limits and topics.
        watermark_s: A row closes when log time is this far behind its end, s.
        message_codec: Message definitions; those installed on this machine by default.
        namespace: Robot namespace that topics may carry, such as `/robot`.
        command_max_age_s: Longest gap between two commands that is bridged, s.

    Attributes:
        ended: Empty while the episode runs, then `stopped`, `reset` or `stale`.
        message: Reason of the end in words.
        rows: Rows returned so far.
        leading_ticks: Ticks before the first row, for which a stream had no sample yet.
        late, invalid, duplicates: Messages left out, by stream.
        implausible: The same, because their stamp is far ahead of the log time.
        stale_rows: Rows in which at least one stream repeats its last sample.
        stale: The same by stream.
    """

    def __init__(
        self,
        contract: Contract,
        watermark_s: float = 0.2,
        *,
        message_codec: Codec | None = None,
        namespace: str = '',
        command_max_age_s: float = COMMAND_MAX_AGE_S,
    ) -> None:
        if not 0.0 <= watermark_s < 60.0:
            raise ValueError(f'watermark_s must be from 0 to 60 s, not {watermark_s}')
        self.contract = contract
        self._codec = message_codec or codec()
        self._content = Content(contract, self._codec)
        self._watermark = round(watermark_s * _SECOND)
        self._hz = contract.deployment.record_hz
        self._namespace = namespace.strip('/')
        period = round(_SECOND / self._hz)

        def stream(name: str, fps: float, limit_s: float) -> Stream:
            regular = max(period, round(_SECOND / fps)) if fps else period
            return Stream(name, regular, max(round(limit_s * _SECOND), regular) + TOLERANCE_NS)

        deployment = contract.deployment
        self._state = stream('state', 0.0, deployment.max_age.state)
        self._action = stream('action', 0.0, command_max_age_s)
        self._status = stream('control_status', 0.0, 0.0)
        self._cameras = {
            name: stream(name, camera.fps, camera.max_age)
            for name, camera in deployment.cameras.items()
        }
        self._handlers = {
            deployment.topics.state: self._add_state,
            deployment.topics.command: self._add_command,
            deployment.topics.control_status: self._add_status,
        }
        self._image_topics: dict[str, str] = {}
        for name in self._cameras:
            topic = contract.image_topic(name)
            self._image_topics[topic.strip('/')] = name
            self._image_topics[f'{topic.strip("/")}/compressed'] = name
        self._handlers = {topic.strip('/'): f for topic, f in self._handlers.items()}

        self._log = -1
        self._stamps = LogClock(by_stamps=True)
        self._t0: int | None = None
        self._tick_number = 0
        self._reset: int | None = None
        self.episode_uuid = ''
        self.ended = ''
        self.message = ''
        self.rows = 0
        self.leading_ticks = 0
        self.stale_rows = 0
        self.stale: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self.invalid: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.implausible: Counter[str] = Counter()
        self.last_invalid = ''

    @property
    def topics(self) -> list[str]:
        """Relative names of the topics that rows are made from, images uncompressed."""
        images = [self.contract.image_topic(name).strip('/') for name in self._cameras]
        return [*self._handlers, *images]

    @property
    def dropped(self) -> dict[str, int]:
        """Messages known to be missing from gaps in their sequence numbers, by stream."""
        return {s.name: s.dropped for s in (self._action, self._state) if s.dropped}

    @property
    def waiting_for(self) -> list[str]:
        """Streams without which there is no first row yet."""
        if self.rows:
            return []
        streams = (self._state, self._action, *self._cameras.values())
        return [stream.name for stream in streams if not stream.samples]

    def statistics(self) -> dict[str, Any]:
        """Return how the episode came about, for its metadata."""
        return {
            'ended': self.ended,
            'message': self.message,
            'start_ns': self._t0 if self._t0 is not None else 0,
            'leading_ticks': self.leading_ticks,
            'stale_rows': self.stale_rows,
            'stale': dict(sorted(self.stale.items())),
            'dropped': self.dropped,
            'restarts': {s.name: s.restarts for s in (self._action, self._state) if s.restarts},
            'late': dict(sorted(self.late.items())),
            'invalid': dict(sorted(self.invalid.items())),
            'duplicates': dict(sorted(self.duplicates.items())),
            'implausible': dict(sorted(self.implausible.items())),
            **({'last_invalid': self.last_invalid} if self.last_invalid else {}),
        }

    def ingest(
        self, topic: str, typename: str, data: bytes | memoryview, log_time_ns: int | None
    ) -> list[Row]:
        """Take in one message and return the rows that it closes.

        Args:
            topic: Absolute or relative; topics that no row is made from are ignored.
            typename: For example `praxis_interfaces/msg/StateVector`.
            data: Serialized message; kept until its rows are closed, so it must not change.
            log_time_ns: Log time of its arrival, ns. None: the newest plausible header stamp so
                far, for bags whose log time is in another time base than their stamps.

        Raises:
            praxis_data.messages.MessageError: The type is unknown.
        """
        name = self._relative(topic)
        camera = self._image_topics.get(name)
        handler = self._handlers.get(name)
        if camera is None and handler is None:
            return []
        self._codec.require(typename)
        rows = self.advance(log_time_ns) if log_time_ns is not None else []
        if self.ended:
            return rows
        try:
            message = self._codec.decode(typename, data)
            stamp = stamp_ns(message.header.stamp)
            if log_time_ns is None:
                self._follow(stamp, is_state=handler == self._add_state)
            if camera is not None:
                self._add_image(camera, stamp, message, typename, data)
            else:
                handler(stamp, message)
        except (ValueError, AttributeError) as error:
            self._refuse(camera or name, error)
            return rows
        return rows + self._drain()

    def _follow(self, stamp: int, is_state: bool) -> None:
        self._stamps.accept(stamp, is_state)
        self._log = max(self._log, self._stamps.now)

    def advance(self, log_time_ns: int) -> list[Row]:
        """Let log time pass without a message and return the rows that closes."""
        self._log = max(self._log, log_time_ns)
        rows = self._drain()
        if self._t0 is None:
            for stream in (self._action, self._status, *self._cameras.values()):
                stream.forget_before(self._log - self._watermark - stream.limit)
        return rows

    def close(self) -> list[Row]:
        """End the episode and return its last rows."""
        return self._drain(final=True)

    def _relative(self, topic: str) -> str:
        name = topic.strip('/')
        if self._namespace and name.startswith(self._namespace + '/'):
            name = name[len(self._namespace) + 1 :]
        return name

    def _refuse(self, stream: str, error: Exception) -> None:
        self.invalid[stream] += 1
        self.last_invalid = f'{stream}: {error}'

    def _put(self, stream: Stream, stamp: int, seq: int, value: Any, closed: int | None) -> None:
        """Add a sample unless it belongs to a tick that is closed (stamp < `closed`)."""
        if 0 < self._log < stamp - MAX_LEAD_NS:
            self.implausible[stream.name] += 1
        elif closed is not None and stamp < closed:
            self.late[stream.name] += 1
        elif not stream.add(stamp, seq, value):
            self.duplicates[stream.name] += 1

    def _observed(self) -> int | None:
        """Stamp below which states and images belong to closed ticks."""
        if self._t0 is None or not self._tick_number:
            return None
        return self._tick(self._tick_number - 1) + TOLERANCE_NS + 1

    def _add_state(self, stamp: int, message: Any) -> None:
        values = self._content.state(message)
        closed = self._observed()
        if closed is None:
            closed = self._t0
        self._put(
            self._state,
            stamp,
            int(message.observation_seq),
            (values, message.episode_uuid),
            closed,
        )
        if self._t0 is not None:
            self._note_reset(stamp, message.episode_uuid)

    def _note_reset(self, stamp: int, uuid: str) -> None:
        if uuid != self.episode_uuid and (self._reset is None or stamp < self._reset):
            self._reset = stamp

    def _add_command(self, stamp: int, message: Any) -> None:
        command = self._content.command(message)
        closed = None
        if self._t0 is not None and self._tick_number:
            closed = self._tick(self._tick_number) - TOLERANCE_NS
        self._put(self._action, stamp, int(message.seq), command, closed)

    def _add_status(self, stamp: int, message: Any) -> None:
        value = self._content.status(message)
        last = self._status.newest_before(stamp + 1)
        if last is not None and last.stamp == stamp:
            if last.value == value:
                return
            # No sequence number: of equal stamps the order of arrival is the publisher's.
            self._put(self._status, stamp, last.seq + 1, value, None)
        else:
            self._put(self._status, stamp, 0, value, None)

    def _add_image(
        self, camera: str, stamp: int, message: Any, typename: str, data: bytes | memoryview
    ) -> None:
        image = self._content.image(camera, message, typename, data)
        self._put(self._cameras[camera], stamp, 0, image, self._observed())

    def _tick(self, number: int) -> int:
        return self._t0 + round(number * _SECOND / self._hz)

    def _drain(self, final: bool = False) -> list[Row]:
        rows: list[Row] = []
        if self.ended or not self._anchor(final):
            if final and not self.ended:
                self._end(STOPPED, 'stopped before a state arrived')
            return rows
        while not self.ended:
            until = self._tick(self._tick_number + 1)
            if not final and self._log < until + self._watermark:
                break
            row, done = self._close_tick(until, final)
            if row is not None:
                rows.append(row)
            if not done:
                break
        return rows

    def _anchor(self, final: bool) -> bool:
        """Fix t_0, the first state's stamp, once no earlier state can arrive."""
        if self._t0 is None and self._state.samples:
            first = self._state.samples[0]
            if final or self._log >= first.stamp + self._watermark:
                self._t0 = first.stamp
                self.episode_uuid = first.value[1]
                for sample in self._state.samples:
                    self._note_reset(sample.stamp, sample.value[1])
        return self._t0 is not None

    def _end(self, kind: str, message: str) -> None:
        self.ended, self.message = kind, message
        for stream in (self._state, self._action, self._status, *self._cameras.values()):
            stream.forget_before(1 << 62)

    def _close_tick(self, until: int, final: bool) -> tuple[Row | None, bool]:
        """Close one tick; the flag is False when it must wait for messages."""
        tick = self._tick(self._tick_number)
        if self._reset is not None and tick >= self._reset - TOLERANCE_NS:
            self._end(RESET, 'the episode was reset')
            return None, True
        bound = (
            until - TOLERANCE_NS if self._reset is None else min(until - TOLERANCE_NS, self._reset)
        )
        chosen: dict[str, Sample] = {}
        stale: dict[str, bool] = {}
        for stream in (self._state, self._action, *self._cameras.values()):
            is_action = stream is self._action
            oldest = tick - TOLERANCE_NS if is_action else tick + TOLERANCE_NS - stream.period + 1
            while True:
                sample = stream.newest_before(bound if is_action else tick + TOLERANCE_NS + 1)
                if sample is None:
                    outcome = GAP
                    break
                stale[stream.name] = sample.stamp < oldest
                outcome = self._bridge(stream, sample, final) if stale[stream.name] else FOLLOWED
                if outcome != FOLLOWED or self._decodes(stream, sample):
                    break
                stream.remove(sample)
            if outcome == GAP:
                return self._miss(stream, sample, until, final)
            if outcome != FOLLOWED:
                return None, False
            chosen[stream.name] = sample
        row = self._row(tick, chosen, stale)
        self._forget(tick, until)
        return row, True

    def _bridge(self, stream: Stream, sample: Sample, final: bool) -> str:
        known = 1 << 62 if final else self._log - self._watermark
        return stream.after(sample, known, sample.stamp + stream.limit, self._reset)

    def _miss(
        self, stream: Stream, sample: Sample | None, until: int, final: bool
    ) -> tuple[None, bool]:
        if not self.rows:
            if final and not any(s.stamp >= until - TOLERANCE_NS for s in self._state.samples):
                self._end(STOPPED, f'stopped before the first row: nothing on {stream.name}')
            else:
                self.leading_ticks += 1
                self._forget(self._tick(self._tick_number), until)
        elif self._reset is not None and self._reset <= sample.stamp + stream.limit:
            self._end(RESET, 'the episode was reset')
        elif final and self._log - self._watermark < sample.stamp + stream.limit:
            self._end(STOPPED, 'stopped')
        else:
            limit = (stream.limit - TOLERANCE_NS) / _SECOND
            self._end(
                STALE, f'{stream.name}: nothing for {limit:g} s after stamp {sample.stamp} ns'
            )
        return None, True

    def _forget(self, tick: int, until: int) -> None:
        self._action.settle(until - TOLERANCE_NS)
        self._state.settle(tick + TOLERANCE_NS + 1)
        self._action.forget_before(until - TOLERANCE_NS)
        self._status.forget_before(tick - TOLERANCE_NS)
        for stream in (self._state, *self._cameras.values()):
            stream.forget_before(tick + TOLERANCE_NS + 1)
        self._tick_number += 1

    def _decodes(self, stream: Stream, sample: Sample) -> bool:
        """Decode an image the first time a row wants it; False if it is none."""
        if not isinstance(sample.value, Image):
            return True
        try:
            self._content.decode(stream.name, sample.value)
        except ValueError as error:
            self._refuse(stream.name, error)
            return False
        return True

    def _row(self, tick: int, chosen: dict[str, Sample], stale: dict[str, bool]) -> Row:
        state, command = chosen['state'], chosen['action']
        when = tick if stale['action'] else max(tick, command.stamp)
        mode, intervention = self._control(when, command.value)
        self.stale.update(name for name, repeated in stale.items() if repeated)
        self.stale_rows += any(stale.values())
        row = Row(
            index=self.rows,
            tick_ns=tick,
            state=state.value[0],
            action=command.value.action,
            requested_action=command.value.requested,
            intervention=intervention,
            control_mode=mode,
            observation_seq=state.seq,
            stamps={name: sample.stamp for name, sample in chosen.items()},
            stale=stale,
            images={name: chosen[name].value.pixels for name in self._cameras},
        )
        self.rows += 1
        return row

    def _control(self, when: int, command: Command) -> tuple[int, bool]:
        """Return mode and intervention in force at `when` ns.

        Simulated time stands still between steps, so several statuses can share a stamp: the
        one under which the command was published is the one that names its source.
        """
        newest = self._status.newest_before(when + TOLERANCE_NS + 1)
        if newest is None:
            return MODE_UNKNOWN, False
        for sample in reversed(self._status.samples):
            status = sample.value
            same = status.holding if command.hold else status.active_source == command.source
            if sample.stamp == newest.stamp and same:
                return status.mode, status.intervention
        return newest.value.mode, newest.value.intervention
