# SPDX-License-Identifier: Apache-2.0
"""What a worker's process sees of our environment, and what it does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from praxis_core.worker_python import (
    find_python,
    is_own_environment,
    link_packages,
    worker_environment,
)

INHERITED = {
    'PATH': '/usr/bin',
    'PYTHONPATH': '/ws/install/site-packages',
    'PYTHONHOME': '/usr',
    'AMENT_PREFIX_PATH': '/ws/install:/opt/ros/jazzy',
    'LD_LIBRARY_PATH': '/opt/ros/jazzy/lib:/ws/install/lib:/usr/local/cuda/lib64:/opt/ros2/lib',
    'HF_HOME': '/cache',
}


@pytest.fixture
def foreign(tmp_path) -> Path:
    """Return the Python of another virtual environment of the same base Python."""
    folder = tmp_path / 'model_env'
    (folder / 'bin').mkdir(parents=True)
    (folder / 'bin/python').symlink_to(os.path.realpath(sys.executable))
    (folder / 'pyvenv.cfg').write_text(f'home = {Path(os.path.realpath(sys.executable)).parent}\n')
    return folder / 'bin/python'


def test_environment_of_the_same_base_python_is_foreign(foreign):
    assert is_own_environment(Path(sys.executable))
    assert not is_own_environment(foreign)


def test_python_is_found_by_path_folder_and_name(foreign, monkeypatch):
    assert find_python(str(foreign)) == foreign
    assert find_python(str(foreign.parent.parent)) == foreign
    monkeypatch.chdir(foreign.parent)
    assert find_python('./python') == foreign
    monkeypatch.setenv('PATH', str(foreign.parent))
    assert find_python('python') == foreign
    assert find_python('') == Path(sys.executable)


def test_file_that_cannot_be_run_is_no_python(tmp_path):
    (tmp_path / 'python').touch(mode=0o644)
    with pytest.raises(FileNotFoundError, match='expected a Python executable'):
        find_python(str(tmp_path / 'python'))


def test_foreign_python_gets_no_ros_and_is_activated(foreign, tmp_path):
    environment = worker_environment(
        foreign, tmp_path / 'packages', root='/model', inherited=INHERITED
    )
    assert environment['PYTHONPATH'] == f'/model:{tmp_path / "packages"}'
    assert 'PYTHONHOME' not in environment
    assert environment['LD_LIBRARY_PATH'] == '/usr/local/cuda/lib64:/opt/ros2/lib'
    assert environment['PATH'] == f'{foreign.parent}:/usr/bin'
    assert environment['VIRTUAL_ENV'] == str(foreign.parent.parent)
    assert environment['HF_HOME'] == '/cache'


def test_foreign_python_gets_no_empty_library_path(foreign, tmp_path):
    inherited = INHERITED | {'LD_LIBRARY_PATH': '/opt/ros/jazzy/lib'}
    # An empty entry would mean the working directory.
    assert 'LD_LIBRARY_PATH' not in worker_environment(foreign, tmp_path, inherited=inherited)


def test_own_python_keeps_what_it_has(tmp_path):
    environment = worker_environment(Path(sys.executable), tmp_path, inherited=INHERITED)
    assert environment['PYTHONPATH'] == f'{tmp_path}:/ws/install/site-packages'
    assert environment['LD_LIBRARY_PATH'] == INHERITED['LD_LIBRARY_PATH']
    assert environment['PATH'] == INHERITED['PATH']


def test_given_variables_win(foreign, tmp_path):
    extra = {'HF_HOME': '/weights', 'PYTHONUNBUFFERED': '0'}
    environment = worker_environment(foreign, tmp_path, extra=extra, inherited=INHERITED)
    assert environment['HF_HOME'] == '/weights'
    assert environment['PYTHONUNBUFFERED'] == '0'


def test_foreign_python_imports_our_packages_and_none_of_our_libraries(foreign, tmp_path):
    packages = tmp_path / 'packages'
    packages.mkdir()
    link_packages(packages, ['praxis_core'])
    assert [path.name for path in packages.iterdir()] == ['praxis_core']
    code = (
        'import importlib.util as u, praxis_core\n'
        'print([n for n in ("rclpy", "praxis_interfaces", "praxis_sim") if u.find_spec(n)])\n'
    )
    result = subprocess.run(
        [foreign, '-c', code],
        env=worker_environment(foreign, packages),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stdout == '[]\n', result.stderr
