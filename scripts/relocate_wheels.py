#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Point the CMake exports of the ROS 2 wheels at this Python and this numpy.

The wheels name the headers of the machine they were built on. Run after every install that
may have changed the ROS wheels or numpy; a second run changes nothing.
"""

import argparse
import re
import sys
import sysconfig
from pathlib import Path

import numpy

_PYTHON = re.compile(r'/opt/python/cp3\d+-cp3\d+/include/python3\.\d+')
_NUMPY = re.compile(
    r'/opt/python/cp3\d+-cp3\d+/lib/python3\.\d+/site-packages/numpy/(?:_core|core)/include'
    r'|[^;"\s]+/numpy/(?:_core|core)/include'
)


def relocate(prefix: Path) -> int:
    """Rewrite the header paths below `prefix`/share and return how many files changed."""
    python, numpy_include = sysconfig.get_path('include'), numpy.get_include()
    changed = 0
    for path in prefix.glob('share/*/cmake/*.cmake'):
        text = path.read_text()
        fixed = _NUMPY.sub(numpy_include, _PYTHON.sub(python, text))
        if fixed != text:
            path.write_text(fixed)
            changed += 1
    return changed


def main() -> None:
    """Rewrite the exports below the given prefix."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        'prefix', nargs='?', type=Path, default=Path(sys.prefix), help='default: this venv'
    )
    print(f'{relocate(parser.parse_args().prefix)} CMake exports rewritten')


if __name__ == '__main__':
    main()
