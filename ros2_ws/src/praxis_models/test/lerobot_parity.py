# SPDX-License-Identifier: Apache-2.0
"""Compare the lerobot worker with LeRobot's own inference; runs in LeRobot's environment.

Makes an ACT and a diffusion checkpoint with random weights, and prints for each the largest
difference between the worker's chunk and the actions that `predict_action` gives one by one.
"""

import json
import pathlib
import tempfile

import numpy as np
import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
from lerobot.policies.factory import make_pre_post_processors
from lerobot.utils.control_utils import predict_action
from praxis_core.model_exchange import PhysicalObservation
from praxis_models.adapters import lerobot as adapter
from praxis_models.backend import Session
from praxis_models.workers import lerobot

FEATURES = {
    'input_features': {
        'observation.images.image': PolicyFeature(FeatureType.VISUAL, (3, 64, 64)),
        'observation.images.image2': PolicyFeature(FeatureType.VISUAL, (3, 64, 64)),
        'observation.state': PolicyFeature(FeatureType.STATE, (8,)),
    },
    'output_features': {'action': PolicyFeature(FeatureType.ACTION, (7,))},
    'device': 'cpu',
}
ACT = ACTConfig(
    pretrained_backbone_weights=None, chunk_size=20, n_action_steps=10, dim_model=64, n_heads=4,
    dim_feedforward=128, n_encoder_layers=1, n_vae_encoder_layers=1, **FEATURES,
)  # fmt: skip
DIFFUSION = DiffusionConfig(
    down_dims=(32, 64), crop_shape=(60, 60), num_train_timesteps=10, num_inference_steps=5,
    horizon=16, n_action_steps=8, **FEATURES,
)  # fmt: skip


def statistics():
    random = np.random.default_rng(2)
    found = {}
    for key, feature in {**FEATURES['input_features'], **FEATURES['output_features']}.items():
        shape = (3, 1, 1) if feature.type is FeatureType.VISUAL else feature.shape
        low = random.uniform(-0.5, 0.0, shape)
        found[key] = {
            'mean': torch.tensor(low + 0.3, dtype=torch.float32),
            'std': torch.tensor(random.uniform(0.2, 0.4, shape), dtype=torch.float32),
            'min': torch.tensor(low, dtype=torch.float32),
            'max': torch.tensor(low + 0.8, dtype=torch.float32),
        }
    return found


def difference(kind, config, folder):
    processors = make_pre_post_processors(config, dataset_stats=statistics())
    torch.manual_seed(4)
    for part in (kind(config), *processors):
        part.save_pretrained(folder)
    backend = lerobot.load(lerobot.Options(checkpoint=str(folder), control='libero_7d'))
    random = np.random.default_rng(1)
    observation = PhysicalObservation(
        {
            role: random.integers(0, 255, (128, 160, 3), dtype=np.uint8)
            for role in backend.meta.camera_roles
        },
        {
            name: random.normal(size=size).astype(np.float32)
            for name, size in backend.meta.state_schema.items()
        },
        'open the drawer',
    )
    chunk = backend.predict(observation, Session('s')).actions
    policy = kind.from_pretrained(folder)
    policy.reset()
    native = adapter.encode(
        backend._features, observation, cameras=backend.meta.metadata['views'], states=(),
        libero=True,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = [
        predict_action(dict(native), policy, torch.device('cpu'), *processors, False, task='x')
        for _ in range(config.n_action_steps)
    ]
    theirs = np.clip(np.stack([step.numpy().reshape(-1) for step in theirs]), -1.0, 1.0)
    return float(np.abs(theirs - chunk[: len(theirs)]).max()), float(np.ptp(chunk))


def main():
    found = {}
    for kind, config in ((ACTPolicy, ACT), (DiffusionPolicy, DIFFUSION)):
        with tempfile.TemporaryDirectory() as folder:
            found[config.type] = difference(kind, config, pathlib.Path(folder))
    print(json.dumps(found))


if __name__ == '__main__':
    main()
