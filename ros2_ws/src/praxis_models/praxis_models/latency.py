# SPDX-License-Identifier: Apache-2.0
"""Settings of a process that must answer soon. Imports no rclpy."""

from __future__ import annotations

import contextlib
import ctypes
import sys

_KEPT_HEAP = 256 * 1024 * 1024
_KEPT_BLOCK = 32 * 1024 * 1024  # glibc's maximum
_SWITCH_S = 0.0005


def keep_heap() -> None:
    """Let glibc keep what it frees.

    It would give the pages of each observation back to the system and fault them in again with
    the next one, which costs a tenth of the time between request and answer.
    """
    trim_threshold, mmap_threshold = -1, -3
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(trim_threshold, _KEPT_HEAP)
        libc.mallopt(mmap_threshold, _KEPT_BLOCK)


def share_interpreter() -> None:
    """Let a thread that has an answer to read wait less for one that computes.

    Python's 5 ms are more than a whole round trip to a model on the same machine takes.
    """
    sys.setswitchinterval(_SWITCH_S)
