#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Take one safeguard at a time out of a copy of the sources and require that its tests fail.

The checkout is never changed: packages, parameters and tests are copied to a temporary folder, one
replacement is made there, and the named tests run against the copy. A mutant whose text is no
longer found is an error, so the table cannot rot silently.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ('params', 'tests', 'scripts', 'pyproject.toml')
IGNORED = shutil.ignore_patterns('__pycache__', '.pytest_cache', '*.egg-info', '*.pyc')
SRC = 'ros2_ws/src'
TIMEOUT_S = 300.0
"""For one run of tests; a mutant that takes longer hangs, which its tests have noticed."""
MEMORY_BYTES = 6 << 30
"""Address space of one run of tests: a mutant may grow without bound."""


class MutantError(RuntimeError):
    """The table or the tests do not fit the sources; says which entry and why."""


@dataclass(frozen=True)
class Mutant:
    """One safeguard to take out.

    Attributes:
        name: Unique.
        file: Path of the source, relative to the root.
        old: Text that occurs exactly once in it.
        new: Text in its place.
        tests: What must fail: pytest arguments relative to the root.
        slow: Takes more than a minute.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    slow: bool = False


CONTROL = f'{SRC}/praxis_control/praxis_control'
ARBITER_TEST = f'{SRC}/praxis_control/test/test_arbiter.py'
INVARIANTS = f'{SRC}/praxis_control/test/test_arbiter_invariants.py'
DATA = f'{SRC}/praxis_data/praxis_data'
ASSEMBLER_TEST = f'{SRC}/praxis_data/test/test_assembler.py'
WRITER_TEST = f'{SRC}/praxis_data/test/test_lerobot_writer.py'

HIL = f'{SRC}/praxis_hil/praxis_hil'
EPISODES_TEST = f'{SRC}/praxis_hil/test/test_episodes.py'

MUTANTS = (
    Mutant(
        'no_nan_gate',
        f'{CONTROL}/gate.py',
        'if not np.isfinite(values).all():',
        'if False:',
        (f'{ARBITER_TEST}::test_bad_request_is_refused_and_the_robot_holds_at_once',),
    ),
    Mutant(
        'no_lease',
        f'{CONTROL}/arbiter.py',
        'return self._leases.refusal(request.lease_id, source)',
        'return None',
        (f'{ARBITER_TEST}::test_request_without_a_lease_is_refused',),
    ),
    Mutant(
        'no_lease_in_sequences',
        f'{CONTROL}/arbiter.py',
        'return self._leases.refusal(request.lease_id, source)',
        'return None',
        (INVARIANTS,),
        slow=True,
    ),
    Mutant(
        'no_lease_expiry',
        f'{CONTROL}/lease.py',
        'return self.current is not None and now > self.current.expires_at()',
        'return False',
        (f'{ARBITER_TEST}::test_lease_expires_by_silence_and_says_so',),
    ),
    Mutant(
        'no_soft_limits',
        f'{CONTROL}/gate.py',
        'if outside.any():',
        'if False:',
        (f'{ARBITER_TEST}::test_bad_request_is_refused_and_the_robot_holds_at_once',),
    ),
    Mutant(
        'no_fresh_observation_after_give_back',
        f'{CONTROL}/answers.py',
        'if seq <= self._fresh_after:',
        'if False:',
        (f'{ARBITER_TEST}::test_after_give_back_only_a_fresh_observation_may_be_answered',),
    ),
    Mutant(
        'no_watermark',
        f'{DATA}/assembler.py',
        'self._watermark = round(watermark_s * _SECOND)',
        'self._watermark = 0',
        (f'{ASSEMBLER_TEST}::test_any_order_of_arrival_within_the_watermark_gives_the_same_rows',),
    ),
    Mutant(
        'no_fsync',
        f'{DATA}/durable.py',
        'fd = os.open(path, flags)\n    try:\n        os.fsync(fd)',
        'fd = os.open(path, flags)\n    try:\n        pass',
        (f'{WRITER_TEST}::test_finish_syncs_every_file_and_folder_before_the_index_line',),
    ),
    Mutant(
        'requested_recorded_as_executed',
        f'{DATA}/features.py',
        "'action': row.action,",
        "'action': row.requested_action,",
        (f'{WRITER_TEST}::test_episode_reads_back_with_bare_pyarrow_and_pyav',),
    ),
    Mutant(
        'no_age_limit_of_streams',
        f'{DATA}/streams.py',
        'return GAP if until >= bound else UNKNOWN',
        'return FOLLOWED',
        (f'{ASSEMBLER_TEST}::test_gap_beyond_the_age_limit_ends_the_episode_and_keeps_it',),
    ),
    Mutant(
        'no_stale_flag',
        f'{DATA}/assembler.py',
        '            stale=stale,',
        '            stale=dict.fromkeys(stale, False),',
        (f'{ASSEMBLER_TEST}::test_camera_slower_than_its_contract_is_reported_not_compressed',),
    ),
    Mutant(
        'no_commit_record',
        f'{DATA}/publication.py',
        "sorted((self.root / layout.STAGING).glob(f'*/{COMMIT}'))",
        '()',
        (f'{WRITER_TEST}::test_kill_while_finishing_leaves_every_finished_episode',),
        slow=True,
    ),
    Mutant(
        'no_fsync_of_the_bag',
        f'{DATA}/bag_storage.py',
        'os.fsync(self._stream.fileno())',
        'pass',
        (f'{EPISODES_TEST}::test_stop_answers_only_when_bag_and_episode_are_synced',),
    ),
    Mutant(
        'no_fsync_before_stop_answers',
        f'{DATA}/durable.py',
        '_sync(path, os.O_RDONLY)',
        'pass',
        (f'{EPISODES_TEST}::test_stop_answers_only_when_bag_and_episode_are_synced',),
    ),
    Mutant(
        'reset_does_not_end_the_episode',
        f'{HIL}/episodes.py',
        'elif session.environment_uuid != uuid:',
        'elif False:',
        (f'{EPISODES_TEST}::test_reset_without_stop_closes_and_keeps_the_episode',),
    ),
    Mutant(
        'no_disk_guard_while_recording',
        f'{HIL}/episodes.py',
        'session.write_error or stale or self._disk.shortage()',
        'session.write_error or stale',
        (f'{EPISODES_TEST}::test_full_disk_refuses_a_start_and_ends_and_keeps_a_running_episode',),
    ),
    Mutant(
        'state_acknowledged_without_its_images',
        f'{HIL}/acknowledgement.py',
        '_Pending(stamp_ns, missing)',
        '_Pending(stamp_ns, set())',
        (f'{SRC}/praxis_hil/test/test_acknowledgement.py',),
    ),
)
"""Add an entry for every safeguard whose loss a test must notice."""


def find(name: str) -> Mutant:
    """Look a mutant up by name."""
    for mutant in MUTANTS:
        if mutant.name == name:
            return mutant
    known = ', '.join(mutant.name for mutant in MUTANTS)
    raise MutantError(f'unknown mutant {name!r}; known are {known}')


def copy_sources(target: Path) -> None:
    """Copy what the tests need, without the links back to the root."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=IGNORED)
        elif source.exists():
            shutil.copy2(source, target / name)
    for package in sorted((ROOT / SRC).iterdir()):
        if package.is_dir() and not package.is_symlink():
            shutil.copytree(package, target / SRC / package.name, ignore=IGNORED)


def apply(mutant: Mutant, target: Path) -> None:
    """Make the replacement in the copy.

    Raises:
        MutantError: The text does not occur exactly once.
    """
    path = target / mutant.file
    text = path.read_text() if path.exists() else ''
    found = text.count(mutant.old)
    if found != 1:
        raise MutantError(f'{mutant.name}: its text occurs {found} times in {mutant.file}')
    path.write_text(text.replace(mutant.old, mutant.new))


@dataclass(frozen=True)
class Outcome:
    """How a run of tests ended.

    Attributes:
        code: Exit status of pytest, None where it was killed because it took too long.
        output: What it printed.
    """

    code: int | None
    output: str

    @property
    def failure(self) -> str:
        """The line of pytest that names the first failure."""
        if self.code is None:
            return 'a run that does not end'
        lines = [line for line in self.output.splitlines() if line.startswith('FAILED')]
        return lines[0] if lines else 'failed'


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def run_bounded(
    command: list[str], *, env: dict[str, str], cwd: Path, timeout: float = TIMEOUT_S
) -> Outcome:
    """Run a command with bounds on time and memory; nothing of its process group is left."""
    process = subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        text=True,
        errors='replace',
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_limit_memory,
    )
    code = None
    try:
        output, _ = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if code is None:
        output, _ = process.communicate()
    return Outcome(code, output)


def run_tests(tests: tuple[str, ...], target: Path) -> Outcome:
    """Run tests against the copy, which comes first on the path."""
    packages = [str(path) for path in sorted((target / SRC).iterdir())]
    path = os.pathsep.join([*packages, os.environ.get('PYTHONPATH', '')]).rstrip(os.pathsep)
    environment = {
        **os.environ,
        'PYTHONPATH': path,
        'PYTHONDONTWRITEBYTECODE': '1',
        'HYPOTHESIS_STORAGE_DIRECTORY': str(target / '.hypothesis'),
        # Any counterexample will do; the smallest one takes minutes.
        'PRAXIS_HYPOTHESIS_PROFILE': 'unshrunk',
    }
    probe = [sys.executable, '-c', 'import praxis_core; print(praxis_core.__file__)']
    where = run_bounded(probe, env=environment, cwd=target).output.strip()
    if not where.startswith(str(target)):
        raise MutantError(f'the tests would import {where}, not the copy')
    pytest = [sys.executable, '-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider', *tests]
    return run_bounded(pytest, env=environment, cwd=target)


def kill(mutant: Mutant, sound: bool = True) -> str:
    """Require that the tests pass on the sources and fail on the mutant.

    Args:
        mutant: Entry of the table.
        sound: Run the tests on the sources first; a suite that has them itself need not.

    Returns:
        What noticed it.

    Raises:
        MutantError: The mutant survives, or the tests fail without it.
    """
    with tempfile.TemporaryDirectory(prefix='praxis_mutant_') as folder:
        target = Path(folder).resolve()
        copy_sources(target)
        if sound:
            before = run_tests(mutant.tests, target)
            if before.code != 0:
                raise MutantError(
                    f'{mutant.name}: its tests fail as it is\n{before.output[-4000:]}'
                )
        apply(mutant, target)
        mutated = run_tests(mutant.tests, target)
        if mutated.code == 0:
            raise MutantError(f'{mutant.name} survives {" ".join(mutant.tests)}')
        if mutated.code not in (1, None):
            raise MutantError(
                f'{mutant.name}: pytest ended with {mutated.code}\n{mutated.output[-4000:]}'
            )
        return mutated.failure


def main() -> int:
    """Kill the named mutants, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('names', nargs='*', help='mutants; none: all')
    parser.add_argument('--list', action='store_true', help='list them')
    arguments = parser.parse_args()
    if arguments.list:
        for mutant in MUTANTS:
            print(f'{mutant.name}: {mutant.file}')
        return 0
    survived = 0
    for mutant in [find(name) for name in arguments.names] or MUTANTS:
        try:
            print(f'{mutant.name}: killed by {kill(mutant)[:160]}', flush=True)
        except MutantError as error:
            survived += 1
            print(f'{mutant.name}: {error}', flush=True)
    return 1 if survived else 0


if __name__ == '__main__':
    raise SystemExit(main())
