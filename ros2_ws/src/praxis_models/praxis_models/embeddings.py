# SPDX-License-Identifier: Apache-2.0
"""Text embeddings of a model's instructions, in a file that only holds numbers.

Projects keep them in pickles or in files of ``torch.save``. They are converted once:

    python -m praxis_models.embeddings libero_t5_embeddings.pkl libero.npz
    python -m praxis_models.embeddings text_embeds_cache/libero libero.npz \
        --instructions libero.txt

A worker reads the result alone. It is a ``.npz`` with an ``index.json`` inside: instruction ->
array, type that the source had, mask. Neither reading nor converting runs anything that a file
contains, and neither needs PyTorch. Imports no rclpy.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import io
import json
import os
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from praxis_models.pickled import reader
from praxis_models.pickled.values import PickledError, Tensor

FORMAT = 'praxis.embeddings.v1'

FAST_WAM_PROMPT = (
    "A video recorded from a robot's point of view executing the following instruction: {task}"
)
"""What Fast-WAM embeds (``DEFAULT_PROMPT`` of yuantianyuan01/FastWAM 45d8e145)."""

_INDEX = 'index.json'
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NOT_OURS = (zipfile.BadZipFile, KeyError, AttributeError, TypeError, ValueError, EOFError)


class EmbeddingsError(ValueError):
    """A file without usable embeddings, or an instruction that is not in it; one line."""


class Embedding(NamedTuple):
    """Embedding of one instruction.

    Attributes:
        values: float32[L, D], one row for each token.
        mask: bool[L], which rows are tokens and not padding; None where the source has none.
        dtype: Type that the source had; its values are exact in float32.
    """

    values: np.ndarray
    mask: np.ndarray | None = None
    dtype: str = 'float32'


class Embeddings:
    """Embeddings by instruction."""

    def __init__(self, entries: Mapping[str, Embedding], source: str = '') -> None:
        """Take the embeddings.

        Args:
            entries: By instruction.
            source: Where they are from, for messages.

        Raises:
            EmbeddingsError: There are none, or they differ in D.
        """
        widths = {entry.values.shape[1] for entry in entries.values()}
        if len(widths) != 1:
            what = f'of widths {sorted(widths)}' if widths else 'none'
            raise EmbeddingsError(f'{source}: embeddings {what}')
        self._entries = dict(entries)
        self.source = source
        self.width = widths.pop()

    @property
    def instructions(self) -> list[str]:
        """What there are embeddings of."""
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, instruction: object) -> bool:
        return instruction in self._entries

    def of(self, instruction: str) -> Embedding:
        """Embedding of an instruction.

        Raises:
            EmbeddingsError: There is none; names the nearest.
        """
        if instruction in self._entries:
            return self._entries[instruction]
        near = difflib.get_close_matches(instruction, self._entries, n=1, cutoff=0.6)
        hint = f', did you mean {near[0]!r}?' if near else ''
        raise EmbeddingsError(
            f'instruction: none of the {len(self)} cached ones (got {instruction!r:.120}){hint}'
        )


def write(path: str | Path, embeddings: Embeddings) -> None:
    """Write a file, whole or not at all; the same embeddings give the same bytes."""
    path = Path(path)
    index: dict[str, Any] = {'format': FORMAT, 'source': embeddings.source, 'entries': {}}
    part = path.with_name(f'{path.name}.{os.getpid()}.part')
    try:
        with zipfile.ZipFile(part, 'w', zipfile.ZIP_STORED) as archive:
            for number, instruction in enumerate(embeddings.instructions):
                entry = embeddings.of(instruction)
                index['entries'][instruction] = {
                    'array': str(number),
                    'dtype': entry.dtype,
                    'mask': None if entry.mask is None else f'{number}.mask',
                }
                _put(archive, f'{number}.npy', _array_bytes(_narrow(entry)))
                if entry.mask is not None:
                    _put(archive, f'{number}.mask.npy', _array_bytes(entry.mask))
            text = json.dumps(index, ensure_ascii=False, indent=1)
            _put(archive, _INDEX, text.encode('utf-8'))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def read(path: str | Path) -> Embeddings:
    """Read what `write` wrote.

    Raises:
        EmbeddingsError: It cannot be read or is not such a file; names it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            index = json.loads(archive.read(_INDEX))
            if not isinstance(index, dict) or index.get('format') != FORMAT:
                raise EmbeddingsError(f'{path}: is not of the format {FORMAT}')
            entries = {
                instruction: _widened(archive, entry)
                for instruction, entry in index['entries'].items()
            }
        return Embeddings(entries, str(path))
    except OSError as error:
        raise EmbeddingsError(f'{path}: cannot be read: {error.strerror or error}') from None
    except EmbeddingsError:
        raise
    except (
        zipfile.BadZipFile,
        KeyError,
        AttributeError,
        TypeError,
        ValueError,
        EOFError,
    ) as error:
        hint = 'convert a pickle with python -m praxis_models.embeddings'
        raise EmbeddingsError(f'{path}: is no file of embeddings ({error}); {hint}') from None


def convert_file(path: str | Path) -> Embeddings:
    """Read a pickle or a file of ``torch.save`` with a mapping from instruction to embedding.

    An embedding is a tensor or array [L, D] or [1, L, D], or a mapping with ``context`` and
    ``mask``. NVlabs/cosmos-policy b8ffbb42 pickles {instruction: bfloat16[1, 512, 1024]}.

    Raises:
        EmbeddingsError: It is not that.
    """
    found = _read_pickled(path)
    if not isinstance(found, Mapping):
        raise EmbeddingsError(f'{path}: must hold a mapping from instructions to embeddings')
    entries = {}
    for instruction, value in found.items():
        if not isinstance(instruction, str):
            raise EmbeddingsError(f'{path}: an instruction must be text (got {instruction!r:.60})')
        entries[instruction] = _embedding(f'{path}: {instruction!r:.60}', value)
    return Embeddings(entries, _origin(Path(path)))


def convert_folder(
    path: str | Path, instructions: Iterable[str], prompt: str = FAST_WAM_PROMPT
) -> Embeddings:
    """Read a folder of files named by the SHA-256 of what was embedded.

    yuantianyuan01/FastWAM 45d8e145 (``scripts/precompute_text_embeds.py``) writes
    SHA256.t5_len128.wan22ti2v5b.pt with ``context`` bfloat16[128, 4096] and ``mask`` bool[128].

    Args:
        path: Folder.
        instructions: What to take from it.
        prompt: What was embedded, with ``{task}`` for the instruction.

    Raises:
        EmbeddingsError: A file is not there, or is not that.
    """
    entries = {}
    for instruction in instructions:
        text = prompt.replace('{task}', instruction)
        digest = hashlib.sha256(text.encode('utf-8')).hexdigest()
        found = sorted(Path(path).glob(f'{digest}.*.pt'))
        if len(found) != 1:
            what = 'no file' if not found else f'{len(found)} files'
            raise EmbeddingsError(f'{path}: {what} {digest[:12]}...*.pt for {instruction!r:.80}')
        entries[instruction] = _embedding(str(found[0]), _read_pickled(found[0]))
    return Embeddings(entries, str(Path(path).name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert, as the command line says."""
    parser = argparse.ArgumentParser(
        prog='python -m praxis_models.embeddings',
        description="Convert a project's text embeddings, without running what they contain.",
    )
    parser.add_argument('source', type=Path, help='pickle, file of torch.save, or folder of them')
    parser.add_argument('output', type=Path, help='file to write, .npz')
    parser.add_argument(
        '--instructions', type=Path, help='text file, one instruction a line; for a folder'
    )
    parser.add_argument(
        '--prompt', default=FAST_WAM_PROMPT, help='what a folder has embeddings of, with {task}'
    )
    given = parser.parse_args(arguments)
    try:
        if given.source.is_dir():
            if given.instructions is None:
                parser.error('a folder needs --instructions: its files are named by digests')
            lines = given.instructions.read_text(encoding='utf-8').splitlines()
            wanted = [line.strip() for line in lines if line.strip()]
            embeddings = convert_folder(given.source, wanted, given.prompt)
        else:
            embeddings = convert_file(given.source)
        write(given.output, embeddings)
    except (EmbeddingsError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f'{given.output}: {len(embeddings)} embeddings of {embeddings.width} numbers a token')
    return 0


def _read_pickled(path: str | Path) -> Any:
    try:
        return reader.read(path)
    except PickledError as error:
        raise EmbeddingsError(str(error)) from None
    except OSError as error:
        raise EmbeddingsError(f'{path}: cannot be read: {error.strerror or error}') from None


def _embedding(where: str, found: Any) -> Embedding:
    mask = None
    if isinstance(found, Mapping):
        if 'context' not in found:
            raise EmbeddingsError(f'{where}: has no context')
        mask = found.get('mask')
        found = found['context']
    if isinstance(found, np.ndarray):
        found = Tensor(found, found.dtype.name)
    values = found.values if isinstance(found, Tensor) else np.zeros(0)
    if values.ndim == 3 and len(values) == 1:
        values = values[0]
    if values.dtype.kind != 'f' or values.ndim != 2 or not values.size:
        raise EmbeddingsError(f'{where}: must be numbers of shape [L, D] or [1, L, D]')
    wide = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(wide).all():
        raise EmbeddingsError(f'{where}: has values that are not finite')
    return Embedding(wide, _mask(where, mask, len(wide)), found.dtype)


def _mask(where: str, found: Any, length: int) -> np.ndarray | None:
    if found is None:
        return None
    mask = np.asarray(found.values if isinstance(found, Tensor) else found)
    if mask.ndim == 2 and len(mask) == 1:
        mask = mask[0]
    if mask.shape != (length,) or mask.dtype.kind not in 'biu':
        raise EmbeddingsError(f'{where}: the mask must be of shape [{length}]')
    return mask.astype(bool)


def _origin(path: Path) -> str:
    return f'{path.name} sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}'


def _narrow(entry: Embedding) -> np.ndarray:
    """Type to store: that of the source, with bfloat16 as its 16 bits."""
    if entry.dtype == 'bfloat16':
        return (entry.values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return entry.values.astype(np.float16) if entry.dtype == 'float16' else entry.values


def _widened(archive: zipfile.ZipFile, entry: Mapping[str, Any]) -> Embedding:
    stored = _get(archive, entry['array'])
    if entry['dtype'] == 'bfloat16' and stored.dtype == np.uint16:
        values = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        values = stored.astype(np.float32)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise ValueError('an embedding that is not finite numbers of shape [L, D]')
    mask = None if entry['mask'] is None else _get(archive, entry['mask'])
    if mask is not None and (mask.shape != values.shape[:1] or mask.dtype != bool):
        raise ValueError('a mask that does not fit')
    return Embedding(values, mask, str(entry['dtype']))


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)


def _get(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f'{name}.npy') as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _array_bytes(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()


if __name__ == '__main__':
    sys.exit(main())
