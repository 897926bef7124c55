# SPDX-License-Identifier: Apache-2.0
"""Tokens, which are kept in files so that no list of processes shows them. Imports no rclpy."""

from __future__ import annotations

from pathlib import Path


def read_secret(file: str | Path) -> str:
    """Read the token that a file holds.

    Raises:
        ValueError: There is none, or it cannot be part of an HTTP header.
    """
    try:
        token = Path(file).expanduser().read_text(encoding='utf-8').strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f'cannot be read: {error}') from None
    if not token:
        raise ValueError(f'{file} is empty')
    return checked_secret(token)


def checked_secret(token: str) -> str:
    """Return a token, or '' for none.

    Raises:
        ValueError: It cannot be part of an HTTP header.
    """
    if not token.isascii() or any(not sign.isprintable() for sign in token):
        raise ValueError('the token must be printable ASCII on one line')
    return token
