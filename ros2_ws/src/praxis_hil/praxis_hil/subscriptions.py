# SPDX-License-Identifier: Apache-2.0
"""Raw subscriptions of the recorder, relaxed where a publisher offers less than is asked."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

from praxis_core import qos
from praxis_data.bag import BagTopic, qos_profile
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from praxis_hil.image_encoding import ImageEncoder
from praxis_hil.topics import Delivery, Kind, RecordedTopic

POLL_S = 0.002
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


class _Unattended(CallbackGroup):
    """Keeps subscriptions out of the executor's wait set."""

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        pass


class Subscriptions:
    """Read topics as serialized bytes, on a thread, in the order of their reception.

    An executor takes one message of each topic in turn, so that after a pause a fast topic and a
    slow one are torn apart in time, and it spends a millisecond of CPU on each. This thread
    empties all queues every `POLL_S` and sorts what it found.

    Args:
        node: That subscribes.
        topics: To subscribe to.
        take: Called under `lock` with topic name, bytes and time of reception, ns of the system
            clock, 0 where the middleware does not tell.

    Attributes:
        lock: Held while messages are handed on.
    """

    def __init__(
        self,
        node: Node,
        topics: Iterable[RecordedTopic],
        take: Callable[[str, bytes, int], None],
    ) -> None:
        self._node = node
        self._take = take
        self._group = _Unattended()
        self._profiles: dict[str, QoSProfile] = {}
        self._topics = {topic.name: topic for topic in topics}
        self._subscriptions: dict[str, Any] = {}
        self.lock = threading.RLock()
        for topic in self._topics.values():
            self._profiles[topic.name] = _profile(topic)
            self._subscribe(topic)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name='subscriptions', daemon=True)
        self._thread.start()

    def _subscribe(self, topic: RecordedTopic) -> None:
        self._subscriptions[topic.name] = self._node.create_subscription(
            message_class(topic.typename),
            topic.name,
            lambda data: None,
            self._profiles[topic.name],
            raw=True,
            callback_group=self._group,
        )

    def _poll(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                self.drain()
            except Exception as error:
                self._node.get_logger().error(
                    f'message left out: {error!r}', throttle_duration_sec=5.0
                )

    def drain(self) -> None:
        """Hand on everything that has been received so far."""
        with self.lock:
            found = []
            for name, subscription in self._subscriptions.items():
                handle, kind = subscription.handle, subscription.msg_type
                for _ in range(_MOST_AT_ONCE):
                    with handle:
                        taken = handle.take_message(kind, True)
                    if taken is None:
                        break
                    found.append((taken[1]['received_timestamp'], name, taken[0]))
            if len(found) > 1:
                # Stable: equal or unknown times keep the order of each topic.
                found.sort(key=lambda entry: entry[0])
            for received_ns, name, data in found:
                self._take(name, data, received_ns)

    def adapt(self) -> None:
        """Ask for less where a publisher offers less, as `ros2 bag record` does."""
        for name, topic in self._topics.items():
            profile = self._profiles[name]
            offers = [p.qos_profile for p in self._node.get_publishers_info_by_topic(name)]
            relaxed = ''
            best_effort = ReliabilityPolicy.BEST_EFFORT
            if profile.reliability != best_effort and any(
                offer.reliability == best_effort for offer in offers
            ):
                profile.reliability = best_effort
                relaxed = 'best effort: samples can be lost'
            volatile = DurabilityPolicy.VOLATILE
            if profile.durability != volatile and any(
                offer.durability == volatile for offer in offers
            ):
                profile.durability = volatile
                relaxed = 'volatile: what was published before is lost'
            if relaxed:
                self._node.get_logger().warning(f'{name}: a publisher offers {relaxed}')
                with self.lock:
                    self._node.destroy_subscription(self._subscriptions.pop(name))
                    self._subscribe(topic)

    def close(self) -> None:
        """Hand on what was received, and unsubscribe."""
        self._stop.set()
        self._thread.join()
        self.drain()
        for subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()
