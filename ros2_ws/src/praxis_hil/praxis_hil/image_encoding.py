# SPDX-License-Identifier: Apache-2.0
"""Encode an image once, for the bag and for the dataset alike."""

from __future__ import annotations

from praxis_core import images
from praxis_data import messages

IMAGE = 'sensor_msgs/msg/Image'
COMPRESSED = 'sensor_msgs/msg/CompressedImage'
ENCODINGS = ('raw', 'jpeg', 'png')
SUFFIX = '/compressed'


class ImageEncoder:
    """Turn serialized images into what the bag stores.

    Args:
        encoding: `raw` keeps the message; `jpeg` and `png` make a CompressedImage.
        jpeg_quality: 1 to 100.

    Raises:
        ValueError: Unknown encoding.
    """

    def __init__(self, encoding: str = 'jpeg', jpeg_quality: int = 90) -> None:
        if encoding not in ENCODINGS:
            raise ValueError(f'image encoding is one of {ENCODINGS}, not {encoding!r}')
        self.encoding = encoding
        self.jpeg_quality = jpeg_quality

    @property
    def typename(self) -> str:
        """Message type that `encode` returns."""
        return IMAGE if self.encoding == 'raw' else COMPRESSED

    def topic(self, topic: str) -> str:
        """Name under which the encoded images of a topic are stored, as image_transport has it."""
        return topic if self.encoding == 'raw' else topic + SUFFIX

    def encode(self, data: bytes) -> bytes:
        """Return the serialized message to store; the header is kept.

        Args:
            data: Serialized `sensor_msgs/msg/Image`.

        Raises:
            MessageError: The bytes are no Image.
            ImageError: The pixels have no RGB form.
        """
        if self.encoding == 'raw':
            return data
        message = messages.decode(IMAGE, data)
        rgb = images.rgb_array(message)
        if self.encoding == 'jpeg':
            payload = images.encode_jpeg(rgb, self.jpeg_quality)
        else:
            payload = images.encode_png(rgb)
        # The form that compressed_image_transport writes and reads.
        form = f'{message.encoding}; {self.encoding} compressed bgr8'
        return messages.encode(
            COMPRESSED,
            messages.make(COMPRESSED, header=message.header, format=form, data=payload),
        )
