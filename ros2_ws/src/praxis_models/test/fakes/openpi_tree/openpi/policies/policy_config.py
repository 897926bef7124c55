# SPDX-License-Identifier: Apache-2.0
"""A policy that checks its input as openpi's do and answers what it was fed.

Keys, shapes and types: openpi 15a9616a, ``policies/{libero,droid,aloha}_policy.py``; signatures:
``policies/policy_config.py`` and ``policies/policy.py``.
"""

import pathlib

import numpy as np

ALOHA = ('cam_high', 'cam_low', 'cam_left_wrist', 'cam_right_wrist')

CALLS = []
"""Arguments of every `create_trained_policy`, and input and noise of every `infer`."""


def create_trained_policy(
    train_config,
    checkpoint_dir,
    *,
    repack_transforms=None,
    sample_kwargs=None,
    default_prompt=None,
    norm_stats=None,
    pytorch_device=None,
):
    path = pathlib.Path(checkpoint_dir)
    if not path.exists():
        raise FileNotFoundError(f'File not found at {checkpoint_dir}')
    if norm_stats is None:
        file = path / 'assets' / train_config.asset / 'norm_stats.json'
        if not file.exists():
            raise FileNotFoundError(f'Norm stats file not found at: {file}')
    CALLS.append({'sample_kwargs': sample_kwargs, 'norm_stats': norm_stats})
    return Policy(train_config)


class Policy:
    def __init__(self, config):
        self._config = config

    def infer(self, obs, *, noise=None):
        CALLS.append({'obs': obs, 'noise': noise})
        name = self._config.name
        assert isinstance(obs['prompt'], str)
        if 'libero' in name:
            state = obs['observation/state']
            images = [obs['observation/image'], obs['observation/wrist_image']]
            assert state.shape == (8,)
            width = 7
        elif 'droid' in name:
            state = np.concatenate(
                [obs['observation/joint_position'], obs['observation/gripper_position']]
            )
            images = [
                obs['observation/exterior_image_1_left'],
                obs['observation/wrist_image_left'],
            ]
            width = 8
        else:
            state = obs['state']
            extra = set(obs['images']) - {
                'cam_high',
                'cam_low',
                'cam_left_wrist',
                'cam_right_wrist',
            }
            if extra:
                raise ValueError(f'Expected images to contain ..., got {tuple(obs["images"])}')
            images = [np.transpose(image, (1, 2, 0)) for image in obs['images'].values()]
            assert obs['images']['cam_high'].shape[0] == 3
            width = 14
        for image in images:
            assert image.dtype == np.uint8
            assert image.ndim == 3 and image.shape[-1] == 3
        horizon = self._config.model.action_horizon
        if noise is not None:
            assert noise.shape == (horizon, self._config.model.action_dim)
            actions = np.tanh(noise[:, :width])
        else:
            actions = np.zeros((horizon, width))
        return {'state': state, 'actions': actions, 'policy_timing': {'infer_ms': 1.0}}
