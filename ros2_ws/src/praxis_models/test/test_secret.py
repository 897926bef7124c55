# SPDX-License-Identifier: Apache-2.0
import pytest
from praxis_models.secret import read_secret


def test_a_token_is_the_files_text_without_what_surrounds_it(tmp_path):
    (tmp_path / 'token').write_text('  sesame open\n\n')
    assert read_secret(tmp_path / 'token') == 'sesame open'
    assert read_secret(str(tmp_path / 'token')) == 'sesame open'


@pytest.mark.parametrize(
    ('content', 'words'),
    [
        (None, 'cannot be read: .*No such file'),
        (b'\n \n', 'is empty'),
        (b'two\nlines', 'printable ASCII on one line'),
        ('schlüssel'.encode(), 'printable ASCII on one line'),
        (b'\xff\xfe', 'cannot be read'),
        (b'bell\x07', 'printable ASCII on one line'),
    ],
)
def test_what_cannot_go_into_a_header_is_no_token(tmp_path, content, words):
    if content is not None:
        (tmp_path / 'token').write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_secret(tmp_path / 'token')
