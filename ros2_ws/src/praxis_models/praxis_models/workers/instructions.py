# SPDX-License-Identifier: Apache-2.0
"""Instructions whose text embeddings are at hand, so that a model's text encoder need not run."""

from __future__ import annotations

from typing import Any

from praxis_models import embeddings
from praxis_models.backend import BackendError
from praxis_models.embeddings import Embedding, Embeddings, EmbeddingsError


class CachedInstructions:
    """Embeddings in the place of a text encoder, as far as they go.

    Args:
        path: File of `praxis_models.embeddings`, empty: none.
        only: Refuse all other instructions.

    Raises:
        BackendError: The file is not valid, or there is none where only it is to be used.
    """

    def __init__(self, path: str, only: bool) -> None:
        self._only = only
        self._embeddings: Embeddings | None = None
        if path:
            try:
                self._embeddings = embeddings.read(path)
            except EmbeddingsError as error:
                raise BackendError(f'text_embeddings: {error}') from error
        elif only:
            raise BackendError('cached_instructions_only needs text_embeddings')

    @property
    def metadata(self) -> dict[str, Any]:
        """What a model says of them."""
        known = [] if self._embeddings is None else self._embeddings.instructions
        return {'cached_instructions_only': self._only, 'cached_instructions': known}

    def find(self, instruction: str) -> Embedding | None:
        """Embedding of an instruction, None where the model has to embed it.

        Raises:
            BackendError: It is refused; names the nearest.
        """
        found = self._embeddings
        if found is None or (instruction not in found and not self._only):
            return None
        try:
            return found.of(instruction)
        except EmbeddingsError as error:
            raise BackendError(str(error)) from error
