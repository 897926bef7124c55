# SPDX-License-Identifier: Apache-2.0
"""A project with the interface that yuantianyuan01/FastWAM 45d8e145 publishes, without a network.

Made from its ``src/fastwam/models/wan22/fastwam.py`` (infer_action, infer_joint, encode_prompt,
load_checkpoint) and ``configs/sim_{libero,robotwin}.yaml``. Tensors are a shell around NumPy.
"""

import contextlib
from types import ModuleType, SimpleNamespace

import numpy as np

TASKS = {'sim_libero': (8, 7), 'sim_robotwin': (14, 14)}


class Tensor:
    def __init__(self, array):
        self.array = np.asarray(array)
        self.shape = self.array.shape
        self.ndim = self.array.ndim

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.array


class Config(dict):
    """A mapping whose parts are also attributes, as of omegaconf."""

    def __getattr__(self, name):
        value = self[name]
        return Config(value) if isinstance(value, dict) else value


class Model:
    """Answers ``self.values`` for the action and flat frames for the video."""

    def __init__(self, settings, model_dtype, device):
        self.settings = settings
        self.dtype = model_dtype
        self.device = device
        self.values = np.zeros((32, settings['action_dit_config']['action_dim']), np.float32)
        self.checkpoint = None
        self.evaluating = False
        self.calls = []
        self.embedded = []

    def load_checkpoint(self, path, optimizer=None):
        self.checkpoint = path

    def to(self, device):
        self.device = device
        return self

    def eval(self):
        self.evaluating = True
        return self

    def infer_action(
        self,
        prompt,
        input_image,
        action_horizon,
        proprio=None,
        context=None,
        context_mask=None,
        negative_prompt=None,
        text_cfg_scale=1.0,
        num_inference_steps=20,
        sigma_shift=None,
        seed=None,
        rand_device='cpu',
        tiled=False,
    ):
        if input_image.ndim != 4 or input_image.shape[:2] != (1, 3):
            raise ValueError('`input_image` must have shape [1,3,H,W] or [3,H,W]')
        if input_image.shape[2] % 16 or input_image.shape[3] % 16:
            raise ValueError('`input_image` must be resized before infer')
        if proprio.ndim != 2 or proprio.shape != (1, self.settings['proprio_dim']):
            raise ValueError(f'`proprio` must be [D] or [1,D], got shape {proprio.shape}')
        with_context = context is not None or context_mask is not None
        if (prompt is not None) == with_context:
            raise ValueError('`prompt` and `context/context_mask` are mutually exclusive.')
        if prompt is not None:
            if not self.settings['load_text_encoder']:
                raise ValueError('Prompt encoding requires loaded text encoder/tokenizer.')
            self.embedded.append(prompt)
        elif context.ndim != 3 or context_mask.ndim != 2:
            raise ValueError('`context/context_mask` must be [B,L,D]/[B,L]')
        self.calls.append(
            SimpleNamespace(
                image=input_image.numpy(),
                proprio=proprio.numpy(),
                context=None if context is None else context.numpy(),
                mask=None if context_mask is None else context_mask.numpy(),
                steps=num_inference_steps,
                seed=seed,
                horizon=action_horizon,
            )
        )
        return {'action': Tensor(self.values)}

    def infer_joint(
        self,
        prompt,
        input_image,
        num_video_frames,
        action_horizon,
        action=None,
        proprio=None,
        context=None,
        context_mask=None,
        negative_prompt=None,
        text_cfg_scale=1.0,
        num_inference_steps=20,
        sigma_shift=None,
        seed=None,
        rand_device='cpu',
        tiled=False,
        test_action_with_infer_action=True,
    ):
        assert not test_action_with_infer_action
        if num_video_frames % 4 != 1:
            raise ValueError('`num_video_frames` must satisfy T % 4 == 1')
        found = self.infer_action(
            prompt, input_image, action_horizon, proprio, context, context_mask, seed=seed,
            num_inference_steps=num_inference_steps,
        )  # fmt: skip
        height, width = input_image.shape[2:]
        frame = np.zeros((height, width, 3), np.uint8)
        frame[:, : width // 4] = 50
        return {**found, 'video': [frame + index for index in range(num_video_frames)]}


class Project:
    """Modules of the project and of what it needs, by name."""

    def __init__(self, root):
        self.root = root
        self.composed = []
        self.model = None
        package = root / 'src' / 'fastwam'
        package.mkdir(parents=True)
        (root / 'configs').mkdir()
        self._file = str(package / '__init__.py')

    def modules(self):
        fastwam = ModuleType('fastwam')
        fastwam.__file__ = self._file
        torch = ModuleType('torch')
        torch.from_numpy = Tensor
        torch.no_grad = contextlib.nullcontext
        torch.bfloat16, torch.float16, torch.float32 = 'bfloat16', 'float16', 'float32'
        hydra = ModuleType('hydra')
        hydra.initialize_config_dir = self._initialize
        hydra.compose = self._compose
        utils = ModuleType('hydra.utils')
        utils.instantiate = self._instantiate
        omegaconf = ModuleType('omegaconf')
        omegaconf.OmegaConf = SimpleNamespace(load=self._load, to_container=self._to_container)
        return {
            'fastwam': fastwam,
            'torch': torch,
            'hydra': hydra,
            'hydra.utils': utils,
            'omegaconf': omegaconf,
        }

    def _initialize(self, *, version_base, config_dir):
        assert version_base == '1.3' and config_dir == str(self.root / 'configs')
        return contextlib.nullcontext()

    def _compose(self, *, config_name, overrides):
        if any('nowhere' in word for word in overrides):
            raise RuntimeError("Could not find 'task/nowhere'\nAvailable options:\n\tlibero")
        self.composed.append((config_name, overrides))
        return self._config(*TASKS[config_name])

    def _load(self, path):
        with open(path) as file:
            return Config() if 'model:' not in file.read() else self._config(8, 7)

    def _config(self, states, actions):
        model = {
            '_target_': 'fastwam.runtime.create_fastwam',
            'load_text_encoder': True,
            'skip_dit_load_from_pretrain': False,
            'action_dit_pretrained_path': 'checkpoints/ActionDiT.pt',
            'proprio_dim': states,
            'action_dit_config': {'action_dim': actions},
        }
        return Config(model=Config(model))

    def _to_container(self, config, resolve):
        assert resolve
        return dict(config)

    def _instantiate(self, settings, *, model_dtype, device):
        assert settings['_target_'] == 'fastwam.runtime.create_fastwam'
        assert settings['skip_dit_load_from_pretrain']
        assert settings['action_dit_pretrained_path'] is None
        self.model = Model(settings, model_dtype, device)
        return self.model
