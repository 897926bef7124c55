# SPDX-License-Identifier: Apache-2.0
"""The simulation loop: episodes, stepping, capture. Imports no rclpy; runs on one thread."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from praxis_sim.camera_schedule import CameraSchedule
from praxis_sim.command_check import CommandCheck
from praxis_sim.platform import Observation, Platform, PlatformError, Rendering, Task
from praxis_sim.stepping import Stepping

START_NS = 1_000_000_000
"""Simulated time of the observation before the first: zero means unset to ROS."""


@dataclass(frozen=True)
class Frame:
    """One control period as it is published.

    Attributes:
        seq: ``observation_seq``.
        stamp_ns: Simulated time.
        episode_uuid: Of the episode.
        task: Task in progress.
        step: Control periods since the reset.
        observation: From the platform.
        renderings: Captured cameras by contract name.
        truncated: The step limit is reached.
    """

    seq: int
    stamp_ns: int
    episode_uuid: str
    task: Task
    step: int
    observation: Observation
    renderings: Mapping[str, Rendering]
    truncated: bool


class SimulationLoop:
    """Steps a platform as `Stepping` permits and hands every observation on.

    Args:
        platform: Created on the same thread.
        contract: ``praxis_core.contract.Contract``.
        stepping: Lockstep or real time.
        publish: Takes each frame, in order.
        depth_wanted: Whether depth of a camera is to be captured.
        intruders: Reason to hold that comes from outside, empty if none: a second publisher.
        report: Takes faults in words.
        last_seq: Number of the last observation that an earlier loop published.
    """

    def __init__(
        self,
        platform: Platform,
        contract: Any,
        stepping: Stepping,
        *,
        publish: Callable[[Frame], None],
        depth_wanted: Callable[[str], bool] = lambda camera: False,
        intruders: Callable[[], str] = lambda: '',
        report: Callable[[str], None] = lambda fault: None,
        last_seq: int = 0,
    ) -> None:
        self.platform, self.stepping = platform, stepping
        interface = contract.interface
        self._check = CommandCheck(
            contract.interface_hash, interface.action_space, contract.action_dim
        )
        self._cameras = interface.cameras
        self._schedule = CameraSchedule(
            {name: contract.deployment.cameras[name].fps for name in interface.cameras},
            1.0 / platform.control_period,
        )
        self._period_ns = round(platform.control_period * 1e9)
        self._publish, self._depth_wanted = publish, depth_wanted
        self._intruders, self._report = intruders, report
        self._seq = last_seq
        self._tasks: dict[str, Task] | None = None
        self.frame: Frame | None = None
        self.fault = ''
        self.refused = 0
        self.holds = 0

    def tasks(self) -> Sequence[Task]:
        """Tasks of the platform."""
        if self._tasks is None:
            self._tasks = {task.task_id: task for task in self.platform.tasks()}
        return list(self._tasks.values())

    def reset(
        self, task_id: str, seed: int, init_state: int, options: Mapping[str, Any], now: float
    ) -> Frame:
        """Begin an episode and publish its first observation.

        Raises:
            PlatformError: The request cannot be carried out; the present episode goes on.
        """
        self.tasks()
        if not task_id:
            if self.frame is None:
                raise PlatformError('no task is in progress; name one')
            task_id = self.frame.task.task_id
        task = self._tasks.get(task_id)
        if task is None:
            raise PlatformError(f'unknown task {task_id!r}{_nearest(task_id, self._tasks)}')
        observation = self.platform.reset(task_id, seed, init_state, options)
        self._emit(uuid.uuid4().hex, task, 0, observation, now)
        return self.frame

    def command(self, command: Any, now: float) -> None:
        """Take a ``Command``; one that is refused holds."""
        if self.frame is None:
            return
        reason = self._check.refusal(command, self.frame.episode_uuid)
        if reason:
            self.refused += 1
            self._fault(f'command {command.seq} of {command.source!r} refused: {reason}')
        elif self.fault.startswith('command '):
            self.fault = ''
        values = None if reason else np.asarray(command.values, np.float64)
        self.stepping.command(command.observation_seq, values, now)

    def acknowledge(self, acknowledgement: Any) -> None:
        """Take an ``ObservationAck``."""
        self.stepping.acknowledge(
            acknowledgement.participant,
            acknowledgement.observation_seq,
            acknowledgement.episode_uuid,
        )

    def poll(self, now: float) -> bool:
        """Step if it is time; returns whether it did."""
        if self.frame is None or (advance := self.stepping.poll(now)) is None:
            return False
        values = advance.values
        if reason := self._intruders():
            self._fault(reason)
            values = None
        elif self.fault and not self.fault.startswith('command '):
            self.fault = ''
        if values is None:
            self.holds += 1
            values = self.platform.hold_action()
        observation = self.platform.step(values)
        frame = self.frame
        self._emit(frame.episode_uuid, frame.task, frame.step + 1, observation, now)
        return True

    def repeat(self) -> None:
        """Publish the present observation again, unchanged."""
        if self.frame is not None:
            self._publish(self.frame)

    def _emit(
        self, episode: str, task: Task, step: int, observation: Observation, now: float
    ) -> None:
        seq = self._seq + 1
        renderings = {}
        for name in self._schedule.due(step):
            camera = self._cameras[name]
            renderings[name] = self.platform.render(
                name, camera.width, camera.height,
                depth=bool(camera.depth) and self._depth_wanted(name),
            )  # fmt: skip
        self._seq = seq
        self.frame = Frame(
            seq, START_NS + seq * self._period_ns, episode, task, step, observation, renderings,
            truncated=step >= task.max_steps,
        )  # fmt: skip
        # Before publishing: an answer may arrive while the rest is still being published.
        self.stepping.observed(seq, episode, now)
        self._publish(self.frame)

    def _fault(self, reason: str) -> None:
        if reason != self.fault:
            self.fault = reason
            self._report(reason)


def _nearest(name: str, known: Mapping[str, Task]) -> str:
    near = difflib.get_close_matches(name, known, 3, 0.5)
    if near:
        return f'; nearest are {", ".join(near)}'
    return f'; there are {len(known)}, see list_tasks'
