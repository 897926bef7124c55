# SPDX-License-Identifier: Apache-2.0
"""Names and namespaces of nodes."""

from __future__ import annotations

import re

from praxis_cli.substitution import LaunchError

_TOKEN = re.compile(r'[A-Za-z_][A-Za-z0-9_]*')


def prefixed(base: str | None, name: str | None) -> str | None:
    """Return `name` below `base`; an absolute name stands as it is.

    Trailing slashes are dropped, except for the root.
    """
    if name is None:
        joined = base
    elif not base or name.startswith('/'):
        joined = name
    else:
        joined = f'{"" if base == "/" else base}/{name}'
    if joined is not None and joined != '/':
        joined = joined.rstrip('/')
    return joined


def absolute(namespace: str | None) -> str | None:
    """Return a namespace with its leading slash; None stays None."""
    if namespace is None or namespace.startswith('/'):
        return namespace
    return f'/{namespace}'


def check_namespace(namespace: str) -> None:
    """Raise where a namespace is not valid in ROS 2."""
    if namespace == '/':
        return
    for token in namespace[1:].split('/'):
        if not _TOKEN.fullmatch(token):
            raise LaunchError(f"The resulting namespace is invalid: '{namespace}'")


def check_name(name: str) -> None:
    """Raise where a node name is not valid in ROS 2."""
    if not _TOKEN.fullmatch(name):
        raise LaunchError(f"Invalid node name: '{name}'")
