# SPDX-License-Identifier: Apache-2.0
"""Raw subscriptions of the recorder, relaxed where a publisher offers less than is asked."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from praxis_core import qos
from praxis_data.bag import BagTopic, qos_profile
from rclpy._rclpy_pybind11 import InvalidHandle
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy

from praxis_hil.image_encoding import ImageEncoder
from praxis_hil.topics import Delivery, Kind, RecordedTopic

_MOST_AT_ONCE = 256
_PROFILES = {
    Delivery.EVERY: qos.LOCKSTEP_SUBSCRIBE,
    Delivery.COMMAND: qos.COMMAND_RECORD,
    Delivery.LATCHED: qos.LATCHED,
    Delivery.EVENT: qos.EVENT,
}


def message_class(typename: str) -> type:
    """Import the class of `package/msg/Name`.

    Raises:
        ValueError: It is not installed.
    """
    package, _, name = typename.split('/')
    try:
        return getattr(importlib.import_module(f'{package}.msg'), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f'message type {typename} is not installed: {error}') from error


def bag_name(node: Node, topic: RecordedTopic) -> str:
    """Name of a topic in the bag: under the node's namespace, whatever it is remapped to."""
    if topic.name.startswith('/'):
        return node.resolve_topic_name(topic.name)
    namespace = node.get_namespace().rstrip('/')
    return f'{namespace}/{topic.name}'


def bag_topics(
    node: Node, topics: Iterable[RecordedTopic], encoder: ImageEncoder
) -> list[tuple[RecordedTopic, BagTopic]]:
    """Pair each topic with what the bag declares for it."""
    pairs = []
    for topic in topics:
        name, typename = bag_name(node, topic), topic.typename
        if topic.kind is Kind.IMAGE:
            name, typename = encoder.topic(name), encoder.typename
        profile = qos_profile(
            transient_local=topic.delivery is Delivery.LATCHED,
            depth=_depth(topic),
        )
        pairs.append((topic, BagTopic(name, typename, profile).resolved()))
    return pairs


def _depth(topic: RecordedTopic) -> int:
    return max(_PROFILES[topic.delivery].depth, topic.remembered)


def _profile(topic: RecordedTopic) -> QoSProfile:
    profile = _PROFILES[topic.delivery]
    return QoSProfile(
        depth=_depth(topic),
        history=profile.history,
        reliability=profile.reliability,
        durability=profile.durability,
    )


class Subscriptions:
    """Subscribe to topics as serialized bytes, and hand them on in the order of their reception.

    An executor takes one message of each topic in turn. After a pause that would tear a fast
    topic and a slow one apart in time; so each call empties all queues and sorts what it found.

    Args:
        node: That subscribes.
        topics: To subscribe to.
        take: Called with topic name, bytes and time of reception, ns of the system clock, 0 where
            the middleware does not tell.
    """

    def __init__(
        self,
        node: Node,
        topics: Iterable[RecordedTopic],
        take: Callable[[str, bytes, int], None],
    ) -> None:
        self._node = node
        self._take = take
        self._profiles: dict[str, QoSProfile] = {}
        self._topics = {topic.name: topic for topic in topics}
        self._subscriptions: dict[str, Any] = {}
        for topic in self._topics.values():
            self._profiles[topic.name] = _profile(topic)
            self._subscribe(topic)

    def _subscribe(self, topic: RecordedTopic) -> None:
        name = topic.name
        self._subscriptions[name] = self._node.create_subscription(
            message_class(topic.typename),
            name,
            lambda data, info: self._drain(name, data, info),
            self._profiles[name],
            raw=True,
            event_callbacks=SubscriptionEventCallbacks(
                incompatible_qos=lambda event: self._relax(topic, event.last_policy_kind)
            ),
        )

    def drain(self) -> None:
        """Hand on everything that has been received so far."""
        self._hand_on([])

    def _drain(self, name: str, data: bytes, info: Any) -> None:
        self._hand_on([(info['received_timestamp'], name, data)])

    def _hand_on(self, found: list[tuple[int, str, bytes]]) -> None:
        for other, subscription in self._subscriptions.items():
            for _ in range(_MOST_AT_ONCE):
                try:
                    with subscription.handle:
                        taken = subscription.handle.take_message(subscription.msg_type, True)
                except InvalidHandle:
                    break
                if taken is None:
                    break
                found.append((taken[1]['received_timestamp'], other, taken[0]))
        if len(found) > 1:
            # Stable: equal or unknown times keep the order of each topic.
            found.sort(key=lambda entry: entry[0])
        for received_ns, other, message in found:
            self._take(other, message, received_ns)

    def _relax(self, topic: RecordedTopic, policy: int) -> None:
        profile = self._profiles[topic.name]
        if policy == QoSPolicyKind.RELIABILITY:
            profile.reliability = ReliabilityPolicy.BEST_EFFORT
            what = 'best effort: samples can be lost'
        elif policy == QoSPolicyKind.DURABILITY:
            profile.durability = DurabilityPolicy.VOLATILE
            what = 'volatile: what was published before is lost'
        else:
            return
        self._node.get_logger().warning(f'{topic.name}: a publisher offers {what}')
        self._node.destroy_subscription(self._subscriptions.pop(topic.name))
        self._subscribe(topic)

    def close(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()
