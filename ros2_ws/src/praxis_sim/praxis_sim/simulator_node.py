# SPDX-License-Identifier: Apache-2.0
"""Lifecycle node ``simulator``: wires topics and services to the simulation loop."""

from __future__ import annotations

import json
import sys
from typing import Any

from praxis_core import qos
from praxis_core.contract import load_contract
from praxis_core.diagnostics import START_S, Diagnostics
from praxis_core.errors import ErrorCode
from praxis_core.lifecycle import AutostartNode
from praxis_core.parameters import declare
from praxis_core.process import run
from praxis_interfaces.msg import Command, ObservationAck
from praxis_interfaces.srv import ListTasks, RenderCamera, ResetEpisode
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger

from praxis_sim import messages
from praxis_sim.platform import PlatformError, PlatformOptions
from praxis_sim.publishing import ObservationPublisher
from praxis_sim.simulation import Simulation
from praxis_sim.simulator_parameters import SimulatorParameters

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE


class SimulatorNode(AutostartNode):
    """Owns a simulation; callbacks hand everything to it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('simulator', **kwargs)
        self._settings = declare(self, SimulatorParameters)
        # Read here, so that a bad contract ends the process with its message.
        self._contract = load_contract(self._settings.value.contract)
        self._simulation: Simulation | None = None
        self._output: ObservationPublisher | None = None
        self._diagnostics: Diagnostics | None = None
        self._entities: list[tuple[Any, Any]] = []
        self._last_seq = 0

    # Transitions

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Create platform, publishers and services."""
        parameters = self._settings.value
        try:
            extra = _json_object(parameters.platform_options, 'platform_options')
            options = PlatformOptions(self._contract, parameters.render_quality, extra)
            self._output = ObservationPublisher(
                self, self._contract, parameters.frame_prefix, parameters.depth
            )
            self._command_topic = self.resolve_topic_name(self._contract.deployment.topics.command)
            self._simulation = Simulation(
                parameters,
                options,
                self._output,
                intruders=self._intruders,
                logger=self.get_logger(),
                # Time goes on over cleanup and configure.
                last_seq=self._last_seq,
            )
        except (PlatformError, ValueError) as error:
            self.get_logger().error(str(error))
            self._release()
            return FAILURE
        self._connect()
        return SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Begin the first episode and let time run."""
        parameters = self._settings.value
        try:
            if self._simulation.frame is None:
                task = parameters.task or self._simulation.tasks()[0].task_id
                self._simulation.reset(task, parameters.seed, parameters.init_state, {})
        except PlatformError as error:
            self.get_logger().error(str(error))
            return FAILURE
        self._simulation.start()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop time; the scene stays."""
        self._simulation.pause()
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
        lockstep = self._settings.value.stepping == 'lockstep'
        # A lockstep reader keeps every command: one that is lost would stall the simulation.
        depth = qos.COMMAND_PUBLISH if lockstep else qos.COMMAND_ROBOT
        subscriptions = [
            self.create_subscription(Command, topics.command, self._simulation.command, depth),
            self.create_subscription(
                ObservationAck,
                topics.observation_ack,
                self._simulation.acknowledge,
                qos.LOCKSTEP_SUBSCRIBE,
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
        self._diagnostics = Diagnostics(self, f'simulator:{self._settings.value.platform}')
        self._diagnostics.watch(self._simulation.steps)
        self._diagnostics.add(
            'simulation', lambda: self._simulation.report(self.state_label), patience=START_S
        )

    def _release(self) -> None:
        for destroy, entity in self._entities:
            destroy(entity)
        self._entities = []
        if self._diagnostics is not None:
            self._diagnostics.close()
            self._diagnostics = None
        if self._simulation is not None:
            self._simulation.close()
            self._last_seq = self._simulation.last_seq
            self._simulation = None
        if self._output is not None:
            self._output.destroy()
            self._output = None

    def _intruders(self) -> str:
        count = self.count_publishers(self._command_topic)
        return f'{count} publishers of {self._command_topic}' if count > 1 else ''

    def _on_reset(
        self, request: ResetEpisode.Request, response: ResetEpisode.Response
    ) -> ResetEpisode.Response:
        try:
            self._require_active()
            options = _json_object(request.options, 'options')
            frame = self._simulation.reset(
                request.task_id, request.seed, request.init_state, options
            )
        except _RefusedError as error:
            response.error_code, response.error_msg = error.code, str(error)
        except (PlatformError, ValueError) as error:
            unknown = str(error).startswith('unknown task')
            response.error_code = ErrorCode.TASK_UNKNOWN if unknown else ErrorCode.RESET_FAILED
            response.error_msg = str(error)
        except Exception as error:
            self._simulation.fail(error)
            response.error_code = ErrorCode.PLATFORM_LOST
            response.error_msg = self._simulation.failure
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
        reset = ResetEpisode.Request(seed=self._simulation.seed + 1)
        result = self._on_reset(reset, ResetEpisode.Response())
        response.success = result.success
        response.message = result.error_msg or f'{result.task_id}, seed {self._simulation.seed}'
        return response

    def _on_list_tasks(
        self, request: ListTasks.Request, response: ListTasks.Response
    ) -> ListTasks.Response:
        tasks = self._simulation.tasks()
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
            if self._simulation.frame is None:
                raise _RefusedError(ErrorCode.NOT_ACTIVE, 'no episode has begun')
            if request.camera not in self._contract.interface.cameras:
                known = ', '.join(self._contract.interface.cameras)
                raise _RefusedError(
                    ErrorCode.CAMERA_UNKNOWN, f'unknown camera {request.camera!r}; known: {known}'
                )
            self._render(request, response)
        except _RefusedError as error:
            code, response.error_msg = error.code, str(error)
        except Exception as error:
            code, response.error_msg = ErrorCode.RENDER_FAILED, str(error)
        response.error_code = int(code)
        return response

    def _require_active(self) -> None:
        if not self.is_active:
            raise _RefusedError(ErrorCode.NOT_ACTIVE, f'the simulator is {self.state_label}')

    def _render(self, request: RenderCamera.Request, response: RenderCamera.Response) -> None:
        shape = self._contract.interface.cameras[request.camera]
        frame, rendering = self._simulation.render(
            request.camera,
            request.width or shape.width,
            request.height or shape.height,
            rgb=request.rgb,
            depth=request.depth,
            segmentation=request.segmentation,
        )
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
