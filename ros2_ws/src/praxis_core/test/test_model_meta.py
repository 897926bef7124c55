# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest
from praxis_core.contract import load_contract
from praxis_core.exchange_error import ExchangeError
from praxis_core.model_meta import PROTOCOL, ModelMeta, read_meta
from praxis_core.native_control import (
    LIBERO_7D,
    ROBOTWIN_EEF16,
    ROBOTWIN_QPOS14,
    NativeControl,
    control_of,
)
from pydantic import ValidationError

ROBOTS = Path(__file__).resolve().parents[4] / 'params' / 'robots'


def meta(**changes):
    return ModelMeta(
        **{
            'backend': 'openpi',
            'checkpoint': 'pi05_libero',
            'control': LIBERO_7D,
            'camera_roles': ('primary', 'wrist'),
            'state_schema': {'state': 8},
            'chunk_size': 10,
            **changes,
        }
    )


def test_libero_control_is_that_of_its_contract():
    assert control_of(load_contract(ROBOTS / 'libero.yaml')) == LIBERO_7D


def test_robotwin_controls_have_the_lengths_of_their_names():
    assert (ROBOTWIN_QPOS14.action_dim, ROBOTWIN_QPOS14.action_type) == (14, 'qpos')
    assert (ROBOTWIN_EEF16.action_dim, ROBOTWIN_EEF16.action_type) == (16, 'ee')
    assert ROBOTWIN_EEF16.action_schema[3:9] == (
        'left_qw', 'left_qx', 'left_qy', 'left_qz', 'left_gripper', 'right_x',
    )  # fmt: skip


@pytest.mark.parametrize(
    'changes',
    [{'action_space': 'unversioned'}, {'action_schema': ()}, {'action_schema': ('x', 'x')}],
)
def test_a_control_that_is_no_control_is_refused(changes):
    with pytest.raises(ValidationError):
        NativeControl(**{**LIBERO_7D.model_dump(), **changes})


def test_metadata_survives_the_wire_as_json():
    sent = meta(
        policy_hz=20.0,
        execute_steps=5,
        anchors={'delta_x': 'state[0]', 'gripper': 'state[7]'},
        metadata={'flow_steps': 5},
    )
    assert read_meta(json.loads(json.dumps(sent.to_wire()))) == sent
    assert list(sent.anchored()) == [(0, 'state', 0), (6, 'state', 7)]


def test_keys_of_a_later_version_are_left_out():
    assert read_meta({**meta().to_wire(), 'invented_later': 1}) == meta()


@pytest.mark.parametrize(
    ('wire', 'message'),
    [
        (['backend'], "metadata: expected a mapping (got ['backend'])"),
        ({'backend': 'x'}, f'metadata.protocol: expected {PROTOCOL} (got nothing)'),
        ({'chunk_size': 0}, 'metadata.chunk_size: expected at least 1 (got 0)'),
        ({'chunk_size': '8'}, "metadata.chunk_size: expected a whole number (got '8')"),
        ({'protocol': 'praxis.model.v9'}, 'metadata.protocol: expected'),
        ({'policy_hz': float('nan')}, 'metadata.policy_hz: expected'),
        ({'execute_steps': 11}, 'metadata.execute_steps: expected at most chunk_size 10'),
        ({'camera_roles': ['wrist', 'wrist']}, 'metadata.camera_roles[1]: expected another'),
        (
            {'anchors': {'delta_y': 'state[8]'}},
            'metadata.anchors.delta_y: expected in ',
        ),
        ({'anchors': {'delta_y': 'state'}}, 'metadata.anchors.delta_y: expected STATE[INDEX]'),
        ({'anchors': {'delta_q': 'state[0]'}}, 'metadata.anchors.delta_q: expected another value'),
        (
            {'control': {**LIBERO_7D.model_dump(), 'action_space': 'x'}},
            'metadata.control.action_space: expected a versioned',
        ),
    ],
)
def test_metadata_that_cannot_be_is_refused_by_field(wire, message):
    if isinstance(wire, dict) and 'backend' not in wire:
        wire = {**meta().to_wire(), **wire}
    with pytest.raises(ExchangeError) as refusal:
        read_meta(wire)
    assert str(refusal.value).startswith(message)
    assert refusal.value.field in message
