# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import sys
from pathlib import Path

import pytest
from praxis_core.testing import wait_until

SCRIPT = Path(__file__).resolve().parents[1] / 'scripts/mutants.py'
spec = importlib.util.spec_from_file_location('praxis_mutants', SCRIPT)
mutants = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = mutants
spec.loader.exec_module(mutants)

CASES = [
    pytest.param(m, id=m.name, marks=[pytest.mark.slow] if m.slow else []) for m in mutants.MUTANTS
]


@pytest.mark.parametrize('mutant', CASES)
def test_mutant_is_noticed(mutant):
    # This suite runs the same tests on the sources; one entry shows that the copy is sound too.
    mutants.kill(mutant, sound=mutant is mutants.MUTANTS[0])


def test_mutant_whose_text_is_gone_is_an_error(tmp_path):
    (tmp_path / 'gate.py').write_text('nothing to replace\n')
    lost = mutants.Mutant('lost', 'gate.py', 'if not finite', 'if False', ())
    with pytest.raises(mutants.MutantError, match='lost: its text occurs 0 times'):
        mutants.apply(lost, tmp_path)


def test_a_run_that_hangs_is_killed_with_all_its_processes(tmp_path):
    command = ['bash', '-c', 'sleep 600 & echo $! > pid; echo begun; wait']
    outcome = mutants.run_bounded(command, env=dict(os.environ), cwd=tmp_path, timeout=1.0)
    assert outcome.code is None and outcome.output == 'begun\n'
    assert outcome.failure == 'a run that does not end'
    stat = Path(f'/proc/{int((tmp_path / "pid").read_text())}/stat')
    wait_until(lambda: not stat.exists() or stat.read_text().rsplit(')', 1)[1].split()[0] == 'Z')


def test_a_run_that_grows_without_bound_fails_by_itself(tmp_path):
    command = [sys.executable, '-c', 'x = bytes(1 << 34)']
    outcome = mutants.run_bounded(command, env=dict(os.environ), cwd=tmp_path, timeout=60.0)
    assert outcome.code == 1 and 'MemoryError' in outcome.output


def test_names_of_mutants_are_unique():
    names = [m.name for m in mutants.MUTANTS]
    assert len(set(names)) == len(names)
