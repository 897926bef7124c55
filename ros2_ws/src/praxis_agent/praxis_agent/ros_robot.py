# SPDX-License-Identifier: Apache-2.0
"""The robot of the tools on the graph: topics, services and actions of one namespace.

Calls block the worker thread they are made on, never the executor. Subscribed are only the
streams of the robot itself; neither the verdict on the task nor ground truth of the simulator
is among them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from action_msgs.msg import GoalStatus
from geometry_msgs.msg import PoseStamped
from praxis_core import qos
from praxis_core.contract import Contract
from praxis_core.errors import ErrorCode
from praxis_core.images import image_array, rgb_array
from praxis_core.waiting import on_executor
from praxis_interfaces import action as actions
from praxis_interfaces.msg import StateVector
from praxis_interfaces.srv import BackProject, Segment
from rclpy.action import ActionClient
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from rclpy.task import Future
from sensor_msgs.msg import CameraInfo, Image, JointState
from tf2_msgs.msg import TFMessage

from praxis_agent.frames import FrameTree, quaternion_rotation
from praxis_agent.robot import (
    CameraMeta,
    CancelledError,
    CancelToken,
    Motion,
    Points,
    RobotError,
    RobotState,
    Segmentation,
)
from praxis_agent.robot import (
    Segment as FoundSegment,
)

PRIMITIVES = {
    'move_to': actions.MoveTo,
    'move_pose': actions.MovePose,
    'rotate_wrist': actions.RotateWrist,
    'rotate_pitch': actions.RotatePitch,
    'set_gripper': actions.SetGripper,
    'release': actions.SetGripper,
}
CANCEL_WAIT_S = 3.0
POLL_S = 0.05
STATIC_DEPTH = qos.LATCHED


class RosRobot:
    """One robot namespace. Create and close it on the executor's thread."""

    def __init__(self, node: Node, contract: Contract, lockstep: bool, timeout_s: float) -> None:
        """Subscribe and create the clients.

        Args:
            node: Owner; its executor must spin while calls are made.
            contract: Of the robot.
            lockstep: Read the state reliably, since no newer one replaces a lost one.
            timeout_s: Longest wait for a service, and for an action server to accept.
        """
        self._node = node
        self._contract = contract
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._state: StateVector | None = None
        self._pose: PoseStamped | None = None
        self._joints: JointState | None = None
        self._images: dict[str, bytes] = {}
        self._infos: dict[str, CameraInfo] = {}
        self._frames = FrameTree()
        self._group = ReentrantCallbackGroup()
        self._subscriptions: list[Any] = []
        self._arm = next(iter(contract.deployment.arms.values()))
        self._subscribe(lockstep)
        self._segment_client = node.create_client(Segment, 'segment', callback_group=self._group)
        self._back_project_client = node.create_client(
            BackProject, 'back_project', callback_group=self._group
        )
        self._primitives = {
            name: ActionClient(node, kind, name, callback_group=self._group)
            for name, kind in PRIMITIVES.items()
        }

    def _subscribe(self, lockstep: bool) -> None:
        topics = self._contract.deployment.topics
        sensor = qos.LOCKSTEP_SUBSCRIBE if lockstep else qos.SENSOR_SUBSCRIBE
        self._on(StateVector, topics.state, sensor, partial(self._keep, '_state'))
        self._on(PoseStamped, self._arm.pose_topic, sensor, partial(self._keep, '_pose'))
        self._on(JointState, topics.joint_states, sensor, partial(self._keep, '_joints'))
        for camera in self._contract.interface.cameras:
            base = f'{topics.cameras}/{camera}'
            # Kept serialized: few of them are ever looked at.
            self._on(
                Image,
                f'{base}/image_raw',
                qos.SENSOR_SUBSCRIBE,
                partial(self._keep_in, self._images, camera),
                raw=True,
            )
            self._on(
                CameraInfo,
                f'{base}/camera_info',
                qos.SENSOR_SUBSCRIBE,
                partial(self._keep_in, self._infos, camera),
            )
        self._on(TFMessage, '/tf', qos.LOCKSTEP_SUBSCRIBE, self._on_tf)
        self._on(TFMessage, '/tf_static', STATIC_DEPTH, self._on_tf)

    def _on(self, kind: Any, topic: str, profile: Any, callback: Any, raw: bool = False) -> None:
        self._subscriptions.append(
            self._node.create_subscription(
                kind, topic, callback, profile, callback_group=self._group, raw=raw
            )
        )

    def _keep(self, name: str, message: Any) -> None:
        with self._lock:
            setattr(self, name, message)

    def _keep_in(self, store: dict, key: str, message: Any) -> None:
        with self._lock:
            store[key] = message

    def _on_tf(self, message: TFMessage) -> None:
        with self._lock:
            for item in message.transforms:
                p, q = item.transform.translation, item.transform.rotation
                self._frames.set(
                    item.header.frame_id,
                    item.child_frame_id,
                    np.array([p.x, p.y, p.z]),
                    np.array([q.x, q.y, q.z, q.w]),
                )

    def close(self) -> None:
        """Destroy subscriptions and clients."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._node.destroy_client(self._segment_client)
        self._node.destroy_client(self._back_project_client)
        for client in self._primitives.values():
            client.destroy()

    # Robot

    def state(self) -> RobotState:
        """Newest observation.

        Raises:
            RobotError: None has arrived.
        """
        with self._lock:
            state, pose, joints = self._state, self._pose, self._joints
            images = dict(self._images)
        missing = [
            name
            for name, value in (('state', state), ('pose', pose), ('joint states', joints))
            if value is None
        ]
        if missing:
            raise RobotError(ErrorCode.STALE_STATE, f'no {", ".join(missing)} received yet')
        p, q = pose.pose.position, pose.pose.orientation
        rotation = quaternion_rotation(np.array([q.x, q.y, q.z, q.w]))
        if rotation is None:
            raise RobotError(ErrorCode.STALE_STATE, 'the end-effector pose is no rotation')
        by_name = dict(zip(joints.name, joints.position, strict=False))
        fingers = [abs(by_name[n]) for n in self._arm.gripper_joints if n in by_name]
        return RobotState(
            observation_seq=state.observation_seq,
            episode_uuid=state.episode_uuid,
            position=np.array([p.x, p.y, p.z]),
            yaw=float(np.arctan2(rotation[1, 0], rotation[0, 0])),
            pitch=float(np.arctan2(rotation[1, 2], -rotation[2, 2])),
            gripper_opening=float(sum(fingers)) if fingers else float('nan'),
            joints=by_name,
            cameras=tuple(self._contract.interface.cameras),
            images={
                name: rgb_array(deserialize_message(data, Image)) for name, data in images.items()
            },
        )

    def move(self, primitive: str, goal: Mapping[str, Any], cancel: CancelToken) -> Motion:
        """Carry out one primitive; a cancelled run cancels the goal and waits for its end.

        Raises:
            RobotError: No server, the goal was rejected, or its fate is unknown.
            CancelledError: Cancelled before the goal was accepted, or it did not end in time.
        """
        client = self._primitives[primitive]
        self._ready(client.server_is_ready, f'action {primitive}', cancel)
        message = PRIMITIVES[primitive].Goal(**goal)
        handle = self._wait(
            self._start(lambda: client.send_goal_async(message)),
            self._timeout_s,
            f'{primitive} to accept the goal',
            alive=client.server_is_ready,
        )
        if not handle.accepted:
            raise RobotError(ErrorCode.BUSY, f'{primitive} rejected the goal: busy or inactive')
        outcome = self._start(handle.get_result_async)
        finished = _event(outcome)
        while not finished.wait(POLL_S):
            if cancel.cancelled:
                self._cancel(primitive, handle, finished)
                break
            if not client.server_is_ready():
                raise RobotError(ErrorCode.TIMEOUT, f'the server of {primitive} is gone')
        if not outcome.done():
            raise CancelledError(f'{cancel.reason}; {primitive} did not end in time')
        response = outcome.result()
        result = response.result
        cancelled = response.status == GoalStatus.STATUS_CANCELED
        return Motion(
            error_code=result.error_code,
            error_msg=result.error_msg,
            termination_reason='cancelled' if cancelled else result.termination_reason,
            reached=result.reached,
            steps=result.steps,
            position=np.asarray(result.final_position, dtype=float),
            error=result.final_error,
            gripper_opening=result.gripper_opening,
        )

    def _cancel(self, primitive: str, handle: Any, finished: threading.Event) -> None:
        """Ask for the end and wait a little for it; a server that is gone gives none."""
        with contextlib.suppress(RobotError):
            self._wait(self._start(handle.cancel_goal_async), CANCEL_WAIT_S, primitive)
        finished.wait(CANCEL_WAIT_S)

    def segment(
        self,
        camera: str,
        prompt: str,
        point: tuple[int, int] | None,
        size: int,
        min_score: float,
        cancel: CancelToken,
    ) -> Segmentation:
        """Find objects by the service ``segment``.

        Raises:
            RobotError: The service fails; finding nothing is no failure.
        """
        width, height = self._size(camera, size)
        request = Segment.Request(
            prompt=prompt,
            point=[] if point is None else list(point),
            camera=camera,
            width=width,
            height=height,
            min_score=min_score,
        )
        answer = self._call(self._segment_client, request, 'segment', cancel)
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.NO_DETECTION):
            raise RobotError(answer.error_code, answer.error_msg)
        segments = [
            FoundSegment(
                label=item.label,
                score=item.score,
                box=tuple(int(v) for v in item.box),
                centroid=tuple(float(v) for v in item.centroid),
                area=item.area,
                mask=image_array(item.mask) > 0,
            )
            for item in answer.instances
        ]
        return Segmentation(
            answer.backend,
            answer.observation_seq,
            segments,
            answer.reason,
            tuple(answer.known_labels),
        )

    def back_project(
        self,
        camera: str,
        size: int,
        pixels: np.ndarray,
        z_min: float,
        z_max: float,
        cancel: CancelToken,
    ) -> Points:
        """Points of pixels by the service ``back_project``.

        Raises:
            RobotError: The service fails; pixels without depth are no failure.
        """
        width, height = self._size(camera, size)
        request = BackProject.Request(
            camera=camera,
            width=width,
            height=height,
            rows=pixels[:, 0].astype(np.int32),
            cols=pixels[:, 1].astype(np.int32),
            z_min=z_min,
            z_max=z_max,
        )
        answer = self._call(self._back_project_client, request, 'back_project', cancel)
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.NO_DEPTH):
            raise RobotError(answer.error_code, answer.error_msg)
        return Points(
            backend=answer.backend,
            observation_seq=answer.observation_seq,
            frame_id=answer.frame_id,
            points=np.array([[p.x, p.y, p.z] for p in answer.points]).reshape(-1, 3),
            valid=answer.valid,
            centroid=_xyz(answer.centroid),
            minimum=_xyz(answer.minimum),
            maximum=_xyz(answer.maximum),
        )

    def camera_meta(self, camera: str) -> CameraMeta:
        """Calibration from camera_info and TF.

        Raises:
            RobotError: Unknown camera, or no camera_info has arrived.
        """
        self._size(camera, 0)
        with self._lock:
            info = self._infos.get(camera)
            if info is None:
                raise RobotError(ErrorCode.STALE_STATE, f'no camera_info of {camera} yet')
            frame = info.header.frame_id
            pose = self._frames.lookup(frame, self._contract.deployment.base_frame)
        k = np.array(info.k, dtype=float).reshape(3, 3)
        return CameraMeta(info.width, info.height, k, frame, pose)

    def _size(self, camera: str, size: int) -> tuple[int, int]:
        cameras = self._contract.interface.cameras
        if camera not in cameras:
            raise RobotError(
                ErrorCode.CAMERA_UNKNOWN, f'no camera {camera!r}; there are {", ".join(cameras)}'
            )
        spec = cameras[camera]
        if not size:
            return spec.width, spec.height
        return round(size * spec.width / spec.height), size

    # Waiting on a worker thread

    def _call(self, client: Any, request: Any, name: str, cancel: CancelToken) -> Any:
        self._ready(client.service_is_ready, f'service {name}', cancel)
        return self._wait(
            self._start(lambda: client.call_async(request)),
            self._timeout_s,
            name,
            cancel,
            client.service_is_ready,
        )

    def _ready(self, ready: Any, name: str, cancel: CancelToken) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not ready():
            if cancel.wait(POLL_S):
                raise CancelledError(cancel.reason)
            if time.monotonic() > deadline:
                raise RobotError(ErrorCode.TIMEOUT, f'{name} is not there')

    def _start(self, call: Callable[[], Future]) -> Future:
        """Make an asynchronous call on the executor's thread, and give its future."""
        try:
            return on_executor(self._node, call, self._timeout_s)
        except TimeoutError as error:
            raise RobotError(ErrorCode.TIMEOUT, str(error)) from None

    def _wait(
        self,
        future: Future,
        timeout: float,
        name: str,
        cancel: CancelToken | None = None,
        alive: Callable[[], bool] = lambda: True,
    ) -> Any:
        finished = _event(future)
        deadline = time.monotonic() + timeout
        while not finished.wait(POLL_S):
            if cancel is not None and cancel.cancelled:
                future.cancel()
                raise CancelledError(cancel.reason)
            if time.monotonic() > deadline:
                future.cancel()
                raise RobotError(ErrorCode.TIMEOUT, f'no answer of {name} within {timeout:g} s')
            if not alive() and not finished.wait(POLL_S):
                future.cancel()
                raise RobotError(ErrorCode.TIMEOUT, f'no answer of {name}: its node is gone')
        return future.result()


def _event(future: Future) -> threading.Event:
    event = threading.Event()
    future.add_done_callback(lambda _: event.set())
    return event


def _xyz(point: Any) -> np.ndarray:
    return np.array([point.x, point.y, point.z])
