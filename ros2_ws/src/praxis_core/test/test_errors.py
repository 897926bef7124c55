# SPDX-License-Identifier: Apache-2.0
import pytest
from praxis_core.errors import RANGES, ErrorCode, origin


def test_every_code_lies_in_one_range():
    for code in ErrorCode:
        owners = [name for name, codes in RANGES.items() if code in codes]
        assert len(owners) == (code != ErrorCode.NONE), code


@pytest.mark.parametrize(
    ('code', 'name'),
    [
        (203, 'arbiter'),
        (ErrorCode.NO_SPACE, 'recorder and data'),
        (805, 'action models'),
        (50, 'unknown'),
    ],
)
def test_origin(code, name):
    assert origin(code) == name
