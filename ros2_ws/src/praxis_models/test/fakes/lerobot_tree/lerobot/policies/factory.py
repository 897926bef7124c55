# SPDX-License-Identifier: Apache-2.0
"""Policies and processors by name: ACT answers whole chunks, diffusion one step at a time.

lerobot 7427f318: policies/{factory,pretrained}.py, policies/{act,diffusion}.
"""

import json
import pathlib
from types import SimpleNamespace

import numpy as np
import torch

CALLS = SimpleNamespace(overrides=None, batches=[], resets=0, processed=[])


class _Policy:
    def __init__(self, config):
        self.config = config

    @classmethod
    def from_pretrained(cls, pretrained_name_or_path, *, config=None, **kwargs):
        if not (pathlib.Path(pretrained_name_or_path) / 'model.safetensors').is_file():
            raise FileNotFoundError('model.safetensors not found')
        return cls(config)

    def reset(self):
        CALLS.resets += 1
        self._queue = []

    def _rows(self, batch, count):
        CALLS.batches.append(batch)
        for key, feature in self.config.input_features.items():
            if feature.type.value == 'VISUAL':
                assert batch[key].shape == (1, *feature.shape), (key, batch[key].shape)
            elif key not in batch:
                raise KeyError(key)
        width = self.config.output_features['action'].shape[0]
        return np.arange(count, dtype=np.float32)[None, :, None] + np.zeros((1, 1, width), 'f4')


class ACTPolicy(_Policy):
    def predict_action_chunk(self, batch):
        return torch.Tensor(self._rows(batch, self.config.chunk_size))


class DiffusionPolicy(_Policy):
    def select_action(self, batch):
        if not self._queue:
            self._queue = list(self._rows(batch, self.config.n_action_steps)[0])
        return torch.Tensor(self._queue.pop(0)[None])


class _Pipeline:
    def __init__(self, path, convert):
        if not path.is_file():
            raise FileNotFoundError(f"Could not find '{path.name}'")
        self.steps = [
            SimpleNamespace(**step.get('config', {}))
            for step in json.loads(path.read_text())['steps']
        ]
        self._convert = convert

    def __call__(self, data):
        return self._convert(self, data)

    def reset(self):
        pass


def _before(pipeline, batch):
    names = {}
    for step in pipeline.steps:
        names.update(getattr(step, 'rename_map', {}))
    return {names.get(key, key): value for key, value in batch.items()}


def _after(pipeline, action):
    assert action.ndim == 2
    CALLS.processed.append(action)
    return torch.Tensor(action.array * 0.25)


def get_policy_class(name):
    return {'act': ACTPolicy, 'smolvla': ACTPolicy, 'diffusion': DiffusionPolicy}[name]


def make_pre_post_processors(policy_cfg, pretrained_path=None, **kwargs):
    folder = pathlib.Path(pretrained_path)
    CALLS.overrides = kwargs
    return (
        _Pipeline(folder / 'policy_preprocessor.json', _before),
        _Pipeline(folder / 'policy_postprocessor.json', _after),
    )
