# SPDX-License-Identifier: Apache-2.0
"""Physical observation to LingBot-VLA's request, and its reply to RoboTwin's end-effector control.

Source of the schema: Robbyant/lingbot-vla 8b187998 (``deploy/lingbot_vla_policy.py``) for the
server, RLinf/RPent 091fac11 (``robots/robotwin/vla_client.py``) for the 16 numbers. The server
scales the images and normalises by itself. Poses are position in m and quaternion w x y z, as
RoboTwin gives them. Imports no rclpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from praxis_core.model_exchange import PhysicalObservation
from praxis_core.native_control import ROBOTWIN_EEF16

from praxis_models.rotations import continuous_quaternions, unit_quaternion

CONTROL = ROBOTWIN_EEF16
CAMERAS: Mapping[str, str] = MappingProxyType(
    {'cam_high': 'head', 'cam_left_wrist': 'left_wrist', 'cam_right_wrist': 'right_wrist'}
)
STATE_SCHEMA: Mapping[str, int] = MappingProxyType(
    {'left_eef_pose': 7, 'left_gripper': 1, 'right_eef_pose': 7, 'right_gripper': 1}
)
_ARMS = (0, 8)
"""Where each arm begins in the 16: x, y, z, qw, qx, qy, qz, gripper."""


def encode(observation: PhysicalObservation) -> dict[str, Any]:
    """Request of one inference."""
    request: dict[str, Any] = {
        f'observation.images.{name}': np.ascontiguousarray(observation.images[role])
        for name, role in CAMERAS.items()
    }
    request['observation.state'] = np.concatenate(
        [observation.state[name] for name in STATE_SCHEMA]
    ).astype(np.float32)
    request['task'] = observation.instruction
    return request


def decode(reply: Mapping[str, Any], observation: PhysicalObservation) -> np.ndarray:
    """Chunk of `CONTROL`, float32[H, 16].

    The network's quaternions come back of length one, and with signs that go on from the
    observation's without a jump, since what follows interpolates them. Grippers are clipped to
    0 ... 1.

    Raises:
        ValueError: The reply is none of a policy of this control.
    """
    actions = np.array(reply.get('action'), dtype=np.float64)
    if actions.ndim != 2 or actions.shape[1] != 16 or not len(actions):
        raise ValueError(f'action: expected shape [H, 16] (got {list(actions.shape)})')
    if not np.isfinite(actions).all():
        raise ValueError('action: is not finite')
    for side, start in zip(('left', 'right'), _ARMS, strict=True):
        turn = slice(start + 3, start + 7)
        before = observation.state[f'{side}_eef_pose'][3:]
        actions[:, turn] = continuous_quaternions(unit_quaternion(actions[:, turn]), before)
        actions[:, start + 7] = np.clip(actions[:, start + 7], 0.0, 1.0)
    return actions.astype(np.float32)
