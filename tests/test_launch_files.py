# SPDX-License-Identifier: Apache-2.0
"""The node list of each launch file: as stored, as started, as the real launch starts it."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from praxis_core.testing import wait_until

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOTS = Path(__file__).parent / 'test_launch_nodes'
CASES = {
    'sim': ('sim', []),
    'hil': ('hil', []),
    'agent': ('agent', []),
    'demo': ('demo', []),
    'demo_libero_unrecorded': (
        'demo',
        ['platform:=libero', 'record:=false', 'namespace:=arm', 'seed:=7', 'gui:=true'],
    ),
    'two_robots': ('two_robots', ['platform_b:=libero']),
    'policy': ('policy', []),
    'policy_recorded': (
        'policy',
        ['backend:=cosmos_policy', 'platform:=libero', 'record:=true', 'predict_future:=true'],
    ),
    'model': (
        'model',
        [
            'namespace:=arm',
            'backend:=my_package.my_backend',
            'checkpoint:=/weights',
            'worker_options:={"speed": 2}',
            'use_sim_time:=true',
        ],
    ),
    'openpi': (
        'openpi',
        [
            'platform:=libero',
            'checkpoint:=/weights/pi05',
            'python:=/opt/openpi/.venv',
            'root:=/opt/openpi',
            'device:=cuda:1',
            'flow_steps:=5',
            'cameras:=base_0_rgb=primary,left_wrist_0_rgb=wrist',
        ],
    ),
    'openpi_joined': ('openpi', ['endpoint:=ws://other:8220', 'platform:=libero']),
}
EXECUTABLES = {
    'praxis_sim': ['simulator'],
    'praxis_control': ['arbiter', 'primitives'],
    'praxis_hil': ['recorder'],
    'praxis_perception': ['perception'],
    'praxis_agent': ['planner'],
    'praxis_models': ['action_model'],
}
STUB = """#!{python}
import json, os, pathlib, signal, sys
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
contents = {{
    path: pathlib.Path(path).read_text()
    for flag, path in zip(sys.argv, sys.argv[1:]) if flag == '--params-file'
}}
record = {{'argv': sys.argv[1:], 'files': contents, 'executable': pathlib.Path(sys.argv[0]).name}}
path = pathlib.Path(os.environ['STUB_FOLDER'], f'{{os.getpid()}}.json')
path.with_suffix('.part').write_text(json.dumps(record))
path.with_suffix('.part').rename(path)
while True:
    signal.pause()
"""


@pytest.fixture(scope='module')
def prefix(tmp_path_factory) -> Path:
    """Return an install prefix with the repository's launch files and stubs as executables."""
    folder = tmp_path_factory.mktemp('prefix')
    index = folder / 'share/ament_index/resource_index/packages'
    index.mkdir(parents=True)
    for package in ('praxis_bringup', *EXECUTABLES):
        (index / package).touch()
        (folder / 'share' / package).mkdir()
    for name in ('launch', 'params'):
        shutil.copytree(ROOT / name, folder / 'share/praxis_bringup' / name)
    for package, names in EXECUTABLES.items():
        (folder / 'lib' / package).mkdir(parents=True)
        for name in names:
            path = folder / 'lib' / package / name
            path.write_text(STUB.format(python=sys.executable))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture
def environment(prefix: Path, tmp_path: Path) -> dict[str, str]:
    """Return an environment that sees the prefix first and writes only below tmp_path."""
    records = tmp_path / 'records'
    records.mkdir()
    source = str(ROOT / 'ros2_ws/src/praxis_cli')
    return os.environ | {
        'AMENT_PREFIX_PATH': f'{prefix}{os.pathsep}{os.environ.get("AMENT_PREFIX_PATH", "")}',
        'PYTHONPATH': f'{source}{os.pathsep}{os.environ.get("PYTHONPATH", "")}',
        'HOME': '/home/someone',
        'ROS_LOG_DIR': str(tmp_path / 'log'),
        'STUB_FOLDER': str(records),
    }


def listed_nodes(name: str, arguments: list[str], environment: dict[str, str]) -> list[dict]:
    command = [sys.executable, '-m', 'praxis_cli.main', 'launch', '--print-nodes']
    command += ['praxis_bringup', f'{name}.launch.yaml', *arguments]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def started_nodes(command: list[str], count: int, environment: dict[str, str]) -> list[dict]:
    """Run a launch command until `count` stubs have reported, then interrupt it."""
    records = Path(environment['STUB_FOLDER'])
    for stale in records.iterdir():
        stale.unlink()
    launcher = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        wait_until(
            lambda: launcher.poll() is not None or len(list(records.glob('*.json'))) >= count,
            timeout=60.0,
            message=lambda: f'{count} processes; {len(list(records.iterdir()))} reported',
        )
        assert launcher.poll() is None, launcher.stdout.read()
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=30)
    finally:
        launcher.kill()
    assert launcher.returncode == 0, output
    return sorted(
        (normal(json.loads(path.read_text())) for path in records.glob('*.json')),
        key=lambda node: json.dumps(node, sort_keys=True),
    )


def normal(record: dict) -> dict:
    """Replace the paths of temporary parameter files by what the files hold."""
    arguments = [
        yaml.safe_load(record['files'][item])
        if Path(item).name.startswith('launch_params_') or '/launch_params_' in item
        else item
        for item in record['argv']
    ]
    return {'executable': record['executable'], 'arguments': arguments}


@pytest.mark.parametrize('case', CASES)
def test_nodes_equal_the_snapshot(case, prefix, environment):
    name, arguments = CASES[case]
    nodes = listed_nodes(name, arguments, environment)
    text = json.dumps(nodes, indent=2).replace(str(prefix / 'share/praxis_bringup'), 'SHARE')
    path = SNAPSHOTS / f'{case}.json'
    if os.environ.get('PRAXIS_UPDATE_SNAPSHOTS'):
        path.write_text(text + '\n')
    assert json.loads(text) == json.loads(path.read_text())


@pytest.mark.parametrize('case', ['demo', 'two_robots'])
def test_started_processes_are_the_listed_nodes(case, environment):
    name, arguments = CASES[case]
    listed = listed_nodes(name, arguments, environment)
    started = started_nodes(builtin(name, arguments), len(listed), environment)
    assert sorted(names(node['arguments']) for node in started) == sorted(
        (node['name'], node['namespace']) for node in listed
    )


@pytest.mark.parametrize('case', CASES)
def test_started_processes_equal_those_of_the_real_launch(case, environment):
    if not shutil.which('ros2') or not has_real_launch():
        pytest.skip('the real `ros2 launch` is not installed')
    name, arguments = CASES[case]
    count = len(listed_nodes(name, arguments, environment))
    real = ['ros2', 'launch', 'praxis_bringup', f'{name}.launch.yaml', *arguments]
    expected = started_nodes(real, count, environment)
    assert started_nodes(builtin(name, arguments), count, environment) == expected


@pytest.mark.parametrize(
    'path', sorted((ROOT / 'launch').rglob('*.launch.yaml')), ids=lambda path: path.name
)
def test_every_argument_is_described(path):
    tree = yaml.safe_load(path.read_text())['launch']
    arguments = [action['arg'] for action in tree if 'arg' in action]
    assert arguments
    assert all(len(argument['description']) > 10 for argument in arguments)


@pytest.mark.parametrize('switch', ['true', 'True', '1', 'false', 'False', '0'])
def test_record_switch_is_read_as_a_boolean(switch, environment):
    nodes = listed_nodes('demo', [f'record:={switch}'], environment)
    recorded = switch.lower() in ('true', '1')
    assert ('recorder' in [node['name'] for node in nodes]) == recorded
    values = {key: value for part in nodes[0]['parameters'][2:] for key, value in part.items()}
    assert values['lockstep_participants'] == (['recorder'] if recorded else [])


def builtin(name: str, arguments: list[str]) -> list[str]:
    command = [sys.executable, '-m', 'praxis_cli.main', 'launch', '--builtin']
    return [*command, 'praxis_bringup', f'{name}.launch.yaml', *arguments]


def has_real_launch() -> bool:
    from ament_index_python.packages import get_resources

    return 'ros2launch' in get_resources('packages')


def names(arguments: list) -> tuple[str, str]:
    remaps = dict(item.split(':=') for item in arguments if isinstance(item, str) and ':=' in item)
    return remaps['__node'], remaps['__ns']
