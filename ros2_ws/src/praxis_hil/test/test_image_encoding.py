# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from praxis_core.images import ImageError, compressed_rgb
from praxis_data import messages
from praxis_hil.image_encoding import COMPRESSED, IMAGE, ImageEncoder

PIXELS = np.random.default_rng(1).integers(0, 255, (24, 32, 3), dtype=np.uint8)


def image(encoding='rgb8', pixels=PIXELS):
    header = {'stamp': {'sec': 7, 'nanosec': 9}, 'frame_id': 'top_optical_frame'}
    message = messages.make(
        IMAGE,
        header=header,
        height=pixels.shape[0],
        width=pixels.shape[1],
        encoding=encoding,
        step=pixels.strides[0],
        data=pixels.tobytes(),
    )
    return messages.encode(IMAGE, message)


def test_raw_keeps_the_bytes():
    data = image()
    encoder = ImageEncoder('raw')
    assert encoder.encode(data) is data
    assert encoder.topic('/cameras/top/image_raw') == '/cameras/top/image_raw'


@pytest.mark.parametrize('encoding', ['rgb8', 'bgr8'])
def test_png_keeps_pixels_and_header(encoding):
    encoder = ImageEncoder('png')
    pixels = np.ascontiguousarray(PIXELS if encoding == 'rgb8' else PIXELS[:, :, ::-1])
    message = messages.decode(COMPRESSED, encoder.encode(image(encoding, pixels)))
    assert np.array_equal(compressed_rgb(message), PIXELS)
    assert message.header.stamp.sec == 7
    assert message.header.frame_id == 'top_optical_frame'
    assert message.format == f'{encoding}; png compressed bgr8'
    assert encoder.topic('/cameras/top/image_raw') == '/cameras/top/image_raw/compressed'


def test_jpeg_is_close_and_smaller_with_less_quality():
    fine, coarse = ImageEncoder('jpeg', 95), ImageEncoder('jpeg', 40)
    smooth = np.repeat(np.linspace(0, 255, 32, dtype=np.uint8)[None, :, None], 24, 0)
    smooth = np.ascontiguousarray(np.repeat(smooth, 3, 2))
    message = messages.decode(COMPRESSED, fine.encode(image(pixels=smooth)))
    assert np.abs(compressed_rgb(message).astype(int) - smooth).max() < 8
    assert len(coarse.encode(image())) < len(fine.encode(image()))


def test_depth_and_unknown_encodings_are_refused():
    depth = np.ones((24, 32), np.float32)
    message = messages.make(
        IMAGE, height=24, width=32, encoding='32FC1', step=128, data=depth.tobytes()
    )
    with pytest.raises(ImageError, match='depth'):
        ImageEncoder('jpeg').encode(messages.encode(IMAGE, message))
    with pytest.raises(ValueError, match='webp'):
        ImageEncoder('webp')
