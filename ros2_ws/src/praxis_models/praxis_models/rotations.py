# SPDX-License-Identifier: Apache-2.0
"""Rotations as models and robots write them, over NumPy arrays [..., n]. Imports no rclpy.

A quaternion is x y z w unless a name says ``wxyz``; q and -q are one rotation. Rotation vectors
are in rad. Matrices map body to parent, and act on columns. Everything is computed in float64.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

_LOOSE = 1e-8

Layout = Literal['columns', 'rows', 'interleaved']
"""Order of a rot6d: the first two columns one after the other (Zhou et al. 2019), the first two
rows (pytorch3d), or the 3x2 matrix of the first two columns in row-major order."""


def xyzw_to_wxyz(quaternion: np.ndarray) -> np.ndarray:
    """Put w in front: [..., 4]."""
    return _vectors(quaternion, 4, 'quaternion')[..., [3, 0, 1, 2]]


def wxyz_to_xyzw(quaternion: np.ndarray) -> np.ndarray:
    """Put w at the end: [..., 4]."""
    return _vectors(quaternion, 4, 'quaternion')[..., [1, 2, 3, 0]]


def unit_quaternion(quaternion: np.ndarray) -> np.ndarray:
    """Scale to length one, in whichever order.

    Raises:
        ValueError: One has no length, or is not finite.
    """
    quaternion = _vectors(quaternion, 4, 'quaternion')
    length = np.linalg.norm(quaternion, axis=-1, keepdims=True)
    if not np.all(np.isfinite(length)) or np.any(length < _LOOSE):
        raise ValueError('a quaternion of no length, or one that is not finite')
    return quaternion / length


def canonical_quaternion(quaternion: np.ndarray) -> np.ndarray:
    """Choose between q and -q: w >= 0, and where w is 0 the first other that is not 0 is > 0."""
    quaternion = _vectors(quaternion, 4, 'quaternion')
    ranked = quaternion[..., [3, 0, 1, 2]]
    first = np.argmax(ranked != 0.0, axis=-1)[..., None]
    sign = np.where(np.take_along_axis(ranked, first, axis=-1) < 0.0, -1.0, 1.0)
    return quaternion * sign


def continuous_quaternions(
    quaternions: np.ndarray, previous: np.ndarray | None = None
) -> np.ndarray:
    """Choose the signs along a path [T, 4] so that no step turns the long way round.

    Args:
        quaternions: Path, in whichever order of components.
        previous: Quaternion [4] before the path, None: the first keeps its sign.
    """
    path = _vectors(quaternions, 4, 'quaternion')
    if path.ndim != 2:
        raise ValueError(f'a path must be of shape [T, 4], not {list(path.shape)}')
    path = path.copy()
    before = None if previous is None else _vectors(previous, 4, 'quaternion')
    for index in range(len(path)):
        if before is not None and float(np.dot(before, path[index])) < 0.0:
            path[index] *= -1.0
        before = path[index]
    return path


def quaternion_to_matrix(quaternion: np.ndarray) -> np.ndarray:
    """Matrices [..., 3, 3] of quaternions [..., 4], which need not be of length one."""
    x, y, z, w = np.moveaxis(unit_quaternion(quaternion), -1, 0)
    return _matrix(
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    )


def matrix_to_quaternion(matrix: np.ndarray) -> np.ndarray:
    """Quaternions [..., 4] of matrices [..., 3, 3], w >= 0.

    The largest of the four squares is taken by its diagonal, the rest by it (Shepperd 1978).
    """
    m = _matrices(matrix)
    diagonal = np.stack([m[..., index, index] for index in range(3)], axis=-1)
    trace = diagonal.sum(axis=-1)
    squares = 1 - trace[..., None] + 2 * diagonal
    squares = np.concatenate([squares, (1 + trace)[..., None]], axis=-1)
    a, b, c = (m[..., 2, 1], m[..., 0, 2], m[..., 1, 0])
    d, e, f = (m[..., 1, 2], m[..., 2, 0], m[..., 0, 1])
    candidates = np.stack(
        [
            np.stack([squares[..., 0], f + c, b + e, a - d], axis=-1),
            np.stack([f + c, squares[..., 1], a + d, b - e], axis=-1),
            np.stack([b + e, a + d, squares[..., 2], c - f], axis=-1),
            np.stack([a - d, b - e, c - f, squares[..., 3]], axis=-1),
        ],
        axis=-2,
    )
    best = np.argmax(squares, axis=-1)[..., None, None]
    chosen = np.take_along_axis(candidates, best, axis=-2)[..., 0, :]
    return canonical_quaternion(unit_quaternion(chosen))


def quaternion_to_axis_angle(quaternion: np.ndarray, *, shortest: bool = True) -> np.ndarray:
    """Rotation vectors [..., 3]: axis times angle.

    Args:
        quaternion: [..., 4].
        shortest: Angle of 0 to pi. False: of 0 to 2 pi, 2 acos(w) with the sign of q as it is, as
            robosuite's ``quat2axisangle`` does, which LIBERO's data sets were made with.
    """
    quaternion = unit_quaternion(quaternion)
    if shortest:
        quaternion = canonical_quaternion(quaternion)
    sine = np.linalg.norm(quaternion[..., :3], axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(sine, quaternion[..., 3:])
    # angle / sin is 2 where there is no axis
    ratio = np.divide(angle, sine, out=np.full_like(angle, 2.0), where=sine > 0.0)
    return quaternion[..., :3] * ratio


def axis_angle_to_quaternion(axis_angle: np.ndarray) -> np.ndarray:
    """Quaternions [..., 4] of rotation vectors [..., 3]."""
    vector = _vectors(axis_angle, 3, 'axis-angle')
    angle = np.linalg.norm(vector, axis=-1, keepdims=True)
    # sin(a / 2) / a, which np.sinc gives without dividing by zero
    scale = 0.5 * np.sinc(angle / (2.0 * np.pi))
    return np.concatenate([vector * scale, np.cos(angle / 2.0)], axis=-1)


def axis_angle_to_matrix(axis_angle: np.ndarray) -> np.ndarray:
    """Matrices [..., 3, 3] of rotation vectors [..., 3]."""
    return quaternion_to_matrix(axis_angle_to_quaternion(axis_angle))


def matrix_to_axis_angle(matrix: np.ndarray) -> np.ndarray:
    """Rotation vectors [..., 3] of at most pi, of matrices [..., 3, 3]."""
    return quaternion_to_axis_angle(matrix_to_quaternion(matrix))


def matrix_to_rot6d(matrix: np.ndarray, layout: Layout = 'columns') -> np.ndarray:
    """Six numbers [..., 6] of matrices [..., 3, 3].

    Zhou et al., On the Continuity of Rotation Representations in Neural Networks, CVPR 2019.
    """
    matrix = _matrices(matrix)
    if layout == 'columns':
        parts = matrix[..., :, 0], matrix[..., :, 1]
    elif layout == 'rows':
        parts = matrix[..., 0, :], matrix[..., 1, :]
    elif layout == 'interleaved':
        parts = tuple(matrix[..., row, :2] for row in range(3))
    else:
        raise ValueError(f'no rot6d layout {layout!r}')
    return np.concatenate(parts, axis=-1)


def rot6d_to_matrix(rot6d: np.ndarray, layout: Layout = 'columns') -> np.ndarray:
    """Matrices [..., 3, 3] by Gram-Schmidt of what a network gave, [..., 6].

    Raises:
        ValueError: The two vectors have no length, or the same direction.
    """
    rot6d = _vectors(rot6d, 6, 'rot6d')
    if layout == 'interleaved':
        first, second = rot6d[..., 0::2], rot6d[..., 1::2]
    elif layout in ('columns', 'rows'):
        first, second = rot6d[..., :3], rot6d[..., 3:]
    else:
        raise ValueError(f'no rot6d layout {layout!r}')
    first = _directions(first)
    second = _directions(second - first * (first * second).sum(axis=-1, keepdims=True))
    axes = np.stack([first, second, np.cross(first, second)], axis=-1)
    return np.swapaxes(axes, -1, -2) if layout == 'rows' else axes


def _matrix(*rows: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _directions(vectors: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.all(length > _LOOSE):
        raise ValueError('a rot6d whose two vectors span no plane')
    return vectors / length


def _vectors(values: np.ndarray, size: int, what: str) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] != size:
        raise ValueError(f'{what} must be of shape [..., {size}], not {list(values.shape)}')
    return values


def _matrices(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.shape[-2:] != (3, 3):
        raise ValueError(f'a matrix must be of shape [..., 3, 3], not {list(values.shape)}')
    return values
