# SPDX-License-Identifier: Apache-2.0
"""The main job through the whole graph, as scripts/demo.sh runs it, in processes of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / 'scripts' / 'demo.py'


def run_demo(folder: Path, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(DEMO), '--out', str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=500)


def digest(output: str) -> str:
    return re.search(r'SHA-256 of states, actions, pixels:\s+([0-9a-f]{64})', output).group(1)


@pytest.mark.parametrize(
    'options',
    [
        ('--platform', 'tabletop', '--seed', '5'),
        pytest.param(
            ('--platform', 'libero', '--seed', '2'),
            marks=[pytest.mark.libero, pytest.mark.slow],
        ),
    ],
    ids=['tabletop', 'libero'],
)
def test_same_platform_task_and_seed_give_the_same_episode(ros_domain, tmp_path, options):
    first, second = (run_demo(tmp_path / name, *options) for name in ('first', 'second'))
    assert first.returncode == 0, first.stdout + first.stderr
    assert second.returncode == 0, second.stdout + second.stderr
    assert digest(first.stdout) == digest(second.stdout)
    assert len(list(tmp_path.glob('*/*/*/*.mp4'))) == 2
    assert len(list(tmp_path.glob('*/*/*/*.png'))) == 2


def test_an_unknown_sentence_fails_and_names_the_nearest_recipes(ros_domain, tmp_path):
    run = run_demo(tmp_path, '--platform', 'tabletop', '--task', 'pick up the red cub')
    assert run.returncode == 1
    assert 'unknown_instruction' in run.stdout
    assert 'pick up the red cube' in run.stdout
