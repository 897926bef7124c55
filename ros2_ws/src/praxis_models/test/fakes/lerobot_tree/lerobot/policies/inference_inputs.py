# SPDX-License-Identifier: Apache-2.0
"""Arrays to tensors (lerobot 7427f318, policies/utils.py): images to [1, C, H, W] in 0 ... 1."""

import torch


def prepare_observation_for_inference(observation, device, task=None, robot_type=None):
    for name in observation:
        tensor = torch.from_numpy(observation[name]).to(device)
        if 'image' in name:
            if tensor.dtype == torch.uint8:
                tensor = tensor.type(torch.float32) / 255
            tensor = tensor.permute(2, 0, 1).contiguous()
        observation[name] = tensor.unsqueeze(0)
    observation['task'] = task if task else ''
    observation['robot_type'] = robot_type if robot_type else ''
    return observation
