# SPDX-License-Identifier: Apache-2.0
"""What a worker needs of the environment of its model, and which GPUs it sees there."""

import subprocess
import sys

import pytest
from praxis_models.supervision.devices import visible_devices
from praxis_models.workers import registry


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
