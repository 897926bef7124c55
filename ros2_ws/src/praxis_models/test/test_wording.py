# SPDX-License-Identifier: Apache-2.0
import pytest
from praxis_models.wording import one_line, quoted


@pytest.mark.parametrize(
    'text, line',
    [
        ('', ''),
        (' a\n\tb\r\nc ', 'a b c'),
        (ValueError('a\nb'), 'a b'),
        (KeyError(), 'KeyError'),
        (['a', 1], "['a', 1]"),
        ('12345678', '12345678'),
        ('123456789', '12345...'),
    ],
)
def test_a_text_is_one_line_of_limited_length(text, line):
    assert one_line(text, 8) == line


def test_a_quotation_leaves_room_for_the_message_around_it():
    assert len(quoted('word ' * 1000)) < len(one_line('word ' * 1000)) == 2000
