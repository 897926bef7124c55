# SPDX-License-Identifier: Apache-2.0
"""Commands that the simulator refuses. Works on any object with the fields of ``Command``."""

from __future__ import annotations

from typing import Any

import numpy as np


class CommandCheck:
    """Last line of defence in front of the platform, behind the arbiter's gate.

    Args:
        interface_hash: Of the contract.
        action_space: Versioned name.
        action_dim: A.
    """

    def __init__(self, interface_hash: str, action_space: str, action_dim: int) -> None:
        self._hash, self._space, self._dim = interface_hash, action_space, action_dim

    def refusal(self, command: Any, episode_uuid: str) -> str:
        """Why a command is refused, in words; empty if it is fit to execute."""
        if command.interface_hash != self._hash:
            return (
                f'interface_hash {command.interface_hash[:12] or "(empty)"}... is not '
                f'{self._hash[:12]}...'
            )
        if command.action_space != self._space:
            return f'action_space {command.action_space!r} is not {self._space!r}'
        if command.episode_uuid and command.episode_uuid != episode_uuid:
            return f'episode {command.episode_uuid} is over, {episode_uuid} runs'
        values = np.asarray(command.values, np.float64)
        if values.shape != (self._dim,):
            return f'{values.size} values, the contract has {self._dim}'
        if not np.all(np.isfinite(values)):
            return f'values not finite: {values.tolist()}'
        return ''
