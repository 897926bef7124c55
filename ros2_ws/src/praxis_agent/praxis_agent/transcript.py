# SPDX-License-Identifier: Apache-2.0
"""Transcript of a run: one JSON object a line, on disk as soon as it has happened."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from praxis_agent.tools import ToolResult


class Transcript:
    """Writes ``<UTC time>_<name>_<run id>.jsonl``; may be used from several threads.

    The first line has ``event: run``, each tool call ``event: tool``, the last line ``event:
    end``.
    """

    def __init__(self, folder: str | Path, name: str, run_id: str, **header: Any) -> None:
        """Open the file and write its first line.

        Args:
            folder: Made if it is missing.
            name: Of the recipe or planner.
            run_id: Goal UUID, hex.
            **header: Further keys of the first line.
        """
        folder = Path(folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(timezone.utc).strftime('%Y%m%dT%H%M%SZ')
        safe = re.sub(r'[^A-Za-z0-9_.-]', '_', name) or 'run'
        self.path = folder / f'{stamp}_{safe}_{run_id[:8]}.jsonl'
        self._file = self.path.open('w', encoding='utf-8')
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self.calls = 0
        self.write('run', name=name, run_id=run_id, utc=stamp, **header)

    def write(self, event: str, **fields: Any) -> None:
        """Append one line; ``t`` is s since the start."""
        with self._lock:
            if self._file.closed:
                return
            elapsed = round(time.monotonic() - self._started, 4)
            self._file.write(json.dumps({'event': event, 't': elapsed, **fields}) + '\n')
            self._file.flush()

    def tool(
        self, name: str, arguments: Mapping[str, Any], result: ToolResult, seconds: float
    ) -> None:
        """Append one tool call."""
        with self._lock:
            self.calls += 1
            index = self.calls
        images = {key: list(pixels.shape) for key, pixels in result.images.items()}
        self.write(
            'tool',
            index=index,
            tool=name,
            arguments=dict(arguments),
            result=json.loads(result.text()),
            error_code=result.error_code,
            images=images,
            seconds=round(seconds, 4),
        )

    def close(self, **fields: Any) -> None:
        """Write the last line and close the file."""
        self.write('end', tool_calls=self.calls, **fields)
        with self._lock:
            self._file.close()
