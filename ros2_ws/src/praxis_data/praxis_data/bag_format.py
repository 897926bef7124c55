# SPDX-License-Identifier: Apache-2.0
"""What writer and reader of rosbag2 bags share: topics and names."""

from __future__ import annotations

from dataclasses import dataclass, field

from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2.metadata import dump_qos_v8

from praxis_data import messages

# The latest that `ros2 bag` of Humble reads as well: version 9 writes QoS profiles as a list.
METADATA_VERSION = 8
METADATA_FILE = 'metadata.yaml'
SUFFIX = {'mcap': '.mcap', 'sqlite3': '.db3'}
# A record of this name, written first, carries the custom data through a crash.
MCAP_METADATA = 'praxis'
ROSBAG2_METADATA = 'rosbag2'
DISTRO = 'jazzy'


class BagError(ValueError):
    """A bag cannot be written or read; the message names the path and the reason."""


def qos_profile(reliable: bool = True, transient_local: bool = False, depth: int = 10) -> str:
    """Return one offered QoS profile as rosbag2 stores it."""
    none = QosTime(0, 0)
    return dump_qos_v8(
        [
            Qos(
                QosHistory.KEEP_LAST,
                depth,
                QosReliability.RELIABLE if reliable else QosReliability.BEST_EFFORT,
                QosDurability.TRANSIENT_LOCAL if transient_local else QosDurability.VOLATILE,
                none,
                none,
                QosLiveliness.AUTOMATIC,
                none,
                False,
            )
        ]
    )


@dataclass(frozen=True)
class BagTopic:
    """One recorded topic.

    Attributes:
        name: Absolute topic name.
        typename: For example `sensor_msgs/msg/Image`.
        qos: Offered QoS profiles as rosbag2 stores them; see `qos_profile`.
        definition: ros2msg text with dependencies; looked up on this machine when empty.
        type_hash: RIHS01 hash of the type; computed when empty and the type is known.
    """

    name: str
    typename: str
    qos: str = field(default_factory=qos_profile)
    definition: str = ''
    type_hash: str = ''

    def resolved(self) -> BagTopic:
        """Return the topic with definition and type hash filled in as far as they are known."""
        definition, type_hash = self.definition, self.type_hash
        if definition and type_hash:
            return self
        try:
            definition = definition or messages.definition(self.typename)
            if not type_hash:
                embedded = {self.typename: self.definition} if self.definition else None
                codec = messages.Codec(embedded) if embedded else messages.codec()
                type_hash = codec.store.hash_rihs01(codec.require(self.typename))
        except Exception as error:
            if not definition:
                raise BagError(f'{self.name}: no definition of its type ({error})') from error
        return BagTopic(self.name, self.typename, self.qos, definition, type_hash)
