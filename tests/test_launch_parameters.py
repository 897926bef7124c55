# SPDX-License-Identifier: Apache-2.0
"""The parameter files list every parameter of every node, with values that the node accepts."""

from pathlib import Path

import pytest
import yaml
from praxis_agent.planner_node import PlannerParameters
from praxis_cli.frontend import load
from praxis_cli.resolution import resolve
from praxis_control.arbiter_parameters import ArbiterParameters
from praxis_control.primitives_node import PrimitivesParameters
from praxis_core.contract import load_contract
from praxis_core.parameters import coerce
from praxis_hil.recorder_parameters import RecorderParameters
from praxis_models.action_model_parameters import ActionModelParameters
from praxis_perception.perception_node import PerceptionParameters
from praxis_sim.simulator_node import SimulatorParameters

ROOT = Path(__file__).resolve().parents[1]
# Node: file, model, and whether it is a lifecycle node with `autostart`.
NODES = {
    'simulator': ('sim', SimulatorParameters, True),
    'arbiter': ('sim', ArbiterParameters, False),
    'recorder': ('hil', RecorderParameters, True),
    'primitives': ('agent', PrimitivesParameters, False),
    'perception': ('agent', PerceptionParameters, False),
    'planner': ('agent', PlannerParameters, True),
    'action_model': ('model', ActionModelParameters, True),
}


def listed(node: str) -> dict:
    tree = yaml.safe_load((ROOT / 'params' / f'{NODES[node][0]}.yaml').read_text())
    return tree[f'/**/{node}']['ros__parameters']


@pytest.mark.parametrize('node', NODES)
def test_the_file_lists_every_parameter_and_no_other(node):
    _, model, lifecycle = NODES[node]
    expected = set(model.model_fields) - {'contract'} | ({'autostart'} if lifecycle else set())
    assert set(listed(node)) == expected


def test_every_node_of_a_file_is_known():
    for name in ('sim', 'hil', 'agent', 'model'):
        tree = yaml.safe_load((ROOT / 'params' / f'{name}.yaml').read_text())
        assert {key.removeprefix('/**/') for key in tree} == {
            node for node, (file, _, _) in NODES.items() if file == name
        }


@pytest.mark.parametrize('stepping', ['lockstep', 'realtime'])
@pytest.mark.parametrize('platform', ['tabletop', 'tabletop_joint', 'libero'])
@pytest.mark.parametrize('launch_file', ['demo', 'two_robots', 'policy'])
def test_what_a_launch_file_sets_is_accepted(launch_file, platform, stepping, share):
    arguments = {'platform': platform, 'stepping': stepping, 'platform_a': platform}
    path = share / 'launch' / f'{launch_file}.launch.yaml'
    for process in resolve(load(path), arguments):
        model = NODES[process.name][1]
        values = listed(process.name)
        for part in process.parameters:
            if isinstance(part, str):
                assert Path(part).is_file()
            else:
                values |= part
        values.pop('autostart', None)
        assert load_contract(values['contract']).name == Path(values['contract']).stem
        model.model_validate(
            {name: coerce(model.kinds[name], value) for name, value in values.items()}
        )


@pytest.fixture
def share(tmp_path, monkeypatch) -> Path:
    """Return the share folder of praxis_bringup, made of the repository's files."""
    index = tmp_path / 'share/ament_index/resource_index/packages'
    index.mkdir(parents=True)
    (index / 'praxis_bringup').touch()
    folder = tmp_path / 'share/praxis_bringup'
    folder.mkdir()
    for name in ('launch', 'params'):
        (folder / name).symlink_to(ROOT / name)
    monkeypatch.setenv('AMENT_PREFIX_PATH', str(tmp_path))
    return folder
