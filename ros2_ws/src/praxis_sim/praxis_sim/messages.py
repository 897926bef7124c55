# SPDX-License-Identifier: Apache-2.0
"""ROS messages from what a platform reports. Needs message types, no node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Pose as PoseMsg
from geometry_msgs.msg import PoseStamped, TransformStamped
from praxis_core.images import fill_image
from praxis_interfaces.msg import PrivilegedState, StateVector, TaskInfo, TaskStatus
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Header
from visualization_msgs.msg import Marker as MarkerMsg
from visualization_msgs.msg import MarkerArray

from praxis_sim.loop import Frame
from praxis_sim.platform import CameraModel, Marker, Observation, Pose, Task

_SHAPES = {
    'box': MarkerMsg.CUBE,
    'sphere': MarkerMsg.SPHERE,
    'cylinder': MarkerMsg.CYLINDER,
}


def time_message(stamp_ns: int) -> Time:
    """Convert nanoseconds."""
    return Time(sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)


def pose_message(pose: Pose) -> PoseMsg:
    """Convert a pose; the quaternion is x y z w in both."""
    message = PoseMsg()
    position, orientation = message.position, message.orientation
    position.x, position.y, position.z = (float(value) for value in pose.position)
    orientation.x, orientation.y, orientation.z, orientation.w = (
        float(value) for value in pose.quaternion
    )
    return message


def transform_message(header: Header, child: str, pose: Pose) -> TransformStamped:
    """Make the transform from ``header.frame_id`` to ``child``."""
    message = TransformStamped(header=header, child_frame_id=child)
    shift, rotation = message.transform.translation, message.transform.rotation
    shift.x, shift.y, shift.z = (float(value) for value in pose.position)
    rotation.x, rotation.y, rotation.z, rotation.w = (float(value) for value in pose.quaternion)
    return message


def pose_stamped(header: Header, pose: Pose) -> PoseStamped:
    """Add a header to a pose."""
    return PoseStamped(header=header, pose=pose_message(pose))


def relative_pose(parent: Pose, child: Pose) -> Pose:
    """Pose of ``child`` in the frame of ``parent``, both given in the world."""
    conjugate = parent.quaternion * (-1, -1, -1, 1)
    return Pose(
        _rotate(conjugate, child.position - parent.position),
        _multiply(conjugate, child.quaternion),
    )


def joint_state(header: Header, observation: Observation) -> JointState:
    """Joint positions and velocities by name."""
    return JointState(
        header=header,
        name=list(observation.joint_names),
        position=observation.joint_positions.tolist(),
        velocity=observation.joint_velocities.tolist(),
    )


def state_vector(header: Header, frame: Frame, interface_hash: str) -> StateVector:
    """State in contract order."""
    return StateVector(
        header=header,
        observation_seq=frame.seq,
        episode_uuid=frame.episode_uuid,
        interface_hash=interface_hash,
        values=frame.observation.state.tolist(),
        cameras=list(frame.renderings),
    )


def task_status(header: Header, frame: Frame) -> TaskStatus:
    """Verdict of the platform's own check."""
    observation = frame.observation
    return TaskStatus(
        header=header,
        source=TaskStatus.SOURCE_SIMULATOR,
        episode_uuid=frame.episode_uuid,
        task_id=frame.task.task_id,
        instruction=frame.task.instruction,
        observation_seq=frame.seq,
        success=bool(observation.success),
        terminated=bool(observation.terminated),
        truncated=frame.truncated,
        reward=float(observation.reward),
        progress=float(observation.progress),
        step=frame.step,
    )


def privileged_state(header: Header, frame: Frame, poses: Mapping[str, Pose]) -> PrivilegedState:
    """Ground truth for the scripted teacher."""
    return PrivilegedState(
        header=header,
        observation_seq=frame.seq,
        names=list(poses),
        poses=[pose_message(pose) for pose in poses.values()],
    )


def image(header: Header, pixels: np.ndarray, encoding: str) -> Image:
    """Wrap pixels; the array is copied once."""
    message = fill_image(Image(), pixels, encoding)
    message.header = header
    return message


def camera_info(header: Header, camera: CameraModel) -> CameraInfo:
    """Intrinsics of an undistorted pinhole camera."""
    k = camera.intrinsics
    return CameraInfo(
        header=header,
        width=camera.width,
        height=camera.height,
        distortion_model='plumb_bob',
        d=[0.0] * 5,
        k=k.reshape(9).tolist(),
        r=np.eye(3).reshape(9).tolist(),
        p=np.column_stack([k, np.zeros(3)]).reshape(12).tolist(),
    )


def task_info(task: Task) -> TaskInfo:
    """Describe a task."""
    return TaskInfo(
        task_id=task.task_id,
        suite=task.suite,
        instruction=task.instruction,
        init_states=task.init_states,
        max_steps=task.max_steps,
    )


def marker_array(header: Header, markers: Sequence[Marker]) -> MarkerArray:
    """Scene objects for rviz, by name as namespace; what was there before is removed."""
    messages: list[Any] = [MarkerMsg(header=header, action=MarkerMsg.DELETEALL)]
    for marker in markers:
        message = MarkerMsg(header=header, ns=marker.name, type=_SHAPES[marker.shape])
        message.pose = pose_message(marker.pose)
        message.scale.x, message.scale.y, message.scale.z = (float(v) for v in marker.size)
        colour = message.color
        colour.r, colour.g, colour.b, colour.a = (float(v) for v in marker.rgba)
        messages.append(message)
    return MarkerArray(markers=messages)


def _multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return np.array(
        [
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
            aw * bw - ax * bx - ay * by - az * bz,
        ]
    )


def _rotate(quaternion: np.ndarray, vector: np.ndarray) -> np.ndarray:
    turned = _multiply(_multiply(quaternion, np.append(vector, 0.0)), quaternion * (-1, -1, -1, 1))
    return turned[:3]
