# SPDX-License-Identifier: Apache-2.0
"""Back ends by name. Listing them imports none: each drags in its model's libraries."""

from __future__ import annotations

import difflib
import importlib
from types import MappingProxyType, ModuleType
from typing import NamedTuple

from praxis_models.backend import Backend, BackendError, BackendOptions

BACKENDS = MappingProxyType(
    {
        'openpi': "pi0, pi0-FAST and pi0.5 through openpi's own policy",
        'lerobot': 'a policy checkpoint of LeRobot',
        'apxinf': 'pi0.5 on the APXInf runtime: presets libero, dual_franka, yam',
        'lingbot': 'LingBot-VLA behind its own WebSocket server (RoboTwin, 16-D poses)',
        'rldx': 'RLDX-1, with memory per session (RoboCasa)',
        'cosmos_policy': 'Cosmos Policy, a world-action model (LIBERO)',
        'cosmos3': 'Cosmos3 behind SGLang, a world-action model (LIBERO)',
        'fast_wam': 'Fast-WAM, a world-action model (LIBERO and RoboTwin)',
        'replay': 'recorded actions from a .npz file or a LeRobot v2.1 dataset',
        'expert': "scripted teacher of the tabletop's tasks, from ground truth",
        'noop': 'zero motion after a given time: for tests and benchmarks',
    }
)


class Loader(NamedTuple):
    """How a back end is configured and loaded."""

    name: str
    summary: str
    options: type[BackendOptions]
    module: ModuleType

    def load(self, options: BackendOptions) -> Backend:
        """Load the model; raises whatever the back end raises."""
        return self.module.load(options)


def find(name: str) -> Loader:
    """Import one back end: a name of `BACKENDS`, or a module ``PACKAGE.MODULE`` of one's own.

    A module of one's own defines ``Options``, a `BackendOptions`, and ``load(options)``.

    Raises:
        BackendError: There is none of that name, or its module cannot be imported.
    """
    if name in BACKENDS:
        path, summary = f'praxis_models.workers.{name}', BACKENDS[name]
    elif '.' in name and all(part.isidentifier() for part in name.split('.')):
        path, summary = name, f'back end of the module {name}'
    else:
        near = difflib.get_close_matches(name.replace('-', '_').lower(), BACKENDS, n=1, cutoff=0.5)
        hint = f'did you mean {near[0]!r}?' if near else f'known are {", ".join(BACKENDS)}'
        raise BackendError(f'unknown back end {name!r}, {hint}')
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        raise BackendError(f'back end {name!r} cannot be imported: {error}') from error
    options = getattr(module, 'Options', None)
    if not (isinstance(options, type) and issubclass(options, BackendOptions)):
        raise BackendError(f'{path} has no class Options(BackendOptions)')
    if not callable(getattr(module, 'load', None)):
        raise BackendError(f'{path} has no function load(options)')
    return Loader(name.rpartition('.')[2], summary, options, module)
