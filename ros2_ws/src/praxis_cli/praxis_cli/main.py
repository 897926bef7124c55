# SPDX-License-Identifier: Apache-2.0
"""The `praxis` command."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

_COMMANDS = {
    'launch': 'run a launch file',
    'bag': 'show, convert or recover a recording',
    'doctor': 'tell what is missing and how to mend it',
}


def parser(chosen: str | None) -> argparse.ArgumentParser:
    """Build the argument parser.

    Args:
        chosen: Subcommand whose module is imported; the others are listed only, so that doctor
            runs where what they import is missing.
    """
    top = argparse.ArgumentParser(
        prog='praxis', description='Launch a Praxis system, handle its recordings, mend it.'
    )
    commands = top.add_subparsers(metavar='COMMAND', required=True)
    for name, summary in _COMMANDS.items():
        if name == chosen:
            importlib.import_module(f'praxis_cli.{name}').add_parser(commands, summary)
        else:
            commands.add_parser(name, help=summary)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    top = parser(arguments[0] if arguments and arguments[0] in _COMMANDS else None)
    options, rest = top.parse_known_args(arguments)
    if rest:
        # argparse takes positional arguments in one run; launch arguments may follow an option.
        if arguments[0] != 'launch' or any(':=' not in item for item in rest):
            top.error(f'unrecognized arguments: {" ".join(rest)}')
        options.rest += rest
    return options.run(options)


if __name__ == '__main__':
    sys.exit(main())
