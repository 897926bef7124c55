# SPDX-License-Identifier: Apache-2.0
"""What a worker's process sees of our environment, and what it does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from praxis_models.supervision.environment import (
    find_python,
    is_own_environment,
    link_packages,
    visible_devices,
    worker_environment,
)
from praxis_models.workers import registry

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


@pytest.mark.parametrize(
    ('device', 'expected'),
    [
        ('', {}),
        ('cuda', {}),
        ('cpu', {'CUDA_VISIBLE_DEVICES': '', 'JAX_PLATFORMS': 'cpu'}),
        ('1', {'CUDA_VISIBLE_DEVICES': '1', 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}),
        ('cuda:1', {'CUDA_VISIBLE_DEVICES': '1', 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}),
        ('0,3', {'CUDA_VISIBLE_DEVICES': '0,3', 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}),
        ('GPU-8f5e', {'CUDA_VISIBLE_DEVICES': 'GPU-8f5e', 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}),
    ],
)
def test_device_decides_what_is_visible(device, expected):
    assert visible_devices(device) == expected


@pytest.mark.parametrize('device', ['gpu', 'cuda:', 'cuda:x', '-1', '0;1', 'CPU'])
def test_unknown_device_is_refused(device):
    with pytest.raises(ValueError, match='device: expected cpu, cuda'):
        visible_devices(device)


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
    extra = {'CUDA_VISIBLE_DEVICES': '7', 'PYTHONUNBUFFERED': '0'}
    environment = worker_environment(
        foreign, tmp_path, device='cpu', extra=extra, inherited=INHERITED
    )
    assert environment['CUDA_VISIBLE_DEVICES'] == '7'
    assert environment['PYTHONUNBUFFERED'] == '0'


def test_foreign_python_imports_our_packages_and_none_of_our_libraries(foreign, tmp_path):
    packages = tmp_path / 'packages'
    packages.mkdir()
    link_packages(packages)
    assert sorted(path.name for path in packages.iterdir()) == ['praxis_core', 'praxis_models']
    code = (
        'import importlib.util as u, praxis_core, praxis_models.workers\n'
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


WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in sys.argv[1].split(','):
            raise ImportError(f'{name} is not in this environment')

sys.meta_path.insert(0, Refuse())
from praxis_models.workers import command_line, registry
from praxis_models import embeddings
for name in sys.argv[2].split(','):
    registry.find(name)
"""
READ_CONTRACTS = {'noop', 'replay'}


@pytest.mark.parametrize(
    ('absent', 'backends'),
    [
        ('rclpy,praxis_interfaces,yaml,cv2,av,scipy,tyro,rich,torch,jax,fastapi,psutil',
         set(registry.BACKENDS) - READ_CONTRACTS),
        ('rclpy,praxis_interfaces,cv2,av,scipy,tyro,rich,torch,jax,fastapi,psutil',
         READ_CONTRACTS),
    ],
    ids=['models', 'readers of contracts'],
)  # fmt: skip
def test_a_worker_needs_little_of_the_environment_of_its_model(absent, backends):
    result = subprocess.run(
        [sys.executable, '-c', WITHOUT, absent, ','.join(sorted(backends))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
