# SPDX-License-Identifier: Apache-2.0
"""What is said to a model server, our own or a foreign one: one view of both. Imports no rclpy.

Our workers state the protocol in their metadata. OpenPI's own server, or the reference's RL-token
actor server, does not; what it wants is then known from a `RequestFormat`, and what it cannot
tell of itself is completed from the robot's contract.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from praxis_core.contract import Contract
from praxis_core.exchange_error import ExchangeError, described
from praxis_core.model_exchange import (
    PhysicalObservation,
    Prediction,
    check_reply,
    request_of,
)
from praxis_core.model_meta import ModelMeta, read_meta
from praxis_core.native_control import control_of
from praxis_core.schema import explain
from pydantic import ValidationError

from praxis_models import pixels
from praxis_models.request_format import PRESETS, RequestFormat, StatePart, part_of


class Dialect(ABC):
    """How to talk to the model behind one connection.

    Attributes:
        meta: What it is and what it expects.
        is_quick: A request takes no computation worth a thread.
    """

    meta: ModelMeta
    is_quick = False

    @abstractmethod
    def request(self, observation: PhysicalObservation, *, session_id: str = '') -> dict[str, Any]:
        """Request dictionary of an observation.

        Raises:
            ExchangeError: The observation lacks what is to be sent.
        """

    @abstractmethod
    def prediction(self, reply: Mapping[str, Any]) -> Prediction:
        """Checked content of a reply.

        Raises:
            ExchangeError: It is not what the metadata promised; names the field.
        """


def meet(
    metadata: Mapping[str, Any], contract: Contract, wanted: RequestFormat | None = None
) -> Dialect:
    """Choose how to talk to a server from its first frame.

    Args:
        metadata: First frame of the connection.
        contract: Of the robot.
        wanted: For a server that does not state our protocol.

    Raises:
        ExchangeError: The metadata is not valid, or nothing is known of the server.
    """
    if 'protocol' in metadata:
        return Praxis(read_meta(metadata))
    if wanted is None:
        known = ', '.join(PRESETS)
        raise ExchangeError(
            'metadata.protocol',
            f'praxis.model.v1, or a dialect parameter: {known} or a JSON object',
            'nothing',
        )
    return Foreign(wanted, metadata, contract)


class Praxis(Dialect):
    """Our own protocol."""

    is_quick = True

    def __init__(self, meta: ModelMeta) -> None:
        self.meta = meta

    def request(self, observation: PhysicalObservation, *, session_id: str = '') -> dict[str, Any]:
        """See `Dialect.request`."""
        return request_of(self.meta, observation, session_id=session_id)

    def prediction(self, reply: Mapping[str, Any]) -> Prediction:
        """See `Dialect.prediction`."""
        return check_reply(self.meta, reply)


class Foreign(Dialect):
    """A server that speaks OpenPI's protocol with a dictionary of its own.

    Args:
        form: Its dictionary.
        metadata: First frame of the connection.
        contract: Of the robot; its control is taken for the model's.

    Raises:
        ExchangeError: The model is not for this robot; names the field.
    """

    def __init__(
        self, form: RequestFormat, metadata: Mapping[str, Any], contract: Contract
    ) -> None:
        self._format = form
        self._gripper = contract.interface.gripper
        self._gripper_index = contract.gripper_index
        self._images = _images_of(form, contract)
        self._state = {
            key: tuple(part_of(part) for part in parts) for key, parts in form.state.items()
        }
        self.meta = self._complete(metadata, contract)

    def _complete(self, metadata: Mapping[str, Any], contract: Contract) -> ModelMeta:
        form = self._format
        control = control_of(contract)
        if form.action_dim not in (None, control.action_dim):
            expected = f'a contract of {form.action_dim} actions for {form.name}'
            got = f'{contract.name} with {control.action_dim}'
            raise ExchangeError('control.action_schema', expected, got)
        if form.gripper_threshold is not None and self._gripper_index is None:
            raise ExchangeError('gripper', f'a gripper for {form.name}', 'a contract without')
        chunk_size = form.chunk_size
        if form.check == 'rlt_stage2':
            chunk_size = _check_rlt(metadata, contract)
        sizes = _sizes(form, self._state.values(), contract)
        plain = {str(key): _plain(value) for key, value in metadata.items()}
        checkpoint = plain.get('checkpoint', '')
        try:
            return ModelMeta(
                backend=form.backend,
                checkpoint=checkpoint if isinstance(checkpoint, str) else '',
                control=control,
                camera_roles=tuple(dict.fromkeys(self._images.values())),
                state_schema=sizes,
                chunk_size=chunk_size,
                policy_hz=form.policy_hz,
                execute_steps=form.execute_steps,
                anchors=form.anchors,
                metadata={'dialect': form.name, **plain},
            )
        except ValidationError as error:
            key, _, rest = explain(error)[0].partition(': ')
            raise ExchangeError(f'dialect.{key}', rest, form.name) from None

    def request(self, observation: PhysicalObservation, *, session_id: str = '') -> dict[str, Any]:
        """See `Dialect.request`; a foreign server knows no sessions."""
        del session_id
        form = self._format
        request: dict[str, Any] = {}
        pictures: dict[str, np.ndarray] = {}
        for key, role in self._images.items():
            if role not in pictures:
                pictures[role] = self._picture(role, observation)
            _put(request, form.path(key), pictures[role])
        for key, parts in self._state.items():
            values = [_values(part, observation) for part in parts]
            _put(request, form.path(key), np.concatenate(values).astype(np.float32))
        if form.prompt:
            _put(request, form.path(form.prompt), observation.instruction)
        return request

    def prediction(self, reply: Mapping[str, Any]) -> Prediction:
        """See `Dialect.prediction`; timings go into its metadata."""
        form = self._format
        if form.actions not in reply:
            found = ', '.join(sorted(map(str, reply))) or 'nothing'
            raise ExchangeError(form.actions, 'a chunk of actions', found)
        prediction = check_reply(self.meta, {'actions': reply[form.actions]})
        actions = prediction.actions
        if form.clip is not None:
            actions = np.clip(actions, *map(np.float32, form.clip))
        if form.gripper_threshold is not None:
            actions = actions.copy()
            closes = actions[:, self._gripper_index] > form.gripper_threshold
            ends = self._gripper.close, self._gripper.open
            actions[:, self._gripper_index] = np.where(closes, *ends)
        timings = ('policy_timing', 'server_timing')
        metadata = {key: _plain(reply[key]) for key in timings if key in reply}
        return replace(prediction, actions=actions, metadata=metadata)

    def _picture(self, role: str, observation: PhysicalObservation) -> np.ndarray:
        form = self._format
        image = observation.images.get(role)
        if image is None:
            raise ExchangeError(f'images.{role}', 'an image', 'nothing')
        if form.image_flip != 'none':
            image = _FLIPS[form.image_flip](image)
        if form.image_size is not None:
            image = _fitted(image, *form.image_size)
        return pixels.channels_first(image) if form.channels_first else image


_FLIPS = {
    'horizontal': pixels.flip_horizontal,
    'vertical': pixels.flip_vertical,
    'both': pixels.rotate_180,
}


def _fitted(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Scale and pad as openpi's client does: by Pillow where it is installed, for its speed."""
    try:
        from PIL import Image
    except ImportError:
        return pixels.resize_with_pad(image, height, width)
    rows, columns = image.shape[:2]
    ratio = max(columns / width, rows / height)
    size = max(1, int(columns / ratio)), max(1, int(rows / ratio))
    if size != (columns, rows):
        image = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))
    if size == (width, height):
        return image
    top, left = (height - size[1]) // 2, (width - size[0]) // 2
    padded = np.zeros((height, width, 3), np.uint8)
    padded[top : top + size[1], left : left + size[0]] = image
    return padded


def _images_of(form: RequestFormat, contract: Contract) -> dict[str, str]:
    """Key of each image in the request -> camera role."""
    images = dict(form.images)
    if form.every_camera:
        for camera, shape in contract.interface.cameras.items():
            images[form.every_camera.format(camera=camera, role=shape.role)] = shape.role
    return images


def _sizes(
    form: RequestFormat, wanted: Iterable[tuple[StatePart, ...]], contract: Contract
) -> dict[str, int]:
    """Lengths of the physical states that the parts are taken from."""
    sizes: dict[str, int] = {}
    for part in (part for parts in wanted for part in parts):
        size = form.state_sizes.get(part.name) or _size(part.name, contract)
        if size is None:
            raise ExchangeError(
                f'dialect.state_sizes.{part.name}', 'its length, which is not known', 'nothing'
            )
        if part.end is not None and part.end > size:
            where = f'{part.name}[{part.first}:{part.end}]'
            raise ExchangeError(f'dialect.state.{where}', f'a part of {size} values', where)
        sizes[part.name] = size
    if sizes.get('state') not in (None, contract.state_dim):
        expected = f'a contract of {sizes["state"]} states for {form.name}'
        raise ExchangeError('state', expected, f'{contract.name} with {contract.state_dim}')
    return sizes


_FIXED_SIZES = {
    'eef_position': 3,
    'eef_quaternion_xyzw': 4,
    'eef_linear_velocity': 3,
    'eef_angular_velocity': 3,
    'gripper_qpos': 2,
    'gripper_qvel': 2,
}


def _size(name: str, contract: Contract) -> int | None:
    names = contract.interface.state.names
    if name == 'state':
        return contract.state_dim
    if name in ('joint_positions', 'joint_velocities'):
        return len(contract.deployment.joints) or None
    if name in names:
        return 1
    if name.endswith('_eef_pose'):
        return 7
    count = sum(f'{name}_{index}' in names for index in range(len(names)))
    return _FIXED_SIZES.get(name) or count or None


def _check_rlt(metadata: Mapping[str, Any], contract: Contract) -> int:
    """Hold the metadata of an RL-token actor server to the contract; gives the chunk's steps."""
    stage = _mapping(metadata, 'rlt_stage2', 'metadata')
    if stage.get('round_complete') is not True:
        got = described(stage.get('round_complete', 'nothing'))
        raise ExchangeError('metadata.rlt_stage2.round_complete', 'true', got)
    network = _mapping(stage, 'network_config', 'metadata.rlt_stage2')
    expected = {
        'state_dim': contract.state_dim,
        'action_dim': contract.action_dim,
        'action_horizon': contract.interface.action_horizon,
    }
    for key, value in expected.items():
        got = network.get(key)
        if type(got) is not int or got < 1 or value not in (None, got):
            where = f'metadata.rlt_stage2.network_config.{key}'
            wanted = 'a number of steps' if value is None else f'{value}, as {contract.name} has'
            raise ExchangeError(where, wanted, 'nothing' if got is None else described(got))
    return int(network['action_horizon'])


def _mapping(parent: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = parent.get(key)
    if not isinstance(value, Mapping):
        got = 'nothing' if value is None else described(value)
        raise ExchangeError(f'{where}.{key}', 'a mapping', got)
    return value


def _values(part: StatePart, observation: PhysicalObservation) -> np.ndarray:
    state = observation.state.get(part.name)
    if state is None:
        raise ExchangeError(f'state.{part.name}', 'a value', 'nothing')
    return np.asarray(state)[part.first : part.end]


def _put(request: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        request = request.setdefault(key, {})
    request[path[-1]] = value


def _plain(value: Any) -> Any:
    """JSON value of what a foreign server sent."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, bytes):
        return value.decode('utf-8', 'replace')
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
