# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from praxis_models import pixels


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def grey(rows):
    return np.repeat(np.asarray(rows, np.uint8)[..., None], 3, axis=-1)


def plane(image):
    assert (image == image[..., :1]).all()
    return image[..., 0].tolist()


ASYMMETRIC = grey([[1, 2, 3], [4, 5, 6]])


def test_flips_move_each_pixel_to_its_mirror():
    assert plane(pixels.flip_horizontal(ASYMMETRIC)) == [[3, 2, 1], [6, 5, 4]]
    assert plane(pixels.flip_vertical(ASYMMETRIC)) == [[4, 5, 6], [1, 2, 3]]
    assert plane(pixels.rotate_180(ASYMMETRIC)) == [[6, 5, 4], [3, 2, 1]]


def test_flips_keep_the_channels_in_order():
    image = picture(4, 5)
    assert (pixels.flip_horizontal(image)[2, 0] == image[2, 4]).all()
    assert (pixels.flip_vertical(image)[0, 3] == image[3, 3]).all()


def test_centre_crop_leaves_the_smaller_margin_at_the_top_and_left():
    image = grey([[10 * row + column for column in range(6)] for row in range(5)])
    assert plane(pixels.centre_crop(image, 2, 3)) == [[11, 12, 13], [21, 22, 23]]


def test_a_crop_beyond_the_image_is_refused():
    with pytest.raises(ValueError, match='3x2 at 0, 0 reaches beyond 2x3'):
        pixels.crop(ASYMMETRIC, 0, 0, 3, 2)


# A row 0 100 200 40 halved. The filter is twice as wide as the triangle |x| < 1, so the weights
# of the first pixel are 3/7, 3/7, 1/7 of the first three: 500 / 7; of the second 1/7, 3/7, 3/7 of
# the last three: 820 / 7.
ROW = grey([[0, 100, 200, 40]])
# The cubic with a = -1/2 at 1/4, 3/4, 5/4: 111/128, 29/128, -9/128, which sum to 242/128 over the
# four: (111*100 + 29*200 - 9*40) / 242 and (29*100 + 111*200 + 111*40) / 242.
HALVED = {'bilinear': [round(500 / 7), round(820 / 7)], 'bicubic': [68, 122]}


def test_the_golden_cubic_is_that_of_the_definition():
    first = (111 * 100 + 29 * 200 - 9 * 40) / 242
    second = (29 * 100 + 111 * 200 + 111 * 40) / 242
    assert [round(first), round(second)] == HALVED['bicubic']


@pytest.mark.parametrize('kind', ['bilinear', 'bicubic'])
def test_halving_weighs_the_neighbours_by_the_widened_filter(kind):
    assert plane(pixels.resize(ROW, 1, 2, kind)) == [HALVED[kind]]
    column = np.ascontiguousarray(ROW.swapaxes(0, 1))
    assert plane(pixels.resize(column, 2, 1, kind)) == [[value] for value in HALVED[kind]]


def test_doubling_interpolates_between_centres_and_repeats_the_edges():
    assert plane(pixels.resize(grey([[0, 100]]), 1, 4)) == [[0, 25, 75, 100]]


def test_a_cubic_that_overshoots_is_clipped():
    image = grey([[0, 0, 255, 255]])
    wide = np.array(plane(pixels.resize(image, 1, 16, 'bicubic'))[0])
    assert wide.min() == 0 and wide.max() == 255
    assert (np.diff(wide) >= 0).all()


def test_rows_are_rounded_before_columns_are_averaged():
    # along the rows 0.5 and 1.5 round up to 1 and 2, whose mean rounds up to 2; along the columns
    # first it would be 0 and 2, whose mean is 1
    assert plane(pixels.resize(grey([[0, 1], [0, 3]]), 1, 1)) == [[2]]
    assert plane(pixels.resize(grey([[0, 0], [1, 3]]), 1, 1)) == [[1]]


@pytest.mark.parametrize('kind', ['bilinear', 'bicubic'])
def test_every_pixel_is_pillows(kind):
    image_of = pytest.importorskip('PIL.Image')
    method = getattr(image_of.Resampling, kind.upper())
    sizes = [(256, 256, 224, 224), (480, 640, 256, 320), (256, 512, 160, 320), (37, 53, 81, 20)]
    for rows, columns, height, width in sizes:
        image = picture(rows, columns)
        # one axis at a time: versions differ in which pass comes first
        across = image_of.fromarray(image).resize((width, rows), method)
        down = across.resize((width, height), method)
        assert (pixels.resize(image, height, width, kind) == np.asarray(down)).all()


def test_a_size_that_is_there_is_left_alone():
    image = picture(8, 6)
    assert (pixels.resize(image, 8, 6, 'bicubic') == image).all()


def test_crop_resize_covers_the_size_and_takes_the_middle():
    # 4x8 covers 2x2 when halved to 2x4, of which columns 1 and 2 are the middle
    image = grey([[0, 0, 40, 40, 80, 80, 120, 120]] * 4)
    halved = plane(pixels.resize(image, 2, 4))
    assert plane(pixels.crop_resize(image, 2, 2)) == [row[1:3] for row in halved]
    assert pixels.crop_resize(picture(256, 256), 224, 224).shape == (224, 224, 3)


def test_crop_resize_of_a_square_is_a_resize():
    image = picture(40, 40)
    assert (pixels.crop_resize(image, 28, 28) == pixels.resize(image, 28, 28)).all()


def test_padding_is_black_and_the_image_in_the_middle():
    padded = pixels.resize_with_pad(grey([[9, 9, 9, 9]] * 2), 4, 4)
    assert plane(padded) == [[0] * 4, [9] * 4, [9] * 4, [0] * 4]
    odd = pixels.resize_with_pad(grey([[9, 9, 9, 9]]), 4, 4)
    assert plane(odd) == [[0] * 4, [9] * 4, [0] * 4, [0] * 4]


def test_padding_is_that_of_openpi():
    tools = pytest.importorskip('openpi_client.image_tools')
    for rows, columns in ((240, 320), (480, 640), (224, 224), (300, 200)):
        image = picture(rows, columns)
        expected = tools.resize_with_pad(image, 224, 224)
        assert (pixels.resize_with_pad(image, 224, 224) == expected).all()


def test_mirror_continues_below_and_to_the_right_without_the_edge():
    image = grey([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    out = pixels.shrink_with_mirror(image, 4, 5)
    assert plane(out) == [[1, 2, 3, 2, 1], [4, 5, 6, 5, 4], [7, 8, 9, 8, 7], [4, 5, 6, 5, 4]]


def test_a_margin_as_large_as_the_image_repeats_the_edge():
    out = pixels.shrink_with_mirror(grey([[1, 2], [3, 4]]), 4, 2)
    assert plane(out) == [[1, 2], [3, 4], [3, 4], [3, 4]]


def test_mirror_shrinks_but_does_not_enlarge():
    image = picture(256, 512)
    out = pixels.shrink_with_mirror(image, 192, 320)
    assert out.shape == (192, 320, 3)
    assert (out[:160] == pixels.resize(image, 160, 320, 'bicubic')).all()
    assert (out[160:] == out[158:126:-1]).all()


def test_layouts_put_images_in_order():
    left, right = grey([[1], [2]]), grey([[3, 5], [4, 6]])
    assert plane(pixels.beside([left, right])) == [[1, 3, 5], [2, 4, 6]]
    assert plane(pixels.stacked([grey([[1, 2]]), grey([[3, 4]])])) == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match='of one height: 2x1x3, 1x2x3'):
        pixels.beside([left, grey([[1, 2]])])


def test_signed_unit_maps_black_to_minus_one_and_white_to_one():
    values = pixels.signed_unit(grey([[0, 51, 255]]))
    assert values.dtype == np.float32
    assert values[0, :, 0] == pytest.approx([-1.0, -0.6, 1.0], abs=1e-7)


def test_channels_go_first():
    image = picture(2, 3)
    assert (pixels.channels_first(image)[1] == image[..., 1]).all()


@pytest.mark.parametrize(
    'image', [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4), np.uint8)], ids=['float', 'flat']
)
def test_what_is_no_image_is_refused(image):
    with pytest.raises(ValueError, match=r'must be uint8\[H, W, C\]'):
        pixels.resize(image, 2, 2)
