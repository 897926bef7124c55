# SPDX-License-Identifier: Apache-2.0
"""What the recorder subscribes to, by contract."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from praxis_core.contract import Contract

SOURCES = ('policy', 'teleop', 'primitive', 'demonstrator')


class Kind(Enum):
    """How the recorder treats a topic."""

    STATE = 'state'
    IMAGE = 'image'
    OTHER = 'other'


class Delivery(Enum):
    """Which QoS profile a topic is read with."""

    EVERY = 'every'
    COMMAND = 'command'
    LATCHED = 'latched'
    EVENT = 'event'


@dataclass(frozen=True)
class RecordedTopic:
    """One subscription.

    Attributes:
        name: Relative or absolute topic name, as the contract gives it.
        typename: For example `sensor_msgs/msg/Image`.
        kind: State and images drive acknowledgement; images are encoded.
        delivery: QoS to read with.
        camera: Contract name, for images of a camera.
        stamped: Its header stamp counts for the log time.
        sequence: `seq` is contiguous per publisher; gaps are counted as drops.
        remembered: Messages that a bag begins with when they came before it, 0 for none.
    """

    name: str
    typename: str
    kind: Kind = Kind.OTHER
    delivery: Delivery = Delivery.EVENT
    camera: str = ''
    stamped: bool = False
    sequence: bool = False
    remembered: int = 0


def recorded_topics(
    contract: Contract,
    *,
    depth: bool = False,
    extra: Iterable[str] = (),
) -> list[RecordedTopic]:
    """List the topics of a recording.

    `privileged_state` is never among them, nor the clock, which `ros2 bag play --clock` makes.

    Args:
        contract: Of the robot.
        depth: Record the depth images of cameras that have them.
        extra: Further topics, each `NAME TYPE`, for example
            `gripper/force geometry_msgs/msg/WrenchStamped`.

    Raises:
        ValueError: An extra topic is malformed, listed twice, or privileged.
    """
    topics, interfaces = contract.deployment.topics, 'praxis_interfaces/msg/'
    every = Delivery.EVERY
    result = [
        RecordedTopic(
            topics.state,
            f'{interfaces}StateVector',
            Kind.STATE,
            Delivery.COMMAND,
            stamped=True,
            remembered=1,
        ),
        RecordedTopic(
            topics.command,
            f'{interfaces}Command',
            delivery=Delivery.COMMAND,
            stamped=True,
            sequence=True,
            remembered=1,
        ),
    ]
    for camera, shape in contract.interface.cameras.items():
        result.append(
            RecordedTopic(
                contract.image_topic(camera),
                'sensor_msgs/msg/Image',
                Kind.IMAGE,
                every,
                camera,
                stamped=True,
                remembered=1,
            )
        )
        result.append(
            RecordedTopic(
                contract.camera_info_topic(camera),
                'sensor_msgs/msg/CameraInfo',
                delivery=every,
                remembered=1,
            )
        )
        if depth and shape.depth:
            result.append(
                RecordedTopic(
                    contract.depth_topic(camera), 'sensor_msgs/msg/Image', delivery=every
                )
            )
    result += [
        RecordedTopic(
            contract.request_topic(source), f'{interfaces}Command', delivery=Delivery.COMMAND
        )
        for source in SOURCES
    ]
    result += [
        RecordedTopic(arm.pose_topic, 'geometry_msgs/msg/PoseStamped', delivery=every)
        for arm in contract.deployment.arms.values()
    ]
    latched = Delivery.LATCHED
    result += [
        RecordedTopic(topics.joint_states, 'sensor_msgs/msg/JointState', delivery=every),
        RecordedTopic(
            topics.control_status, f'{interfaces}ControlStatus', delivery=latched, remembered=1
        ),
        RecordedTopic(topics.task_status, f'{interfaces}TaskStatus', delivery=every, remembered=1),
        RecordedTopic(topics.action_chunk, f'{interfaces}ActionChunk'),
        RecordedTopic(
            topics.robot_description, 'std_msgs/msg/String', delivery=latched, remembered=1
        ),
        RecordedTopic(
            topics.scene_markers,
            'visualization_msgs/msg/MarkerArray',
            delivery=latched,
            remembered=1,
        ),
        RecordedTopic('/tf', 'tf2_msgs/msg/TFMessage', delivery=every),
        RecordedTopic('/tf_static', 'tf2_msgs/msg/TFMessage', delivery=latched, remembered=100),
    ]
    for text in extra:
        parts = text.split()
        if len(parts) != 2 or parts[1].count('/') not in (1, 2):
            raise ValueError(f'extra topic {text!r} is not "NAME package/msg/Type"')
        package, *_, name = parts[1].split('/')
        result.append(RecordedTopic(parts[0], f'{package}/msg/{name}'))
    seen = set()
    for topic in result:
        if topic.name in seen:
            raise ValueError(f'topic {topic.name!r} is listed twice')
        secret = topic.name.rpartition('/')[2] == topics.privileged_state.rpartition('/')[2]
        if secret or topic.typename.endswith('/PrivilegedState'):
            raise ValueError(f'topic {topic.name!r} is privileged and never recorded')
        seen.add(topic.name)
    return result
