# SPDX-License-Identifier: Apache-2.0
import sys
import textwrap
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_core.parameters import ParameterError, ParameterModel, coerce, declare
from pydantic import Field, model_validator
from rcl_interfaces.msg import SetParametersResult
from rcl_interfaces.srv import DescribeParameters, GetParameters, SetParametersAtomically
from rclpy.node import Node
from rclpy.parameter import Parameter


class Model(ParameterModel):
    rate: float = Field(20.0, ge=1.0, le=100.0, description='Rate in Hz.')
    depth: int = Field(3, ge=1, description='Queue depth.')
    enabled: bool = Field(True, description='Whether it runs.')
    stepping: Literal['realtime', 'lockstep'] = Field('realtime', description='Who sets the pace.')
    low: float = Field(0.0, description='Lower bound.')
    high: float = Field(1.0, description='Upper bound.')
    sources: list[str] = Field(['policy'], description='Who may ask.')
    participants: list[str] = Field([], description='Who acknowledges.')
    gains: list[float] = Field([1.0, 2.0], description='Gains.')
    root: str = Field('', description='Folder.', json_schema_extra={'read_only': True})

    @model_validator(mode='after')
    def _ordered(self):
        if self.low > self.high:
            raise ValueError(f'low {self.low:g} is above high {self.high:g}')
        return self


class Required(ParameterModel):
    contract: str = Field(description='Path of the contract.', min_length=1)


@pytest.fixture
def node(rclpy_context):
    made = []

    def make(model=Model, on_change=None, **overrides):
        node = Node(
            'tested',
            parameter_overrides=[
                value if isinstance(value, Parameter) else Parameter(name, value=value)
                for name, value in overrides.items()
            ],
        )
        made.append(node)
        return node, declare(node, model, on_change)

    yield make
    for each in made:
        each.destroy_node()


def set_one(node, name, value):
    typed = value if isinstance(value, Parameter) else Parameter(name, value=value)
    (result,) = node.set_parameters([typed])
    return result.successful, result.reason


# --- start ---


def test_defaults_are_declared_with_their_types(node):
    each, parameters = node()
    assert parameters.value == Model()
    for name, kind in Model.kinds.items():
        parameter = each.get_parameter(name)
        assert parameter.type_ == kind.ros
        value = parameter.value
        assert (list(value) if kind.is_list else value) == getattr(Model(), name)


def test_overrides_win_over_defaults(node):
    each, parameters = node(rate=50.0, sources=['teleop', 'policy'], enabled=False)
    assert parameters.value.rate == 50.0
    assert parameters.value.sources == ['teleop', 'policy']
    assert each.get_parameter('enabled').value is False


def test_whole_numbers_serve_as_float(node):
    each, parameters = node(rate=30, gains=[1, 2])
    assert parameters.value.rate == 30.0
    assert each.get_parameter('rate').type_ == Parameter.Type.DOUBLE
    assert parameters.value.gains == [1.0, 2.0]


@pytest.mark.parametrize('text', ['false', 'False', 'FALSE', 'true', 'True'])
def test_launch_text_of_a_flag_is_read(node, text):
    _, parameters = node(enabled=text)
    assert parameters.value.enabled is (text.lower() == 'true')


@pytest.mark.parametrize(
    ('overrides', 'message'),
    [
        ({'rate': 200.0}, 'parameter rate: must be at most 100 (got 200.0)'),
        ({'rate': 'fast'}, "parameter rate: must be a number (got 'fast')"),
        ({'rate': True}, 'parameter rate: must be a number (got True)'),
        ({'rate': float('nan')}, 'parameter rate: must be finite (got nan)'),
        ({'depth': 0}, 'parameter depth: must be at least 1 (got 0)'),
        ({'depth': 2.5}, 'parameter depth: must be a whole number (got 2.5)'),
        ({'depth': True}, 'parameter depth: must be a whole number (got True)'),
        ({'enabled': 0}, 'parameter enabled: must be true or false (got 0)'),
        ({'enabled': 'no'}, "parameter enabled: must be true or false (got 'no')"),
        ({'root': 5}, 'parameter root: must be text (got 5)'),
        ({'root': False}, 'parameter root: must be text (got False)'),
        (
            {'stepping': 'lockstp'},
            "parameter stepping: must be 'realtime' or 'lockstep' (got 'lockstp')",
        ),
        ({'sources': 'policy'}, "parameter sources: must be a list (got 'policy')"),
        ({'sources': [1]}, 'parameter sources[0]: must be text (got 1)'),
        ({'raet': 5}, "parameter raet: unknown key, did you mean 'rate'? (got 5)"),
        (
            {'stepping_mode': 'x'},
            "parameter stepping_mode: unknown key, did you mean 'stepping'? (got 'x')",
        ),
    ],
)
def test_node_refuses_to_start(node, overrides, message):
    with pytest.raises(ParameterError) as caught:
        node(**overrides)
    assert str(caught.value) == message


def test_rules_between_parameters_are_checked_at_start(node):
    with pytest.raises(ParameterError, match=r'^parameter as a set: low 2 is above high 1 \(got '):
        node(low=2.0)
    _, parameters = node(low=2.0, high=3.0)
    assert parameters.value.high == 3.0


def test_every_fault_has_a_line(node):
    with pytest.raises(ParameterError) as caught:
        node(rate=0, depth=0)
    assert str(caught.value).splitlines() == [
        'parameter rate: must be at least 1 (got 0.0)',
        'parameter depth: must be at least 1 (got 0)',
    ]


def test_parameter_without_default_must_be_given(node):
    with pytest.raises(ParameterError, match=r'^parameter contract: is missing \(got nothing\)$'):
        node(Required)
    assert node(Required, contract='libero.yaml')[1].value.contract == 'libero.yaml'


def test_parameters_of_ros_itself_are_not_unknown(node):
    overrides = {'use_sim_time': True, 'qos_overrides./state.publisher.depth': 5}
    assert node(**overrides)[1].value == Model()


# --- at run time ---


def test_a_set_updates_the_model_and_calls_back(node):
    changes = []
    each, parameters = node(on_change=changes.append)
    before = parameters.value
    assert set_one(each, 'rate', 40.0) == (True, '')
    assert parameters.value.rate == 40.0
    assert changes == [parameters.value]
    assert before.rate == 20.0
    assert set_one(each, 'rate', 40.0) == (True, '')
    assert len(changes) == 1


@pytest.mark.parametrize(
    ('name', 'value', 'reason'),
    [
        ('rate', float('nan'), 'must be finite'),
        ('rate', 1000.0, 'out of range'),
        ('rate', 'fast', 'Wrong parameter type'),
        ('stepping', 'x', "parameter stepping: must be 'realtime' or 'lockstep' (got 'x')"),
        ('low', 5.0, 'low 5 is above high 1'),
        ('root', '/elsewhere', 'read-only'),
    ],
)
def test_a_refused_set_changes_nothing(node, name, value, reason):
    changes = []
    each, parameters = node(on_change=changes.append)
    done, why = set_one(each, name, value)
    assert not done
    assert reason in why or (name == 'rate' and 'rate' in why)
    assert parameters.value == Model()
    assert each.get_parameter(name).value == getattr(Model(), name)
    assert changes == []


def test_a_set_of_several_is_checked_as_a_whole(node):
    changes = []
    each, parameters = node(on_change=changes.append)
    both = [Parameter('low', value=2.0), Parameter('high', value=3.0)]
    assert each.set_parameters_atomically(both).successful
    assert (parameters.value.low, parameters.value.high) == (2.0, 3.0)
    assert len(changes) == 1
    worse = [Parameter('rate', value=30.0), Parameter('high', value=0.0)]
    assert not each.set_parameters_atomically(worse).successful
    assert parameters.value.rate == 20.0


@pytest.mark.parametrize('asked_first', [True, False])
def test_refusal_by_another_callback_changes_nothing(rclpy_context, asked_first):
    refusing = []

    def other(_):
        return SetParametersResult(successful=not refusing, reason='not today')

    node = Node('tested')
    if not asked_first:  # rclpy asks the callback that was added last first
        node.add_on_set_parameters_callback(other)
    parameters = declare(node, Model)
    if asked_first:
        node.add_on_set_parameters_callback(other)
    refusing.append(True)
    assert set_one(node, 'rate', 40.0) == (False, 'not today')
    assert parameters.value.rate == 20.0
    node.destroy_node()


def test_whole_numbers_and_empty_lists_can_be_set(node):
    each, parameters = node()
    assert set_one(each, 'rate', 30)[0]
    assert parameters.value.rate == 30.0
    assert set_one(each, 'sources', [])[0]
    assert parameters.value.sources == []
    assert each.get_parameter('sources').type_ == Parameter.Type.STRING_ARRAY


def test_over_services(node, graph_probe):
    each, parameters = node()
    graph_probe.spin(each)
    described = graph_probe.call(
        DescribeParameters,
        'tested/describe_parameters',
        DescribeParameters.Request(names=['rate', 'stepping', 'root', 'depth', 'participants']),
    ).descriptors
    rate, stepping, root, depth, participants = described
    assert rate.description == 'Rate in Hz.'
    assert (rate.floating_point_range[0].from_value, rate.floating_point_range[0].to_value) == (
        1.0,
        100.0,
    )
    assert depth.integer_range[0].from_value == 1
    assert stepping.additional_constraints == 'one of: realtime, lockstep'
    assert root.read_only
    assert not rate.read_only
    assert participants.type == Parameter.Type.STRING_ARRAY.value
    assert participants.description == 'Who acknowledges.'
    request = SetParametersAtomically.Request(
        parameters=[Parameter('rate', value=60.0).to_parameter_msg()]
    )
    reply = graph_probe.call(SetParametersAtomically, 'tested/set_parameters_atomically', request)
    assert reply.result.successful
    assert parameters.value.rate == 60.0
    values = graph_probe.call(
        GetParameters, 'tested/get_parameters', GetParameters.Request(names=['rate'])
    ).values
    assert values[0].double_value == 60.0


# --- from files and command lines, in a real process ---

PROGRAM = """
    import sys
    from pydantic import Field
    from rclpy.node import Node
    from praxis_core.parameters import ParameterModel, declare
    from praxis_core.process import run

    class Model(ParameterModel):
        rate: float = Field(20.0, ge=1.0, le=100.0, description='Hz')
        enabled: bool = Field(True, description='flag')
        sources: list[str] = Field(['policy'], description='names')
        task: str = Field('', description='task')

    def make():
        node = Node('tested')
        print('have', declare(node, Model).value)
        node.create_timer(0.01, node.context.try_shutdown)
        return node

    sys.exit(run(make))
"""


@pytest.fixture
def program(spawn, tmp_path):
    path = tmp_path / 'tested.py'
    path.write_text(textwrap.dedent(PROGRAM))

    def start(parameters):
        file = tmp_path / 'parameters.yaml'
        file.write_text(textwrap.dedent(parameters))
        process = spawn([sys.executable, str(path), '--ros-args', '--params-file', str(file)])
        return process.wait(), process.output

    return start


@pytest.mark.parametrize(
    ('yaml', 'shown'),
    [
        ('rate: 30', 'rate=30.0 enabled=True'),
        ('enabled: "false"', 'enabled=False'),
        ('enabled: "true"', 'enabled=True'),
        ('enabled: false', 'enabled=False'),
        ('enabled: true', 'enabled=True'),
        ('sources: []', 'sources=[]'),
        ('sources: [a, b]', "sources=['a', 'b']"),
        ("task: ''", "task=''"),
    ],
)
def test_parameter_file(program, yaml, shown):
    code, output = program(f'/**:\n  ros__parameters:\n    {yaml}\n')
    assert shown in output
    assert code == 0


def test_unknown_key_in_a_parameter_file_stops_the_process(program):
    assert program('tested:\n  ros__parameters:\n    enabeld: false\n') == (
        2,
        "parameter enabeld: unknown key, did you mean 'enabled'? (got False)\n",
    )


# --- schemas ---


def test_a_field_needs_a_description():
    with pytest.raises(TypeError, match=r'Bad\.rate: needs a description'):

        class Bad(ParameterModel):
            rate: float = 1.0


def test_a_field_needs_a_type_that_ros_knows():
    with pytest.raises(TypeError, match=r'Bad\.rate: .* is no type of a ROS parameter'):

        class Bad(ParameterModel):
            rate: float | None = Field(None, description='Hz')


def test_models_can_be_extended():
    class More(Model):
        extra: int = Field(1, description='One more.')

    assert set(More.kinds) == {*Model.kinds, 'extra'}
    assert 'extra' not in Model.kinds


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans()))
def test_what_a_value_prints_as_is_read_back(value):
    model = ParameterModel.__class__(
        'Any', (ParameterModel,), {'__annotations__': {}, '__module__': __name__}
    )
    assert model.kinds == {}
    kind = next(
        kind for kind in Model.kinds.values() if not kind.is_list and kind.scalar is type(value)
    )
    assert coerce(kind, str(value)) == value


@given(st.text())
def test_text_stays_text(value):
    assert coerce(Model.kinds['root'], value) is value
