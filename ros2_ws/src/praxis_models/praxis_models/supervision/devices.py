# SPDX-License-Identifier: Apache-2.0
"""Which GPUs a worker sees."""

from __future__ import annotations

import re

_CUDA = re.compile(r'(cuda:)?(?P<devices>\d+(,\d+)*|(GPU|MIG)-[\w,/-]+)')


def visible_devices(device: str) -> dict[str, str]:
    """Return the variables that show a worker the named device alone, as its first one.

    Args:
        device: '' or 'cuda': all; 'cpu': none; '1', 'cuda:1', '0,2' or a UUID: these GPUs, by
            the numbers of nvidia-smi.

    Raises:
        ValueError: It is none of these.
    """
    if device in ('', 'cuda'):
        return {}
    if device == 'cpu':
        return {'CUDA_VISIBLE_DEVICES': '', 'JAX_PLATFORMS': 'cpu'}
    match = _CUDA.fullmatch(device)
    if match is None:
        raise ValueError(f'device: expected cpu, cuda, cuda:N or N,M (got {device!r})')
    return {'CUDA_VISIBLE_DEVICES': match['devices'], 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}
