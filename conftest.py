# SPDX-License-Identifier: Apache-2.0
"""Pytest at the repository root, which is also the package praxis_bringup."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent / 'tests'


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the other packages' tests to them where colcon tests praxis_bringup."""
    by_colcon = config.getoption('junitprefix', None) == 'praxis_bringup'
    return True if by_colcon and not collection_path.is_relative_to(TESTS) else None
