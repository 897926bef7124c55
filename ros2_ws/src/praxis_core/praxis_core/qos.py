# SPDX-License-Identifier: Apache-2.0
"""Named QoS profiles: every publisher and subscription of Praxis uses one of these.

A publisher of sensor data is reliable so that a recorder may ask for every sample (REP-2003);
readers that only want the newest subscribe best effort.
"""

from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    LivelinessPolicy,
    QoSProfile,
    ReliabilityPolicy,
)


def _profile(
    depth: int,
    reliability: ReliabilityPolicy = ReliabilityPolicy.RELIABLE,
    durability: DurabilityPolicy = DurabilityPolicy.VOLATILE,
) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=reliability,
        durability=durability,
        liveliness=LivelinessPolicy.AUTOMATIC,
    )


SENSOR_PUBLISH = _profile(10)
SENSOR_SUBSCRIBE = _profile(5, ReliabilityPolicy.BEST_EFFORT)
LOCKSTEP_SUBSCRIBE = _profile(100)
"""For a participant that must see every sample: recorder, lockstep source."""
STATE_SUBSCRIBE = _profile(10)
"""For whoever commands by the state: it is small, and a lost one costs a control period."""
LATCHED = _profile(1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
COMMAND_PUBLISH = _profile(100)
COMMAND_ROBOT = _profile(1)
"""The robot reads the newest command only; a queue would replay stale ones."""
COMMAND_RECORD = _profile(1000)
REQUEST = _profile(10)
EVENT = _profile(100)

PROFILES = {
    'sensor_publish': SENSOR_PUBLISH,
    'sensor_subscribe': SENSOR_SUBSCRIBE,
    'lockstep_subscribe': LOCKSTEP_SUBSCRIBE,
    'state_subscribe': STATE_SUBSCRIBE,
    'latched': LATCHED,
    'command_publish': COMMAND_PUBLISH,
    'command_robot': COMMAND_ROBOT,
    'command_record': COMMAND_RECORD,
    'request': REQUEST,
    'event': EVENT,
}
