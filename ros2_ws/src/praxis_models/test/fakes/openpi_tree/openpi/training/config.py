# SPDX-License-Identifier: Apache-2.0
"""What `get_config` returns, as far as serving reads it (openpi 15a9616a, training/config.py)."""

from types import SimpleNamespace

_WIDTHS = {
    'pi05_libero': ('pi05', 32, 10, 'physical-intelligence/libero'),
    'pi0_fast_libero': ('pi0_fast', 7, 10, 'physical-intelligence/libero'),
    'pi05_droid': ('pi05', 32, 15, 'droid'),
    'pi0_aloha_sim': ('pi0', 32, 50, 'lerobot/aloha_sim_transfer_cube_human'),
    'debug': ('pi0', 32, 50, 'fake'),
}


def get_config(config_name):
    if config_name not in _WIDTHS:
        raise ValueError(f"Config '{config_name}' not found. Did you mean 'pi05_libero'? ")
    kind, action_dim, horizon, asset = _WIDTHS[config_name]
    model = SimpleNamespace(
        model_type=SimpleNamespace(value=kind), action_dim=action_dim, action_horizon=horizon
    )
    return SimpleNamespace(name=config_name, model=model, asset=asset)
