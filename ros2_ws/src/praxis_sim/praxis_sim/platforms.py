# SPDX-License-Identifier: Apache-2.0
"""Platforms by name, as the entry points of ``praxis_sim.platforms`` declare them."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points

from praxis_sim.platform import ENTRY_POINTS, Platform, PlatformError, PlatformOptions


def names() -> list[str]:
    """List the known platforms."""
    return sorted({point.name for point in entry_points(group=ENTRY_POINTS)})


def create(name: str, options: PlatformOptions, process: str = '') -> Platform:
    """Create a platform on the calling thread, which must be the one that steps it.

    Args:
        name: Entry point.
        options: Passed on.
        process: Python executable of an environment of its own, empty for this process.

    Raises:
        PlatformError: Unknown name, packages missing, or refused options.
    """
    if process:
        from praxis_sim.remote import RemotePlatform

        return RemotePlatform(process, name, options)
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            try:
                return point.load()(options)
            except ImportError as error:
                raise PlatformError(f'platform {name!r} cannot be loaded: {error}') from error
    known = names()
    near = difflib.get_close_matches(name, known, 1)
    hint = f'; did you mean {near[0]!r}?' if near else ''
    raise PlatformError(f'unknown platform {name!r}; known are {", ".join(known)}{hint}')
