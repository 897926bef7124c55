# SPDX-License-Identifier: Apache-2.0
"""What a policy says to the graph, as messages. Imports no rclpy."""

from __future__ import annotations

import array
import json
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from praxis_core.contract import Contract
from praxis_core.images import fill_image
from praxis_core.model_meta import ModelMeta
from praxis_interfaces.msg import ActionChunk, Command
from praxis_interfaces.srv import GetModelInfo
from sensor_msgs.msg import Image

from praxis_models.goals.policy_driver import Observed
from praxis_models.model_link import Inferred
from praxis_models.playback.timeline import Step


def time_message(stamp_ns: int) -> Time:
    """Stamp of ns."""
    return Time(sec=stamp_ns // 1_000_000_000, nanosec=stamp_ns % 1_000_000_000)


def command_message(
    contract: Contract,
    source: str,
    lease_id: str,
    seq: int,
    step: Step,
    values: np.ndarray,
    observed: Observed,
) -> Command:
    """Request of one tick, in answer to a state; the header's stamp is left to the node."""
    state = observed.message
    message = Command(
        seq=seq,
        source=source,
        lease_id=lease_id,
        episode_uuid=state.episode_uuid,
        observation_seq=state.observation_seq,
        observation_stamp=state.header.stamp,
        chunk_id=step.chunk_id,
        chunk_index=step.chunk_index,
        interface_hash=contract.interface_hash,
        action_space=contract.interface.action_space,
    )
    message.header.frame_id = contract.deployment.base_frame
    message.values = message.requested = values.tolist()
    return message


def chunk_message(
    contract: Contract, source: str, chunk_id: str, policy_hz: float, inferred: Inferred
) -> ActionChunk:
    """Chunk as it is executed: absolute where the model's own is relative."""
    horizon, dim = inferred.actions.shape
    message = ActionChunk(
        chunk_id=chunk_id,
        source=source,
        observation_seq=inferred.snapshot.seq,
        interface_hash=contract.interface_hash,
        action_space=contract.interface.action_space,
        policy_hz=policy_hz,
        horizon=horizon,
        action_dim=dim,
        inference_ms=inferred.latency_ms,
    )
    message.header.stamp = time_message(inferred.snapshot.stamp_ns)
    message.header.frame_id = contract.deployment.base_frame
    message.actions = array.array('d', inferred.actions.tobytes())
    return message


def frame_message(pixels: np.ndarray, stamp_ns: int, frame_id: str) -> Image:
    """Predicted image uint8[H, W, 3] RGB at the time that it is predicted for."""
    message = fill_image(Image(), pixels, 'rgb8')
    message.header.stamp = time_message(stamp_ns)
    message.header.frame_id = frame_id
    return message


def model_info(meta: ModelMeta, response: GetModelInfo.Response) -> GetModelInfo.Response:
    """Fill the answer of ``get_model_info``."""
    control = meta.control
    response.backend, response.checkpoint = meta.backend, meta.checkpoint
    response.embodiment, response.action_space = control.embodiment, control.action_space
    response.action_schema = list(control.action_schema)
    response.action_type = control.action_type or ''
    response.interface_hash = meta.interface_hash
    response.camera_roles = list(meta.camera_roles)
    response.state_names = list(meta.state_schema)
    response.state_sizes = list(meta.state_schema.values())
    response.chunk_size = meta.chunk_size or 0
    response.uses_sessions = meta.uses_sessions
    response.returns_future_observation = meta.returns_future_observation
    response.returns_value = meta.returns_value
    beyond: dict[str, Any] = {
        key: value
        for key in ('policy_hz', 'execute_steps', 'anchors')
        if (value := meta.to_wire()[key])
    }
    response.metadata = json.dumps({**beyond, **meta.metadata})
    return response
