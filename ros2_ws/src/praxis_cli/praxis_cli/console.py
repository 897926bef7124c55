# SPDX-License-Identifier: Apache-2.0
"""What `praxis launch` writes: to the screen with a prefix per process, and to log files."""

from __future__ import annotations

import datetime
import os
import socket
import sys
import time
from pathlib import Path
from typing import TextIO

_LEVEL_COLOURS = {'DEBUG': '2', 'INFO': '', 'WARNING': '33', 'ERROR': '31'}
_PROCESS_COLOURS = ('36', '32', '35', '34', '33', '96', '92', '95', '94', '93')

# Of each output configuration: where stdout and stderr go, as in ``ros2 launch``.
_DESTINATIONS = {
    'screen': ({'screen'}, {'screen'}),
    'log': ({'log'}, {'log', 'screen'}),
    'both': ({'screen', 'log'}, {'screen', 'log'}),
    'own_log': ({'own'}, {'own'}),
    'full': ({'screen', 'log', 'own'}, {'screen', 'log', 'own'}),
}


def log_directory() -> Path:
    """Return the folder for ROS logs: ROS_LOG_DIR, or log below ROS_HOME or ~/.ros."""
    explicit = os.environ.get('ROS_LOG_DIR')
    home = os.environ.get('ROS_HOME') or '~/.ros'
    return Path(explicit or os.path.join(home, 'log')).expanduser()


class Console:
    """Screen and log files of one launch.

    Args:
        screen: Stream for people.
        debug: Show debug messages.
        directory: Folder for the log files; created on the first write.
    """

    def __init__(
        self, screen: TextIO | None = None, debug: bool = False, directory: Path | None = None
    ) -> None:
        self.screen = screen or sys.stdout
        self.debug = debug
        self.coloured = self.screen.isatty() and 'NO_COLOR' not in os.environ
        moment = datetime.datetime.now().strftime('%Y-%m-%d-%H-%M-%S-%f')
        self.directory = directory or (
            log_directory() / f'{moment}-{socket.gethostname()}-{os.getpid()}'
        )
        self._files: dict[str, TextIO] = {}

    def message(self, level: str, source: str, text: str) -> None:
        """Write ``[LEVEL] [source]: text`` to the screen and to launch.log."""
        if level == 'DEBUG' and not self.debug:
            return
        line = f'[{level}] [{source}]: {text}'
        self._show(self._paint(line, _LEVEL_COLOURS[level]))
        self._log('launch.log', f'{time.time():.7f} {line}')

    def output(self, label: str, number: int, line: str, configuration: str, error: bool) -> None:
        """Write one line that a process printed where its output configuration sends it."""
        override = os.environ.get('OVERRIDE_LAUNCH_PROCESS_OUTPUT')
        destinations = _DESTINATIONS.get(override or configuration, _DESTINATIONS['log'])[error]
        prefix = f'[{label}]'
        if 'screen' in destinations:
            colour = _PROCESS_COLOURS[(number - 1) % len(_PROCESS_COLOURS)]
            self._show(f'{self._paint(prefix, colour)} {line}')
        if 'log' in destinations:
            self._log('launch.log', f'{time.time():.7f} {prefix} {line}')
        if 'own' in destinations:
            self._log(f'{label}-{"stderr" if error else "stdout"}.log', line)
            self._log(f'{label}.log', line)

    def close(self) -> None:
        """Close the log files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _paint(self, text: str, colour: str) -> str:
        return f'\033[{colour}m{text}\033[0m' if self.coloured and colour else text

    def _show(self, line: str) -> None:
        try:
            self.screen.write(line + '\n')
            self.screen.flush()
        except (BrokenPipeError, ValueError):
            # Whoever read the screen has gone; the processes still need an orderly end.
            self.screen = open(os.devnull, 'w', encoding='utf-8')  # noqa: SIM115

    def _log(self, name: str, line: str) -> None:
        if name not in self._files:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                self._files[name] = (self.directory / name).open('a', encoding='utf-8')
                self._link()
            except OSError:
                self._files[name] = open(os.devnull, 'w', encoding='utf-8')  # noqa: SIM115
        self._files[name].write(line + '\n')
        self._files[name].flush()

    def _link(self) -> None:
        latest = self.directory.parent / 'latest'
        if latest.is_symlink() or not latest.exists():
            temporary = latest.with_name(f'.latest-{os.getpid()}')
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(self.directory.name)
            temporary.replace(latest)
