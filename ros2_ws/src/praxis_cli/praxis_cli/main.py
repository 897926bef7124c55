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
    options = parser().parse_args(arguments)
    return options.run(options)


if __name__ == '__main__':
    sys.exit(main())
