# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_perception.projection import (
    Camera,
    back_project,
    project,
    rotation_matrix,
    statistics,
)


def intrinsics(focal, width, height):
    return np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1.0]])


quaternions = st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda q: np.linalg.norm(q) > 0.1)


@given(
    st.tuples(st.integers(2, 64), st.integers(2, 64)),
    st.floats(20.0, 500.0),
    st.tuples(*[st.floats(-2.0, 2.0)] * 3),
    quaternions,
    st.floats(0.05, 5.0),
    st.randoms(use_true_random=False),
)
def test_every_pixel_comes_back_to_itself(size, focal, position, quaternion, depth, random):
    height, width = size
    camera = Camera(
        intrinsics(focal, width, height), np.array(position), rotation_matrix(*quaternion)
    )
    rows = np.array([random.randrange(height) for _ in range(10)])
    cols = np.array([random.randrange(width) for _ in range(10)])
    image = np.full((height, width), depth, np.float32)
    points = back_project(camera, image, rows, cols)
    pixels, depths = project(camera, points)
    assert np.allclose(pixels, np.stack([rows, cols], axis=1), atol=1e-5)
    assert np.allclose(depths, np.float32(depth), rtol=1e-6)


def test_optical_frame_is_z_forward_x_right_y_down():
    camera = Camera(intrinsics(100.0, 101, 101), np.zeros(3), np.eye(3))
    depth = np.full((101, 101), 2.0, np.float32)
    centre, right, down = back_project(camera, depth, [50, 50, 100], [50, 100, 50])
    assert np.allclose(centre, [0, 0, 2])
    assert np.allclose(right, [1, 0, 2])
    assert np.allclose(down, [0, 1, 2])


def test_camera_above_the_table_looks_down():
    # Half a turn about x: z down, x right, y towards -y of the world.
    camera = Camera(
        intrinsics(100.0, 101, 101), np.array([0.3, 0.2, 1.0]), rotation_matrix(1, 0, 0, 0)
    )
    points = back_project(camera, np.full((101, 101), 1.0, np.float32), [50, 0], [50, 50])
    assert np.allclose(points, [[0.3, 0.2, 0.0], [0.3, 0.7, 0.0]])


@pytest.mark.parametrize('bad', [np.nan, 0.0, -1.0, np.inf])
def test_pixel_without_depth_gives_nan(bad):
    depth = np.ones((4, 4), np.float32)
    depth[1, 2] = bad
    camera = Camera(intrinsics(10.0, 4, 4), np.zeros(3), np.eye(3))
    points = back_project(camera, depth, [1, 1], [2, 3])
    assert np.isnan(points[0]).all() and np.isfinite(points[1]).all()


@pytest.mark.parametrize(('row', 'col'), [(-1, 0), (4, 0), (0, 4), (0, -1)])
def test_pixel_outside_the_image_is_refused(row, col):
    camera = Camera(intrinsics(10.0, 4, 4), np.zeros(3), np.eye(3))
    with pytest.raises(ValueError, match='outside the image of 4 x 4'):
        back_project(camera, np.ones((4, 4), np.float32), [0, row], [0, col])


def test_point_behind_the_camera_has_no_pixel():
    camera = Camera(intrinsics(10.0, 4, 4), np.zeros(3), np.eye(3))
    pixels, depth = project(camera, np.array([[0.0, 0.0, -1.0]]))
    assert np.isnan(pixels).all() and depth[0] == -1.0


def test_statistics_are_robust_and_keep_to_the_heights():
    points = np.column_stack([np.arange(101.0), np.zeros(101), np.linspace(0, 1, 101)])
    points[0] = np.nan
    found = statistics(points, 0.0, 0.5)
    assert found.valid == 50
    assert found.centroid[0] == pytest.approx(25.5)
    assert found.minimum[0] == pytest.approx(1.98)
    assert found.maximum[0] == pytest.approx(49.02)


def test_statistics_of_nothing_are_nan():
    found = statistics(np.full((3, 3), np.nan), -1.0, 1.0)
    assert found.valid == 0 and np.isnan(found.centroid).all()


def test_zero_quaternion_is_refused():
    with pytest.raises(ValueError, match='not a rotation'):
        rotation_matrix(0, 0, 0, 0)
