# SPDX-License-Identifier: Apache-2.0
"""Each back end has a launch file that can set every option of it, and sets none by itself."""

import json
import typing
from pathlib import Path

import pytest
import yaml
from praxis_cli.frontend import load
from praxis_cli.resolution import declared_arguments, resolve
from praxis_cli.substitution import LaunchError
from praxis_models.action_model_parameters import ActionModelParameters
from praxis_models.supervision.specification import worker_arguments
from praxis_models.workers import options, registry

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / 'launch/models'
RENAMED = {'seed': 'model_seed', 'endpoint': 'server', 'device': 'model_device'}
"""Options whose names are taken: by the simulator, by our worker and by what the worker sees."""


@pytest.fixture(autouse=True)
def share(tmp_path, monkeypatch):
    """Let praxis_bringup be found at the repository's files."""
    index = tmp_path / 'share/ament_index/resource_index/packages'
    index.mkdir(parents=True)
    (index / 'praxis_bringup').touch()
    folder = tmp_path / 'share/praxis_bringup'
    folder.mkdir()
    for name in ('launch', 'params'):
        (folder / name).symlink_to(ROOT / name)
    monkeypatch.setenv('AMENT_PREFIX_PATH', str(tmp_path))


def fields(backend):
    return registry.find(backend).options.model_fields


def own_arguments(backend):
    launch_file = load(MODELS / f'{backend}.launch.yaml')
    return {each.name: each for each, _ in declared_arguments(launch_file, nested=False)}


def parameters(backend, **arguments):
    (process,) = resolve(load(MODELS / f'{backend}.launch.yaml'), arguments)
    values = {}
    for part in process.parameters:
        values |= {} if isinstance(part, str) else part
    return values


def command_line(backend, **arguments):
    """Options of the worker as its own command line reads them."""
    values = parameters(backend, **arguments)
    parser = options.parser('worker', '')
    options.add_options(parser, 'model', registry.find(backend).options)
    words = worker_arguments(values['checkpoint'], values['worker_options'])
    return options.parse(parser, words)


def test_every_back_end_has_a_launch_file_and_every_launch_file_a_back_end():
    files = {path.name.removesuffix('.launch.yaml') for path in MODELS.iterdir()}
    assert files == set(registry.BACKENDS)
    tree = yaml.safe_load((ROOT / 'launch/policy.launch.yaml').read_text())['launch']
    (argument,) = [each['arg'] for each in tree if each.get('arg', {}).get('name') == 'backend']
    assert {choice['value'] for choice in argument['choice']} == files


@pytest.mark.parametrize('backend', registry.BACKENDS)
def test_the_arguments_are_the_options_of_the_back_end(backend):
    expected = {RENAMED.get(name, name) for name in fields(backend)}
    assert set(own_arguments(backend)) == expected


@pytest.mark.parametrize('backend', registry.BACKENDS)
def test_nothing_is_set_by_default(backend):
    assert parameters(backend)['backend'] == backend
    assert command_line(backend) == {}


@pytest.mark.parametrize('backend', registry.BACKENDS)
def test_every_argument_reaches_its_option(backend):
    for name in fields(backend):
        argument = own_arguments(backend)[RENAMED.get(name, name)]
        given = (argument.choices or ['', 'something'])[-1]
        found = command_line(backend, **{argument.name: given})
        assert found in ({name: given}, {name: [given]})


@pytest.mark.parametrize('backend', registry.BACKENDS)
def test_choices_are_those_of_the_back_end(backend):
    for name, field in fields(backend).items():
        kinds = options._kinds(field.annotation)
        expected = ['true', 'false'] if bool in kinds else []
        for kind in kinds:
            if typing.get_origin(kind) is typing.Literal:
                expected += [str(choice) for choice in typing.get_args(kind) if choice != '']
        choices = own_arguments(backend)[RENAMED.get(name, name)].choices
        assert list(choices or ()) == (['', *expected] if expected else [])


@pytest.mark.parametrize('backend', registry.BACKENDS)
def test_a_server_that_runs_already_can_be_joined(backend):
    values = {'contract': 'x'} | parameters(backend, endpoint='ws://127.0.0.1:8220')
    known = {name: values[name] for name in values if name in ActionModelParameters.model_fields}
    assert ActionModelParameters.model_validate(known).endpoint == 'ws://127.0.0.1:8220'


@pytest.mark.parametrize(
    'switch', ['predict_future', 'cached_instructions_only'], ids=lambda name: name
)
@pytest.mark.parametrize('value', ['true', 'false'])
def test_a_switch_can_be_set_both_ways(switch, value):
    values = parameters('cosmos_policy', **{switch: value})
    given = options.parse(_parser('cosmos_policy'), worker_arguments('', values['worker_options']))
    built = options.build(registry.find('cosmos_policy').options, given)
    assert getattr(built, switch) is (value == 'true')


def _parser(backend):
    parser = options.parser('worker', '')
    options.add_options(parser, 'model', registry.find(backend).options)
    return parser


def test_a_value_that_is_no_choice_is_refused():
    with pytest.raises(LaunchError, match='"predict_future" provided value "maybe"'):
        parameters('cosmos_policy', predict_future='maybe')


@pytest.mark.parametrize('backend', registry.BACKENDS)
def test_worker_options_are_one_json_object(backend):
    found = json.loads(parameters(backend)['worker_options'])
    assert set(found) == set(fields(backend)) - {'checkpoint'}
    assert set(found.values()) <= {''}
