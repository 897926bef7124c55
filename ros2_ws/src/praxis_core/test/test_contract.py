# SPDX-License-Identifier: Apache-2.0
import copy
import json
import random
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from praxis_core.contract import (
    Contract,
    ContractError,
    canonical_json,
    interface_dict,
    interface_difference,
    load_contract,
)

HERE = Path(__file__).resolve().parent
ROBOTS = HERE.parents[3] / 'params' / 'robots'
LIBERO = yaml.safe_load((ROBOTS / 'libero.yaml').read_text())
JOINT = yaml.safe_load((ROBOTS / 'tabletop_joint.yaml').read_text())
ZME = HERE / 'contracts' / 'zme_v1.yaml'
MISSING = object()


def edited(document, key, value):
    document = copy.deepcopy(document)
    *parents, last = key
    inner = document
    for parent in parents:
        inner = inner[parent]
    if value is MISSING:
        del inner[last]
    else:
        inner[last] = value
    return document


@pytest.fixture
def refusal(tmp_path):
    def lines(document):
        path = tmp_path / 'robot.yaml'
        path.write_text(
            document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
        )
        with pytest.raises(ContractError) as caught:
            load_contract(path)
        found = str(caught.value).splitlines()
        assert all(line.startswith(f'{path}: ') for line in found), found
        return [line.removeprefix(f'{path}: ') for line in found]

    return lines


# --- what is shipped ---


@pytest.mark.parametrize('path', sorted(ROBOTS.glob('*.yaml')), ids=lambda path: path.stem)
def test_shipped_contracts_load(path):
    contract = load_contract(path)
    assert contract.path == path
    assert contract.name == path.stem
    assert contract.interface.policy_hz > 0


def test_libero_is_what_its_file_says():
    contract = load_contract(ROBOTS / 'libero.yaml')
    assert (contract.state_dim, contract.action_dim, contract.gripper_index) == (8, 7, 6)
    assert contract.interface.cameras['wrist'].width == 256
    assert contract.deployment.limits['delta_x'].max_step == 2.0
    assert contract.deployment.arms['arm'].joints[6] == 'joint_7'
    assert contract.image_topic('wrist') == 'cameras/wrist/image_raw'
    assert contract.camera_info_topic('wrist') == 'cameras/wrist/camera_info'
    assert contract.depth_topic('wrist') == 'cameras/wrist/depth/image_raw'
    assert contract.request_topic('policy') == 'command_request/policy'


def test_tabletop_and_libero_differ_in_name_and_image_size_alone():
    libero, tabletop = (load_contract(ROBOTS / f'{name}.yaml') for name in ('libero', 'tabletop'))
    keys = [line.split(':')[0] for line in interface_difference(libero, tabletop)]
    assert keys == ['interface.embodiment', 'interface.action_space'] + [
        f'interface.cameras.{camera}.{side}'
        for camera in ('agentview', 'wrist')
        for side in ('width', 'height')
    ]


def test_joint_contract_steps_no_faster_than_the_arm_can():
    contract = load_contract(ROBOTS / 'tabletop_joint.yaml')
    for name in contract.deployment.joints:
        limit = contract.deployment.limits[name]
        assert limit.max_step * contract.deployment.command_hz <= limit.max_velocity * 1.0001


# --- schema 1 ---


def test_schema_1_loads_unchanged():
    contract = load_contract(ZME)
    assert contract.name == 'zme'
    assert (contract.state_dim, contract.action_dim, contract.gripper_index) == (16, 16, None)
    assert contract.interface.policy_hz == 20.0
    assert contract.interface.action_kind == 'absolute'
    assert contract.interface.action_horizon == 20
    assert contract.interface.state.names[7] == 'left_gripper'
    assert list(contract.interface.cameras) == ['top', 'left_wrist', 'right_wrist']
    assert contract.interface.cameras['top'].height == 480
    deployment = contract.deployment
    assert (deployment.command_hz, deployment.record_hz) == (30.0, 30.0)
    assert (deployment.limits['left_joint_3'].min, deployment.limits['left_joint_3'].max) == (
        -3.0,
        0.01,
    )
    adapter = deployment.adapter
    assert adapter.status_topic == '/arm_status'
    assert adapter.state_sources['right_joint_0'] == ('right_arm[0].joint_status[0]',)
    assert adapter.command_targets['left_joint_2'] == (
        'left_command[2]',
        'left_joint_command[2]',
    )
    assert adapter.intervention.equals == 5
    assert [condition.path for condition in adapter.model_control_enabled] == [
        ('other_status[0]',),
        ('other_status[1]',),
    ]
    assert adapter.cameras['top'].topic == '/camera_dcw2/custom_cam_color_1M'
    assert adapter.mode_controller.options['timeout_s'] == 0.25


V1 = yaml.safe_load(ZME.read_text())


@pytest.mark.parametrize(
    ('key', 'value', 'line'),
    [
        (['robto'], {}, "robto: unknown key, did you mean 'robot'? (got {})"),
        (
            ['robot', 'status_topc'],
            '/x',
            "robot.status_topc: unknown key, did you mean 'status_topic'? (got '/x')",
        ),
        (
            ['inference', 'action_horizon'],
            True,
            'inference.action_horizon: must be a whole number (got True)',
        ),
        (
            ['inference', 'action_horizon'],
            20.9,
            'inference.action_horizon: must be a whole number (got 20.9)',
        ),
        (
            ['inference', 'model_hz'],
            float('nan'),
            'inference.model_hz: must be finite (got nan)',
        ),
        (
            ['inference', 'command_hz'],
            -30,
            'inference.command_hz: must be greater than 0 (got -30)',
        ),
        (
            ['action', 'limits', 'left_joint_0', 'max'],
            float('inf'),
            'action.limits.left_joint_0.max: must be finite (got inf)',
        ),
        (['action', 'limits'], MISSING, 'action.limits: is missing (got nothing)'),
        (
            ['action', 'limits', 'left_joint_0'],
            MISSING,
            'action.limits.left_joint_0: is missing (got nothing)',
        ),
        (
            ['action', 'limits', 'left_joint_0', 'min'],
            3,
            'action.limits.left_joint_0.min: is above max 2.94 (got 3.0)',
        ),
        (
            ['action', 'command_targets', 'left_joint_1'],
            'left_joint_command[0]',
            'action.command_targets.left_joint_1: is used by command_targets.left_joint_0 already '
            "(got 'left_joint_command[0]')",
        ),
        (
            ['action', 'command_targets', 'left_joint_1'],
            'left[',
            'action.command_targets.left_joint_1[0]: is no field path such as a.b[2].c '
            "(got 'left[')",
        ),
        (
            ['images', 'left_wrist', 'topic'],
            '/camera_dcw2/custom_cam_color_1M',
            'images.left_wrist.topic: is used by images.top.topic already '
            "(got '/camera_dcw2/custom_cam_color_1M')",
        ),
        (['images', 'top', 'channels'], 1, 'images.top.channels: must be 3 (got 1)'),
        (['state', 'dimension'], 15, 'state.dimension: order has 16 names (got 15)'),
        (
            ['state', 'order', 1],
            'right_joint_0',
            "state.order[1]: repeats entry 0 (got 'right_joint_0')",
        ),
        (
            ['state', 'sources', 'right_joint_0'],
            MISSING,
            'state.sources.right_joint_0: is missing (got nothing)',
        ),
        (
            ['status', 'model_control_enabled'],
            [],
            'status.model_control_enabled: must have 1 or more entries, has 0 (got [])',
        ),
    ],
)
def test_schema_1_refuses(refusal, key, value, line):
    assert refusal(edited(V1, key, value)) == [line]


# --- schema 2 ---

CASES = [
    (['schema_version'], 3, 'schema_version: must be 1 or 2 (got 3)'),
    (['schema_version'], True, 'schema_version: must be 1 or 2 (got True)'),
    (['schema_version'], MISSING, 'schema_version: must be 1 or 2 (got nothing)'),
    (['interfase'], 1, "interfase: unknown key, did you mean 'interface'? (got 1)"),
    (['interface'], [], 'interface: must be a mapping (got [])'),
    (
        ['interface', 'zzz'],
        1,
        'interface.zzz: unknown key, known are embodiment, robot_type, policy_hz, action_space, '
        'action_kind, action_horizon, gripper, state, action, cameras (got 1)',
    ),
    (
        ['interface', 'policy_hz'],
        float('nan'),
        'interface.policy_hz: must be finite (got nan)',
    ),
    (
        ['interface', 'policy_hz'],
        True,
        'interface.policy_hz: must be a number (got True)',
    ),
    (
        ['interface', 'policy_hz'],
        '20',
        "interface.policy_hz: must be a number (got '20')",
    ),
    (
        ['interface', 'policy_hz'],
        0,
        'interface.policy_hz: must be greater than 0 (got 0)',
    ),
    (
        ['interface', 'action_kind'],
        'relative',
        "interface.action_kind: must be 'delta' or 'absolute' (got 'relative')",
    ),
    (
        ['interface', 'action_space'],
        'osc_pose',
        'interface.action_space: must be a versioned name such as robot.osc_pose.delta.v1 '
        "(got 'osc_pose')",
    ),
    (
        ['interface', 'action_horizon'],
        True,
        'interface.action_horizon: must be a whole number (got True)',
    ),
    (
        ['interface', 'action_horizon'],
        20.9,
        'interface.action_horizon: must be a whole number (got 20.9)',
    ),
    (
        ['interface', 'gripper', 'action'],
        'grip',
        "interface.gripper.action: is not in action.names (got 'grip')",
    ),
    (
        ['interface', 'gripper', 'open'],
        1.0,
        'interface.gripper.close: equals gripper.open (got 1.0)',
    ),
    (
        ['interface', 'gripper', 'open'],
        -2,
        'interface.gripper.open: is outside the limits -1 to 1 (got -2.0)',
    ),
    (
        ['interface', 'state', 'names', 3],
        'eef_x',
        "interface.state.names[3]: repeats entry 0 (got 'eef_x')",
    ),
    (
        ['interface', 'state', 'names', 3],
        'eef x',
        "interface.state.names[3]: must be a name without spaces (got 'eef x')",
    ),
    (
        ['interface', 'state', 'names', 3],
        ' ',
        "interface.state.names[3]: must be a name without spaces (got ' ')",
    ),
    (
        ['interface', 'state', 'names', 3],
        3,
        'interface.state.names[3]: must be text (got 3)',
    ),
    (
        ['interface', 'state', 'names'],
        [],
        'interface.state.names: must have 1 or more entries, has 0 (got [])',
    ),
    (
        ['interface', 'action', 'units'],
        ['m'],
        "interface.action.units: must have 7 entries as names has (got ('m',))",
    ),
    (
        ['interface', 'cameras', 'wrist', 'channels'],
        4,
        'interface.cameras.wrist.channels: must be 3 (got 4)',
    ),
    (
        ['interface', 'cameras', 'wrist', 'width'],
        256.0,
        'interface.cameras.wrist.width: must be a whole number (got 256.0)',
    ),
    (
        ['interface', 'cameras', 'wrist', 'depth'],
        'yes',
        "interface.cameras.wrist.depth: must be true or false (got 'yes')",
    ),
    (
        ['deployment', 'record_hz'],
        30,
        'deployment.record_hz: must equal command_hz 20 in a delta action space (got 30.0)',
    ),
    (
        ['deployment', 'command_hz'],
        float('inf'),
        'deployment.command_hz: must be finite (got inf)',
    ),
    (['deployment', 'limits'], MISSING, 'deployment.limits: is missing (got nothing)'),
    (
        ['deployment', 'limits', 'delta_x'],
        MISSING,
        'deployment.limits.delta_x: is missing (got nothing)',
    ),
    (
        ['deployment', 'limits', 'delta_x', 'min'],
        float('nan'),
        'deployment.limits.delta_x.min: must be finite (got nan)',
    ),
    (
        ['deployment', 'limits', 'delta_x', 'min'],
        2,
        'deployment.limits.delta_x.min: is above max 1 (got 2.0)',
    ),
    (
        ['deployment', 'limits', 'delta_x', 'max_step'],
        0,
        'deployment.limits.delta_x.max_step: must be greater than 0 (got 0)',
    ),
    (
        ['deployment', 'limits', 'delta_x', 'max_step'],
        MISSING,
        'deployment.limits.delta_x.max_step: is missing (got nothing)',
    ),
    (
        ['deployment', 'cameras', 'wrist'],
        MISSING,
        'deployment.cameras.wrist: is missing (got nothing)',
    ),
    (
        ['deployment', 'cameras', 'wrist', 'topic'],
        'cameras/agentview/image_raw',
        'deployment.cameras.wrist.topic: is used by cameras.agentview.topic already '
        "(got 'cameras/agentview/image_raw')",
    ),
    (
        ['deployment', 'cameras', 'wrist', 'topic'],
        'wrist cam',
        "deployment.cameras.wrist.topic: is no valid topic (got 'wrist cam')",
    ),
    (
        ['deployment', 'cameras', 'wrist', 'frame'],
        'agentview_optical_frame',
        'deployment.cameras.wrist.frame: is used by cameras.agentview.frame already '
        "(got 'agentview_optical_frame')",
    ),
    (
        ['deployment', 'cameras', 'wrist', 'max_age'],
        0.01,
        'deployment.cameras.wrist.max_age: is shorter than the period 0.05 s of 20 fps (got 0.01)',
    ),
    (
        ['deployment', 'cameras', 'wrist', 'extrinsics'],
        {'parent': 'world', 'position': [0, 0], 'quaternion': [0, 0, 0, 1]},
        'deployment.cameras.wrist.extrinsics.position: must have 3 entries (got [0, 0])',
    ),
    (
        ['deployment', 'cameras', 'wrist', 'extrinsics'],
        {'parent': 'world', 'position': [0, 0, 0], 'quaternion': [0, 0, 0, 2]},
        'deployment.cameras.wrist.extrinsics.quaternion: must have norm 1, has 2 '
        '(got (0.0, 0.0, 0.0, 2.0))',
    ),
    (
        ['deployment', 'topics', 'command'],
        'state',
        "deployment.topics.command: is used by topics.state already (got 'state')",
    ),
    (
        ['deployment', 'topics', 'comand'],
        'x',
        "deployment.topics.comand: unknown key, did you mean 'command'? (got 'x')",
    ),
    (
        ['deployment', 'arms', 'arm', 'pose_topic'],
        'state',
        "deployment.arms.arm.pose_topic: is used by topics.state already (got 'state')",
    ),
    (
        ['deployment', 'arms', 'arm', 'joints', 1],
        'joint_1',
        "deployment.arms.arm.joints[1]: repeats entry 0 (got 'joint_1')",
    ),
    (
        ['deployment', 'home'],
        [0.0, 1.0],
        'deployment.home: must have 7 entries, one for each joint of arms (got (0.0, 1.0))',
    ),
    (
        ['deployment', 'max_age', 'state'],
        -1,
        'deployment.max_age.state: must be greater than 0 (got -1)',
    ),
]


@pytest.mark.parametrize(('key', 'value', 'line'), CASES)
def test_refuses(refusal, key, value, line):
    assert refusal(edited(LIBERO, key, value)) == [line]


def test_misspelt_key_is_reported_alone_with_the_one_that_is_missing(refusal):
    document = edited(LIBERO, ['interface', 'policy_hz'], MISSING)
    document['interface']['polcy_hz'] = 20.0
    assert refusal(document) == [
        "interface.polcy_hz: unknown key, did you mean 'policy_hz'? (got 20.0)"
    ]


def test_misspelt_limit_is_reported_alone(refusal):
    document = edited(LIBERO, ['deployment', 'limits', 'delta_x'], MISSING)
    document['deployment']['limits']['dleta_x'] = {'min': -1, 'max': 1, 'max_step': 1}
    assert refusal(document) == [
        "deployment.limits.dleta_x: unknown key, did you mean 'delta_x'? (got 'dleta_x')"
    ]


def test_home_outside_a_joint_limit_is_refused(refusal):
    assert refusal(edited(JOINT, ['deployment', 'home', 3], 0.5)) == [
        'deployment.home[3]: is outside the limits -3.0718 to -0.0698 of joint_4 (got 0.5)'
    ]


def test_absolute_spaces_may_be_recorded_at_another_rate(tmp_path):
    path = tmp_path / 'robot.yaml'
    path.write_text(yaml.safe_dump(edited(JOINT, ['deployment', 'record_hz'], 30)))
    assert load_contract(path).deployment.record_hz == 30.0


def test_every_fault_has_a_line(refusal):
    document = edited(LIBERO, ['interface', 'policy_hz'], float('nan'))
    document['deployment']['limits']['gripper']['max'] = 'wide'
    assert refusal(document) == [
        'interface.policy_hz: must be finite (got nan)',
        "deployment.limits.gripper.max: must be a number (got 'wide')",
    ]


@pytest.mark.parametrize(
    ('text', 'line'),
    [
        ('schema_version: 2\nname: a\nname: b\n', "name: key is repeated in line 3 (got 'b')"),
        (
            'schema_version: 2\ninterface:\n  policy_hz: 1\n  policy_hz: 2\n',
            "interface.policy_hz: key is repeated in line 4 (got '2')",
        ),
        ('- a\n', "document: must be a mapping (got ['a'])"),
        ('', 'document: must be a mapping (got None)'),
    ],
)
def test_refuses_as_yaml(refusal, text, line):
    assert refusal(text) == [line]


def test_unreadable_files_are_refused(refusal, tmp_path):
    assert refusal('a: [1, 2\n')[0].startswith('line 2: is no valid YAML (got ')
    with pytest.raises(ContractError, match=r'nowhere\.yaml: file: cannot be read \(got No such'):
        load_contract(tmp_path / 'nowhere.yaml')
    binary = tmp_path / 'binary.yaml'
    binary.write_bytes(b'name: \xff')
    with pytest.raises(ContractError, match=r'binary\.yaml: file: is not UTF-8 \(got byte 6\)'):
        load_contract(binary)


# --- hashes and differences ---


def _shuffled(value, rng):
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: _shuffled(value[key], rng) for key in keys}
    return [_shuffled(item, rng) for item in value] if isinstance(value, list) else value


def _whole_numbers(value):
    if isinstance(value, dict):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    flow=st.sampled_from([True, False, None]),
    indent=st.integers(2, 8),
    whole=st.booleans(),
    comment=st.text(alphabet='abc: #-', max_size=20),
)
@pytest.mark.parametrize('name', ['libero', 'tabletop_joint'])
def test_layout_comments_and_key_order_do_not_change_the_hashes(
    tmp_path_factory, name, seed, flow, indent, whole, comment
):
    original = load_contract(ROBOTS / f'{name}.yaml')
    document = {'libero': LIBERO, 'tabletop_joint': JOINT}[name]
    document = _shuffled(document, random.Random(seed))
    if whole:
        document = _whole_numbers(document)
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=flow, indent=indent)
    path = tmp_path_factory.getbasetemp() / 'rewritten.yaml'
    path.write_text(f'# {comment}\n{text}\n# {comment}\n')
    rewritten = load_contract(path)
    assert rewritten.interface_hash == original.interface_hash
    assert rewritten.deployment_hash == original.deployment_hash
    assert interface_difference(rewritten, original) == []


def _scalars(value, key=()):
    if isinstance(value, dict):
        return [leaf for name in value for leaf in _scalars(value[name], (*key, name))]
    if isinstance(value, list):
        return [leaf for i, item in enumerate(value) for leaf in _scalars(item, (*key, i))]
    return [key]


def _other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 0.5 if isinstance(value, float) and value else value + 1
    return {'delta': 'absolute'}.get(value, f'x{value}')


FREE = [
    key
    for key in _scalars(LIBERO['interface'])
    if key[:2] != ('action', 'names') and key[-1] not in ('channels', 'action')
]
"""Values that can be changed alone without making the contract invalid."""


@pytest.mark.parametrize('key', FREE, ids=str)
def test_every_interface_value_counts_for_its_hash_and_shows_in_the_difference(key, tmp_path):
    original = load_contract(ROBOTS / 'libero.yaml')
    value = LIBERO['interface']
    for step in key:
        value = value[step]
    document = edited(LIBERO, ['interface', *key], _other(value))
    path = tmp_path / 'changed.yaml'
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    changed = load_contract(path)
    assert changed.interface_hash != original.interface_hash
    assert changed.deployment_hash == original.deployment_hash
    name = ''.join(f'[{step}]' if isinstance(step, int) else f'.{step}' for step in key)
    (line,) = interface_difference(original, changed)
    assert line.startswith(f'interface{name}: {value!r} in ')


def test_deployment_does_not_count_for_the_interface_hash(tmp_path):
    original = load_contract(ROBOTS / 'libero.yaml')
    path = tmp_path / 'robot.yaml'
    path.write_text(yaml.safe_dump(edited(LIBERO, ['deployment', 'max_age', 'state'], 0.5)))
    moved = load_contract(path)
    assert moved.interface_hash == original.interface_hash
    assert moved.deployment_hash != original.deployment_hash


def test_hashes_are_those_of_the_canonical_json():
    contract = load_contract(ROBOTS / 'libero.yaml')
    text = canonical_json(interface_dict(contract))
    assert text.endswith(b'}\n')
    assert b' ' not in text
    assert json.loads(text) == interface_dict(contract)


@pytest.mark.parametrize(
    ('name', 'digest'),
    [
        ('libero', '491dd222becea2f1d2515616dcd63444b378488467c265b7e0668a645bbea152'),
        ('tabletop', '4a0f1ea9b68b391f17e378a5ded0e30e5e2996fc92e2a5afbdccb31dcdbe50f1'),
        ('tabletop_joint', '95f4485421925c85089bd614d68e25c5b13484a9ae7b87a099e976fe714a178e'),
    ],
)
def test_interface_hashes_stay(name, digest):
    # a change of these orphans every dataset and checkpoint
    assert load_contract(ROBOTS / f'{name}.yaml').interface_hash == digest


def test_difference_names_what_only_one_side_has():
    libero = load_contract(ROBOTS / 'libero.yaml')
    stored = copy.deepcopy(interface_dict(libero))
    del stored['cameras']['wrist']
    stored['state']['names'].append('extra')
    assert interface_difference(libero, stored) == [
        "interface.cameras.wrist.role: 'wrist' in libero, absent in b",
        'interface.cameras.wrist.width: 256 in libero, absent in b',
        'interface.cameras.wrist.height: 256 in libero, absent in b',
        'interface.cameras.wrist.channels: 3 in libero, absent in b',
        'interface.cameras.wrist.depth: True in libero, absent in b',
        "interface.state.names[8]: absent in libero, 'extra' in b",
    ]


def test_canonical_json_refuses_what_json_cannot_say():
    with pytest.raises(ValueError, match='not JSON compliant'):
        canonical_json({'a': float('nan')})


# --- frozen ---


def test_a_contract_cannot_be_changed():
    contract = load_contract(ROBOTS / 'libero.yaml')
    with pytest.raises(ValueError, match='frozen'):
        contract.interface.policy_hz = 10.0
    with pytest.raises(TypeError, match='cannot be changed'):
        contract.deployment.limits['delta_x'] = None
    with pytest.raises(TypeError, match='cannot be changed'):
        contract.deployment.cameras.clear()


def test_a_contract_survives_a_copy():
    for path in (ROBOTS / 'libero.yaml', ZME):
        contract = load_contract(path)
        for twin in (copy.copy(contract), copy.deepcopy(contract)):
            assert isinstance(twin, Contract)
            assert twin == contract
            assert twin.interface_hash == contract.interface_hash
