# SPDX-License-Identifier: Apache-2.0
"""A project with the functions that NVlabs/cosmos-policy b8ffbb42 publishes.

Made from its ``cosmos_policy/experiments/robot/cosmos_utils.py``: signatures, what is asserted of
the inputs, the scaling of proprioception and actions, and the dictionary that comes back. The
network is a ramp.
"""

import json
from types import ModuleType, SimpleNamespace

import numpy as np

UTILS = 'cosmos_policy.experiments.robot.cosmos_utils'
SEEDS = 'cosmos_policy.utils.utils'


class Project:
    """What the two modules do and were asked."""

    def __init__(self, chunk_size=16):
        self.chunk_size = chunk_size
        self.seeds = []
        self.calls = []
        self.embedded = []
        self.settings = None

    def modules(self):
        utils = ModuleType(UTILS)
        utils.load_dataset_stats = self.load_dataset_stats
        utils.get_model = self.get_model
        utils.get_action = self.get_action
        seeds = ModuleType(SEEDS)
        seeds.set_seed_everywhere = self.seeds.append
        return {UTILS: utils, SEEDS: seeds}

    def load_dataset_stats(self, dataset_stats_path):
        with open(dataset_stats_path) as file:
            return {name: np.array(value) for name, value in json.load(file).items()}

    def get_model(self, cfg):
        self.settings = cfg
        assert isinstance(cfg.ckpt_path, str) and cfg.config and cfg.config_file
        dataset = SimpleNamespace(chunk_size=self.chunk_size)
        config = SimpleNamespace(dataloader_train=SimpleNamespace(dataset=dataset))
        return SimpleNamespace(config=SimpleNamespace(state_t=9)), config

    def get_action(
        self,
        cfg,
        model,
        dataset_stats,
        obs,
        task_label_or_embedding,
        seed=1,
        randomize_seed=False,
        num_denoising_steps_action=5,
        generate_future_state_and_value_in_parallel=True,
        worker_id=0,
        batch_size=1,
    ):
        if isinstance(task_label_or_embedding, str):
            self.embedded.append(task_label_or_embedding)
            embedding = np.ones((1, 512, 1024), np.float32)
        else:
            embedding = task_label_or_embedding
        assert embedding.ndim == 3 and len(embedding) == 1
        assert cfg.suite == 'libero'
        images = np.stack([obs['wrist_image'], obs['primary_image']])
        assert images.dtype == np.uint8 and images.ndim == 4 and images.shape[-1] == 3
        assert images.shape[1] == images.shape[2]
        assert cfg.use_jpeg_compression and cfg.trained_with_image_aug
        low, high = dataset_stats['proprio_min'], dataset_stats['proprio_max']
        assert cfg.use_proprio and cfg.normalize_proprio
        proprio = 2 * ((obs['proprio'] - low) / (high - low)) - 1
        assert proprio.shape == (9,)
        assert not cfg.use_variance_scale
        ramp = np.linspace(-1, 1, cfg.chunk_size, dtype=np.float32)[:, None]
        actions = np.repeat(ramp, 7, axis=1)
        low, high = dataset_stats['actions_min'], dataset_stats['actions_max']
        assert cfg.unnormalize_actions
        actions = 0.5 * (actions + 1) * (high - low) + low
        self.calls.append(
            SimpleNamespace(
                obs=obs,
                proprio=proprio,
                embedding=embedding,
                seed=seed,
                randomize_seed=randomize_seed,
                steps=num_denoising_steps_action,
            )
        )
        found = {'actions': [actions[i] for i in range(len(actions))], 'proprio': proprio}
        if generate_future_state_and_value_in_parallel:
            assert cfg.use_wrist_image and cfg.num_wrist_images == 1
            assert cfg.use_third_person_image and cfg.num_third_person_images == 1
            found['future_image_predictions'] = {
                'future_wrist_image': np.full((224, 224, 3), 20, np.uint8),
                'future_image': np.full((224, 224, 3), 10, np.uint8),
            }
            found['value_prediction'] = 0.75
        return found
