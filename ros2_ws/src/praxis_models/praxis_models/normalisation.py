# SPDX-License-Identifier: Apache-2.0
"""Statistics of a data set, and the numbers a network sees by them. Imports no rclpy.

Functions take arrays [..., n] and vectors [n], and compute in float64. A width of zero divides by
`EPSILON`, and comes back as the value that it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

EPSILON = 1e-6
"""What openpi adds to a width (Physical-Intelligence/openpi 15a9616a, ``transforms.py``)."""

FIELDS = ('mean', 'std', 'q01', 'q99', 'min', 'max')

Mode = Literal['z_score', 'quantile', 'min_max']

_NEEDED: dict[str, tuple[str, str]] = {
    'z_score': ('mean', 'std'),
    'quantile': ('q01', 'q99'),
    'min_max': ('min', 'max'),
}


class StatisticsError(ValueError):
    """A file of statistics that is not usable; its text names the file and the key."""


def z_score(
    values: np.ndarray, mean: np.ndarray, std: np.ndarray, *, epsilon: float = EPSILON
) -> np.ndarray:
    """(x - mean) / (std + epsilon)."""
    return (_wide(values) - _wide(mean)) / (_wide(std) + epsilon)


def from_z_score(
    values: np.ndarray, mean: np.ndarray, std: np.ndarray, *, epsilon: float = EPSILON
) -> np.ndarray:
    """Undo `z_score`: x (std + epsilon) + mean."""
    return _wide(values) * (_wide(std) + epsilon) + _wide(mean)


def to_unit_range(
    values: np.ndarray, low: np.ndarray, high: np.ndarray, *, epsilon: float = EPSILON
) -> np.ndarray:
    """2 (x - low) / (high - low + epsilon) - 1, with q01 and q99, or min and max."""
    return 2.0 * (_wide(values) - _wide(low)) / (_wide(high) - _wide(low) + epsilon) - 1.0


def from_unit_range(
    values: np.ndarray, low: np.ndarray, high: np.ndarray, *, epsilon: float = EPSILON
) -> np.ndarray:
    """Undo `to_unit_range`: (x + 1) / 2 (high - low + epsilon) + low."""
    return (_wide(values) + 1.0) / 2.0 * (_wide(high) - _wide(low) + epsilon) + _wide(low)


@dataclass(frozen=True)
class Statistics:
    """Statistics of one vector of a data set.

    Attributes:
        source: File and key, for messages.
        vectors: Of `FIELDS` those that the file has, each float64[n].
    """

    source: str
    vectors: Mapping[str, np.ndarray]

    @property
    def size(self) -> int:
        """Length n of the vector."""
        return len(next(iter(self.vectors.values())))

    def pair(self, mode: Mode) -> tuple[np.ndarray, np.ndarray]:
        """Both vectors of a mode: mean and std, q01 and q99, or min and max.

        Raises:
            StatisticsError: The file has not got them.
        """
        for name in _NEEDED[mode]:
            if name not in self.vectors:
                found = ', '.join(self.vectors)
                raise StatisticsError(f'{self.source}: {mode} needs {name} (it has {found})')
        low, high = (self.vectors[name] for name in _NEEDED[mode])
        return low, high

    def normalise(self, values: np.ndarray, mode: Mode, *, epsilon: float = EPSILON) -> np.ndarray:
        """Physical values [..., n] to those that the network sees."""
        first, second = self._fitting(values, mode)
        convert = z_score if mode == 'z_score' else to_unit_range
        return convert(values, first, second, epsilon=epsilon)

    def restore(self, values: np.ndarray, mode: Mode, *, epsilon: float = EPSILON) -> np.ndarray:
        """What the network gave [..., n] to physical values."""
        first, second = self._fitting(values, mode)
        convert = from_z_score if mode == 'z_score' else from_unit_range
        return convert(values, first, second, epsilon=epsilon)

    def _fitting(self, values: np.ndarray, mode: Mode) -> tuple[np.ndarray, np.ndarray]:
        shape = np.shape(values)
        if not shape or shape[-1] != self.size:
            raise StatisticsError(
                f'{self.source}: {self.size} statistics do not fit values of shape {list(shape)}'
            )
        return self.pair(mode)


def load_statistics(
    path: str | Path,
    key: str = '',
    *,
    names: Mapping[str, str] | None = None,
    needs: Iterable[str] = (),
    size: int | None = None,
) -> Statistics:
    """Read the statistics of one vector from a JSON file.

    Args:
        path: File, such as openpi's ``norm_stats.json`` or LeRobot's ``meta/stats.json``.
        key: Way to its mapping, parts apart by ``/``, such as ``norm_stats/actions``. Empty: the
            file is the mapping.
        names: Field -> name in that mapping, where they are not the field's own.
        needs: Fields that must be there.
        size: Length that they must have.

    Raises:
        StatisticsError: Names the file and the key.
    """
    path = Path(path)
    found = _descend(path, _read(path), key)
    source = f'{path}: {key}' if key else f'{path}'
    if not isinstance(found, Mapping):
        raise StatisticsError(f'{source}: must be a mapping')
    names = dict(names or {name: name for name in FIELDS})
    vectors = {
        field: _vector(f'{source}/{name}' if key else f'{source}: {name}', found[name])
        for field, name in names.items()
        if name in found
    }
    for field in needs:
        if field not in vectors:
            raise StatisticsError(f'{source}: has no {names.get(field, field)}{_offer(found)}')
    if not vectors:
        raise StatisticsError(f'{source}: has none of {", ".join(names.values())}{_offer(found)}')
    _check(source, vectors, size)
    return Statistics(source, vectors)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding='utf-8'))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, 'strerror', None) or error
        raise StatisticsError(f'{path}: cannot be read: {reason}') from None
    except json.JSONDecodeError as error:
        raise StatisticsError(f'{path}: line {error.lineno}: is no JSON: {error.msg}') from None


def _descend(path: Path, document: Any, key: str) -> Any:
    done: list[str] = []
    for part in filter(None, key.split('/')):
        if not isinstance(document, Mapping) or part not in document:
            where = '/'.join((*done, part))
            raise StatisticsError(f'{path}: {where}: there is no such key{_offer(document)}')
        document = document[part]
        done.append(part)
    return document


def _offer(found: Any) -> str:
    if not isinstance(found, Mapping) or not found:
        return ''
    return f' (there are {", ".join(map(str, list(found)[:12]))})'


def _vector(where: str, value: Any) -> np.ndarray:
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise StatisticsError(f'{where}: must be a list of numbers') from None
    vector = vector.reshape(1) if vector.ndim == 0 else vector
    if vector.ndim != 1 or not len(vector):
        raise StatisticsError(f'{where}: must be a list of numbers')
    if not np.isfinite(vector).all():
        index = int(np.argmin(np.isfinite(vector)))
        raise StatisticsError(f'{where}[{index}]: must be finite')
    return vector


def _check(source: str, vectors: Mapping[str, np.ndarray], size: int | None) -> None:
    sizes = {name: len(vector) for name, vector in vectors.items()}
    expected = size if size is not None else next(iter(sizes.values()))
    for name, found in sizes.items():
        if found != expected:
            raise StatisticsError(f'{source}: {name} has {found} numbers, expected {expected}')
    for low, high in (('q01', 'q99'), ('min', 'max')):
        if low in vectors and high in vectors and np.any(vectors[low] > vectors[high]):
            index = int(np.argmax(vectors[low] > vectors[high]))
            raise StatisticsError(f'{source}: {low}[{index}] is above {high}[{index}]')
    if 'std' in vectors and np.any(vectors['std'] < 0.0):
        raise StatisticsError(f'{source}: std[{int(np.argmin(vectors["std"]))}] is negative')


def _wide(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)
