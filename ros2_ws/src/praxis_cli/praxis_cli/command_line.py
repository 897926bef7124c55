# SPDX-License-Identifier: Apache-2.0
"""Split a command line that holds substitutions into its arguments."""

from __future__ import annotations

import shlex

from praxis_cli import substitution
from praxis_cli.substitution import LaunchError, Template, Text


def split(text: str) -> tuple[Template, ...]:
    """Split at spaces outside substitutions; a substitution's value is never split.

    Quotation marks group words of literal text, and may not enclose a substitution: the real
    ``ros2 launch`` cannot read that either.

    Raises:
        LaunchError: A quotation mark without its partner in one stretch of literal text.
    """
    arguments: list[Template] = []
    current: list = []

    def close() -> None:
        if current:
            arguments.append(tuple(current))
            current.clear()

    for part in substitution.parse(text):
        if not isinstance(part, Text):
            current.append(part)
            continue
        try:
            words = shlex.split(part.value)
        except ValueError as error:
            raise LaunchError(
                f'command line {text!r}: {error}; quotation marks may not enclose a substitution'
            ) from error
        if part.value[:1].isspace():
            close()
        for index, word in enumerate(words):
            if index:
                close()
            current.append(Text(word))
        if part.value[-1:].isspace():
            close()
    close()
    return tuple(arguments)
