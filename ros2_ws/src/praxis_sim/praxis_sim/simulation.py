# SPDX-License-Identifier: Apache-2.0
"""A platform, its loop and its viewer on the one thread that may touch them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from praxis_core.diagnostics import Level, Report, StreamMonitor
from praxis_interfaces.msg import Command, ObservationAck

from praxis_sim import platforms
from praxis_sim.loop import Frame, SimulationLoop
from praxis_sim.physics_thread import PhysicsThread
from praxis_sim.platform import PlatformOptions, Rendering, Task
from praxis_sim.publishing import ObservationPublisher
from praxis_sim.simulator_parameters import SimulatorParameters
from praxis_sim.stepping import LateReaders, Lockstep, RealTime
from praxis_sim.viewer import Viewer

_READERS_PERIOD = 0.1


class Simulation:
    """Runs a platform in a thread; its methods may be called from any other.

    Args:
        parameters: Of the node.
        options: Of the platform.
        output: Takes what is to be published.
        intruders: Reason to hold that comes from outside, empty if none.
        logger: Of the node.
        last_seq: Number of the last observation that an earlier simulation published.

    Raises:
        PlatformError: Platform or viewer cannot be created.
    """

    def __init__(
        self,
        parameters: SimulatorParameters,
        options: PlatformOptions,
        output: ObservationPublisher,
        *,
        intruders: Callable[[], str],
        logger: Any,
        last_seq: int = 0,
    ) -> None:
        self._parameters, self._output, self._logger = parameters, output, logger
        self._loop: SimulationLoop | None = None
        self._viewer: Viewer | None = None
        self._late_readers = LateReaders()
        self._running = False
        self.last_seq = last_seq
        self.seed = 0
        self.failure = ''
        self._physics = PhysicsThread(self.fail)
        try:
            self._physics.call(self._create, options, intruders)
        except BaseException:
            self.close()
            raise
        hertz = 1.0 / self._loop.platform.control_period
        lockstep = isinstance(self._loop.stepping, Lockstep)
        # On the steady clock: the simulated one stops with the steps.
        self.steps = StreamMonitor('steps', None if lockstep else hertz, clock=time.monotonic)

    # For other threads

    @property
    def frame(self) -> Frame | None:
        """Present observation, None before the first episode."""
        return self._loop.frame

    def start(self) -> None:
        """Let time run."""
        self._running = True
        self._physics.set_background(self._advance)
        self._physics.post(lambda: None)

    def pause(self) -> None:
        """Stop time; the scene stays."""
        self._running = False
        self._physics.set_background(None)
        self._physics.call(lambda: None)

    def close(self) -> None:
        """Close platform and viewer, and end the thread."""
        self._physics.set_background(None)
        self._physics.call(self._close)
        self._physics.close()

    def tasks(self) -> Sequence[Task]:
        """Tasks of the platform."""
        return self._physics.call(self._loop.tasks)

    def reset(self, task_id: str, seed: int, init_state: int, options: Mapping[str, Any]) -> Frame:
        """Begin an episode; time runs again if a failure had stopped it.

        Raises:
            PlatformError: The request cannot be carried out.
        """
        return self._physics.call(self._reset, task_id, seed, init_state, options)

    def render(
        self, camera: str, width: int, height: int, **channels: bool
    ) -> tuple[Frame, Rendering]:
        """Render a camera; gives the observation that it shows, too."""
        return self._physics.call(
            lambda: (
                self._loop.frame,
                self._loop.platform.render(camera, width, height, **channels),
            )
        )

    def command(self, command: Command) -> None:
        """Take a command."""
        self._physics.post(lambda: self._loop.command(command, time.monotonic()))

    def acknowledge(self, acknowledgement: ObservationAck) -> None:
        """Take an acknowledgement."""
        self._physics.post(self._loop.acknowledge, acknowledgement)

    def fail(self, error: BaseException) -> None:
        """Note what stopped the simulation."""
        self.failure = f'{type(error).__name__}: {error}'
        self._logger.fatal(f'the simulation stopped: {self.failure}')

    def report(self, state: str) -> Report:
        """Health, for diagnostics; ``state`` is the node's."""
        loop, parameters = self._loop, self._parameters
        frame = loop.frame
        values: dict[str, Any] = {
            'platform': parameters.platform,
            'stepping': parameters.stepping,
            'render_quality': parameters.render_quality,
            'refused_commands': loop.refused,
            'hold_steps': loop.holds,
        }
        if frame is not None:
            values |= {
                'task': frame.task.task_id,
                'seed': self.seed,
                'episode_uuid': frame.episode_uuid,
                'observation_seq': frame.seq,
            }
        if self.failure:
            return Level.ERROR, self.failure, values
        now = time.monotonic()
        if waiting := loop.stepping.waiting_for(now):
            return Level.WARN, f'waiting for {", ".join(waiting)}', values
        if loop.fault:
            return Level.ERROR, f'holding: {loop.fault}', values
        if isinstance(loop.stepping, RealTime):
            factor = loop.stepping.factor(now)
            values |= {'real_time_factor': f'{factor:.3f}', 'missed_ticks': loop.stepping.missed}
            if self._running and factor < 0.9:
                return Level.WARN, f'real-time factor {factor:.2f}', values
        return Level.OK, state, values

    # On the physics thread

    def _create(self, options: PlatformOptions, intruders: Callable[[], str]) -> None:
        parameters = self._parameters
        platform = platforms.create(parameters.platform, options, parameters.platform_process)
        if parameters.stepping == 'lockstep':
            stepping = Lockstep(parameters.lockstep_participants, parameters.stall_warning_s)
        else:
            stepping = RealTime(platform.control_period)
        self._loop = SimulationLoop(
            platform,
            options.contract,
            stepping,
            publish=self._publish,
            depth_wanted=self._output.depth_wanted,
            intruders=intruders,
            report=lambda fault: self._logger.error(f'{fault}: holding'),
            last_seq=self.last_seq,
        )
        if parameters.gui:
            self._viewer = Viewer(platform)

    def _close(self) -> None:
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None
        if self._loop is not None:
            self._loop.platform.close()

    def _reset(
        self, task_id: str, seed: int, init_state: int, options: Mapping[str, Any]
    ) -> Frame:
        frame = self._loop.reset(task_id, seed, init_state, options, time.monotonic())
        self.seed = seed
        if self.failure and self._running:
            # A failed step stopped time; a scene that could be built anew can run again.
            self._physics.set_background(self._advance)
        self.failure = ''
        self._logger.info(
            f'episode {frame.episode_uuid}: {frame.task.task_id}, seed {seed}, '
            f'"{frame.task.instruction}"'
        )
        return frame

    def _advance(self) -> float | None:
        stepped = self._loop.poll(time.monotonic())
        now = time.monotonic()
        if not isinstance(self._loop.stepping, Lockstep):
            return self._loop.stepping.wait(now)
        if not stepped and self._late_readers.due(self._output.readers(), now):
            self._loop.repeat()
        waiting = tuple(self._loop.stepping.waiting_for(now))
        if waiting:
            self._logger.warning(
                f'lockstep waits for {", ".join(waiting)} to acknowledge observation '
                f'{self._loop.frame.seq}',
                throttle_duration_sec=5.0,
            )
        return min(self._loop.stepping.wait(now), _READERS_PERIOD)

    def _publish(self, frame: Frame) -> None:
        if frame.step == 0 and frame.seq != self.last_seq:
            self._output.describe(self._loop.platform, frame.stamp_ns)
        self._output.publish(frame, self._loop.platform)
        self.last_seq = frame.seq
        self.steps.tick(frame.stamp_ns * 1e-9, frame.seq)
        if self._viewer is not None:
            self._viewer.update()
