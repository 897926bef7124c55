# SPDX-License-Identifier: Apache-2.0
"""How the refusal of something that was exchanged with a model reads. Imports no rclpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from praxis_core.schema import shown


class ExchangeError(ValueError):
    """A request, a reply or metadata that is refused: ``FIELD: expected X (got Y)``."""

    def __init__(self, field: str, expected: str, got: str) -> None:
        super().__init__(f'{field}: expected {expected} (got {got})')
        self.field = field
        self.expected = expected
        self.got = got


def described(value: Any) -> str:
    """Say what a value is in few characters, an array by its type and shape."""
    if isinstance(value, np.ndarray):
        return f'{value.dtype}{list(value.shape)}'
    return shown(value)
