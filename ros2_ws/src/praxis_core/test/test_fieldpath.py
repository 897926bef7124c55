# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_core.fieldpath import FieldPathError, parse

NAME = st.from_regex(r'[A-Za-z_][A-Za-z0-9_]{0,8}', fullmatch=True)


@pytest.mark.parametrize(
    ('text', 'steps'),
    [
        ('a', ('a',)),
        ('a.b[2].c', ('a', 'b', 2, 'c')),
        ('right_arm[0].joint_status[10]', ('right_arm', 0, 'joint_status', 10)),
        ('grid[1][2]', ('grid', 1, 2)),
    ],
)
def test_paths(text, steps):
    assert parse(text) == steps


@pytest.mark.parametrize(
    'text',
    [
        *[
            '.',
            'a.',
            '.a',
            'a..b',
            '[0]',
            'a[',
            'a[]',
            'a[-1]',
            'a[1.5]',
            'a[x]',
            'a[0]b',
            '1a',
            'a()',
            'a.__class__()',
        ],
        '',
        'a b',
        'a\n',
    ],
)
def test_what_is_no_path(text):
    with pytest.raises(FieldPathError, match=r'^is no field path such as a\.b\[2\]\.c$'):
        parse(text)


@given(NAME, st.lists(st.one_of(NAME, st.integers(0, 10**6))))
def test_a_written_path_is_read_back(first, rest):
    text = first + ''.join(f'[{s}]' if isinstance(s, int) else f'.{s}' for s in rest)
    assert parse(text) == (first, *rest)
