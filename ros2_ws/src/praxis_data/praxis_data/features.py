# SPDX-License-Identifier: Apache-2.0
"""Columns of a LeRobot v2.1 dataset: what a contract makes of them, and how rows fill them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from praxis_core.contract import Contract

from praxis_data.row import Row

IMAGE_PREFIX = 'observation.images.'

_ARROW = {
    'float32': pa.float32(),
    'float64': pa.float64(),
    'int64': pa.int64(),
    'bool': pa.bool_(),
}


@dataclass(frozen=True)
class Column:
    """One column of the parquet files.

    Attributes:
        name: Feature name.
        dtype: numpy name of the element type.
        names: Names of the elements of a vector; empty for a scalar.
    """

    name: str
    dtype: str
    names: tuple[str, ...] = ()

    @property
    def arrow_type(self) -> pa.DataType:
        """Arrow type: a fixed-size list for a vector."""
        kind = _ARROW[self.dtype]
        return pa.list_(kind, len(self.names)) if self.names else kind

    @property
    def feature(self) -> dict[str, Any]:
        """Entry in `info.json`."""
        if self.names:
            return {'dtype': self.dtype, 'shape': [len(self.names)], 'names': list(self.names)}
        return {'dtype': self.dtype, 'shape': [1], 'names': None}

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return values, [N] or [N, len(names)], as an Arrow array."""
        block = np.asarray(values, dtype=self.dtype)
        flat = pa.array(block.reshape(-1), _ARROW[self.dtype])
        return pa.FixedSizeListArray.from_arrays(flat, len(self.names)) if self.names else flat


def streams(contract: Contract) -> list[str]:
    """Return the streams that have a capture stamp and a stale flag."""
    cameras = list(contract.interface.cameras)
    clash = {'state', 'action'} & set(cameras)
    if clash:
        raise ValueError(f'camera name {sorted(clash)} is taken by a stream of the robot')
    return ['state', 'action', *cameras]


def columns(contract: Contract) -> list[Column]:
    """Return the parquet columns in order: the reference system's first, then ours."""
    state, action = contract.interface.state.names, contract.interface.action.names
    return [
        Column('observation.state', 'float32', tuple(state)),
        Column('action', 'float32', tuple(action)),
        Column('timestamp', 'float32'),
        Column('frame_index', 'int64'),
        Column('episode_index', 'int64'),
        Column('index', 'int64'),
        Column('task_index', 'int64'),
        Column('capture_timestamp', 'float64'),
        Column('intervention', 'bool'),
        Column('control_mode', 'int64'),
        Column('requested_action', 'float32', tuple(action)),
        Column('observation_seq', 'int64'),
        *(Column(f'capture_stamp.{name}', 'int64') for name in streams(contract)),
        *(Column(f'stale.{name}', 'bool') for name in streams(contract)),
    ]


def row_values(row: Row, fps: float) -> dict[str, Any]:
    """Return the columns of one row; indices of episode, dataset and task are 0 until saved."""
    return {
        'observation.state': row.state,
        'action': row.action,
        'timestamp': row.index / fps,
        'frame_index': row.index,
        'episode_index': 0,
        'index': 0,
        'task_index': 0,
        'capture_timestamp': row.tick_ns * 1e-9,
        'intervention': row.intervention,
        'control_mode': row.control_mode,
        'requested_action': row.requested_action,
        'observation_seq': row.observation_seq,
        **{f'capture_stamp.{name}': stamp for name, stamp in row.stamps.items()},
        **{f'stale.{name}': stale for name, stale in row.stale.items()},
    }


def numpy_column(table: pa.Table, name: str) -> np.ndarray:
    """Return a column as [N] or [N, D]."""
    column = table.column(name).combine_chunks()
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def replace_columns(table: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """Return the table with other values, int64[N], in some of its columns."""
    for name, column in values.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(column, pa.int64()))
    return table


def schema(layout: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema, with the metadata that the `datasets` library reads types from."""
    layout = list(layout)
    described = {}
    for column in layout:
        value = {'dtype': column.dtype, '_type': 'Value'}
        if column.names:
            value = {'feature': value, 'length': len(column.names), '_type': 'Sequence'}
        described[column.name] = value
    metadata = {'huggingface': json.dumps({'info': {'features': described}})}
    return pa.schema([(column.name, column.arrow_type) for column in layout], metadata)


def features(contract: Contract, video: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `features` of `info.json`.

    Args:
        contract: Names and shapes.
        video: `info` of a video feature as `VideoSettings.info` gives it.
    """
    result = {column.name: column.feature for column in columns(contract)}
    for name, camera in contract.interface.cameras.items():
        result[IMAGE_PREFIX + name] = {
            'dtype': 'video',
            'shape': [camera.height, camera.width, 3],
            'names': ['height', 'width', 'channels'],
            'info': {'video.height': camera.height, 'video.width': camera.width, **video},
        }
    return result


def difference(
    have: Mapping[str, Any], want: Mapping[str, Any], left: str, right: str
) -> list[str]:
    """Compare two feature sets, video encoding aside; one line for each difference."""
    lines = []
    for name in [*have, *(name for name in want if name not in have)]:
        if name not in want or name not in have:
            lines.append(f'features.{name}: only in {left if name in have else right}')
            continue
        for key in ('dtype', 'shape', 'names'):
            a, b = have[name].get(key), want[name].get(key)
            if a != b:
                lines.append(f'features.{name}.{key}: {a!r} in {left}, {b!r} in {right}')
    order = [name for name in have if name in want]
    if not lines and order != list(want):
        lines.append(f'features: order is {order} in {left}, {list(want)} in {right}')
    return lines
