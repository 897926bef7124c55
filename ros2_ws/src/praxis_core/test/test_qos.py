# SPDX-License-Identifier: Apache-2.0
import pytest
from praxis_core import qos
from rclpy.qos import DurabilityPolicy, QoSCompatibility, ReliabilityPolicy, qos_check_compatible


@pytest.mark.parametrize(
    ('publisher', 'reader'),
    [
        (qos.SENSOR_PUBLISH, qos.SENSOR_SUBSCRIBE),
        (qos.SENSOR_PUBLISH, qos.LOCKSTEP_SUBSCRIBE),
        (qos.COMMAND_PUBLISH, qos.COMMAND_ROBOT),
        (qos.COMMAND_PUBLISH, qos.COMMAND_RECORD),
        (qos.LATCHED, qos.LATCHED),
        (qos.REQUEST, qos.REQUEST),
        (qos.EVENT, qos.EVENT),
    ],
)
def test_partners_are_compatible(rclpy_context, publisher, reader):
    assert qos_check_compatible(publisher, reader)[0] == QoSCompatibility.OK


def test_depths():
    assert {name: profile.depth for name, profile in qos.PROFILES.items()} == {
        'sensor_publish': 10,
        'sensor_subscribe': 5,
        'lockstep_subscribe': 100,
        'latched': 1,
        'command_publish': 100,
        'command_robot': 1,
        'command_record': 1000,
        'state_subscribe': 10,
        'request': 10,
        'event': 100,
    }


def test_only_sensor_readers_are_best_effort_and_only_latched_is_kept():
    for name, profile in qos.PROFILES.items():
        best_effort = profile.reliability == ReliabilityPolicy.BEST_EFFORT
        assert best_effort == (name == 'sensor_subscribe')
        kept = profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
        assert kept == (name == 'latched')
