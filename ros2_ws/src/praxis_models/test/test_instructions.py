# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from praxis_models import embeddings
from praxis_models.backend import BackendError
from praxis_models.embeddings import Embedding, Embeddings
from praxis_models.workers.instructions import CachedInstructions


@pytest.fixture
def file(tmp_path):
    path = tmp_path / 'cached.npz'
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    embeddings.write(path, Embeddings({'open the drawer': Embedding(values)}))
    return str(path)


def test_what_is_not_cached_is_left_to_the_model(file):
    cached = CachedInstructions(file, only=False)
    assert cached.find('open the drawer').values.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert cached.find('close the drawer') is None
    assert cached.metadata == {
        'cached_instructions_only': False,
        'cached_instructions': ['open the drawer'],
    }


def test_what_is_not_cached_is_refused_where_only_the_cache_is_to_be_used(file):
    cached = CachedInstructions(file, only=True)
    with pytest.raises(BackendError, match="did you mean 'open the drawer'"):
        cached.find('close the drawer')


def test_without_a_file_the_model_embeds_everything():
    cached = CachedInstructions('', only=False)
    assert cached.find('open the drawer') is None
    assert cached.metadata['cached_instructions'] == []


@pytest.mark.parametrize(
    'path, reason',
    [('', 'cached_instructions_only needs text_embeddings'), ('gone.npz', 'text_embeddings: ')],
)
def test_a_cache_that_is_not_there_is_refused(path, reason):
    with pytest.raises(BackendError, match=reason):
        CachedInstructions(path, only=True)
