# SPDX-License-Identifier: Apache-2.0
import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from praxis_cli.frontend import load
from praxis_cli.substitution import LaunchError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(['launch', 'node', 'pkg', 'exec', 'group', 'arg', 'name', 'param']),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / 'x.launch.yaml'
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ('action', 'message'),
    [
        ('exe: {cmd: ls}', 'Unrecognized entity of the type: exe'),
        ('executable: {cmd: ls, foo: 1}', r"Unexpected key\(s\) found in `executable`: {'foo'}"),
        ('executable: {cmd: ls, if: true}', "'if' of Entity 'executable' expected .* 'str'"),
        ("executable: {cmd: ls, if: '1', unless: '1'}", "can't be used simultaneously"),
        ('executable: {cmd: ls, on_exit: stop}', 'expected to be shutdown but got `stop`'),
        ('executable: {cmd: ls, sigterm_timeout: -1.0}', 'non-negative'),
        ('executable: {name: x}', "Can not find attribute 'cmd'"),
        ("executable: {cmd: ''}", 'is empty'),
        ('arg: {name: x, default: 5}', "'default' of Entity 'arg' expected to be of type 'str'"),
        ('arg: {name: x, choice: []}', 'list of dictionaries'),
        ('set_parameter: {name: x, value: true}', "got 'bool'"),
        ('node: {pkg: p}', "Can not find attribute 'exec'"),
        ('node: {exec: e}', "Can not find attribute 'pkg'"),
        ('node: {pkg: p, exec: e, param: [{value: 1}]}', 'should have name or from'),
        ('node: {pkg: p, exec: e, param: [{name: a}]}', 'value attribute or nested params'),
        ('node: {pkg: p, exec: e, param: [{name: a, from: b}]}', 'mutually exclusive'),
        (
            "node: {pkg: p, exec: e, param: [{name: a, value: '[1]', type: list_of_int}]}",
            "expected to be of type 'list_of_int'",
        ),
        ('group: {scoped: true}', 'to have children'),
        ('let: {name: a, value: $(eval 1)}', 'refused'),
    ],
)
def test_what_the_real_launch_refuses_is_refused(write, action, message):
    with pytest.raises(LaunchError, match=message):
        load(write(f'launch:\n- {action}\n'))


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', 'Expected only one root'),
        ('start: []', "Expected 'launch' as root tag"),
        ('launch: [', 'while parsing'),
        ('launch: [ls]', 'only one key'),
    ],
)
def test_a_file_that_is_no_launch_file_is_refused_by_name(write, text, message):
    with pytest.raises(LaunchError, match=message) as raised:
        load(write(text))
    assert 'x.launch.yaml' in str(raised.value)


def test_python_launch_files_are_left_to_the_real_launch(tmp_path):
    with pytest.raises(LaunchError, match='real ros2 launch'):
        load(tmp_path / 'x.launch.py')


@given(JSON)
def test_any_yaml_loads_or_is_refused_as_a_launch_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / 'any.launch.yaml'
    path.write_text(yaml.safe_dump({'launch': data}))
    with contextlib.suppress(LaunchError):
        load(path)
