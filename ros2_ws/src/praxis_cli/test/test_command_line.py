# SPDX-License-Identifier: Apache-2.0
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_cli.command_line import split
from praxis_cli.substitution import Context, LaunchError, perform

CONTEXT = Context({'x': 'a b'})


def values(text):
    return [perform(part, CONTEXT) for part in split(text)]


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('', []),
        ('ls', ['ls']),
        ('ls  -l ', ['ls', '-l']),
        ("bash -c 'exit 3'", ['bash', '-c', 'exit 3']),
        ('echo $(var x)', ['echo', 'a b']),
        ('$(var x) $(var x)', ['a b', 'a b']),
        ('--path=$(var x)/c next', ['--path=a b/c', 'next']),
        ('$(var x)$(var x)', ['a ba b']),
    ],
)
def test_split(text, expected):
    assert values(text) == expected


def test_quotation_mark_around_a_substitution_is_refused():
    with pytest.raises(LaunchError, match='may not enclose a substitution'):
        split("bash -c 'echo $(var x)'")


@given(st.lists(st.text('abc-_=./', min_size=1), min_size=1))
def test_plain_words_split_as_in_a_shell(words):
    text = ' '.join(words)
    assert values(text) == shlex.split(text)
