# SPDX-License-Identifier: Apache-2.0
import importlib.util
import sys
from pathlib import Path

import pytest

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
    mutants.kill(mutant)


def test_mutant_whose_text_is_gone_is_an_error(tmp_path):
    (tmp_path / 'gate.py').write_text('nothing to replace\n')
    lost = mutants.Mutant('lost', 'gate.py', 'if not finite', 'if False', ())
    with pytest.raises(mutants.MutantError, match='lost: its text occurs 0 times'):
        mutants.apply(lost, tmp_path)


def test_names_of_mutants_are_unique():
    names = [m.name for m in mutants.MUTANTS]
    assert len(set(names)) == len(names)
