# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pytest
from praxis_sim.command_check import CommandCheck

CHECK = CommandCheck('a' * 64, 'tabletop.osc_pose.delta.v1', 7)


def command(**changes):
    fields = {
        'interface_hash': 'a' * 64,
        'action_space': 'tabletop.osc_pose.delta.v1',
        'episode_uuid': 'episode',
        'values': [0.0] * 7,
    }
    return SimpleNamespace(**(fields | changes))


def test_a_fit_command_passes():
    assert CHECK.refusal(command(), 'episode') == ''
    assert CHECK.refusal(command(episode_uuid=''), 'episode') == ''


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        ({'interface_hash': 'b' * 64}, 'interface_hash bbbb'),
        ({'interface_hash': ''}, 'interface_hash (empty)'),
        ({'action_space': 'other.v1'}, "action_space 'other.v1'"),
        ({'episode_uuid': 'before'}, 'episode before is over'),
        ({'values': [0.0] * 6}, '6 values, the contract has 7'),
        ({'values': []}, '0 values'),
        ({'values': [float('nan')] + [0.0] * 6}, 'not finite'),
        ({'values': [0.0] * 6 + [float('inf')]}, 'not finite'),
    ],
)
def test_an_unfit_command_is_refused_with_its_reason(changes, words):
    assert words in CHECK.refusal(command(**changes), 'episode')
