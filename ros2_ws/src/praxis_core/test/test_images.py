# SPDX-License-Identifier: Apache-2.0
import array
import contextlib
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from praxis_core.images import (
    ENCODINGS,
    ImageError,
    compressed_rgb,
    decode_image,
    encode_jpeg,
    encode_png,
    fill_image,
    image_array,
    rgb_array,
)

DTYPES = {'mono16': np.uint16, '16UC1': np.uint16, '32FC1': np.float32}
CHANNELS = {'rgb8': 3, 'bgr8': 3, 'rgba8': 4, 'bgra8': 4} | dict.fromkeys(
    ('yuv422', 'uyvy', 'yuv422_yuy2', 'yuyv'), 2
)


def message(encoding, height, width, step, data, big=0):
    return SimpleNamespace(
        encoding=encoding, height=height, width=width, step=step, data=data, is_bigendian=big
    )


def blank():
    return message('', 0, 0, 0, b'')


def padded(pixels, encoding, padding, filler=0xA5, big=0):
    rows = [row.tobytes() + bytes([filler]) * padding for row in np.ascontiguousarray(pixels)]
    return message(encoding, pixels.shape[0], pixels.shape[1], len(rows[0]), b''.join(rows), big)


# --- golden values: 2 x 2 pixels, red green / blue white ---

RED_GREEN_BLUE_WHITE = np.array(
    [[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]], np.uint8
)
GOLDEN = {
    'rgb8': bytes.fromhex('ff0000 00ff00 0000ff ffffff'),
    'bgr8': bytes.fromhex('0000ff 00ff00 ff0000 ffffff'),
    'rgba8': bytes.fromhex('ff000010 00ff0020 0000ff30 ffffff40'),
    'bgra8': bytes.fromhex('0000ff10 00ff0020 ff000030 ffffff40'),
}


@pytest.mark.parametrize('encoding', GOLDEN)
def test_colour_orders(encoding):
    data = GOLDEN[encoding]
    msg = message(encoding, 2, 2, len(data) // 2, data)
    assert rgb_array(msg).tolist() == RED_GREEN_BLUE_WHITE.tolist()
    assert image_array(msg).tobytes() == data


def test_mono8_becomes_grey():
    msg = message('mono8', 1, 3, 3, bytes([0, 100, 255]))
    assert image_array(msg).tolist() == [[0, 100, 255]]
    assert rgb_array(msg).tolist() == [[[0, 0, 0], [100, 100, 100], [255, 255, 255]]]


# ITU-R BT.601, limited range: luma 81 with Cb 90, Cr 240 is red
@pytest.mark.parametrize(
    ('encoding', 'data'),
    [
        ('yuv422', bytes([90, 81, 240, 81])),
        ('uyvy', bytes([90, 81, 240, 81])),
        ('yuv422_yuy2', bytes([81, 90, 81, 240])),
        ('yuyv', bytes([81, 90, 81, 240])),
    ],
)
def test_packed_yuv_red(encoding, data):
    rgb = rgb_array(message(encoding, 1, 2, 4, data)).astype(int)
    assert np.abs(rgb - [[[255, 0, 0], [255, 0, 0]]]).max() <= 2


def test_16uc1_of_either_byte_order():
    little = message('16UC1', 1, 2, 4, bytes.fromhex('0102 ff00'))
    big = message('16UC1', 1, 2, 4, bytes.fromhex('0201 00ff'), big=1)
    assert image_array(little).tolist() == image_array(big).tolist() == [[513, 255]]


def test_32fc1_of_either_byte_order():
    depth = np.array([[0.5, np.nan]], np.float32)
    little = message('32FC1', 1, 2, 8, depth.astype('<f4').tobytes())
    big = message('32FC1', 1, 2, 8, depth.astype('>f4').tobytes(), big=1)
    for msg in (little, big):
        np.testing.assert_array_equal(image_array(msg), depth)


def test_encoding_is_read_without_regard_to_case():
    assert image_array(message('8uc1', 1, 1, 1, b'\x07')).tolist() == [[7]]


# --- no copies ---


@pytest.mark.parametrize('encoding', ['rgb8', 'bgra8', 'mono8', '16UC1', '32FC1', 'yuv422'])
def test_a_message_is_viewed_not_copied(encoding):
    pixel = np.dtype(DTYPES.get(encoding, np.uint8)).itemsize * CHANNELS.get(encoding, 1)
    data = array.array('B', bytes(4 * (4 * pixel + 8)))
    view = image_array(message(encoding, 4, 4, 4 * pixel + 8, data))
    assert np.shares_memory(view, np.frombuffer(data, np.uint8))


def test_rgb8_is_viewed_not_copied():
    data = array.array('B', bytes(48))
    rgb = rgb_array(message('rgb8', 4, 4, 12, data))
    data[5] = 77
    assert rgb[0, 1, 2] == 77


def test_a_view_of_bytes_cannot_be_written():
    view = image_array(message('mono8', 1, 1, 1, b'\x07'))
    with pytest.raises(ValueError, match='read-only'):
        view[0, 0] = 1


def test_a_list_is_accepted():
    assert image_array(message('mono8', 1, 2, 2, [1, 2])).tolist() == [[1, 2]]


# --- malformed ---


@pytest.mark.parametrize(
    ('msg', 'text'),
    [
        (
            message('rgb8', 3, 4, 12, bytes(35)),
            'rgb8 image 4x3: data has 35 bytes, step 12 x height 3 needs 36',
        ),
        (
            message('rgb8', 3, 4, 11, bytes(36)),
            'rgb8 image 4x3: step is 11 bytes, a row needs 12',
        ),
        (
            message('rgb8', 3, 4, 12, b''),
            'rgb8 image 4x3: data has 0 bytes, step 12 x height 3 needs 36',
        ),
        (message('16UC1', 1, 2, 2, bytes(4)), '16UC1 image 2x1: step is 2 bytes, a row needs 4'),
        (message('mono8', 0, 4, 4, b''), 'mono8 image 4x0: has no pixels'),
        (message('yuv422', 1, 3, 6, bytes(6)), 'yuv422 image 3x1: width must be even'),
        (
            message('bayer_rggb8', 1, 1, 1, b'\0'),
            f"encoding 'bayer_rggb8' is not supported; known: {', '.join(ENCODINGS)}",
        ),
    ],
)
def test_malformed_messages_are_refused(msg, text):
    for convert in (image_array, rgb_array):
        with pytest.raises(ImageError) as caught:
            convert(msg)
        assert str(caught.value) == text


@pytest.mark.parametrize('encoding', ['16UC1', '32FC1'])
def test_depth_has_no_rgb_form(encoding):
    msg = message(encoding, 1, 1, 4, bytes(4))
    with pytest.raises(ImageError, match=f'^{encoding} image 1x1: depth has no RGB form$'):
        rgb_array(msg)


@pytest.mark.parametrize(
    ('pixels', 'encoding', 'text'),
    [
        (
            np.zeros((2, 2), np.uint8),
            'rgb8',
            'rgb8 image: array has shape (2, 2), not H x W x 3',
        ),
        (
            np.zeros((2, 2, 3), np.uint8),
            'mono8',
            'mono8 image: array has shape (2, 2, 3), not H x W',
        ),
        (
            np.zeros((0, 2, 3), np.uint8),
            'rgb8',
            'rgb8 image: array has shape (0, 2, 3), not H x W x 3',
        ),
        (np.zeros(4, np.uint8), 'mono8', 'mono8 image: array has shape (4,), not H x W'),
        (np.zeros((2, 2), np.float64), '32FC1', '32FC1 image: array is float64, not float32'),
        (np.zeros((2, 2), np.int16), '16UC1', '16UC1 image: array is int16, not uint16'),
        (np.zeros((1, 3, 2), np.uint8), 'yuyv', 'yuyv image 3x1: width must be even'),
    ],
)
def test_arrays_that_do_not_fit_are_refused(pixels, encoding, text):
    with pytest.raises(ImageError) as caught:
        fill_image(blank(), pixels, encoding)
    assert str(caught.value) == text


# --- properties ---


@st.composite
def images(draw, encodings=ENCODINGS):
    encoding = draw(st.sampled_from(encodings))
    channels = CHANNELS.get(encoding, 1)
    height = draw(st.integers(1, 7))
    width = draw(st.integers(1, 4)) * 2 if channels == 2 else draw(st.integers(1, 9))
    shape = (height, width) if channels == 1 else (height, width, channels)
    return encoding, draw(npst.arrays(DTYPES.get(encoding, np.uint8), shape))


@given(images())
def test_filled_messages_read_back_equal(case):
    encoding, pixels = case
    msg = fill_image(blank(), pixels, encoding)
    assert isinstance(msg.data, array.array)
    assert msg.data.typecode == 'B'
    assert len(msg.data) == msg.step * msg.height
    assert (msg.height, msg.width, msg.encoding) == (*pixels.shape[:2], encoding)
    np.testing.assert_array_equal(image_array(msg), pixels)


@given(images(), st.integers(0, 9))
def test_padding_does_not_reach_the_pixels(case, padding):
    encoding, pixels = case
    msg = padded(pixels, encoding, padding)
    np.testing.assert_array_equal(image_array(msg), pixels)
    if encoding not in ('16UC1', '32FC1'):
        rgb = rgb_array(msg)
        assert rgb.dtype == np.uint8
        assert rgb.shape == (*pixels.shape[:2], 3)
        np.testing.assert_array_equal(rgb, rgb_array(padded(pixels, encoding, 0)))


@given(images(['16UC1', '32FC1', 'mono16']), st.integers(0, 3))
def test_byte_order_does_not_matter(case, padding):
    encoding, pixels = case
    msg = padded(pixels.astype(pixels.dtype.newbyteorder('>')), encoding, padding, big=1)
    np.testing.assert_array_equal(image_array(msg), pixels)
    np.testing.assert_array_equal(
        image_array(fill_image(blank(), image_array(msg), encoding)), pixels
    )


@given(images(), st.integers(1, 40))
def test_a_truncated_message_is_always_refused(case, missing):
    encoding, pixels = case
    msg = padded(pixels, encoding, 0)
    msg.data = msg.data[: max(0, len(msg.data) - missing)]
    with pytest.raises(ImageError, match='data has'):
        image_array(msg)


@given(images(), st.booleans())
def test_strided_arrays_are_written_as_they_look(case, flip):
    encoding, pixels = case
    view = pixels[::-1] if flip else np.asfortranarray(pixels)
    np.testing.assert_array_equal(image_array(fill_image(blank(), view, encoding)), view)


# --- compressed ---

RGB = npst.arrays(np.uint8, st.tuples(st.integers(1, 20), st.integers(1, 20), st.just(3)))


@given(RGB)
def test_png_keeps_every_pixel(rgb):
    np.testing.assert_array_equal(decode_image(encode_png(rgb)), rgb)


def test_jpeg_keeps_the_channel_order():
    rgb = np.zeros((16, 16, 3), np.uint8)
    rgb[..., 0], rgb[..., 2] = 200, 30
    assert np.abs(decode_image(encode_jpeg(rgb)).astype(int) - rgb).max() <= 6


def test_jpeg_quality_counts():
    rgb = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    assert len(encode_jpeg(rgb, 20)) < len(encode_jpeg(rgb, 90))
    with pytest.raises(ImageError, match=r'^JPEG quality must be from 0 to 100, is 101$'):
        encode_jpeg(rgb, 101)


@pytest.mark.parametrize('encode', [encode_jpeg, encode_png])
def test_only_uint8_rgb_is_encoded(encode):
    for wrong in (np.zeros((2, 2), np.uint8), np.zeros((2, 2, 3)), np.zeros((0, 2, 3), np.uint8)):
        with pytest.raises(ImageError, match='not uint8 H x W x 3'):
            encode(wrong)


def test_compressed_message():
    rgb = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    msg = SimpleNamespace(
        format='rgb8; png compressed bgr8', data=array.array('B', encode_png(rgb))
    )
    np.testing.assert_array_equal(compressed_rgb(msg), rgb)
    msg.format = '16UC1; compressedDepth png'
    with pytest.raises(ImageError, match='depth has no RGB form'):
        compressed_rgb(msg)


def test_grey_images_decode_to_rgb():
    done, data = cv2.imencode('.png', np.full((3, 4), 9, np.uint8))
    assert done
    assert decode_image(data.tobytes()).tolist() == np.full((3, 4, 3), 9).tolist()


@settings(max_examples=200)
@given(st.binary(max_size=64))
def test_bytes_that_are_no_image_are_refused(data):
    with pytest.raises(ImageError, match='are no image'):
        decode_image(data)


@given(st.integers(0, 200))
def test_a_truncated_png_never_crashes(length):
    data = encode_png(RED_GREEN_BLUE_WHITE)
    with contextlib.suppress(ImageError):
        assert decode_image(data[:length]).shape == (2, 2, 3)


# --- real messages ---


def test_real_message_takes_the_data_without_a_check_of_every_byte():
    sensor_msgs = pytest.importorskip('sensor_msgs.msg')
    rgb = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    msg = fill_image(sensor_msgs.Image(), rgb, 'rgb8')
    np.testing.assert_array_equal(rgb_array(msg), rgb)
    assert np.shares_memory(image_array(msg), np.frombuffer(msg.data, np.uint8))


def test_survives_the_wire():
    sensor_msgs = pytest.importorskip('sensor_msgs.msg')
    serialization = pytest.importorskip('rclpy.serialization')
    depth = np.random.default_rng(0).random((6, 5), np.float32)
    sent = fill_image(sensor_msgs.Image(), depth, '32FC1')
    received = serialization.deserialize_message(
        serialization.serialize_message(sent), sensor_msgs.Image
    )
    np.testing.assert_array_equal(image_array(received), depth)


def _bridge():
    # the package of that name on PyPI is ROS 1's, which no ament index knows
    index = pytest.importorskip('ament_index_python.packages')
    try:
        index.get_package_prefix('cv_bridge')
    except index.PackageNotFoundError:
        pytest.skip('cv_bridge of ROS 2 is not installed')
    return pytest.importorskip('cv_bridge').CvBridge()


@pytest.mark.parametrize('encoding', ['rgb8', 'bgr8', 'rgba8', 'bgra8', 'mono8', 'yuv422'])
def test_equals_cv_bridge(encoding):
    bridge = _bridge()
    sensor_msgs = pytest.importorskip('sensor_msgs.msg')
    shape = (8, 10) if encoding == 'mono8' else (8, 10, CHANNELS[encoding])
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    msg = fill_image(sensor_msgs.Image(), pixels, encoding)
    np.testing.assert_array_equal(rgb_array(msg), bridge.imgmsg_to_cv2(msg, 'rgb8'))
    np.testing.assert_array_equal(image_array(msg), bridge.imgmsg_to_cv2(msg, 'passthrough'))
