# SPDX-License-Identifier: Apache-2.0
"""Publishers of the simulator: one control period as messages, in the order readers rely on."""

from __future__ import annotations

from typing import Any

from geometry_msgs.msg import PoseStamped
from praxis_core import qos
from praxis_interfaces.msg import PrivilegedState, StateVector, TaskStatus
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Header, String
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import MarkerArray

from praxis_sim import messages
from praxis_sim.loop import Frame
from praxis_sim.platform import Platform

WORLD = 'world'
_MARKER_PERIOD_NS = 200_000_000


class ObservationPublisher:
    """Publishes frames; everything of one observation has one stamp, the state comes last.

    Args:
        node: Its namespace and remappings apply.
        contract: ``praxis_core.contract.Contract``.
        frame_prefix: In front of every frame but ``world``.
        depth: Publish depth of the cameras that have it even if nobody subscribes.
    """

    def __init__(self, node: Node, contract: Any, frame_prefix: str, depth: bool) -> None:
        self._node, self._contract = node, contract
        self._prefix, self._depth_always = frame_prefix, depth
        interface, deployment = contract.interface, contract.deployment
        topics = deployment.topics

        def advertise(kind, name, profile=qos.SENSOR_PUBLISH):
            return node.create_publisher(kind, name, profile)

        self._clock = advertise(Clock, '/clock')
        self._joints = advertise(JointState, topics.joint_states)
        self._eef = {
            name: advertise(PoseStamped, arm.pose_topic) for name, arm in deployment.arms.items()
        }
        self._tf = advertise(TFMessage, '/tf', qos.EVENT)
        self._tf_static = advertise(TFMessage, '/tf_static', qos.LATCHED)
        self._images, self._infos, self._depths = {}, {}, {}
        for name, shape in interface.cameras.items():
            root = f'{topics.cameras}/{name}'
            self._images[name] = advertise(Image, f'{root}/image_raw')
            self._infos[name] = advertise(CameraInfo, f'{root}/camera_info')
            if shape.depth:
                self._depths[name] = advertise(Image, f'{root}/depth/image_raw')
        self._task = advertise(TaskStatus, topics.task_status)
        self._privileged = advertise(PrivilegedState, topics.privileged_state)
        self._state = advertise(StateVector, topics.state, qos.COMMAND_PUBLISH)
        self._description = advertise(String, topics.robot_description, qos.LATCHED)
        self._markers = advertise(MarkerArray, topics.scene_markers, qos.LATCHED)
        self._markers_at = -_MARKER_PERIOD_NS
        self._camera_frames = {
            name: self._prefixed(deployment.cameras[name].frame) for name in interface.cameras
        }

    def depth_wanted(self, camera: str) -> bool:
        """Whether someone reads depth of a camera."""
        publisher = self._depths.get(camera)
        return publisher is not None and (
            self._depth_always or publisher.get_subscription_count() > 0
        )

    def readers(self) -> int:
        """Subscriptions of states and images."""
        streams = (self._state, *self._images.values(), *self._depths.values())
        return sum(publisher.get_subscription_count() for publisher in streams)

    def describe(self, platform: Platform, stamp_ns: int) -> None:
        """Publish what stays: the robot's URDF and the frames of its cameras."""
        self._description.publish(String(data=platform.robot_description()))
        stamp = messages.time_message(stamp_ns)
        links = platform.link_poses()
        transforms = []
        for name, shape in self._contract.interface.cameras.items():
            camera = platform.camera_model(name, shape.width, shape.height)
            fixed = camera.parent == WORLD or camera.parent not in links
            parent = WORLD if fixed else self._prefixed(camera.parent)
            pose = (
                camera.pose if fixed else messages.relative_pose(links[camera.parent], camera.pose)
            )
            header = Header(stamp=stamp, frame_id=parent)
            transforms.append(messages.transform_message(header, self._camera_frames[name], pose))
        self._tf_static.publish(TFMessage(transforms=transforms))

    def publish(self, frame: Frame, platform: Platform) -> None:
        """Publish one observation."""
        stamp = messages.time_message(frame.stamp_ns)
        world = Header(stamp=stamp, frame_id=WORLD)
        observation = frame.observation
        self._clock.publish(Clock(clock=stamp))
        self._joints.publish(messages.joint_state(world, observation))
        transforms = [
            messages.transform_message(world, self._prefixed(name), pose)
            for name, pose in platform.link_poses().items()
        ]
        for name, arm in self._contract.deployment.arms.items():
            pose = observation.eef[name]
            self._eef[name].publish(messages.pose_stamped(world, pose))
            transforms.append(
                messages.transform_message(world, self._prefixed(arm.eef_frame), pose)
            )
        self._tf.publish(TFMessage(transforms=transforms))
        for name, rendering in frame.renderings.items():
            header = Header(stamp=stamp, frame_id=self._camera_frames[name])
            self._images[name].publish(messages.image(header, rendering.rgb, 'rgb8'))
            if rendering.depth is not None:
                self._depths[name].publish(messages.image(header, rendering.depth, '32FC1'))
            self._infos[name].publish(messages.camera_info(header, rendering.camera))
        self._task.publish(messages.task_status(world, frame))
        if self._privileged.get_subscription_count():
            self._privileged.publish(
                messages.privileged_state(world, frame, platform.privileged())
            )
        if frame.step == 0 or (
            frame.stamp_ns - self._markers_at >= _MARKER_PERIOD_NS
            and self._markers.get_subscription_count()
        ):
            self._markers_at = frame.stamp_ns
            self._markers.publish(messages.marker_array(world, platform.markers()))
        state_header = Header(
            stamp=stamp, frame_id=self._framed(self._contract.deployment.base_frame)
        )
        self._state.publish(
            messages.state_vector(state_header, frame, self._contract.interface_hash)
        )

    def destroy(self) -> None:
        """Remove every publisher from the node."""
        for publisher in (
            self._clock, self._joints, *self._eef.values(), self._tf, self._tf_static,
            *self._images.values(), *self._infos.values(), *self._depths.values(), self._task,
            self._privileged, self._state, self._description, self._markers,
        ):  # fmt: skip
            self._node.destroy_publisher(publisher)

    def render_headers(self, frame: Frame, camera: str) -> tuple[Header, Header]:
        """Headers of a view on demand: in the camera's optical frame, and in the world."""
        stamp = messages.time_message(frame.stamp_ns)
        return (
            Header(stamp=stamp, frame_id=self._camera_frames[camera]),
            Header(stamp=stamp, frame_id=WORLD),
        )

    def _prefixed(self, frame: str) -> str:
        return self._prefix + frame

    def _framed(self, frame: str) -> str:
        return frame if frame == WORLD else self._prefixed(frame)
