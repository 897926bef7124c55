# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from praxis_cli import launch
from praxis_cli.frontend import load
from praxis_cli.main import main
from praxis_cli.substitution import LaunchError

TEXT = """launch:
- arg: {name: speed, default: fast, description: How fast, choice: [{value: fast}, {value: slow}]}
- arg: {name: who}
- let: {if: $(var who), name: x, value: '1'}
- include: {if: 'true', file: $(dirname)/inner.launch.yaml}
- node: {pkg: p, exec: n, name: x, namespace: a, args: $(var speed), remap: [{from: a, to: b}]}
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / 'inner.launch.yaml').write_text(
        "launch:\n- arg: {name: inner, default: '$(env HOME)/x', description: Of the inner one}\n"
    )
    path = tmp_path / 'x.launch.yaml'
    path.write_text(TEXT)
    return path


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return the share folder of a package `some_package`."""
    index = tmp_path / 'share/ament_index/resource_index/packages'
    index.mkdir(parents=True)
    (index / 'some_package').touch()
    share = tmp_path / 'share/some_package'
    (share / 'launch').mkdir(parents=True)
    monkeypatch.setenv('AMENT_PREFIX_PATH', str(tmp_path))
    return share


def test_arguments_are_shown_as_the_real_launch_shows_them(path):
    assert (
        launch.argument_help(load(path))
        == """Arguments (pass arguments as '<name>:=<value>'):

    'speed':
        How fast. Valid choices are: ['fast', 'slow']
        (default: 'fast')

    'who':
        no description given

    'inner':*
        Of the inner one
        (default: EnvVar('HOME') + '/x')

* argument(s) which are only used if specific conditions occur
"""
    )


def test_print_nodes_lists_without_starting(path, capsys):
    code = main(['launch', str(path), '--print-nodes', 'who:=true', 'speed:=slow'])
    assert code == 0
    (node,) = json.loads(capsys.readouterr().out)
    assert (node['namespace'], node['name']) == ('/a', 'x')
    assert (node['package'], node['executable']) == ('p', 'n')
    assert (node['command'], node['remaps']) == (['slow'], [['a', 'b']])


@pytest.mark.parametrize('pair', ['x', ':=x', 'x:='])
def test_a_malformed_argument_is_refused(pair):
    with pytest.raises(LaunchError, match=f"malformed launch argument '{pair}'"):
        launch.parse_arguments([pair])


def test_the_last_of_several_values_wins():
    assert launch.parse_arguments(['x:=1', 'y:=a:=b', 'x:=2']) == {'x': '2', 'y': 'a:=b'}


def test_a_misspelt_argument_names_the_nearest(path):
    (message,) = launch.unknown_arguments(load(path), {'sped': 'fast', 'who': '1'})
    assert "'sped' is not declared" in message
    assert "did you mean 'speed'" in message


def test_a_file_is_found_anywhere_in_the_packages_share(package):
    path = package / 'launch/a.launch.yaml'
    path.write_text('launch: []')
    assert launch.find('some_package', ['a.launch.yaml', 'x:=1']) == (path, ['x:=1'])


def test_a_file_found_twice_is_refused(package):
    for folder in (package, package / 'launch'):
        (folder / 'a.launch.yaml').write_text('launch: []')
    with pytest.raises(LaunchError, match='found more than once'):
        launch.find('some_package', ['a.launch.yaml'])


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (('no_such_package', ['a.launch.yaml']), "Package 'no_such_package' not found"),
        (('some_package', ['b.launch.yaml']), "'b.launch.yaml' was not found in the share"),
        (('some_package', []), 'has: a.launch.yaml'),
        (('./b.launch.yaml', []), 'does not exist'),
    ],
)
def test_what_cannot_be_found_is_named(package, arguments, message):
    (package / 'launch/a.launch.yaml').write_text('launch: []')
    with pytest.raises(LaunchError, match=message):
        launch.find(*arguments)


def test_hands_over_to_a_real_ros2_launch(package, tmp_path, monkeypatch):
    (tmp_path / 'share/ament_index/resource_index/packages/ros2launch').touch()
    ros2 = tmp_path / 'ros2'
    ros2.write_text('#!/bin/sh\n')
    ros2.chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path))
    calls = []
    monkeypatch.setattr(launch.os, 'execvp', lambda *call: calls.append(call) or exit_now())
    with pytest.raises(SystemExit):
        main(['launch', '-d', 'some_package', 'a.launch.yaml', 'x:=1'])
    command = ['ros2', 'launch', '--debug', 'some_package', 'a.launch.yaml', 'x:=1']
    assert calls == [('ros2', command)]


def test_a_ros2_without_launch_is_left_alone(package, tmp_path, monkeypatch):
    ros2 = tmp_path / 'ros2'
    ros2.write_text('#!/bin/sh\n')
    ros2.chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path))
    assert launch.real_launch() is None


def exit_now():
    raise SystemExit(0)


def test_arguments_of_a_file_that_is_chosen_by_an_argument_are_known(tmp_path):
    for kind in ('round', 'square'):
        text = f'launch:\n- arg: {{name: {kind}_size, default: small, description: How large}}\n'
        (tmp_path / f'{kind}.launch.yaml').write_text(text)
    path = tmp_path / 'x.launch.yaml'
    path.write_text(
        'launch:\n'
        '- arg: {name: kind, default: round, description: Which}\n'
        '- include: {file: $(dirname)/$(var kind).launch.yaml}\n'
    )
    chosen = load(path)
    assert launch.unknown_arguments(chosen, {'round_size': '1'}) == []
    assert launch.unknown_arguments(chosen, {'kind': 'square', 'square_size': '1'}) == []
    assert launch.unknown_arguments(chosen, {'kind': 'square', 'round_size': '1'}) != []
    assert "'round_size'" in launch.argument_help(chosen)
    assert "'square_size'" in launch.argument_help(chosen, {'kind': 'square'})
