# SPDX-License-Identifier: Apache-2.0
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from praxis_core.strictyaml import StrictYamlError, load

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=['C']), max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text('abcde', min_size=1, max_size=4), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([True, False, None]))
def test_reads_what_was_written(value, flow):
    assert load(yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)) == value


@pytest.mark.parametrize(
    ('text', 'value'), [('1e-3', 1e-3), ('-2E5', -2e5), ('.5e1', 5.0), ('1.0', 1.0), ('1', 1)]
)
def test_numbers_as_people_write_them(text, value):
    found = load(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('a: 1\na: 2', "a: key is repeated in line 2 (got '2')"),
        ('a:\n  b: [{c: 1, c: 2}]', "a.b[0].c: key is repeated in line 2 (got '2')"),
        ('a: {}\na: {}', "a: key is repeated in line 2 (got 'a list or mapping')"),
        ('a: &x [*x]', "a[0]: refers to itself (got '*alias')"),
        ('? [a]\n: 1', "document: a key must be text (got 'a list or mapping')"),
    ],
)
def test_refuses(text, message):
    with pytest.raises(StrictYamlError) as caught:
        load(text)
    assert str(caught.value) == message


def test_builds_no_python_objects():
    with pytest.raises(StrictYamlError, match='is no valid YAML'):
        load('a: !!python/object/apply:os.getcwd []')


def test_aliases_of_aliases_take_no_exponential_time():
    lines = ['a0: &a0 [x, x]']
    lines += [f'a{i}: &a{i} [*a{i - 1}, *a{i - 1}]' for i in range(1, 60)]
    assert load('\n'.join(lines))['a1'] == [['x', 'x'], ['x', 'x']]


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        load(text)
    except StrictYamlError as error:
        assert error.reason
