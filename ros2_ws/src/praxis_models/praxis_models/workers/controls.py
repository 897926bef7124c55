# SPDX-License-Identifier: Apache-2.0
"""The control of back ends that serve any robot: a known name, or a robot's contract."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from praxis_core.native_control import (
    LIBERO_7D,
    ROBOTWIN_EEF16,
    ROBOTWIN_QPOS14,
    NativeControl,
    control_of,
)

from praxis_models.backend import BackendError

CONTROLS = {each.embodiment: each for each in (LIBERO_7D, ROBOTWIN_QPOS14, ROBOTWIN_EEF16)}


class Chosen(NamedTuple):
    """A control, and what a contract adds to it.

    Attributes:
        control: Fields and action space.
        is_delta: Zeros are no motion.
        policy_hz: Rate of the steps in Hz, None where only the name is known.
        interface_hash: Empty where only the name is known.
    """

    control: NativeControl
    is_delta: bool
    policy_hz: float | None = None
    interface_hash: str = ''


def choose(name: str) -> Chosen:
    """Look a control up by the name of its embodiment, or read it from a contract's file.

    Raises:
        BackendError: There is no such name or file, or the contract is not valid.
    """
    if name in CONTROLS:
        control = CONTROLS[name]
        return Chosen(control, '.delta.' in control.action_space)
    if not Path(name).is_file():
        known = ', '.join(CONTROLS)
        raise BackendError(f'control: {name!r} is neither {known} nor the file of a contract')
    from praxis_core.contract import ContractError, load_contract

    try:
        contract = load_contract(name)
    except ContractError as error:
        raise BackendError(f'control: {error}') from None
    interface = contract.interface
    return Chosen(
        control_of(contract),
        interface.action_kind == 'delta',
        interface.policy_hz,
        contract.interface_hash,
    )
