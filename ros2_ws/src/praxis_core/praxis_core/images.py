# SPDX-License-Identifier: Apache-2.0
"""Images between ROS messages, arrays and compressed bytes. Imports no rclpy.

Works on any object with the fields of ``sensor_msgs/Image`` or ``sensor_msgs/CompressedImage``.
"""

from __future__ import annotations

import array
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np


class ImageError(ValueError):
    """A message or array that is no valid image; the message names what is wrong with it."""


@dataclass(frozen=True)
class _Encoding:
    kind: str
    channels: int
    to_rgb: int | None = None
    """OpenCV conversion code; None where the array is RGB already or cannot be shown as RGB."""


_ENCODINGS = {
    'rgb8': _Encoding('u1', 3),
    'bgr8': _Encoding('u1', 3, cv2.COLOR_BGR2RGB),
    'rgba8': _Encoding('u1', 4, cv2.COLOR_RGBA2RGB),
    'bgra8': _Encoding('u1', 4, cv2.COLOR_BGRA2RGB),
    'mono8': _Encoding('u1', 1, cv2.COLOR_GRAY2RGB),
    '8UC1': _Encoding('u1', 1, cv2.COLOR_GRAY2RGB),
    'mono16': _Encoding('u2', 1),
    '16UC1': _Encoding('u2', 1),
    '32FC1': _Encoding('f4', 1),
    'yuv422': _Encoding('u1', 2, cv2.COLOR_YUV2RGB_UYVY),
    'uyvy': _Encoding('u1', 2, cv2.COLOR_YUV2RGB_UYVY),
    'yuv422_yuy2': _Encoding('u1', 2, cv2.COLOR_YUV2RGB_YUY2),
    'yuyv': _Encoding('u1', 2, cv2.COLOR_YUV2RGB_YUY2),
}
_BY_LOWER_CASE = {name.lower(): encoding for name, encoding in _ENCODINGS.items()}
_PACKED_YUV = {cv2.COLOR_YUV2RGB_UYVY, cv2.COLOR_YUV2RGB_YUY2}

ENCODINGS = tuple(_ENCODINGS)
"""Every supported value of ``Image.encoding``."""


def _encoding(name: str) -> _Encoding:
    encoding = _BY_LOWER_CASE.get(name.lower())
    if encoding is None:
        raise ImageError(f'encoding {name!r} is not supported; known: {", ".join(ENCODINGS)}')
    return encoding


def _bytes(data: Any) -> np.ndarray:
    """View the payload as uint8[N]; copies only where the sequence has no buffer."""
    try:
        return np.frombuffer(data, dtype=np.uint8)
    except (TypeError, BufferError):
        return np.asarray(data, dtype=np.uint8)
    except ValueError:  # frombuffer refuses an empty buffer
        return np.empty(0, dtype=np.uint8)


def image_array(msg: Any) -> np.ndarray:
    """View an image message as an array without copying its data.

    Args:
        msg: With the fields of ``sensor_msgs/Image``.

    Returns:
        [H, W] for one channel, [H, W, C] otherwise, in the message's own channel order and byte
        order. Rows are ``step`` bytes apart, so the view of a padded image is not contiguous.

    Raises:
        ImageError: Unknown encoding, or size, step and data do not fit together.
    """
    encoding = _encoding(msg.encoding)
    height, width, step = int(msg.height), int(msg.width), int(msg.step)
    what = f'{msg.encoding} image {width}x{height}'
    if height <= 0 or width <= 0:
        raise ImageError(f'{what}: has no pixels')
    if encoding.to_rgb in _PACKED_YUV and width % 2:
        raise ImageError(f'{what}: width must be even')
    dtype = np.dtype(encoding.kind)
    pixel = dtype.itemsize * encoding.channels
    if step < width * pixel:
        raise ImageError(f'{what}: step is {step} bytes, a row needs {width * pixel}')
    data = _bytes(msg.data)
    if data.size < step * height:
        raise ImageError(
            f'{what}: data has {data.size} bytes, step {step} x height {height} '
            f'needs {step * height}'
        )
    if dtype.itemsize > 1:
        dtype = dtype.newbyteorder('>' if msg.is_bigendian else '<')
    shape: tuple[int, ...] = (height, width)
    strides: tuple[int, ...] = (step, pixel)
    if encoding.channels > 1:
        shape, strides = (*shape, encoding.channels), (*strides, dtype.itemsize)
    return np.ndarray(shape, dtype, buffer=data, strides=strides)


def rgb_array(msg: Any) -> np.ndarray:
    """Convert an image message to uint8[H, W, 3] RGB.

    An rgb8 message gives a view of its data; every other encoding a fresh array. Alpha is
    dropped, mono16 keeps its upper eight bits.

    Raises:
        ImageError: As `image_array`, or a depth encoding, which has no colour.
    """
    encoding = _encoding(msg.encoding)
    pixels = image_array(msg)
    if encoding.to_rgb is not None:
        return cv2.cvtColor(pixels, encoding.to_rgb)
    if encoding.channels == 3:
        return pixels
    if msg.encoding.lower() == 'mono16':
        return cv2.cvtColor((pixels >> 8).astype(np.uint8), cv2.COLOR_GRAY2RGB)
    raise ImageError(f'{msg.encoding} image {msg.width}x{msg.height}: depth has no RGB form')


def compressed_rgb(msg: Any) -> np.ndarray:
    """Decode a ``sensor_msgs/CompressedImage`` to uint8[H, W, 3] RGB.

    Raises:
        ImageError: A depth format, or bytes that are no image.
    """
    if 'compresseddepth' in msg.format.lower():
        raise ImageError(f'compressed image {msg.format!r}: depth has no RGB form')
    return decode_image(_bytes(msg.data))


def fill_image(msg: Any, pixels: np.ndarray, encoding: str) -> Any:
    """Set height, width, encoding, is_bigendian, step and data of an image message.

    Args:
        msg: Message to fill; its header is left alone.
        pixels: [H, W] or [H, W, C] of the dtype that the encoding demands.
        encoding: One of `ENCODINGS`.

    Returns:
        The same message.

    Raises:
        ImageError: Shape or dtype do not fit the encoding.
    """
    form = _encoding(encoding)
    shape = pixels.shape[:2] if form.channels == 1 else (*pixels.shape[:2], form.channels)
    squeezed = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    if pixels.ndim < 2 or squeezed.shape != shape or 0 in shape:
        wanted = 'H x W' if form.channels == 1 else f'H x W x {form.channels}'
        raise ImageError(f'{encoding} image: array has shape {pixels.shape}, not {wanted}')
    dtype = np.dtype(form.kind).newbyteorder('<')
    if pixels.dtype.newbyteorder('<') != dtype:
        raise ImageError(f'{encoding} image: array is {pixels.dtype}, not {dtype.name}')
    if form.to_rgb in _PACKED_YUV and shape[1] % 2:
        raise ImageError(f'{encoding} image {shape[1]}x{shape[0]}: width must be even')
    rows = np.ascontiguousarray(squeezed, dtype=dtype)
    # rclpy takes an array.array as it is; it checks an ndarray element by element, 80 times slower
    data = array.array('B')
    data.frombytes(memoryview(rows).cast('B'))
    msg.height, msg.width = int(shape[0]), int(shape[1])
    msg.encoding = encoding
    msg.is_bigendian = 0
    msg.step = int(shape[1]) * form.channels * dtype.itemsize
    msg.data = data
    return msg


def _encode(rgb: np.ndarray, suffix: str, options: list[int]) -> bytes:
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8 or 0 in rgb.shape:
        raise ImageError(f'array is {rgb.dtype} {rgb.shape}, not uint8 H x W x 3')
    done, data = cv2.imencode(suffix, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), options)
    if not done:
        raise ImageError(f'{suffix} encoder failed on an image of shape {rgb.shape}')
    return data.tobytes()


def encode_jpeg(rgb: np.ndarray, quality: int = 90) -> bytes:
    """Encode uint8[H, W, 3] RGB as JPEG; ``quality`` from 0 to 100.

    Raises:
        ImageError: Another shape, dtype or quality.
    """
    if not 0 <= quality <= 100:
        raise ImageError(f'JPEG quality must be from 0 to 100, is {quality}')
    return _encode(rgb, '.jpg', [cv2.IMWRITE_JPEG_QUALITY, int(quality)])


def encode_png(rgb: np.ndarray) -> bytes:
    """Encode uint8[H, W, 3] RGB as PNG, without loss.

    Raises:
        ImageError: Another shape or dtype.
    """
    return _encode(rgb, '.png', [cv2.IMWRITE_PNG_COMPRESSION, 1])


def decode_image(data: bytes | bytearray | memoryview | np.ndarray) -> np.ndarray:
    """Decode JPEG or PNG bytes to uint8[H, W, 3] RGB; an EXIF rotation is not applied.

    Raises:
        ImageError: The bytes are no image.
    """
    buffer = _bytes(data)
    pixels = None
    if buffer.size:
        pixels = cv2.imdecode(buffer, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        raise ImageError(f'{buffer.size} bytes are no image that OpenCV can decode')
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
