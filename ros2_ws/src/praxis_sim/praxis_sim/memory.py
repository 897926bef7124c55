# SPDX-License-Identifier: Apache-2.0
"""Memory of scenes that have been dropped."""

from __future__ import annotations

import ctypes
import gc


def give_back() -> None:
    """Free what only reference cycles hold, and return freed pages to the system.

    A scene of some hundred MB in cycles would otherwise live on beside its successor, and the C
    library keeps what lies between longer-lived pieces.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)  # glibc's
    if trim is not None:
        trim(0)
