# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of openpi with random weights, to try everything but the model's skill.

The transformers have openpi's own width ``dummy``; the vision tower keeps its size, so there are
429 million parameters (0.6 GB on disk). openpi's own loader reads it like any other checkpoint
(Physical-Intelligence/openpi 15a9616a).
"""

from __future__ import annotations

import dataclasses
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from praxis_models.backend import BackendError
from praxis_models.workers.foreign import bring

_TOKENIZER = Path('big_vision') / 'paligemma_tokenizer.model'
_SCALE = 0.02
_WORDS = (
    'Task: pick up the red block and put it in the bowl, State: 0 1 2 3 4 5 6 7 8 9;\nAction: ',
    'open the drawer and close it; place the black bowl on the plate next to the stove',
)


def narrow(config: Any) -> Any:
    """Training configuration with the transformers' width ``dummy``.

    Raises:
        BackendError: pi0-FAST, whose tokenizer of actions comes with weights only.
    """
    if config.model.model_type.value == 'pi0_fast':
        raise BackendError(
            'checkpoint: dummy weights are for pi0 and pi0.5; pi0-FAST needs the action '
            'tokenizer physical-intelligence/fast, which is downloaded with its weights'
        )
    model = dataclasses.replace(
        config.model, paligemma_variant='dummy', action_expert_variant='dummy'
    )
    return dataclasses.replace(config, model=model)


def write_checkpoint(config: Any, directory: Path, seed: int) -> None:
    """Write random weights and statistics of a `narrow` configuration.

    Args:
        config: openpi's TrainConfig.
        directory: Empty folder.
        seed: Of the weights.
    """
    jax = bring('jax', 'openpi')
    nnx = bring('flax.nnx', 'openpi')
    orbax = bring('orbax.checkpoint', 'openpi')
    normalize = bring('openpi.shared.normalize', 'openpi')
    # numbers drawn once and repeated: drawing 429 million takes a minute of one core
    drawn = np.random.default_rng(seed).standard_normal(1 << 20, dtype=np.float32) * _SCALE
    drawn = drawn.astype(jax.numpy.bfloat16)

    def fill(shape: Any) -> np.ndarray:
        return np.resize(drawn, shape.shape)

    shapes = nnx.state(nnx.eval_shape(config.model.create, jax.random.key(0))).to_pure_dict()
    with orbax.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(directory / 'params', {'params': jax.tree.map(fill, shapes)})
    width = config.model.action_dim
    unit = normalize.NormStats(
        mean=np.zeros(width), std=np.ones(width), q01=-np.ones(width), q99=np.ones(width)
    )
    asset = config.data.assets.asset_id or config.data.repo_id
    normalize.save(directory / 'assets' / asset, {'state': unit, 'actions': unit})


def provide_tokenizer(directory: Path) -> None:
    """Give openpi a tokenizer of a few words, where PaliGemma's was never downloaded."""
    home = Path(os.environ.get('OPENPI_DATA_HOME') or '~/.cache/openpi').expanduser()
    if (home / _TOKENIZER).is_file():
        return
    sentencepiece = bring('sentencepiece', 'openpi')
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_WORDS),
        model_writer=model,
        model_type='bpe',
        vocab_size=320,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path = directory / _TOKENIZER
    path.parent.mkdir(parents=True)
    path.write_bytes(model.getvalue())
    os.environ['OPENPI_DATA_HOME'] = str(directory)
