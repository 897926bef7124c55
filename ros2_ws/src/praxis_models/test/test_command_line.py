# SPDX-License-Identifier: Apache-2.0
import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Literal

import pytest
from praxis_models.backend import Backend, BackendError, BackendOptions
from praxis_models.workers import command_line, options, registry, settings
from praxis_models.workers.settings import ServerOptions, SettingsError, is_loopback, read_token
from pydantic import BaseModel, Field

HEAVY = (
    'jax',
    'torch',
    'flax',
    'openpi',
    'lerobot',
    'tensorflow',
    'transformers',
    'rclpy',
    'sglang',
)


class Sample(BaseModel):
    checkpoint: Path = Field(description='what to load, 100 % of it')
    flow_steps: Annotated[int, Field(ge=1)] = Field(10, description='steps')
    seed: int | None = Field(None, description='of the noise')
    views: tuple[str, ...] = Field(('primary',), description='roles')
    sizes: dict[str, int] = Field({}, description='by name')
    exact: bool = Field(True, description='or fast')
    mode: Literal['a', 'b'] = 'a'
    arms: Literal[1, 2] = 1


def parse(*words):
    parser = options.parser('program', 'text')
    options.add_options(parser, 'sample', Sample)
    return options.build(Sample, options.parse(parser, words))


def test_options_are_read_by_their_type():
    sample = parse(
        '--checkpoint', '/a', '--flow-steps', '3', '--seed', '-7', '--views', 'primary', 'wrist',
        '--sizes', 'state=8', 'joints=7', '--no-exact', '--mode', 'b', '--arms', '2',
    )  # fmt: skip
    assert sample == Sample(
        checkpoint=Path('/a'), flow_steps=3, seed=-7, views=('primary', 'wrist'),
        sizes={'state': 8, 'joints': 7}, exact=False, mode='b', arms=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ('words', 'name', 'value'),
    [
        (['--seed', 'none'], 'seed', None),
        (['--seed', '5', '--seed', '6'], 'seed', 6),
        (['--flow_steps', '4'], 'flow_steps', 4),
        (['--flow-steps=4'], 'flow_steps', 4),
        (['--exact'], 'exact', True),
        (['--exact', 'false'], 'exact', False),
        (['--no-exact', '--exact'], 'exact', True),
        (['--views', 'a,b'], 'views', ('a', 'b')),
        (['--views', '["a", "b"]'], 'views', ('a', 'b')),
        (['--views', '[]'], 'views', ()),
        (['--views'], 'views', ()),
        (['--sizes', '{"a": 1}'], 'sizes', {'a': 1}),
        (['--sizes', 'a=1,b=2'], 'sizes', {'a': 1, 'b': 2}),
    ],
)
def test_other_ways_to_write_a_value(words, name, value):
    assert getattr(parse('--checkpoint', 'x', *words), name) == value


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        ([], '--checkpoint: is missing'),
        (['--checkpoint', 'x', '--flow-steps', '0'], "--flow-steps: must be at least 1 (got '0')"),
        (['--checkpoint', 'x', '--mode', 'c'], "--mode: must be 'a' or 'b' (got 'c')"),
        (['--checkpoint', 'x', '--flwo-steps', '3'], 'did you mean --flow-steps?'),
        (['--checkpoint', 'x', '--flow', '3'], '--flow: unknown option'),
        (['--checkpoint', 'x', '--sizes', 'a'], "--sizes: must be NAME=VALUE (got 'a')"),
        (['--checkpoint', 'x', '--sizes', '{a'], '--sizes: is not JSON'),
        (['--checkpoint', 'x', '--sizes', 'a=b'], '--sizes.a: '),
        (['--checkpoint', 'x', 'stray'], 'stray: is not an option'),
        (['--checkpoint'], '--checkpoint: expected one argument'),
    ],
)
def test_bad_option_is_one_line_that_names_it(words, text):
    with pytest.raises(options.OptionError) as caught:
        parse(*words)
    assert text in str(caught.value)
    assert '\n' not in str(caught.value)


def test_help_shows_each_option_its_text_and_its_default():
    parser = options.parser('program', 'text')
    options.add_options(parser, 'sample', Sample)
    text = ' '.join(parser.format_help().split())
    assert '--checkpoint PATH what to load, 100 % of it (required)' in text
    assert '--flow-steps INT steps (default: 10)' in text
    assert '--mode a|b' in text
    assert '--views [STR ...] roles (default: primary)' in text


def test_overview_lists_every_back_end_with_a_line(capsys):
    assert command_line.main(['--help']) == 0
    text = capsys.readouterr().out
    for name, summary in registry.BACKENDS.items():
        assert f'  {name} ' in text
        assert summary in text


def test_overview_imports_no_model_library():
    modules = [f'praxis_models.workers.{name}' for name in registry.BACKENDS]
    code = f"""
        import sys
        from praxis_models.workers import command_line
        command_line.main(['--help'])
        found = [name for name in {HEAVY!r} if name in sys.modules]
        backends = [n for n in {modules!r} if n in sys.modules]
        assert not found + backends, found + backends
    """
    subprocess.run([sys.executable, '-c', textwrap.dedent(code)], check=True, timeout=60)


def test_help_of_a_back_end_has_its_options_and_the_servers(capsys):
    with pytest.raises(SystemExit) as caught:
        command_line.main(['noop', '--help'])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert '--delay-ms' in text
    assert '--max-message-mb' in text


@pytest.mark.parametrize(
    ('words', 'text'),
    [
        (['nop'], "unknown back end 'nop', did you mean 'noop'?"),
        (['cosmos-policy', '--help'], "did you mean 'cosmos_policy'?"),
        (['zzzz'], 'known are openpi'),
        (['no.such.module'], "back end 'no.such.module' cannot be imported"),
        (['json.decoder'], 'has no class Options'),
        (['noop', '--delay-ms', 'x'], '--delay-ms: '),
        (['noop', '--port', '70000'], "--port: must be at most 65535 (got '70000')"),
        (['noop', '--host', '0.0.0.0'], '--host: 0.0.0.0 can be reached by others'),
        (['noop', '--token-file', '/no/such'], '--token-file: cannot be read'),
    ],
)
def test_bad_command_line_ends_with_2_and_one_line(capsys, monkeypatch, words, text):
    monkeypatch.delenv(settings.TOKEN_VARIABLE, raising=False)
    assert command_line.main(words) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count('\n') == 1


def test_no_arguments_show_the_overview_and_fail(capsys):
    assert command_line.main([]) == 2
    assert 'usage' in capsys.readouterr().out


def test_back_end_of_ones_own_is_found_by_its_module(tmp_path, monkeypatch):
    package = tmp_path / 'mine'
    package.mkdir()
    (package / '__init__.py').write_text('')
    (package / 'model.py').write_text(
        'from praxis_models.backend import BackendOptions\n'
        'class Options(BackendOptions):\n    size: int = 3\n'
        'def load(options):\n    return options.size\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    loader = registry.find('mine.model')
    assert loader.name == 'model'
    assert loader.load(loader.options(size=5)) == 5


def present(name):
    return importlib.util.find_spec(f'praxis_models.workers.{name}') is not None


@pytest.mark.parametrize('name', registry.BACKENDS)
def test_every_back_end_imports_without_its_model_library(name):
    if not present(name):
        pytest.fail(f'praxis_models/workers/{name}.py is missing')
    code = f"""
        import sys
        class Refuse:
            def find_spec(self, name, path=None, target=None):
                if name.split('.')[0] in {HEAVY!r}:
                    raise ImportError(name)
        sys.meta_path.insert(0, Refuse())
        from praxis_models.workers import options, registry
        from praxis_models.workers.settings import ServerOptions
        loader = registry.find({name!r})
        assert not set(loader.options.model_fields) & set(ServerOptions.model_fields)
        parser = options.parser('x', 'y')
        options.add_options(parser, 'model', loader.options)
        options.add_options(parser, 'server', ServerOptions)
        without = [n for n, f in loader.options.model_fields.items() if not f.description]
        assert not without, without
        parser.format_help()
    """
    subprocess.run([sys.executable, '-c', textwrap.dedent(code)], check=True, timeout=60)


def test_token_comes_from_the_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(settings.TOKEN_VARIABLE, 'from-environment')
    assert read_token(None, '127.0.0.1') == 'from-environment'
    file = tmp_path / 'token'
    file.write_text('from-file\n')
    assert read_token(file, '0.0.0.0') == 'from-file'
    file.write_text(' \n')
    with pytest.raises(SettingsError, match='is empty'):
        read_token(file, '127.0.0.1')
    file.write_text('two\nlines')
    with pytest.raises(SettingsError, match='printable ASCII'):
        read_token(file, '127.0.0.1')


@pytest.mark.parametrize(
    ('host', 'loopback'),
    [('127.0.0.1', True), ('127.8.0.1', True), ('::1', True), ('localhost', True),
     ('0.0.0.0', False), ('::', False), ('192.168.0.4', False), ('localhost.example', False)],
)  # fmt: skip
def test_loopback_is_told_from_other_hosts(host, loopback):
    assert is_loopback(host) is loopback


def test_server_options_all_have_a_text():
    assert all(field.description for field in ServerOptions.model_fields.values())


def test_back_end_without_options_is_refused(tmp_path, monkeypatch):
    (tmp_path / 'bare').mkdir()
    (tmp_path / 'bare' / '__init__.py').write_text('')
    (tmp_path / 'bare' / 'one.py').write_text('class Options:\n    pass\n')
    (tmp_path / 'bare' / 'two.py').write_text(
        'from praxis_models.backend import BackendOptions\n'
        'class Options(BackendOptions):\n    pass\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendError, match='no class Options'):
        registry.find('bare.one')
    with pytest.raises(BackendError, match='no function load'):
        registry.find('bare.two')


def test_contract_of_back_ends_is_the_one_imported():
    loader = registry.find('noop')
    assert issubclass(loader.options, BackendOptions)
    assert isinstance(loader.load(loader.options()), Backend)
