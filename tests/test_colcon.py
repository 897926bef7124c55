# SPDX-License-Identifier: Apache-2.0

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def collected(*options: str) -> set[str]:
    command = [sys.executable, '-m', 'pytest', '--collect-only', '-q', *options]
    # Under colcon it names the package already.
    env = {name: value for name, value in os.environ.items() if name != 'PYTEST_ADDOPTS'}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    files = {line.split('::')[0] for line in run.stdout.splitlines() if '::' in line}
    assert files, run.stdout + run.stderr
    return files


def test_colcon_tests_of_the_root_are_those_of_whole_stacks():
    files = collected('--junit-prefix=praxis_bringup')
    assert 'tests/test_colcon.py' in files
    assert {file.split('/')[0] for file in files} == {'tests'}


def test_plain_pytest_runs_the_tests_of_every_package():
    packages = {file.split('/')[2] for file in collected() if file.startswith('ros2_ws/')}
    assert packages == {path.parent.name for path in ROOT.glob('ros2_ws/src/*/test')}


@pytest.mark.parametrize('setup', [ROOT / 'setup.py', *ROOT.glob('ros2_ws/src/*/setup.py')])
def test_every_package_with_tests_has_colcon_use_pytest(setup):
    assert "extras_require={'test': ['pytest']}" in setup.read_text()
