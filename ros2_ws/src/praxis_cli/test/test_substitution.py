# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from praxis_cli.substitution import Call, Context, LaunchError, Text, parse, perform

CONTEXT = Context({'a': 'one', 'b-c': 'two words', 'name': 'a'}, {'HOME': '/h'}, Path('/files'))


def escaped(text: str, special: str) -> str:
    return ''.join('\\' + char if char in special else char for char in text)


def render(template, inside: bool = False) -> str:
    special = '\\$' + (' ()\'"' if inside else '')
    text = ''
    for part in template:
        if isinstance(part, Text):
            text += escaped(part.value, special)
        else:
            arguments = ''.join(' ' + render(argument, True) for argument in part.arguments)
            text += f'$({part.name}{arguments})'
    return text


def merged(parts) -> tuple:
    """Join neighbouring texts, as the parser cannot tell them apart."""
    joined = []
    for part in parts:
        if isinstance(part, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].value + part.value)
        else:
            joined.append(part)
    return tuple(joined)


def templates(parts):
    return st.lists(parts, min_size=1, max_size=3).map(merged)


TEXTS = st.text(st.characters(codec='utf-8', exclude_categories=('Cs',)), min_size=1).map(Text)
PARTS = st.recursive(
    TEXTS,
    lambda inner: st.one_of(
        st.builds(lambda *a: Call('var', a), templates(inner)),
        st.builds(lambda *a: Call('env', a), templates(inner), templates(inner)),
        st.just(Call('dirname')),
    ),
    max_leaves=8,
)


@given(templates(PARTS))
def test_a_rendered_template_parses_to_itself(template):
    assert parse(render(template)) == template


@given(st.text())
def test_any_text_parses_or_is_refused_as_a_launch_error(text):
    try:
        template = parse(text)
    except LaunchError:
        return
    assert template


@given(st.text(st.characters(exclude_characters='\\$', exclude_categories=('Cs',))))
def test_plain_text_is_its_own_value(text):
    assert perform(parse(text), CONTEXT) == text


@given(st.text('ab$(){}"\'\\ var', max_size=12))
def test_eval_never_parses(text):
    with pytest.raises(LaunchError):
        parse(f'{escaped(text, chr(92) + "$")}$(eval 1)')


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ('x$(var a)y', 'xoney'),
        ('$(var b-c)', 'two words'),
        ('$(var $(var name))', 'one'),
        ('$(var missing fallback)', 'fallback'),
        ("$(var missing 'two $(var a)s')", 'two ones'),
        ('$(env HOME)', '/h'),
        ('$(env NOT_SET none)', 'none'),
        ('$(dirname)/x', '/files/x'),
        (r'\$(var a)', '$(var a)'),
        ('$5 and $', '$5 and $'),
        ('', ''),
    ],
)
def test_value(text, value):
    assert perform(parse(text), CONTEXT) == value


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('$(var', r"expected '\)' to close \$\(var at character 6"),
        ('$(var )', 'expected an argument'),
        ('$(var a  b)', 'expected an argument'),
        ('$(var a b c)', r'expects 1 or 2 argument\(s\), got 3'),
        ('$(dirname x)', 'expects 0'),
        ('$(nothing x)', 'Unknown substitution: nothing'),
        ('$(eval 1 + 1)', 'refused'),
        ('$(command ls)', 'needs the real ros2 launch'),
        ("$(var 'a)", "missing '"),
    ],
)
def test_malformed_text_is_refused(text, message):
    with pytest.raises(LaunchError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('$(var missing)', "launch configuration 'missing' does not exist"),
        ('$(env NOT_SET)', "environment variable 'NOT_SET' does not exist"),
        ('$(find-pkg-share no_such_package)', "package 'no_such_package' not found"),
    ],
)
def test_a_value_that_is_not_there_is_an_error(text, message):
    with pytest.raises(LaunchError, match=message):
        perform(parse(text), CONTEXT)


def test_dirname_outside_a_file_is_an_error():
    with pytest.raises(LaunchError, match='outside of a launch file'):
        perform(parse('$(dirname)'), Context())
