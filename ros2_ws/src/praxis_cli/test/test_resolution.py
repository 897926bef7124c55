# SPDX-License-Identifier: Apache-2.0
import pytest
import yaml
from praxis_cli.frontend import load
from praxis_cli.namespace import prefixed
from praxis_cli.resolution import parameter_yaml, resolve
from praxis_cli.substitution import LaunchError


@pytest.fixture
def nodes(tmp_path):
    """Return a function from YAML actions and arguments to resolved processes."""

    def nodes(text: str, **arguments: str):
        path = tmp_path / 'main.launch.yaml'
        lines = '\n'.join('  ' + line for line in text.strip('\n').splitlines())
        path.write_text(f'launch:\n{lines}\n')
        return resolve(load(path), arguments, {'HOME': '/h'})

    return nodes


def test_an_argument_takes_its_default_or_the_value_given(nodes):
    text = """
- arg: {name: x, default: one}
- executable: {cmd: echo $(var x)}
"""
    assert nodes(text)[0].command == ('echo', 'one')
    assert nodes(text, x='two words')[0].command == ('echo', 'two words')


def test_a_missing_argument_is_named_with_its_description(nodes):
    with pytest.raises(LaunchError, match=r"required argument 'x' \(description: 'of x'\)"):
        nodes('- arg: {name: x, description: of x}')


def test_a_value_outside_the_choices_names_them(nodes):
    text = '- arg: {name: x, default: a, choice: [{value: a}, {value: b}]}'
    with pytest.raises(LaunchError, match=r"value \"c\" is not valid. .*: \['a', 'b'\]"):
        nodes(text, x='c')


@pytest.mark.parametrize(
    ('value', 'started'),
    [
        ('true', True),
        ('True', True),
        ('1', True),
        ('false', False),
        ('FALSE', False),
        ('0', False),
    ],
)
def test_conditions_read_booleans_not_any_text(nodes, value, started):
    text = """
- arg: {name: x}
- executable: {cmd: a, if: $(var x)}
- executable: {cmd: b, unless: $(var x)}
"""
    assert [process.label for process in nodes(text, x=value)] == ['a' if started else 'b']


@pytest.mark.parametrize('value', ['yes', 'on', '2', 'truee'])
def test_a_condition_that_is_no_boolean_is_an_error(nodes, value):
    with pytest.raises(LaunchError, match='invalid condition expression'):
        nodes(f"- executable: {{cmd: a, if: '{value}'}}")


def test_a_group_ends_namespace_parameters_remaps_settings_and_environment(nodes):
    text = """
- let: {name: x, value: outer}
- group:
  - push_ros_namespace: {namespace: a}
  - set_parameter: {name: use_sim_time, value: 'true'}
  - set_remap: {from: /tf, to: tf}
  - let: {name: x, value: inner}
  - set_env: {name: E, value: e}
  - node: {pkg: p, exec: n, args: $(var x)}
- node: {pkg: p, exec: n, args: $(var x)}
"""
    inner, outer = nodes(text)
    assert (inner.namespace, inner.global_parameters) == ('/a', (('use_sim_time', True),))
    assert (inner.remaps, inner.command) == ((('/tf', 'tf'),), ('inner',))
    assert inner.environment == {'HOME': '/h', 'E': 'e'}
    assert (outer.namespace, outer.global_parameters, outer.remaps) == (None, (), ())
    assert (outer.command, outer.environment) == (('outer',), {'HOME': '/h'})


def test_an_unscoped_group_keeps_its_settings(nodes):
    text = """
- group: {scoped: false, children: [{push_ros_namespace: {namespace: a}}]}
- node: {pkg: p, exec: n}
"""
    assert nodes(text)[0].namespace == '/a'


@pytest.mark.parametrize(
    ('pushed', 'own', 'expected'),
    [
        (['a'], None, '/a'),
        (['a', 'b'], None, '/a/b'),
        (['a'], 'c', '/a/c'),
        (['a'], '/c', '/c'),
        (['a', '/b/'], None, '/b'),
        ([], 'c', '/c'),
        ([''], None, '/'),
    ],
)
def test_namespaces_nest_unless_absolute(nodes, pushed, own, expected):
    text = ''.join(f"- push_ros_namespace: {{namespace: '{item}'}}\n" for item in pushed)
    suffix = f', namespace: {own}' if own else ''
    assert nodes(f'{text}- node: {{pkg: p, exec: n{suffix}}}')[0].namespace == expected


@pytest.mark.parametrize('namespace', ['a-b', '1a', 'a//b'])
def test_an_invalid_namespace_is_refused(nodes, namespace):
    with pytest.raises(LaunchError, match='namespace is invalid'):
        nodes(f'- push_ros_namespace: {{namespace: {namespace}}}')


def test_an_include_sees_the_callers_settings_and_its_own_folder(nodes, tmp_path):
    (tmp_path / 'sub').mkdir()
    (tmp_path / 'sub/inner.launch.yaml').write_text(
        'launch:\n- arg: {name: y}\n- executable: {cmd: echo $(var x) $(var y) $(dirname)}\n'
    )
    text = """
- let: {name: x, value: outer}
- include: {file: $(dirname)/sub/inner.launch.yaml, arg: [{name: y, value: $(var x)s}]}
- executable: {cmd: echo $(dirname)}
"""
    inner, outer = nodes(text)
    assert inner.command == ('echo', 'outer', 'outers', str(tmp_path / 'sub'))
    assert outer.command == ('echo', str(tmp_path))


@pytest.mark.parametrize(
    ('value', 'kind', 'expected'),
    [
        ('1', None, 1),
        ('1.5', None, 1.5),
        ('true', None, True),
        ('text', None, 'text'),
        ('[1, 2]', None, [1, 2]),
        ("['']", None, ['']),
        ('1', 'str', '1'),
        ('1', 'float', 1.0),
        ('1', 'bool', True),
        ('a: b', 'str', 'a: b'),
    ],
)
def test_a_substituted_parameter_is_read_by_yaml_rules_or_its_type(nodes, value, kind, expected):
    suffix = f', type: {kind}' if kind else ''
    text = f"""
- arg: {{name: x}}
- node: {{pkg: p, exec: n, param: [{{name: a, value: $(var x){suffix}}}]}}
"""
    result = nodes(text, x=value)[0].parameters[0]['a']
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ('value', 'kind'),
    [
        ('x', 'int'),
        ('1.5', 'int'),
        ('x', 'float'),
        ('yes please', 'bool'),
        ('{a: 1}', None),
        ('[1, a]', None),
        ('2020-01-01', None),
        ('1', 'complex'),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_parameters_name(nodes, value, kind):
    suffix = f', type: {kind}' if kind else ''
    text = f"""
- arg: {{name: x}}
- node: {{pkg: p, exec: n, param: [{{name: speed, value: $(var x){suffix}}}]}}
"""
    with pytest.raises(LaunchError, match='speed'):
        nodes(text, x=value)


def test_plain_values_keep_their_yaml_type_and_nest_by_dots(nodes):
    text = """
- node:
    pkg: p
    exec: n
    param:
    - {name: a, value: 'true'}
    - {name: b, param: [{name: c, value: 2}, {name: d, value: [1.0, 2.0]}]}
    - {from: /some/file.yaml}
"""
    assert nodes(text)[0].parameters == (
        {'a': 'true'},
        {'b.c': 2, 'b.d': [1.0, 2.0]},
        '/some/file.yaml',
    )


@pytest.mark.parametrize(
    ('fields', 'key'),
    [('name: x, namespace: a', '/a/x'), ('name: x', '/**'), ('namespace: a', '/**')],
)
def test_a_parameter_file_names_the_node_where_it_is_known(nodes, fields, key):
    process = nodes(f'- node: {{pkg: p, exec: n, {fields}}}')[0]
    tree = yaml.safe_load(parameter_yaml(process, {'a': 'true'}))
    assert tree == {key: {'ros__parameters': {'a': 'true'}}}


def test_prefixed_without_base_or_name():
    assert prefixed(None, None) is None
    assert prefixed('/', 'a') == '/a'
    assert prefixed('/a', None) == '/a'
