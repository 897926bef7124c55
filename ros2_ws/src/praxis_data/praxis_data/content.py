# SPDX-License-Identifier: Apache-2.0
"""What messages say, held against the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from praxis_core.contract import Contract
from praxis_core.images import compressed_rgb, rgb_array

from praxis_data.messages import Codec


class ContentError(ValueError):
    """A message whose content contradicts the contract; it is counted and left out."""


@dataclass(frozen=True)
class Command:
    """An executed command.

    Attributes:
        action: float64[A], what was executed.
        requested: float64[A], what its source asked for.
        source: Who asked.
        hold: The arbiter's own, in answer to no request.
    """

    action: np.ndarray
    requested: np.ndarray
    source: str
    hold: bool


@dataclass(frozen=True)
class Status:
    """What a ControlStatus says of the commands published under it."""

    mode: int
    intervention: bool
    active_source: str
    holding: bool


@dataclass
class Image:
    """An image, decoded the first time that a row wants it.

    Attributes:
        typename: `sensor_msgs/msg/Image` or `CompressedImage`.
        data: Serialized message, empty once decoded.
        pixels: uint8[H, W, 3] RGB, None before.
    """

    typename: str
    data: bytes | memoryview
    pixels: np.ndarray | None = None


class Content:
    """Take what rows need out of messages.

    Args:
        contract: Sizes and hash to hold them against.
        codec: Decodes images.
    """

    def __init__(self, contract: Contract, codec: Codec) -> None:
        self._contract = contract
        self._codec = codec

    def state(self, message: Any) -> np.ndarray:
        """Return the values of a StateVector, float64[S].

        Raises:
            ContentError: Another size or interface, or a value that is not finite.
        """
        self._check_hash(message.interface_hash)
        return _vector('state', message.values, self._contract.state_dim)

    def command(self, message: Any) -> Command:
        """Return the content of a Command.

        Raises:
            ContentError: Another size or interface, or a value that is not finite.
        """
        self._check_hash(message.interface_hash)
        action = _vector('command', message.values, self._contract.action_dim)
        requested = np.array(message.requested, dtype=np.float64)
        if requested.shape != action.shape:
            # A hold answers no request.
            requested = action
        return Command(action, requested, message.source, bool(message.hold))

    def status(self, message: Any) -> Status:
        """Return the content of a ControlStatus."""
        return Status(
            int(message.mode),
            bool(message.intervention),
            message.active_source,
            bool(message.holding),
        )

    def image(self, camera: str, message: Any, typename: str, data: bytes | memoryview) -> Image:
        """Return an image, still encoded.

        Raises:
            ContentError: Another size, as far as it can be told without decoding.
        """
        if not typename.endswith('/CompressedImage'):
            self._check_size(camera, (int(message.height), int(message.width)))
        return Image(typename, data)

    def decode(self, camera: str, image: Image) -> None:
        """Fill in the pixels of an image that has none yet.

        Raises:
            ValueError: The data is no image, or one of another size.
        """
        if image.pixels is not None:
            return
        message = self._codec.decode(image.typename, image.data)
        compressed = image.typename.endswith('/CompressedImage')
        pixels = compressed_rgb(message) if compressed else rgb_array(message)
        self._check_size(camera, pixels.shape[:2])
        image.pixels, image.data = pixels, b''

    def _check_hash(self, interface_hash: str) -> None:
        if interface_hash and interface_hash != self._contract.interface_hash:
            raise ContentError(
                f'interface_hash {interface_hash[:12]} is not that of contract '
                f'{self._contract.name}, {self._contract.interface_hash[:12]}'
            )

    def _check_size(self, camera: str, size: tuple[int, int]) -> None:
        shape = self._contract.interface.cameras[camera]
        if size != (shape.height, shape.width):
            raise ContentError(
                f'image is {size[1]}x{size[0]}, the contract says {shape.width}x{shape.height}'
            )


def _vector(name: str, values: Any, size: int) -> np.ndarray:
    vector = np.array(values, dtype=np.float64)
    if vector.shape != (size,):
        raise ContentError(f'{name} has {vector.size} values, the contract says {size}')
    if not np.isfinite(vector).all():
        raise ContentError(f'{name} is not finite: {vector.tolist()}')
    return vector
