# SPDX-License-Identifier: Apache-2.0
"""Messages of one line. Imports no rclpy."""

from __future__ import annotations

MESSAGE, QUOTE = 2000, 400
"""Most characters of a message, and of what another program says within one."""


def one_line(text: object, limit: int = MESSAGE) -> str:
    """Text without line breaks, cut to ``limit`` characters; an error without text by its type."""
    line = ' '.join(str(text).split())
    if not line and isinstance(text, BaseException):
        line = type(text).__name__
    return line if len(line) <= limit else f'{line[: limit - 3]}...'


def quoted(text: object) -> str:
    """What a model's own software says, for a message of ours."""
    return one_line(text, QUOTE)
