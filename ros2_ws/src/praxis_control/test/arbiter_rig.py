# SPDX-License-Identifier: Apache-2.0
"""A small robot, its spec and an arbiter with a clock of its own, for the arbiter's tests."""

from __future__ import annotations

import itertools

import numpy as np
from praxis_control.arbiter import Arbiter
from praxis_control.command import Executed, Options, Request
from praxis_control.freshness import Observation
from praxis_control.gate import ControlSpec
from praxis_control.modes import Mode

HASH = 'a' * 64
SPACE = 'test.joint.delta.v1'
LEASE = '0' * 31 + '1'
PERIOD = 0.05


def make_spec(*, delta: bool = True, max_step: float = 0.5, cameras: bool = True) -> ControlSpec:
    return ControlSpec(
        interface_hash=HASH,
        action_space=SPACE,
        delta=delta,
        action_names=['x', 'y', 'gripper'],
        state_names=['x', 'y', 'opening'],
        minimum=np.array([-1.0, -1.0, -1.0]),
        maximum=np.array([1.0, 1.0, 1.0]),
        max_step=np.array([max_step, max_step, 2.0]),
        max_rate=np.array([np.inf, np.inf, np.inf]),
        gripper_index=2,
        gripper_open=-1.0,
        command_hz=1.0 / PERIOD,
        max_state_age=0.25,
        max_request_age=0.25,
        camera_max_age={'front': 0.15} if cameras else {},
    )


class Rig:
    """Drives an arbiter and keeps what it published."""

    def __init__(self, spec: ControlSpec | None = None, **options: object) -> None:
        self.now = 100.0
        self.spec = spec or make_spec()
        self.options = Options(**options)
        self.arbiter = Arbiter(self.spec, self.options, self.now)
        self.published: list[tuple[float, Executed]] = []
        self.on_publish = None
        self.seq = 0
        self.stamp_ns = 0
        self.episode = 'e1'
        self._next_state = self.now + PERIOD
        self._leases = itertools.count(1)

    def _keep(self, executed: Executed | None) -> Executed | None:
        if executed is not None:
            self.published.append((self.now, executed))
            if self.on_publish is not None:
                self.on_publish(self.now, executed)
        return executed

    @property
    def last(self) -> Executed:
        return self.published[-1][1]

    def state(
        self,
        *,
        advance: bool = True,
        values: tuple[float, ...] = (0.1, 0.2, 0.04),
        cameras: tuple[str, ...] = ('front',),
        interface_hash: str = HASH,
    ) -> Executed | None:
        if advance:
            self.seq += 1
            self.stamp_ns += round(PERIOD * 1e9)
        return self._keep(
            self.arbiter.receive_state(
                Observation(
                    self.seq,
                    self.stamp_ns,
                    self.episode,
                    interface_hash,
                    np.array(values),
                    cameras,
                ),
                self.now,
            )
        )

    def reset(self) -> None:
        self.episode = f'e{int(self.episode[1:]) + 1}'
        self.state()

    def acquire(self, source: str = 'policy', lease_id: str | None = None, duration: float = 0.0):
        lease_id = lease_id or f'{next(self._leases):032x}'
        reply = self.arbiter.acquire(source, lease_id, HASH, duration, self.now)
        assert reply.success, reply
        return lease_id

    def make_request(self, source: str = 'policy', **fields: object) -> Request:
        lease = self.arbiter.lease
        human = source in self.options.human_sources
        values = {
            'source': source,
            'lease_id': '' if human or lease is None else lease.lease_id,
            'episode_uuid': self.episode,
            'observation_seq': self.seq,
            'observation_stamp_ns': self.stamp_ns,
            'interface_hash': HASH,
            'action_space': SPACE,
            'values': (0.1, 0.0, 1.0),
            **fields,
        }
        values['values'] = np.array(values['values'], dtype=np.float64)
        return Request(**values)

    def request(self, source: str = 'policy', **fields: object) -> Executed | None:
        return self._keep(
            self.arbiter.receive_request(self.make_request(source, **fields), self.now)
        )

    def mode(self, mode: Mode, source: str = 'operator') -> bool:
        reply, executed = self.arbiter.set_mode(mode, source, '', self.now)
        self._keep(executed)
        return reply.success

    def publishers(self, count: int) -> None:
        self._keep(self.arbiter.set_publishers(count, self.now))

    def wait(self, seconds: float, *, states: bool = True) -> None:
        """Let time pass, with the ticks that fall due and a state a period."""
        end = self.now + seconds + 1e-9
        if self._next_state < self.now - PERIOD:
            self._next_state = self.now
        while True:
            at = min(self.arbiter.deadline, self._next_state if states else np.inf)
            if at > end:
                break
            self.now = max(self.now, at)
            if states and at == self._next_state:
                self._next_state += PERIOD
                self.state()
            if self.now >= self.arbiter.deadline:
                self._keep(self.arbiter.tick(self.now))
        self.now = end

    def stream(self, ticks: int, source: str = 'policy', **fields: object) -> None:
        """Answer each state at once, `ticks` times."""
        for _ in range(ticks):
            self.wait(PERIOD)
            self.request(source, **fields)

    @property
    def status(self):
        return self.arbiter.status(self.now)


def leased(**options: object) -> Rig:
    """A rig with a state and a lease of `policy`."""
    rig = Rig(**options)
    rig.state()
    rig.acquire()
    return rig
