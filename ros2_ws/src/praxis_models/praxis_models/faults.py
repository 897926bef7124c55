# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a model, and what it is called in results. Imports no rclpy."""

from __future__ import annotations

from typing import Literal

from praxis_core.errors import ErrorCode

Fault = Literal[
    'unreachable', 'lost', 'refused', 'timeout', 'invalid', 'mismatch', 'worker_failed'
]

FAULTS: dict[str, tuple[str, ErrorCode]] = {
    'unreachable': ('model_unreachable', ErrorCode.MODEL_UNREACHABLE),
    'lost': ('model_lost', ErrorCode.MODEL_LOST),
    'refused': ('model_refused', ErrorCode.MODEL_REFUSED),
    'timeout': ('model_timeout', ErrorCode.MODEL_TIMEOUT),
    'invalid': ('model_reply_invalid', ErrorCode.MODEL_REPLY_INVALID),
    'mismatch': ('model_mismatch', ErrorCode.MODEL_MISMATCH),
    'worker_failed': ('worker_failed', ErrorCode.WORKER_FAILED),
}
"""What a fault of the model is called in results."""

FINAL = ('mismatch', 'worker_failed')
"""Faults that no patience heals."""

AWAY = ('unreachable', 'lost')
"""Faults that say no more than that there is no connection."""
