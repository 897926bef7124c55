# SPDX-License-Identifier: Apache-2.0
"""The model as a node sees it: worker, connection and metadata in one state. Imports no rclpy.

Worker and connection live on threads of their own. What they report is queued here and carried
out by `deliver` on the thread of the owner, who is woken for it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from praxis_core.contract import Contract
from praxis_core.exchange_error import ExchangeError
from praxis_core.model_exchange import Prediction, check_meta
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import control_of

from praxis_models.dialect import Dialect, Praxis, meet
from praxis_models.faults import Fault
from praxis_models.observation.assembly import Snapshot
from praxis_models.observation.plan import ObservationPlan, StaleError, plan_observation
from praxis_models.playback.action_layout import ActionLayout, layout_of
from praxis_models.playback.anchoring import anchored, check_anchors
from praxis_models.request_format import RequestFormat
from praxis_models.supervision.supervisor import Supervisor, Worker, WorkerSpec
from praxis_models.transport.connection import Connection
from praxis_models.transport.outcome import Outcome, Ticket


@dataclass(frozen=True)
class LinkSettings:
    """Which model, and how long it is waited for.

    Attributes:
        contract: Of the robot.
        backend: Back end that is wanted, empty: any.
        endpoint: Of a running server, empty: ``worker`` is started.
        worker: How to start one.
        dialect: How a server that does not speak our protocol wants its requests.
        token: For the server.
        connect_timeout_s: See `Connection`.
        receive_timeout_s: See `Connection`.
        first_reply_timeout_s: See `Connection`.
    """

    contract: Contract
    backend: str = ''
    endpoint: str = ''
    worker: WorkerSpec | None = None
    dialect: RequestFormat | None = None
    token: str = ''
    connect_timeout_s: float = 5.0
    receive_timeout_s: float = 30.0
    first_reply_timeout_s: float = 120.0


class Inferred(NamedTuple):
    """A usable reply.

    Attributes:
        prediction: As the model gave it.
        actions: float64[H, A], absolute where the model's are relative.
        snapshot: Observation that it was predicted from.
        model_ms: What the model took, as the server says, else the round trip.
        latency_ms: From the newest message of the observation to the chunk in hand.
    """

    prediction: Prediction
    actions: np.ndarray
    snapshot: Snapshot
    model_ms: float
    latency_ms: float


class Trouble(NamedTuple):
    """Why there is no usable model, or no usable reply."""

    kind: Fault
    message: str


class Stale(NamedTuple):
    """The request could not be made of the observation."""

    message: str


Answer = Inferred | Trouble | Stale | None
"""None: it was cancelled."""


@dataclass
class _Model:
    """What a connection's metadata said, once it was found to fit the robot."""

    generation: int
    dialect: Dialect | None = None
    plan: ObservationPlan | None = None
    mismatch: str = ''


@dataclass
class ModelLink:
    """Finds the model, checks it, and passes requests to it.

    Attributes:
        settings: Which model.
        wake: Called from any thread when `deliver` has something to do.
        on_model: Called by `deliver` after another model was found, or none any more.
        layout: Of the robot's actions.
        address: Endpoint of the server, empty while there is none.
    """

    settings: LinkSettings
    wake: Callable[[], None]
    on_model: Callable[[], None]
    layout: ActionLayout = field(init=False)
    _inbox: deque[Callable[[], None]] = field(default_factory=deque)
    _supervisor: Supervisor | None = None
    _worker: Worker | None = None
    _connection: Connection | None = None
    address: str = field(default='', init=False)
    _model: _Model = field(default_factory=lambda: _Model(0))
    _closed: bool = False

    def __post_init__(self) -> None:
        self.layout = layout_of(self.settings.contract)

    def start(self) -> None:
        """Start the worker, if it is ours, and connect.

        Raises:
            ValueError: The endpoint is none.
        """
        settings = self.settings
        if settings.endpoint:
            self._connect(settings.endpoint)
        else:
            assert settings.worker is not None
            self._supervisor = Supervisor(lambda _: self._post(self._follow_worker))
            self._worker = self._supervisor.start(settings.worker)

    def close(self) -> None:
        """Disconnect, and stop the worker if it is ours."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()
        if self._supervisor is not None:
            self._supervisor.stop()
        self._inbox.clear()

    # Threads

    def _post(self, call: Callable[[], None]) -> None:
        self._inbox.append(call)
        if not self._closed:
            self.wake()

    def deliver(self) -> None:
        """Carry out what the other threads have reported."""
        while self._inbox:
            self._inbox.popleft()()

    # Finding the model

    def _follow_worker(self) -> None:
        worker = self._worker
        if worker is not None and worker.endpoint and worker.endpoint != self.address:
            self._connect(worker.endpoint)
        self.on_model()

    def _connect(self, endpoint: str) -> None:
        if self._connection is not None:
            self._connection.close()
        settings = self.settings
        self.address = endpoint
        self._model = _Model(0)
        self._connection = Connection(
            endpoint,
            token=settings.token,
            connect_timeout_s=settings.connect_timeout_s,
            receive_timeout_s=settings.receive_timeout_s,
            first_reply_timeout_s=settings.first_reply_timeout_s,
            on_change=lambda: self._post(self._follow_connection),
        )
        self._connection.start()

    def _follow_connection(self) -> None:
        connection = self._connection
        assert connection is not None
        generation, metadata = connection.generation, connection.metadata
        if metadata is not None and generation != self._model.generation:
            self._model = self._read(generation, metadata)
        self.on_model()

    def _read(self, generation: int, metadata: Mapping[str, Any]) -> _Model:
        contract = self.settings.contract
        try:
            dialect = meet(metadata, contract, self.settings.dialect)
            meta = dialect.meta
            check_meta(
                meta,
                control_of(contract),
                backend=self.settings.backend,
                interface_hash=contract.interface_hash,
            )
            check_anchors(meta, self.layout)
            return _Model(generation, dialect, plan_observation(meta, contract))
        except ExchangeError as error:
            return _Model(generation, mismatch=str(error))

    @property
    def meta(self) -> ModelMeta | None:
        """Metadata of the last model that fitted, None before the first."""
        dialect = self._model.dialect
        return dialect.meta if dialect is not None else None

    @property
    def takes_calls(self) -> bool:
        """It knows sessions and resets; a foreign server knows inference only."""
        return isinstance(self._model.dialect, Praxis)

    @property
    def plan(self) -> ObservationPlan | None:
        """What it wants to see."""
        return self._model.plan

    @property
    def generation(self) -> int:
        """Number of the connection; after a change the model remembers nothing."""
        return self._model.generation

    @property
    def phase(self) -> str:
        """Of the connection, or of the worker while there is none."""
        if self._connection is not None:
            return self._connection.status.phase
        return self._worker.phase if self._worker is not None else 'closed'

    @property
    def worker(self) -> Worker | None:
        """The worker, if it is ours."""
        return self._worker

    @property
    def trouble(self) -> Trouble | None:
        """Why the model cannot be asked, None where it can."""
        worker, connection = self._worker, self._connection
        if worker is not None and worker.phase == 'failed' and worker.is_over:
            return Trouble('worker_failed', f'worker: {worker.reason}')
        if worker is not None and worker.phase != 'ready':
            kind: Fault = 'lost' if self._model.generation else 'unreachable'
            return Trouble(kind, f'worker {worker.phase}: {worker.reason}')
        if connection is None:
            return Trouble('unreachable', 'no connection')
        status = connection.status
        if status.phase == 'refused':
            return Trouble('refused', status.reason)
        if status.phase != 'ready' or connection.generation != self._model.generation:
            reason = status.reason or f'{connection.endpoint.url}: {status.phase}'
            return Trouble('lost' if self._model.generation else 'unreachable', reason)
        if self._model.mismatch:
            return Trouble('mismatch', self._model.mismatch)
        return None

    # Asking it

    def predict(
        self,
        snapshot: Snapshot,
        instruction: str,
        session_id: str,
        done: Callable[[Answer], None],
    ) -> Ticket:
        """Begin an inference; ``done`` is called by `deliver`, once.

        Only while there is no `trouble`.
        """
        dialect, connection = self._model.dialect, self._connection
        assert dialect is not None and connection is not None

        def make() -> dict[str, Any]:
            observation = snapshot.observation(instruction)
            return dialect.request(observation, session_id=session_id)

        def parse(reply: dict[str, Any]) -> tuple[Prediction, np.ndarray]:
            prediction = dialect.prediction(reply)
            # Anchored here, once: no later state is ever looked at.
            return prediction, anchored(prediction.actions, dialect.meta, snapshot.state())

        def ended(outcome: Outcome) -> None:
            at = time.monotonic()
            self._post(lambda: done(_answer(outcome, snapshot, at)))

        return connection.submit(
            make,
            ended,
            parse=parse,
            generation=self._model.generation,
            at_once=dialect.is_quick,
        )

    def call(
        self,
        method: str,
        done: Callable[[dict[str, Any] | Trouble], None],
        **fields: Any,
    ) -> Ticket:
        """Make a control call; ``done`` is called by `deliver`, once."""
        connection = self._connection
        assert connection is not None

        def ended(outcome: Outcome) -> None:
            if outcome.ok:
                self._post(lambda: done(dict(outcome.reply or {})))
            else:
                self._post(lambda: done(_trouble(outcome)))

        return connection.submit({'method': method, **fields}, ended)


def _answer(outcome: Outcome, snapshot: Snapshot, at: float) -> Answer:
    if outcome.kind == 'cancelled':
        return None
    if not outcome.ok:
        if isinstance(outcome.error, StaleError):
            return Stale(str(outcome.error))
        return _trouble(outcome)
    prediction, actions = outcome.value
    return Inferred(
        prediction,
        actions,
        snapshot,
        _model_ms(outcome),
        1e3 * (at - snapshot.received),
    )


def _trouble(outcome: Outcome) -> Trouble:
    kinds: dict[str, Fault] = {
        'refused': 'refused',
        'timeout': 'timeout',
        'invalid': 'invalid',
    }
    return Trouble(kinds.get(outcome.kind, 'lost'), outcome.message)


def _model_ms(outcome: Outcome) -> float:
    for key in ('policy_timing', 'server_timing'):
        timing = (outcome.reply or {}).get(key)
        spent = timing.get('infer_ms') if isinstance(timing, Mapping) else None
        if isinstance(spent, (int, float)):
            return float(spent)
    return outcome.timing.round_trip_ms
