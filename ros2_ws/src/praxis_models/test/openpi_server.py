# SPDX-License-Identifier: Apache-2.0
"""A policy without a model behind openpi's own serving class: ``PORT FAMILY``. Knows no Praxis."""

import sys
import threading

import numpy as np
from openpi.serving import websocket_policy_server


class Policy:
    """Wants what a family's policies want, and answers what it has seen."""

    def __init__(self, family):
        self._family = family

    def infer(self, observation):
        prompt = observation.pop('prompt')
        if prompt == 'fail':
            raise ValueError('the policy has failed')
        if prompt.startswith('take '):
            threading.Event().wait(float(prompt.split()[1]))  # as a model, it holds the loop
        if prompt == 'echo':
            return {'echo': observation}
        actions = getattr(self, self._family)(observation)
        return {'actions': actions, 'policy_timing': {'infer_ms': 12.5}}

    def libero(self, observation):
        images = [observation['observation/image'], observation['observation/wrist_image']]
        assert all(image.shape == (224, 224, 3) for image in images)
        assert all(image.dtype == np.uint8 for image in images)
        corners = [image[0, 0, 0] / 255 for image in images]
        state = observation['observation/state']
        assert state.shape == (8,)
        return np.tile(np.concatenate([corners, state[:5]]), (10, 1))

    def rlt(self, observation):
        assert sorted(observation['images']) == ['agentview', 'wrist']
        return np.tile(np.asarray(observation['state'])[:7], (20, 1))


METADATA = {
    'libero': {'reset_pose': [0, -1.5, 1.5, 0, 0, 0], 'checkpoint': 'pi05_libero'},
    'rlt': {
        'rlt_stage2': {
            'round_complete': True,
            'network_config': {'state_dim': 8, 'action_dim': 7, 'action_horizon': 20},
            'mode': 'mean',
        }
    },
}


if __name__ == '__main__':
    port, family = int(sys.argv[1]), sys.argv[2]
    print(f'serving {family} by {websocket_policy_server.__file__}', flush=True)
    websocket_policy_server.WebsocketPolicyServer(
        Policy(family), host='127.0.0.1', port=port, metadata=METADATA[family]
    ).serve_forever()
