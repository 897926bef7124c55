# SPDX-License-Identifier: Apache-2.0
"""Reads what a pickle or a file of ``torch.save`` holds, without running it.

Neither PyTorch nor the model that wrote the file is needed. The layouts of files follow
``torch/serialization.py`` (_save, _legacy_save) of pytorch 2.13.0. Imports no rclpy.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

from praxis_models.pickled import values
from praxis_models.pickled.machine import Machine, Permitted
from praxis_models.pickled.values import Name, PickledError, Storage, Tensor

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
_MAX_NESTING = 32
_MAX_ENTRIES = 1 << 24


def read(path: str | Path) -> Any:
    """Read what a pickle or a file of ``torch.save`` holds.

    Returns:
        Dictionaries, lists, tuples, numbers, text, bytes, arrays and `Tensor`.

    Raises:
        PickledError: It holds anything else, or is damaged.
        OSError: It cannot be read.
    """
    path = Path(path)
    with path.open('rb') as file:
        head = file.read(4)
    try:
        if head == b'PK\x03\x04':
            return _read_zip(path)
        return loads(path.read_bytes())
    except PickledError as error:
        raise PickledError(f'{path}: {error}') from None


def loads(data: bytes) -> Any:
    """Read a pickle, or a file of ``torch.save`` as before PyTorch 1.6.

    Raises:
        PickledError: See `read`.
    """
    stream = io.BytesIO(data)
    found = Machine(stream, PERMITTED).run()
    if found == _LEGACY_MAGIC and isinstance(found, int):
        return _finished(_read_legacy(stream))
    return _finished(found)


def _load_storage(data: Any) -> Storage:
    stream = io.BytesIO(values.taken(data, bytes, 'a storage'))
    if Machine(stream, PERMITTED_INSIDE).run() != _LEGACY_MAGIC:
        raise PickledError('a storage that is not a file of torch.save')
    return values.taken(_read_legacy(stream, PERMITTED_INSIDE), Storage, 'a storage')


_NUMPY: dict[str, Any] = {
    f'numpy.{core}.{name}': make
    for core in ('core', '_core')
    for name, make in (
        ('multiarray._reconstruct', values.make_array),
        ('multiarray.scalar', values.make_scalar),
        ('numeric._frombuffer', values.array_from_buffer),
    )
}

PERMITTED_INSIDE: Permitted = {
    'collections.OrderedDict': values.make_mapping,
    **{f'torch.{name}': None for name in values.STORAGES},
}
"""Names that a storage inside a pickle may have."""

PERMITTED: Permitted = {
    **PERMITTED_INSIDE,
    **_NUMPY,
    'numpy.ndarray': None,
    'numpy.dtype': values.make_dtype,
    '_codecs.encode': values.bytes_of_text,
    'torch._utils._rebuild_tensor_v2': values.make_view,
    'torch.storage._load_from_bytes': _load_storage,
}
"""Names that a pickle may have, and what stands for them; None: it is a label only."""


def _read_zip(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {entry.filename: entry for entry in archive.infolist()}
            found = [name for name in members if name.endswith('/data.pkl')]
            if len(found) != 1:
                raise PickledError('a zip that is not of torch.save')
            prefix = found[0].removesuffix('data.pkl')
            order = f'{prefix}byteorder'
            if order in members and archive.read(order) != b'little':
                raise PickledError('big-endian numbers are not permitted')

            def storage_of(identity: Any) -> Storage:
                key, storage = _identified(identity)
                entry = members.get(f'{prefix}data/{key}')
                if entry is None or entry.compress_type != zipfile.ZIP_STORED:
                    raise PickledError(f'storage {key!r:.40} is not there')
                storage.data = archive.read(entry)
                return storage

            stream = io.BytesIO(archive.read(found[0]))
            return _finished(Machine(stream, PERMITTED, storage_of).run())
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise PickledError(f'a damaged zip: {error}') from None


def _read_legacy(stream: io.BytesIO, permitted: Permitted = PERMITTED) -> Any:
    """Read what follows the magic number; storages are left to be finished."""
    if Machine(stream, permitted).run() != _LEGACY_PROTOCOL:
        raise PickledError('an unknown version of torch.save')
    system = Machine(stream, permitted).run()
    if not isinstance(system, dict) or system.get('little_endian') is not True:
        raise PickledError('big-endian numbers are not permitted')
    storages: dict[str, Storage] = {}

    def storage_of(identity: Any) -> Storage:
        key, storage = _identified(identity)
        return storages.setdefault(key, storage)

    found = Machine(stream, permitted, storage_of).run()
    keys = Machine(stream, permitted).run()
    if not isinstance(keys, list) or any(key not in storages for key in keys):
        raise PickledError('storages that no tensor has')
    for key in keys:
        storage = storages[key]
        size = stream.read(8)
        if len(size) != 8 or int.from_bytes(size, 'little') != storage.length:
            raise PickledError('damaged: the length of a storage')
        storage.data = stream.read(storage.length * storage.item_size)
    return found


def _identified(identity: Any) -> tuple[str, Storage]:
    if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != 'storage':
        raise PickledError('a persistent identity that is no storage')
    _, kind, key, _, length, *view = identity
    if view and view[0] is not None:
        raise PickledError('a view of a storage is not permitted')
    if (
        not isinstance(kind, Name)
        or kind.attribute not in values.STORAGES
        or not isinstance(key, str)
    ):
        raise PickledError('a storage of an unknown kind')
    return key, Storage(values.STORAGES[kind.attribute], values.sizes((length,))[0])


def _finished(value: Any) -> Any:
    """Turn what stands for arrays into arrays; what is shared stays shared."""
    done: dict[int, Any] = {}

    def finish(part: Any, depth: int) -> Any:
        if depth > _MAX_NESTING:
            raise PickledError('nested too deeply')
        if id(part) in done:
            return done[id(part)]
        if len(done) > _MAX_ENTRIES:
            raise PickledError('too many entries')
        if isinstance(part, (values.View, values.Array, values.Scalar)):
            made = part.finish()
        elif isinstance(part, Storage):
            made = Tensor(part.elements().copy(), part.dtype)
        elif isinstance(part, dict):
            made = {key: finish(inner, depth + 1) for key, inner in part.items()}
        elif isinstance(part, list):
            made = [finish(inner, depth + 1) for inner in part]
        elif isinstance(part, tuple) and not isinstance(part, Name):
            made = tuple(finish(inner, depth + 1) for inner in part)
        elif isinstance(part, (values.Dtype, Name)):
            made = str(part.finish() if isinstance(part, values.Dtype) else part)
        else:
            return part
        done[id(part)] = made
        return made

    return finish(value, 0)
