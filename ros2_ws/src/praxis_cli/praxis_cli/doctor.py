# SPDX-License-Identifier: Apache-2.0
"""`praxis doctor`: what is there, what is missing, and the command that mends it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from praxis_cli.checks import CHECKS, Finding, Machine, State

_COLOURS = {State.OK: '32', State.NOTE: '33', State.MISSING: '31'}


def add_parser(commands: argparse._SubParsersAction, summary: str) -> None:
    """Add the ``doctor`` subcommand."""
    parser = commands.add_parser(
        'doctor',
        help=summary,
        description='Look at everything Praxis needs, and print the command that mends what is '
        'missing. Exit code 1 where something is.',
    )
    parser.add_argument('--json', action='store_true', help='print a JSON list')
    parser.add_argument(
        '--data-root',
        type=Path,
        default=Path.home() / 'praxis',
        help='folder of the recordings (default: %(default)s)',
    )
    parser.set_defaults(run=main)


def main(options: argparse.Namespace) -> int:
    """Carry out the subcommand and return its exit code."""
    machine = Machine(data_root=options.data_root)
    findings = []
    for check in CHECKS:
        finding = check(machine)
        findings.append(finding)
        if not options.json:
            print(line(finding, coloured=sys.stdout.isatty() and 'NO_COLOR' not in os.environ))
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print(summary(findings))
    return int(any(finding.state is State.MISSING for finding in findings))


def line(finding: Finding, coloured: bool = False) -> str:
    """Lay one finding out for the terminal's width."""
    state = finding.state.value
    shown = f'\033[{_COLOURS[finding.state]}m{state:<8}\033[0m' if coloured else f'{state:<8}'
    width = max(40, shutil.get_terminal_size().columns - 27)
    first, *rest = textwrap.wrap(finding.detail, width) or ['']
    return '\n'.join([f'{shown}{finding.name:<18}{first}', *(' ' * 26 + text for text in rest)])


def summary(findings: Sequence[Finding]) -> str:
    """List what to do, one command a line."""
    mends = list(dict.fromkeys(finding.mend for finding in findings if finding.mend))
    if not mends:
        return '\nNothing is missing.'
    return '\nTo mend:\n' + '\n'.join(f'  {mend}' for mend in mends)
