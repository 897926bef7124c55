# SPDX-License-Identifier: Apache-2.0
"""Lifecycle node `planner`: action `run_task`, one run at a time, on a worker thread."""

from __future__ import annotations

import threading
import time
from typing import Any, Literal

from praxis_core.contract import load_contract
from praxis_core.diagnostics import Diagnostics, Level
from praxis_core.errors import ErrorCode
from praxis_core.lifecycle import AutostartNode
from praxis_core.parameters import ParameterModel, declare
from praxis_core.process import run
from praxis_core.waiting import Waits
from praxis_interfaces.action import RunTask
from pydantic import Field
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from praxis_agent.book import Book, load_book, recipe_folder
from praxis_agent.recipe import RecipeError
from praxis_agent.robot import CancelToken
from praxis_agent.ros_robot import RosRobot
from praxis_agent.runner import Progress, RunResult, run_flash

_FIXED = {'read_only': True}
PLANNERS = ('flash',)


class PlannerParameters(ParameterModel):
    """Parameters of the node `planner`."""

    contract: str = Field(
        description='Path of the contract of the robot.', json_schema_extra=_FIXED
    )
    stepping: Literal['realtime', 'lockstep'] = Field(
        'realtime',
        description='As the simulator steps; in lockstep the state is read reliably.',
        json_schema_extra=_FIXED,
    )
    planner: Literal['flash'] = Field(
        'flash', description='Used where a goal names none: flash runs recipes, no language model.'
    )
    recipes: str = Field(
        '',
        description='Folder of recipes; empty: those of the package.',
        json_schema_extra=_FIXED,
    )
    transcript_dir: str = Field(
        '~/praxis/transcripts', description='Folder for transcripts, made if it is missing.'
    )
    max_turns: int = Field(
        200, ge=1, le=100000, description='Tool calls of a run where a goal sets no limit.'
    )
    timeout_s: float = Field(
        1200.0, ge=1.0, le=86400.0, description='Steady s of a run where a goal sets none.'
    )
    call_timeout_s: float = Field(
        60.0,
        ge=0.1,
        le=600.0,
        description='Wait for a service, or for an action server to accept (s).',
        json_schema_extra=_FIXED,
    )
    feedback_hz: float = Field(4.0, ge=2.0, le=10.0, description='Rate of feedback (Hz).')


class PlannerNode(AutostartNode):
    """Accepts a task in words; the work is done by `runner` on a thread of its own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('planner', **kwargs)
        self._settings = declare(self, PlannerParameters)
        self._contract = load_contract(self._settings.value.contract)
        self._book = Book(())
        self._robot: RosRobot | None = None
        self._server: ActionServer | None = None
        self._diagnostics: Diagnostics | None = None
        self._waits: Waits | None = None
        self._token: CancelToken | None = None
        self._worker: threading.Thread | None = None
        self._goal_id = ''
        self._busy = False
        self._last = 'no run yet'

    # Transitions

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the recipes and connect to the robot."""
        parameters = self._settings.value
        folder = parameters.recipes or recipe_folder()
        try:
            self._book = load_book(folder, self._contract.interface.embodiment)
        except RecipeError as error:
            self.get_logger().error(str(error))
            return TransitionCallbackReturn.FAILURE
        if not self._book.recipes:
            self.get_logger().warning(
                f'{folder}: no recipe for {self._contract.interface.embodiment}'
            )
        self._waits = Waits(self)
        lockstep = parameters.stepping == 'lockstep'
        self._robot = RosRobot(self, self._contract, lockstep, parameters.call_timeout_s)
        self._server = ActionServer(
            self,
            RunTask,
            'run_task',
            execute_callback=self._execute,
            goal_callback=self._accept,
            cancel_callback=self._cancel,
            callback_group=ReentrantCallbackGroup(),
            result_timeout=900,
        )
        self._diagnostics = Diagnostics(self, self._contract.name)
        self._diagnostics.add('planner', self._report)
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Accept goals."""
        names = ', '.join(recipe.name for recipe in self._book.recipes) or 'none'
        self.get_logger().info(f'{self._contract.name}: recipes {names}')
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop the run; its goal is aborted."""
        if self._token is not None:
            self._token.cancel('deactivated')
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Disconnect."""
        self._release()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """As cleanup."""
        self._release()
        return TransitionCallbackReturn.SUCCESS

    def _release(self) -> None:
        if self._token is not None:
            self._token.cancel('deactivated')
        for part in (self._robot, self._diagnostics, self._waits):
            if part is not None:
                part.close()
        if self._server is not None:
            self._server.destroy()
        self._robot = self._server = self._diagnostics = self._waits = None

    def stop(self) -> None:
        """End the run while callbacks still work, so that the robot is told."""
        if self._token is not None:
            self._token.cancel('deactivated')
        deadline = time.monotonic() + 5.0
        while self._busy and time.monotonic() < deadline:
            time.sleep(0.02)

    # Goals

    def _accept(self, goal: RunTask.Goal) -> GoalResponse:
        reason = ''
        if not self.is_active:
            reason = f'the node is {self.state_label}'
        elif self._busy:
            reason = 'another run is under way'
        elif not goal.instruction.strip():
            reason = 'the instruction is empty'
        elif goal.planner and goal.planner not in PLANNERS:
            reason = f'no planner {goal.planner!r}; there are {", ".join(PLANNERS)}'
        if reason:
            self.get_logger().warning(f'run_task rejected: {reason}')
            return GoalResponse.REJECT
        self._busy = True
        return GoalResponse.ACCEPT

    def _cancel(self, handle: Any) -> CancelResponse:
        if self._token is not None and bytes(handle.goal_id.uuid).hex() == self._goal_id:
            self._token.cancel('cancelled')
        return CancelResponse.ACCEPT

    async def _execute(self, handle: Any) -> RunTask.Result:
        try:
            result = await self._carry_out(handle)
        finally:
            self._busy = False
            self._token = None
        self._last = f'{result.recipe or "no recipe"}: {result.reason}'
        self.get_logger().info(
            f'"{handle.request.instruction}": {result.reason} {result.message}'.rstrip()
        )
        if handle.is_cancel_requested:
            handle.canceled()
        elif result.code == ErrorCode.NONE:
            handle.succeed()
        else:
            handle.abort()
        return RunTask.Result(
            error_code=int(result.code),
            error_msg=result.message,
            termination_reason=result.reason,
            recipe=result.recipe,
            nearest_recipes=list(result.nearest),
            tool_calls=result.tool_calls,
            transcript_path=result.transcript,
        )

    async def _carry_out(self, handle: Any) -> RunResult:
        parameters = self._settings.value
        request = handle.request
        progress, token = Progress(), CancelToken()
        self._token = token
        self._goal_id = bytes(handle.goal_id.uuid).hex()
        if handle.is_cancel_requested:
            token.cancel('cancelled')
        results: list[RunResult] = []

        def work() -> None:
            try:
                results.append(
                    run_flash(
                        request.instruction,
                        self._book,
                        self._robot,
                        token,
                        folder=parameters.transcript_dir,
                        run_id=self._goal_id,
                        max_turns=request.max_turns or parameters.max_turns,
                        progress=progress,
                        header={
                            'contract': self._contract.name,
                            'interface_hash': self._contract.interface_hash,
                        },
                    )
                )
            except Exception as error:
                text = f'{type(error).__name__}: {error}'
                results.append(RunResult('internal', ErrorCode.INTERNAL, text))

        started = time.monotonic()
        limit = request.timeout or parameters.timeout_s
        worker = threading.Thread(target=work, name='planner', daemon=True)
        self._worker = worker
        worker.start()
        while worker.is_alive():
            await self._waits.sleep(1.0 / parameters.feedback_hz, lambda: not worker.is_alive())
            elapsed = time.monotonic() - started
            if elapsed > limit:
                token.cancel('timeout')
            handle.publish_feedback(
                RunTask.Feedback(
                    step=progress.step,
                    tool_calls=progress.tool_calls,
                    total_steps=progress.total_steps,
                    elapsed=elapsed,
                )
            )
        return results[0]

    def _report(self) -> tuple[int, str, dict[str, Any]]:
        values = {'recipes': len(self._book.recipes), 'busy': self._busy, 'last': self._last}
        return Level.OK, self.state_label, values


def main() -> int:
    """Run the node until it is interrupted."""
    return run(PlannerNode)


if __name__ == '__main__':
    raise SystemExit(main())
