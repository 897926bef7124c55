# SPDX-License-Identifier: Apache-2.0
"""Reading of a checkpoint's config.json (lerobot 7427f318, configs/policies.py, types.py)."""

import json
import pathlib
from enum import Enum
from types import SimpleNamespace


class FeatureType(str, Enum):
    STATE = 'STATE'
    VISUAL = 'VISUAL'
    ENV = 'ENV'
    ACTION = 'ACTION'


class PreTrainedConfig(SimpleNamespace):
    @classmethod
    def from_pretrained(cls, pretrained_name_or_path, **kwargs):
        path = pathlib.Path(pretrained_name_or_path) / 'config.json'
        if not path.is_file():
            raise FileNotFoundError(f'config.json not found in {pretrained_name_or_path}')
        config = json.loads(path.read_text())
        if config['type'] not in ('act', 'diffusion', 'smolvla'):
            raise ValueError(f"Policy type '{config['type']}' is not registered.")
        for group in ('input_features', 'output_features'):
            config[group] = {
                key: SimpleNamespace(type=FeatureType(value['type']), shape=tuple(value['shape']))
                for key, value in config[group].items()
            }
        return cls(**{'device': 'cpu', **config})
