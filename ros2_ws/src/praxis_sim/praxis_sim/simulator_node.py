# SPDX-License-Identifier: Apache-2.0
"""Lifecycle node ``simulator``: wires topics and services to the simulation loop."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_core.diagnostics import Diagnostics, Level, StreamMonitor
from praxis_core.errors import ErrorCode
from praxis_core.lifecycle import AutostartNode
from praxis_core.parameters import declare
from praxis_core.process import run
from praxis_interfaces.msg import Command, ObservationAck
from praxis_interfaces.srv import ListTasks, RenderCamera, ResetEpisode
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger

from praxis_sim import messages, platforms
from praxis_sim.loop import Frame, SimulationLoop
from praxis_sim.physics_thread import PhysicsThread
from praxis_sim.platform import PlatformError, PlatformOptions
from praxis_sim.publishing import ObservationPublisher
from praxis_sim.simulator_parameters import SimulatorParameters
from praxis_sim.stepping import LateReaders, Lockstep, RealTime
from praxis_sim.viewer import Viewer

_READERS_PERIOD = 0.1
SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE


class SimulatorNode(AutostartNode):
    """Owns the physics thread; callbacks hand everything to it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('simulator', **kwargs)
        self._parameters = declare(self, SimulatorParameters)
        # Read here, so that a bad contract ends the process with its message.
        self._contract = load_contract(self._parameters.value.contract)
        self._physics: PhysicsThread | None = None
        self._loop: SimulationLoop | None = None
        self._output: ObservationPublisher | None = None
        self._viewer: Viewer | None = None
        self._diagnostics: Diagnostics | None = None
        self._entities: list[tuple[Any, Any]] = []
        self._seed = 0
        self._last_seq = 0
        self._failure = ''

    # Transitions

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Create platform, publishers and services."""
        parameters = self._parameters.value
        try:
            extra = _json_object(parameters.platform_options, 'platform_options')
            options = PlatformOptions(self._contract, parameters.render_quality, extra)
            self._failure = ''
            self._physics = PhysicsThread(self._on_failure)
            self._output = ObservationPublisher(
                self, self._contract, parameters.frame_prefix, parameters.depth
            )
            self._physics.call(self._create, options)
        except (PlatformError, ValueError) as error:
            self.get_logger().error(str(error))
            self._release()
            return FAILURE
        self._connect()
        return SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Begin the first episode and let time run."""
        parameters = self._parameters.value
        try:
            if self._loop.frame is None:
                task = parameters.task or self._loop.tasks()[0].task_id
                self._physics.call(self._reset, task, parameters.seed, parameters.init_state, {})
        except PlatformError as error:
            self.get_logger().error(str(error))
            return FAILURE
        self._physics.set_background(self._advance)
        self._physics.post(lambda: None)
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop time; the scene stays."""
        self._physics.set_background(None)
        self._physics.call(lambda: None)
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Close the platform and everything that configure made."""
        self._release()
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """As cleanup."""
        self._release()
        return SUCCESS

    def close(self) -> None:
        """End in order, from whatever state."""
        super().close()
        self._release()

    def _connect(self) -> None:
        topics = self._contract.deployment.topics
        lockstep = self._parameters.value.stepping == 'lockstep'
        # A lockstep reader keeps every command: one that is lost would stall the simulation.
        depth = qos.COMMAND_PUBLISH if lockstep else qos.COMMAND_ROBOT
        self._command_topic = self.resolve_topic_name(topics.command)
        subscriptions = [
            self.create_subscription(Command, topics.command, self._on_command, depth),
            self.create_subscription(
                ObservationAck, topics.observation_ack, self._on_ack, qos.LOCKSTEP_SUBSCRIBE
            ),
        ]
        services = [
            self.create_service(ResetEpisode, 'reset_episode', self._on_reset),
            self.create_service(ListTasks, 'list_tasks', self._on_list_tasks),
            self.create_service(RenderCamera, 'render_camera', self._on_render),
            self.create_service(Trigger, '~/reset', self._on_reset_button),
        ]
        self._entities = [(self.destroy_subscription, entity) for entity in subscriptions]
        self._entities += [(self.destroy_service, entity) for entity in services]
        hertz = 1.0 / self._loop.platform.control_period
        # On the steady clock: the simulated one stops with the steps.
        self._steps = StreamMonitor('steps', None if lockstep else hertz, clock=time.monotonic)
        self._diagnostics = Diagnostics(self, f'simulator:{self._parameters.value.platform}')
        self._diagnostics.watch(self._steps)
        self._diagnostics.add('simulation', self._report)

    def _release(self) -> None:
        for destroy, entity in self._entities:
            destroy(entity)
        self._entities = []
        if self._diagnostics is not None:
            self._diagnostics.close()
            self._diagnostics = None
        if self._physics is not None:
            self._physics.set_background(None)
            self._physics.call(self._close)
            self._physics.close()
            self._physics = None
        if self._output is not None:
            self._output.destroy()
            self._output = None

    # On the physics thread

    def _create(self, options: PlatformOptions) -> None:
        parameters = self._parameters.value
        platform = platforms.create(parameters.platform, options, parameters.platform_process)
        if parameters.stepping == 'lockstep':
            stepping = Lockstep(parameters.lockstep_participants, parameters.stall_warning_s)
        else:
            stepping = RealTime(platform.control_period)
        self._loop = SimulationLoop(
            platform,
            self._contract,
            stepping,
            publish=self._publish,
            depth_wanted=self._output.depth_wanted,
            intruders=self._intruders,
            report=lambda fault: self.get_logger().error(f'{fault}: holding'),
            # Time goes on over cleanup and configure.
            last_seq=self._last_seq,
        )
        self._late_readers = LateReaders()
        if parameters.gui:
            try:
                self._viewer = Viewer(platform)
            except PlatformError:
                platform.close()
                self._loop = None
                raise

    def _close(self) -> None:
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None
        if self._loop is not None:
            self._loop.platform.close()
            self._loop = None

    def _reset(self, task: str, seed: int, init_state: int, options: dict) -> Frame:
        frame = self._loop.reset(task, seed, init_state, options, time.monotonic())
        self._seed = seed
        if self._failure and self.is_active:
            # A failed step stopped time; a scene that could be built anew can run again.
            self._physics.set_background(self._advance)
        self._failure = ''
        self.get_logger().info(
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
            self.get_logger().warning(
                f'lockstep waits for {", ".join(waiting)} to acknowledge observation '
                f'{self._loop.frame.seq}',
                throttle_duration_sec=5.0,
            )
        return min(self._loop.stepping.wait(now), _READERS_PERIOD)

    def _publish(self, frame: Frame) -> None:
        if frame.step == 0 and frame.seq != self._last_seq:
            self._output.describe(self._loop.platform, frame.stamp_ns)
        self._output.publish(frame, self._loop.platform)
        self._last_seq = frame.seq
        self._steps.tick(frame.stamp_ns * 1e-9, frame.seq)
        if self._viewer is not None:
            self._viewer.update()

    def _intruders(self) -> str:
        count = self.count_publishers(self._command_topic)
        return f'{count} publishers of {self._command_topic}' if count > 1 else ''

    def _render(self, request: RenderCamera.Request, response: RenderCamera.Response) -> None:
        shape = self._contract.interface.cameras[request.camera]
        rendering = self._loop.platform.render(
            request.camera,
            request.width or shape.width,
            request.height or shape.height,
            rgb=request.rgb,
            depth=request.depth,
            segmentation=request.segmentation,
        )
        frame = self._loop.frame
        optical, world = self._output.render_headers(frame, request.camera)
        response.observation_seq = frame.seq
        response.camera_info = messages.camera_info(optical, rendering.camera)
        response.camera_pose = messages.pose_stamped(world, rendering.camera.pose)
        for field, pixels, encoding in (
            ('rgb_image', rendering.rgb, 'rgb8'),
            ('depth_image', rendering.depth, '32FC1'),
            ('segmentation_image', rendering.segmentation, '16UC1'),
        ):
            if pixels is not None:
                setattr(response, field, messages.image(optical, pixels, encoding))
        response.labels = list(rendering.labels)

    def _on_failure(self, error: BaseException) -> None:
        self._failure = f'{type(error).__name__}: {error}'
        self.get_logger().fatal(f'the simulation stopped: {self._failure}')

    # On the executor's thread

    def _on_command(self, command: Command) -> None:
        self._physics.post(self._take_command, command)

    def _take_command(self, command: Command) -> None:
        self._loop.command(command, time.monotonic())

    def _on_ack(self, acknowledgement: ObservationAck) -> None:
        self._physics.post(self._loop.acknowledge, acknowledgement)

    def _on_reset(
        self, request: ResetEpisode.Request, response: ResetEpisode.Response
    ) -> ResetEpisode.Response:
        try:
            self._require_active()
            options = _json_object(request.options, 'options')
            frame = self._physics.call(
                self._reset, request.task_id, request.seed, request.init_state, options
            )
        except _RefusedError as error:
            response.error_code, response.error_msg = error.code, str(error)
        except (PlatformError, ValueError) as error:
            unknown = str(error).startswith('unknown task')
            response.error_code = ErrorCode.TASK_UNKNOWN if unknown else ErrorCode.RESET_FAILED
            response.error_msg = str(error)
        except Exception as error:
            self._on_failure(error)
            response.error_code = ErrorCode.PLATFORM_LOST
            response.error_msg = self._failure
        else:
            response.success = True
            response.episode_uuid = frame.episode_uuid
            response.observation_seq = frame.seq
            response.task_id = frame.task.task_id
            response.instruction = frame.task.instruction
        response.error_code = int(response.error_code)
        return response

    def _on_reset_button(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        """Reset the present task with the next seed."""
        reset = ResetEpisode.Request(seed=self._seed + 1)
        result = self._on_reset(reset, ResetEpisode.Response())
        response.success = result.success
        response.message = result.error_msg or f'{result.task_id}, seed {self._seed}'
        return response

    def _on_list_tasks(
        self, request: ListTasks.Request, response: ListTasks.Response
    ) -> ListTasks.Response:
        tasks = self._physics.call(self._loop.tasks)
        response.suites = sorted({task.suite for task in tasks})
        if request.suite and request.suite not in response.suites:
            response.error_code = int(ErrorCode.NOT_FOUND)
            response.error_msg = (
                f'unknown suite {request.suite!r}; there are {", ".join(response.suites)}'
            )
            return response
        response.tasks = [
            messages.task_info(task) for task in tasks if request.suite in ('', task.suite)
        ]
        return response

    def _on_render(
        self, request: RenderCamera.Request, response: RenderCamera.Response
    ) -> RenderCamera.Response:
        code = ErrorCode.NONE
        try:
            if self._loop.frame is None:
                raise _RefusedError(ErrorCode.NOT_ACTIVE, 'no episode has begun')
            if request.camera not in self._contract.interface.cameras:
                known = ', '.join(self._contract.interface.cameras)
                raise _RefusedError(
                    ErrorCode.CAMERA_UNKNOWN, f'unknown camera {request.camera!r}; known: {known}'
                )
            self._physics.call(self._render, request, response)
        except _RefusedError as error:
            code, response.error_msg = error.code, str(error)
        except Exception as error:
            code, response.error_msg = ErrorCode.RENDER_FAILED, str(error)
        response.error_code = int(code)
        return response

    def _require_active(self) -> None:
        if not self.is_active:
            raise _RefusedError(ErrorCode.NOT_ACTIVE, f'the simulator is {self.state_label}')

    def _report(self) -> tuple[int, str, dict[str, Any]]:
        loop, parameters = self._loop, self._parameters.value
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
                'seed': self._seed,
                'episode_uuid': frame.episode_uuid,
                'observation_seq': frame.seq,
            }
        if self._failure:
            return Level.ERROR, self._failure, values
        now = time.monotonic()
        if waiting := loop.stepping.waiting_for(now):
            return Level.WARN, f'waiting for {", ".join(waiting)}', values
        if loop.fault:
            return Level.ERROR, f'holding: {loop.fault}', values
        if isinstance(loop.stepping, RealTime):
            factor = loop.stepping.factor(now)
            values |= {'real_time_factor': f'{factor:.3f}', 'missed_ticks': loop.stepping.missed}
            if self.is_active and factor < 0.9:
                return Level.WARN, f'real-time factor {factor:.2f}', values
        return Level.OK, self.state_label, values


class _RefusedError(Exception):
    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def _json_object(text: str, what: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f'{what}: no JSON: {error}') from None
    if not isinstance(value, dict):
        raise ValueError(f'{what}: must be a JSON object, got {text!r}')
    return value


def main() -> int:
    """Run the node."""
    return run(SimulatorNode)


if __name__ == '__main__':
    sys.exit(main())
