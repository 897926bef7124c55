# SPDX-License-Identifier: Apache-2.0
"""`praxis launch`: run a YAML launch file, by the real ``ros2 launch`` where there is one."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import os
import shutil
import sys
import traceback
from pathlib import Path

from ament_index_python.packages import (
    PackageNotFoundError,
    get_package_share_directory,
    get_resources,
)

from praxis_cli import substitution
from praxis_cli.console import Console
from praxis_cli.description import LaunchFile
from praxis_cli.frontend import load
from praxis_cli.resolution import declared_arguments, resolve
from praxis_cli.runner import Runner
from praxis_cli.substitution import LaunchError


def add_parser(commands: argparse._SubParsersAction, summary: str) -> None:
    """Add the ``launch`` subcommand."""
    parser = commands.add_parser(
        'launch',
        help=summary,
        description='Run a YAML launch file of a package, or given by its path. Where ROS 2 has '
        'the real `ros2 launch`, that one runs it.',
        epilog='Example: praxis launch praxis_bringup demo.launch.yaml platform:=tabletop',
    )
    parser.add_argument('package', metavar='PACKAGE|PATH', help='package, or a launch file')
    parser.add_argument(
        'rest', nargs='*', metavar='FILE|NAME:=VALUE', help='file in the package, then arguments'
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        '-s', '--show-args', action='store_true', help='show the arguments of the file'
    )
    shown.add_argument(
        '--print-nodes', action='store_true', help='print the node list as JSON; start nothing'
    )
    parser.add_argument('-d', '--debug', action='store_true', help='show debug messages')
    parser.add_argument(
        '--builtin', action='store_true', help='do not hand over to the real ros2 launch'
    )
    parser.set_defaults(run=main)


def main(options: argparse.Namespace) -> int:
    """Carry out the subcommand and return its exit code."""
    if not (options.builtin or options.print_nodes) and real_launch():
        hand_over(options)
    console = Console(debug=options.debug)
    try:
        return _launch(options, console)
    except LaunchError as error:
        if options.show_args or options.print_nodes:
            print(f'[ERROR] [launch]: {error}', file=sys.stderr)
        else:
            console.message('DEBUG', 'launch', traceback.format_exc())
            console.message(
                'ERROR',
                'launch',
                f'Caught exception in launch (see debug for traceback): {error}',
            )
        return 1
    finally:
        console.close()


def _launch(options: argparse.Namespace, console: Console) -> int:
    path, pairs = find(options.package, options.rest)
    arguments = parse_arguments(pairs)
    launch_file = load(path)
    if options.show_args:
        print(argument_help(launch_file, arguments), end='')
        return 0
    if options.print_nodes:
        nodes = [process.summary() for process in resolve(launch_file, arguments)]
        print(json.dumps(nodes, indent=2))
        return 0
    console.message('INFO', 'launch', f'All log files can be found below {console.directory}')
    for message in unknown_arguments(launch_file, arguments):
        console.message('WARNING', 'launch', message)
    processes = resolve(launch_file, arguments)
    return asyncio.run(Runner(processes, console).run())


def real_launch() -> str | None:
    """Return the path of a ``ros2`` that can launch, None where there is none."""
    return shutil.which('ros2') if 'ros2launch' in get_resources('packages') else None


def hand_over(options: argparse.Namespace) -> None:
    """Replace this process by the real ``ros2 launch``."""
    command = ['ros2', 'launch']
    if options.show_args:
        command.append('--show-args')
    if options.debug:
        command.append('--debug')
    os.execvp('ros2', [*command, options.package, *options.rest])


def find(package: str, rest: list[str]) -> tuple[Path, list[str]]:
    """Return the launch file and what is left as launch arguments.

    Raises:
        LaunchError: No such package or file, or several of that name.
    """
    if os.path.isfile(package):
        return Path(package), rest
    if os.sep in package or package.endswith(('.yaml', '.yml')):
        raise LaunchError(f"launch file '{package}' does not exist")
    try:
        share = get_package_share_directory(package)
    except (PackageNotFoundError, ValueError) as error:
        raise LaunchError(f"Package '{package}' not found: {error}") from error
    if not rest or ':=' in rest[0]:
        names = sorted({path.name for path in Path(share).rglob('*.launch.*')})
        raise LaunchError(f"no launch file named; package '{package}' has: {', '.join(names)}")
    name = rest[0]
    found = [os.path.join(root, name) for root, _, files in os.walk(share) if name in files]
    if not found:
        raise LaunchError(
            f"file '{name}' was not found in the share directory of package '{package}' "
            f"which is at '{share}'"
        )
    if len(found) > 1:
        listed = ', '.join(repr(path) for path in sorted(found))
        raise LaunchError(
            f"file '{name}' was found more than once in the share directory of package "
            f"'{package}': [{listed}]"
        )
    return Path(found[0]), rest[1:]


def parse_arguments(pairs: list[str]) -> dict[str, str]:
    """Return ``name:=value`` pairs as a mapping; the last of a name wins.

    Raises:
        LaunchError: Not of that form.
    """
    arguments = {}
    for pair in pairs:
        name, separator, value = pair.partition(':=')
        if not separator or not name or not value:
            raise LaunchError(
                f"malformed launch argument '{pair}', expected format '<name>:=<value>'"
            )
        arguments[name] = value
    return arguments


def argument_help(launch_file: LaunchFile, arguments: dict[str, str] | None = None) -> str:
    """Return the text of ``--show-args``; arguments may decide which files are included."""
    lines = ["Arguments (pass arguments as '<name>:=<value>'):"]
    declared = declared_arguments(launch_file, given=arguments)
    for argument, conditional in declared:
        lines += ['', f"    '{argument.name}':{'*' if conditional else ''}"]
        lines.append(f'        {argument.description}')
        if argument.default is not None:
            lines.append(f'        (default: {substitution.describe(argument.default)})')
    if not declared:
        lines += ['', '  No arguments.']
    elif any(conditional for _, conditional in declared):
        lines += ['', '* argument(s) which are only used if specific conditions occur']
    return '\n'.join(lines) + '\n'


def unknown_arguments(launch_file: LaunchFile, arguments: dict[str, str]) -> list[str]:
    """Return a warning for each argument that no file declares.

    ``ros2 launch`` passes over them in silence, which hides a misspelt name.
    """
    declared = declared_arguments(launch_file, given=arguments)
    known = [argument.name for argument, _ in declared]
    messages = []
    for name in arguments:
        if name in known or name in ('launch-prefix', 'sigterm_timeout', 'sigkill_timeout'):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ''
        messages.append(f"launch argument '{name}' is not declared by the launch file{hint}")
    return messages
