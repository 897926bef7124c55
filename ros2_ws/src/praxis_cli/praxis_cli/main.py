# SPDX-License-Identifier: Apache-2.0
"""The `praxis` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from praxis_cli import launch


def parser() -> argparse.ArgumentParser:
    """Build the command's argument parser."""
    top = argparse.ArgumentParser(
        prog='praxis', description='Launch, inspect and mend a Praxis system.'
    )
    commands = top.add_subparsers(metavar='COMMAND', required=True)
    launch.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    top = parser()
    options, rest = top.parse_known_args(arguments)
    if rest:
        # argparse takes positional arguments in one run; launch arguments may follow an option.
        if not hasattr(options, 'rest') or any(':=' not in item for item in rest):
            top.error(f'unrecognized arguments: {" ".join(rest)}')
        options.rest += rest
    return options.run(options)


if __name__ == '__main__':
    sys.exit(main())
