# SPDX-License-Identifier: Apache-2.0
"""Error codes of every service and action result. Imports no rclpy.

A code belongs to the package whose range it lies in; each package adds its own here.
"""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class ErrorCode(IntEnum):
    """Values of ``error_code`` in results; ``error_msg`` gives the particulars in words."""

    NONE = 0

    # 1xx: request and contract
    INVALID_REQUEST = 100
    NOT_ACTIVE = 101
    BUSY = 102
    CANCELLED = 103
    TIMEOUT = 104
    NOT_FOUND = 105
    INVALID_CONTRACT = 110
    WRONG_INTERFACE = 111
    WRONG_ACTION_SPACE = 112

    # 2xx: command arbiter
    WRONG_MODE = 200
    LEASE_TAKEN = 201
    LEASE_UNKNOWN = 202
    LEASE_LOST = 203
    SOURCE_UNKNOWN = 204
    ESTOPPED = 205
    SECOND_PUBLISHER = 206

    # 3xx: motion primitives
    STALE_STATE = 300
    EPISODE_CHANGED = 301
    NOT_REACHED = 302

    # 4xx: simulator
    TASK_UNKNOWN = 400
    RESET_FAILED = 401
    CAMERA_UNKNOWN = 402
    RENDER_FAILED = 403
    PLATFORM_LOST = 404

    # 5xx: recorder and data
    NOT_RECORDING = 500
    ALREADY_RECORDING = 501
    NO_SPACE = 502
    WRITE_FAILED = 503
    DATASET_MISMATCH = 504

    # 6xx: perception
    NO_DETECTION = 600
    NO_DEPTH = 601
    NO_TRANSFORM = 602

    # 7xx: planner
    INSTRUCTION_UNKNOWN = 700
    ANCHOR_NOT_FOUND = 701
    TOOL_FAILED = 702

    # 8xx: action models
    MODEL_UNREACHABLE = 800
    MODEL_LOST = 801
    MODEL_REFUSED = 802
    MODEL_MISMATCH = 803
    MODEL_REPLY_INVALID = 804
    MODEL_TIMEOUT = 805
    WORKER_FAILED = 806
    STALE_OBSERVATION = 807

    # 9xx: internal
    INTERNAL = 900


RANGES = {
    'request and contract': range(100, 200),
    'arbiter': range(200, 300),
    'primitives': range(300, 400),
    'simulator': range(400, 500),
    'recorder and data': range(500, 600),
    'perception': range(600, 700),
    'planner': range(700, 800),
    'action models': range(800, 900),
    'internal': range(900, 1000),
}
"""Which part of the system a code comes from."""


def origin(code: int) -> str:
    """Name the part of the system that a non-zero code belongs to, ``unknown`` if none does."""
    return next((name for name, codes in RANGES.items() if code in codes), 'unknown')
