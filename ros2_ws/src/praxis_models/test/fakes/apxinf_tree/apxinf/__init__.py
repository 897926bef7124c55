# SPDX-License-Identifier: Apache-2.0
"""`AutoPolicy` and what it returns, as far as a caller can tell.

infinigence/ApxInf 19bbb696: ``policies/auto.py``, ``policies/impls/pi05.py``. The model's handle
is bound to the thread that made it, as the extension's is.
"""

import json
import pathlib
import threading

import numpy as np

POLICIES = []


class AutoPolicy:
    @staticmethod
    def from_pretrained(model_dir, *, model_type=None, **kwargs):
        path = pathlib.Path(model_dir) / 'config.json'
        if not path.is_file():
            raise FileNotFoundError(
                f'AutoPolicy: no config.json in {model_dir}; pass model_type= explicitly'
            )
        config = json.loads(path.read_text())
        if (model_type or config['type']) != 'pi05':
            raise KeyError(f'unknown policy {config["type"]!r}')
        return Pi05Policy.from_pretrained(model_dir, views=len(config['input_features']), **kwargs)


class Pi05Policy:
    @classmethod
    def from_pretrained(
        cls,
        model_dir,
        *,
        views,
        device='cuda:0',
        precision='auto',
        calibration=None,
        tactics=None,
        tokenizer_path=None,
        norm_key='actions',
        action_dim=None,
        action_horizon=None,
        seed=0,
        discrete_state=False,
        state_norm_key='state',
        image_keys=('observation/image', 'observation/wrist_image'),
        prompt_key='prompt',
        state_key='observation/state',
        metadata=None,
    ):
        if len(image_keys) != views:
            raise ValueError(
                f'Pi05Policy: model expects {views} camera views but {len(image_keys)} image_keys '
                f'were given: {image_keys}.'
            )
        policy = cls()
        policy.image_keys = image_keys
        policy.discrete_state = discrete_state
        policy.thread = threading.get_ident()
        policy.action_horizon = action_horizon or 50
        policy.action_dim = action_dim or 32
        policy.closed = False
        policy.metadata = {
            'model_type': 'pi05',
            'action_horizon': policy.action_horizon,
            'action_dim': policy.action_dim,
            'image_keys': list(image_keys),
            'discrete_state': discrete_state,
        }
        POLICIES.append(policy)
        return policy

    def infer(self, observation):
        assert threading.get_ident() == self.thread, 'the handle is unsendable'
        required = [*self.image_keys, 'prompt']
        if self.discrete_state:
            required.append('observation/state')
        missing = [key for key in required if key not in observation]
        if missing:
            raise KeyError(f'Pi05Policy.infer: missing observation keys: {missing}')
        assert isinstance(observation['prompt'], str)
        for key in self.image_keys:
            assert observation[key].dtype == np.uint8
            assert observation[key].ndim == 3
        actions = np.zeros((self.action_horizon, self.action_dim), np.float32)
        if self.action_dim == 20:
            actions[:, [3, 7, 13, 17]] = 1.0
        return {
            'actions': actions,
            'normalized_actions': actions,
            'timing': {'model_ms': 1.0, 'total_ms': 2.0},
            'metadata': self.metadata,
        }

    def close(self):
        self.closed = True
