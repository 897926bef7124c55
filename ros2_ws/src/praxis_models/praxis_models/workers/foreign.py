# SPDX-License-Identifier: Apache-2.0
"""Modules of a model's own environment, imported where a worker loads it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from praxis_models.backend import BackendError
from praxis_models.wording import quoted


def bring(module: str, package: str) -> ModuleType:
    """Import a module that only the model's own environment has.

    Args:
        module: Dotted name.
        package: What to install to have it, for the message.

    Raises:
        BackendError: It is not there, or its import fails; one line with what to do.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        absent = getattr(error, 'name', None) == module.partition('.')[0]
        reason = '' if absent else f': {type(error).__name__}: {quoted(error)}'
        # where it is not installed at all, the traceback says nothing more
        raise BackendError(
            f'{module} cannot be imported by {sys.executable}{reason}; install {package} in an '
            f'environment of its own and name its Python with `python`'
        ) from (None if absent else error)
    except Exception as error:
        raise BackendError(
            f'{module} fails at its import: {type(error).__name__}: {quoted(error)}'
        ) from error
