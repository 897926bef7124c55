# SPDX-License-Identifier: Apache-2.0
"""Paths to a field of a message, ``a.b[2].c``. Imports no rclpy."""

from __future__ import annotations

import re

_PATH = re.compile(r'[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*', re.ASCII)
_STEP = re.compile(r'([A-Za-z_]\w*)|\[(\d+)\]', re.ASCII)


class FieldPathError(ValueError):
    """A text that is no field path."""


def parse(text: str) -> tuple[str | int, ...]:
    """Split a path into attribute names and list indices.

    Raises:
        FieldPathError: Not of the form ``a.b[2].c``.
    """
    if not _PATH.fullmatch(text):
        raise FieldPathError('is no field path such as a.b[2].c')
    return tuple(name or int(index) for name, index in _STEP.findall(text))
