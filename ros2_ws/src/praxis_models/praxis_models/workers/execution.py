# SPDX-License-Identifier: Apache-2.0
"""How much of a chunk is executed before the next one."""

from __future__ import annotations

from praxis_models.backend import BackendError


def execute_steps(asked: int | None, usual: int, chunk_size: int) -> int:
    """Steps to execute of each chunk.

    Args:
        asked: The user's option.
        usual: What is executed without one, if there is as much.
        chunk_size: Steps of a chunk.

    Raises:
        BackendError: More is asked for than there is.
    """
    if asked is None:
        return min(usual, chunk_size)
    if asked > chunk_size:
        raise BackendError(f'execute_steps: a chunk has {chunk_size} steps (got {asked})')
    return asked
