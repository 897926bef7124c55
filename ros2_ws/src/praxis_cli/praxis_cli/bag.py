# SPDX-License-Identifier: Apache-2.0
"""`praxis bag`: show, convert or recover a recording. The work is praxis_data's."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from praxis_core.contract import ContractError, load_contract
from praxis_data.bag import BagError, BagInfo, bag_info
from praxis_data.convert import CONTRACT, Conversion, convert_bag
from praxis_data.layout import DatasetError
from praxis_data.recover import recover_bag, recover_episode, unfinished_bags
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


def add_parser(commands: argparse._SubParsersAction, summary: str) -> None:
    """Add the ``bag`` subcommand."""
    parser = commands.add_parser(
        'bag', help=summary, description='Show, convert or recover a recording.'
    )
    actions = parser.add_subparsers(metavar='ACTION', required=True)

    info = actions.add_parser(
        'info', help='show what a bag holds', description='Show what bags hold, closed or not.'
    )
    info.add_argument('bags', nargs='+', type=Path, metavar='BAG')
    info.set_defaults(run=show)

    convert = actions.add_parser(
        'convert',
        help='make a LeRobot dataset from bags',
        description='Append each bag as an episode to a LeRobot v2.1 dataset, by the path that '
        'the live recorder takes. A Praxis bag brings its contract and task along; one of '
        '`ros2 bag record` needs --contract and --task.',
        epilog='Example: praxis bag convert ~/praxis/bags/* --dataset ~/praxis/converted',
    )
    convert.add_argument('bags', nargs='+', type=Path, metavar='BAG')
    _add_dataset_options(convert, required=True)
    convert.set_defaults(run=convert_all)

    recover = actions.add_parser(
        'recover',
        help='rebuild bags that were never closed',
        description='Rebuild each bag that a crash cut off, beside the original, which is not '
        'changed. With --dataset the episode joins its dataset too. A folder of bags stands for '
        'the unfinished ones in it.',
        epilog='Example: praxis bag recover ~/praxis/bags --dataset ~/praxis/dataset',
    )
    recover.add_argument('bags', nargs='+', type=Path, metavar='BAG|FOLDER')
    _add_dataset_options(recover, required=False)
    recover.set_defaults(run=recover_all)
    for action in (info, convert, recover):
        action.add_argument('--json', action='store_true', help='print JSON')


def _add_dataset_options(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument(
        '--dataset', type=Path, required=required, metavar='FOLDER', help='made where missing'
    )
    parser.add_argument('--contract', type=Path, metavar='FILE', help="default: the bag's own")
    parser.add_argument('--task', default='', help="instruction; default: the bag's own")
    parser.add_argument('--namespace', help='of the robot, where the bag has several')
    parser.add_argument(
        '--watermark', type=float, metavar='S', help="delay of a row's end; default: the bag's own"
    )


def show(options: argparse.Namespace) -> int:
    """Carry out ``praxis bag info``."""
    return _each(options, options.bags, lambda bag, _: bag_info(bag), print_info, info_values)


def convert_all(options: argparse.Namespace) -> int:
    """Carry out ``praxis bag convert``."""

    def convert(bag: Path, advance: Callable[[int, int], None]) -> Conversion:
        return convert_bag(bag, options.dataset, progress=advance, **_settings(options))

    return _each(options, options.bags, convert, print_conversion, Conversion.asdict)


def recover_all(options: argparse.Namespace) -> int:
    """Carry out ``praxis bag recover``."""
    bags: list[Path] = []
    for path in options.bags:
        found = unfinished_bags(path)
        bags += found or [path]
        if not found and path.is_dir() and not _is_bag(path):
            Console(stderr=True).print(
                f'{path}: no unfinished bag in it', highlight=False, soft_wrap=True
            )
            bags.pop()

    def recover(bag: Path, advance: Callable[[int, int], None]) -> Any:
        if options.dataset is None:
            recovery = recover_bag(bag)
            if not recovery.messages:
                shutil.rmtree(recovery.path)
                raise BagError(f'{bag}: holds no whole message, nothing to recover')
            return recovery
        return recover_episode(bag, options.dataset, progress=advance, **_settings(options))

    def report(console: Console, outcome: Any) -> None:
        if isinstance(outcome, Conversion):
            print_conversion(console, outcome)
            return
        console.print(
            f'{outcome.path}: {outcome.messages} messages, '
            f'{1e-9 * (outcome.end_ns - outcome.start_ns):.2f} s, '
            f'{outcome.damaged_chunks} damaged chunks left out',
            highlight=False,
            soft_wrap=True,
        )

    def values(outcome: Any) -> dict[str, Any]:
        if isinstance(outcome, Conversion):
            return outcome.asdict()
        return {**vars(outcome), 'path': str(outcome.path)}

    return _each(options, bags, recover, report, values)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        'contract': load_contract(options.contract) if options.contract else None,
        'task': options.task,
        'namespace': options.namespace,
        'watermark_s': options.watermark,
    }


def _each(
    options: argparse.Namespace,
    bags: Sequence[Path],
    work: Callable[[Path, Callable[[int, int], None]], Any],
    report: Callable[[Console, Any], None],
    values: Callable[[Any], dict[str, Any]],
) -> int:
    """Do something to each bag; go on after a failure, and return 1 if there was one."""
    # A pipe has no width to fit into.
    console = Console(width=None if sys.stdout.isatty() else 200)
    errors = Console(stderr=True)
    outcomes, failed = [], False
    for bag in bags:
        try:
            with _progress(errors, bag, quiet=options.json or not sys.stderr.isatty()) as advance:
                outcome = work(bag, advance)
        except (BagError, DatasetError, ContractError, OSError) as error:
            errors.print(f'[red]error:[/red] {error}', highlight=False, soft_wrap=True)
            failed = True
            continue
        outcomes.append(values(outcome))
        if not options.json:
            report(console, outcome)
    if options.json:
        print(json.dumps(outcomes, indent=2))
    return int(failed)


@contextlib.contextmanager
def _progress(console: Console, bag: Path, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    columns = (
        TextColumn('{task.description}'),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn('messages, {task.fields[rows]} rows'),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task(bag.name, total=_message_count(bag), rows=0)
        yield lambda messages, rows: progress.update(task, completed=messages, rows=rows)


def _is_bag(path: Path) -> bool:
    return any(file.suffix in ('.mcap', '.db3') for file in path.iterdir())


def _message_count(bag: Path) -> int | None:
    """Return the count that a closed bag states, None for others."""
    try:
        text = (bag / 'metadata.yaml').read_text(encoding='utf-8')
        return int(yaml.safe_load(text)['rosbag2_bagfile_information']['message_count'])
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError):
        return None


def info_values(info: BagInfo) -> dict[str, Any]:
    """Return a bag's contents as JSON types; of the contract, only its name is kept."""
    custom = {key: value for key, value in info.custom_data.items() if key != CONTRACT}
    name = _contract_name(info)
    return {
        **vars(info),
        'path': str(info.path),
        'custom_data': {**custom, **({CONTRACT: name} if name else {})},
    }


def print_info(console: Console, info: BagInfo) -> None:
    """Lay out a bag's contents as a table."""
    start = f'{1e-9 * info.start_ns:.3f} s'
    if info.start_ns > 10**18:  # wall time; below, it is simulated
        moment = datetime.datetime.fromtimestamp(info.start_ns * 1e-9, tz=datetime.timezone.utc)
        start += f' ({moment:%Y-%m-%d %H:%M:%S} UTC)'
    facts = {
        'bag': str(info.path),
        'storage': f'{info.storage}, {info.bytes / (1 << 20):.1f} MiB',
        'closed': 'yes' if info.closed else 'no; praxis bag recover rebuilds it',
        'start': start,
        'duration': f'{info.duration_s:.2f} s',
        'messages': str(info.message_count),
    }
    if info.damaged_chunks:
        facts['damaged'] = f'{info.damaged_chunks} chunks left out'
    for key, value in info_values(info)['custom_data'].items():
        text = ' '.join(str(value).split())
        if text not in ('', '{}'):
            facts[key.removeprefix('praxis.')] = text
    width = max(map(len, facts))
    for key, value in facts.items():
        console.print(f'[bold]{key:<{width}}[/bold]  ', end='')
        console.print(value, markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style='bold')
    for column in ('topic', 'type', 'messages', 'Hz'):
        justify = 'right' if column in ('messages', 'Hz') else 'left'
        table.add_column(column, justify=justify, overflow='fold')
    for topic in sorted(info.counts):
        count = info.counts[topic]
        rate = f'{(count - 1) / info.duration_s:.1f}' if count > 1 and info.duration_s else ''
        table.add_row(topic, info.types.get(topic, ''), str(count), rate)
    console.print(table)


def _contract_name(info: BagInfo) -> str:
    try:
        return str(yaml.safe_load(info.custom_data[CONTRACT])['name'])
    except (KeyError, TypeError, yaml.YAMLError):
        return ''


def print_conversion(console: Console, conversion: Conversion) -> None:
    """Tell what one bag became."""
    rate = conversion.rows / conversion.seconds if conversion.seconds else 0.0
    console.print(
        f'{conversion.bag_path}: episode {conversion.episode_index} of {conversion.dataset_path}, '
        f'{conversion.rows} rows from {conversion.messages} messages in '
        f'{conversion.seconds:.1f} s ({rate:.0f} rows/s)',
        highlight=False,
        soft_wrap=True,
    )
