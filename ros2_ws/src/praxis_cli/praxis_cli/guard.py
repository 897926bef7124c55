# SPDX-License-Identifier: Apache-2.0
"""Ends a launcher's process groups when the launcher itself was killed.

Runs as a process of its own, standard library only, with a pipe from the launcher as standard
input. Lines ``+PGID`` and ``-PGID`` add and drop groups; the end of the pipe means the launcher is
gone, and what is left is interrupted, then terminated, then killed.
"""

import contextlib
import os
import signal
import sys
import time

GRACE = 5.0


def alive(group: int) -> bool:
    """Return whether a process group has a member that is not a zombie."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    for entry in os.listdir('/proc'):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError), open(f'/proc/{entry}/stat', encoding='utf-8') as file:
            state, _, member = file.read().rpartition(')')[2].split()[:3]
            if int(member) == group and state not in 'ZX':
                return True
    return False


def end(groups: set[int], grace: float) -> None:
    """Interrupt, then terminate, then kill groups, `grace` seconds apart."""
    for step in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        groups = {group for group in groups if alive(group)}
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, step)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and any(alive(group) for group in groups):
            time.sleep(0.05)


def main() -> None:
    """Follow the launcher until its pipe ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith('+'):
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    end(groups, GRACE)


if __name__ == '__main__':
    main()
