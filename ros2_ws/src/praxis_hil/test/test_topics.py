# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from praxis_core.contract import load_contract
from praxis_hil.topics import Delivery, Kind, recorded_topics

ROOT = Path(__file__).resolve().parents[4]
CONTRACT = load_contract(ROOT / 'params' / 'robots' / 'libero.yaml')


def test_contract_decides_what_is_recorded():
    topics = {topic.name: topic for topic in recorded_topics(CONTRACT)}
    assert topics['state'].kind is Kind.STATE
    assert topics['cameras/wrist/image_raw'].camera == 'wrist'
    assert topics['command'].delivery is Delivery.COMMAND
    assert topics['eef/arm/pose'].typename == 'geometry_msgs/msg/PoseStamped'
    assert topics['/tf_static'].remembered > 1
    assert 'clock' not in topics


def test_privileged_state_is_never_recorded():
    assert not [t for t in recorded_topics(CONTRACT, depth=True) if 'privileged' in t.name]
    for name in ('privileged_state', '/robot/privileged_state'):
        with pytest.raises(ValueError, match='privileged'):
            recorded_topics(CONTRACT, extra=[f'{name} praxis_interfaces/msg/PrivilegedState'])
    with pytest.raises(ValueError, match='privileged'):
        recorded_topics(CONTRACT, extra=['truth praxis_interfaces/msg/PrivilegedState'])


def test_depth_is_recorded_on_demand_only():
    names = {topic.name for topic in recorded_topics(CONTRACT)}
    more = {topic.name for topic in recorded_topics(CONTRACT, depth=True)}
    assert more - names == {
        'cameras/agentview/depth/image_raw',
        'cameras/wrist/depth/image_raw',
    }


def test_extra_topics_are_checked():
    [topic] = [
        t
        for t in recorded_topics(CONTRACT, extra=['force geometry_msgs/WrenchStamped'])
        if t.name == 'force'
    ]
    assert topic.typename == 'geometry_msgs/msg/WrenchStamped'
    with pytest.raises(ValueError, match='package/msg/Type'):
        recorded_topics(CONTRACT, extra=['force'])
    with pytest.raises(ValueError, match='twice'):
        recorded_topics(CONTRACT, extra=['state praxis_interfaces/msg/StateVector'])
