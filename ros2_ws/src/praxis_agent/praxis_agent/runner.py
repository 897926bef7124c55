# SPDX-License-Identifier: Apache-2.0
"""One run of a planner, from the sentence to its end. Imports no rclpy."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from praxis_core.errors import ErrorCode

from praxis_agent.book import Book
from praxis_agent.flash import FlashPlanner, StepFailedError, TurnLimitError
from praxis_agent.robot import CancelledError, CancelToken, Robot
from praxis_agent.tools import Registry
from praxis_agent.transcript import Transcript

CODES = {
    'unknown_instruction': ErrorCode.INSTRUCTION_UNKNOWN,
    'anchor_not_found': ErrorCode.ANCHOR_NOT_FOUND,
    'cancelled': ErrorCode.CANCELLED,
    'timeout': ErrorCode.TIMEOUT,
    'deactivated': ErrorCode.NOT_ACTIVE,
    'internal': ErrorCode.INTERNAL,
}


@dataclass(frozen=True)
class RunResult:
    """How a run ended; says nothing about the task, whose verdict is not the planner's.

    Attributes:
        reason: finished, unknown_instruction, anchor_not_found, tool_failed, verify_failed,
            stopped, max_turns, cancelled, timeout, deactivated or internal.
        code: NONE where the plan was carried out to its end.
        message: Particulars.
        recipe: That ran, empty if none.
        nearest: Sentences most like an unknown one.
        tool_calls: Made.
        transcript: Path of the file.
    """

    reason: str
    code: ErrorCode = ErrorCode.NONE
    message: str = ''
    recipe: str = ''
    nearest: Sequence[str] = ()
    tool_calls: int = 0
    transcript: str = ''


@dataclass
class Progress:
    """What a run is doing, read by the node's feedback.

    Attributes:
        step: In words.
        tool_calls: So far.
        total_steps: Of the plan, 0 while unknown.
    """

    step: str = 'starting'
    tool_calls: int = 0
    total_steps: int = 0


def run_flash(
    instruction: str,
    book: Book,
    robot: Robot,
    cancel: CancelToken,
    *,
    folder: str | Path,
    run_id: str,
    max_turns: int = 0,
    progress: Progress | None = None,
    header: dict[str, Any] | None = None,
    log: Callable[[str], None] = lambda text: None,
) -> RunResult:
    """Carry out a sentence by its recipe.

    Args:
        instruction: The task in words.
        book: Recipes of this embodiment.
        robot: To act on.
        cancel: Ends the run from another thread; its reason becomes the result's.
        folder: For the transcript.
        run_id: Goal UUID, hex.
        max_turns: Tool calls, 0 for no limit.
        progress: Kept up to date.
        header: Further keys of the transcript's first line.
        log: Told each step.
    """
    progress = progress or Progress()
    recipe = book.find(instruction)
    name = recipe.name if recipe is not None else 'unknown'
    transcript = Transcript(
        folder, name, run_id, planner='flash', instruction=instruction, **(header or {})
    )
    if recipe is None:
        nearest = book.nearest(instruction)
        known = f'nearest: {"; ".join(nearest)}' if nearest else 'there is none for this robot'
        message = f'no recipe for {instruction!r}; {known}'
        transcript.close(reason='unknown_instruction', message=message)
        return RunResult(
            'unknown_instruction',
            CODES['unknown_instruction'],
            message,
            nearest=nearest,
            transcript=str(transcript.path),
        )

    def observe(*call: Any) -> None:
        transcript.tool(*call)
        progress.tool_calls = transcript.calls

    def on_step(text: str) -> None:
        progress.step = text
        transcript.write('step', step=text)
        log(text)

    tools = Registry(robot, observe)
    planner = FlashPlanner(recipe, tools, cancel, max_turns, on_step)
    progress.total_steps = recipe.step_count
    reason, message = 'finished', ''
    try:
        planner.run()
        planner.call('finish', status='success', summary=f'{recipe.name} was carried out')
    except CancelledError as error:
        reason = cancel.reason or 'cancelled'
        message = str(error)
    except StepFailedError as error:
        reason, message = error.reason, str(error)
    except TurnLimitError as error:
        reason, message = 'max_turns', str(error)
    except Exception as error:
        reason, message = 'internal', f'{type(error).__name__}: {error}'
        transcript.write('traceback', text=traceback.format_exc())
    transcript.close(reason=reason, message=message)
    code = ErrorCode.NONE if reason == 'finished' else CODES.get(reason, ErrorCode.TOOL_FAILED)
    return RunResult(reason, code, message, name, (), transcript.calls, str(transcript.path))
