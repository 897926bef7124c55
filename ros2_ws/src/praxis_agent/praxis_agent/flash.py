# SPDX-License-Identifier: Apache-2.0
"""Flash planner: runs a recipe through the tools, with no language model.

It holds no ground truth: anchors are found by segment and back_project, grasps are judged by
the gripper, and whether the task succeeded is for its own check to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from praxis_core.errors import ErrorCode

from praxis_agent.anchors import AnchorError, Located, choose, stands_over
from praxis_agent.recipe import HAND, Attempt, MoveTo, Recipe, Step, Verify, describe
from praxis_agent.robot import CancelToken
from praxis_agent.tools import Registry, ToolResult

GRIPPER = {'open': -1.0, 'close': 1.0}
LEG = 0.28
"""m; a planar move is cut into legs of at most this, since move_to refuses more than 0.30."""

STOPPED = (
    'takeover',
    'estop',
    'lease_lost',
    'lease_refused',
    'episode_changed',
    'shutdown',
    'no_arbiter',
)
"""Reasons of a primitive's end that no retry mends."""


class StepFailedError(RuntimeError):
    """A step that did not do what it was for."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class TurnLimitError(RuntimeError):
    """The run has used all its tool calls."""


@dataclass
class FlashPlanner:
    """One run of one recipe.

    Attributes:
        recipe: What to do.
        tools: What to do it with.
        cancel: Ends the run from another thread.
        max_turns: Tool calls, 0 for no limit.
        on_step: Told what is being done.
        resolution: Of the images that anchors are looked for in: high or low.
        calls: Tool calls made.
        located: Anchors where they were last found.
    """

    recipe: Recipe
    tools: Registry
    cancel: CancelToken
    max_turns: int = 0
    on_step: Callable[[str], None] = lambda text: None
    resolution: str = 'high'
    calls: int = 0
    located: dict[str, Located] = field(default_factory=dict)

    def run(self) -> None:
        """Carry out the plan.

        Raises:
            StepFailedError: A required step failed for good.
            TurnLimitError: Out of tool calls.
            CancelledError: Cancelled.
        """
        self._steps(self.recipe.plan)

    def call(self, name: str, **arguments: Any) -> ToolResult:
        """One tool call that counts as a turn."""
        if self.max_turns and self.calls >= self.max_turns:
            raise TurnLimitError(f'{self.max_turns} tool calls used up')
        self.calls += 1
        return self.tools.call(name, arguments, self.cancel)

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.cancel.check()
            self.on_step(describe(step))
            getattr(self, f'_do_{step.kind}')(getattr(step, step.kind))

    # Steps

    def _do_locate(self, names: Sequence[str]) -> None:
        fresh: dict[str, Located] = {}
        for name in names:
            self._locate(name, fresh)
        self.located.update(fresh)

    def _do_move_to(self, place: MoveTo) -> None:
        state = self._need(self.call('view_env_state'))
        here = np.array(state['eef_xyz'], dtype=float)
        goal, yaw = self._target(place, here, state['eef_yaw'])
        legs = max(1, math.ceil(float(np.linalg.norm((goal - here)[:2])) / LEG))
        options = {
            key: getattr(place, key)
            for key in ('tol', 'step_clip', 'max_steps')
            if getattr(place, key) is not None
        }
        for leg in range(1, legs + 1):
            point = here + (goal - here) * leg / legs
            arguments = {'xyz': point.tolist(), 'gripper': GRIPPER[place.gripper], **options}
            if yaw is not None:
                arguments['target_yaw'] = yaw
            result = self._need(self.call('move_to', **arguments))
            if place.must_reach and leg == legs and not result['reached']:
                raise StepFailedError(
                    'tool_failed',
                    f'move_to {place.at}: still {result["final_error"]:.3f} m away after '
                    f'{result["steps"]} steps',
                )

    def _do_rotate_wrist(self, part: Any) -> None:
        self._rotate('rotate_wrist', part)

    def _do_rotate_pitch(self, part: Any) -> None:
        self._rotate('rotate_pitch', part)

    def _rotate(self, name: str, part: Any) -> None:
        arguments = part.model_dump(exclude_none=True)
        arguments['gripper'] = GRIPPER[part.gripper]
        self._need(self.call(name, **arguments))

    def _do_set_gripper(self, part: Any) -> None:
        self._need(self.call('set_gripper', gripper=GRIPPER[part.gripper], steps=part.steps))

    def _do_release(self, part: Any) -> None:
        self._need(self.call('release', max_steps=part.max_steps))

    def _do_verify(self, verify: Verify) -> None:
        if verify.gripper_opening is not None:
            opening = self._need(self.call('view_env_state'))['gripper_opening']
            bounds = verify.gripper_opening
            if opening is None or not bounds.above <= opening <= bounds.below:
                raise StepFailedError(
                    'verify_failed',
                    f'gripper opening {opening} m is not within [{bounds.above}, {bounds.below}]',
                )
            return
        stands = verify.stands
        fresh: dict[str, Located] = {}
        upper = self._locate(stands.object, fresh)
        lower = self._locate(stands.over, fresh)
        if not stands_over(upper, lower, stands.within):
            raise StepFailedError(
                'verify_failed', f'the {stands.object} does not stand over the {stands.over}'
            )

    def _do_attempt(self, attempt: Attempt) -> None:
        for number in range(attempt.retries + 1):
            try:
                self._steps(attempt.steps)
                if attempt.verify is not None:
                    self.on_step('verify')
                    self._do_verify(attempt.verify)
                return
            except StepFailedError as error:
                if error.reason == 'stopped':
                    raise
                if number == attempt.retries:
                    if attempt.required:
                        raise
                    return
                self.on_step(f'recover: {error}')
                self._recover(attempt.recover)

    def _recover(self, steps: Sequence[Step]) -> None:
        for step in steps:
            try:
                self._steps([step])
            except StepFailedError as error:
                if error.reason == 'stopped':
                    raise

    # Localisation

    def _locate(self, name: str, fresh: dict[str, Located]) -> Located:
        """Find one anchor and whatever it refers to, each at most once per step."""
        if name in fresh:
            return fresh[name]
        anchor = self.recipe.anchors[name]
        others = {other: self._locate(other, fresh) for other in anchor.where.references}
        found = self._need(
            self.call(
                'segment', prompt=anchor.find, camera=anchor.camera, resolution=self.resolution
            ),
            'anchor_not_found',
        )
        if not found['found']:
            raise StepFailedError('anchor_not_found', f'{name}: {found["reason"]}')
        candidates = []
        for instance in found['instances']:
            points = self.call('back_project', mask=instance['mask_id'], camera=anchor.camera)
            if points.error_code == ErrorCode.TIMEOUT:
                self._need(points)
            if points.ok and 'top_centre' in points.data:
                candidates.append(_located(instance, points.data))
        try:
            fresh[name] = choose(name, anchor.where, candidates, others)
        except AnchorError as error:
            raise StepFailedError('anchor_not_found', str(error)) from error
        return fresh[name]

    def _target(
        self, place: MoveTo, here: np.ndarray, hand_yaw: float
    ) -> tuple[np.ndarray, float | None]:
        """Goal position float64[3] and yaw of a move."""
        offset = np.array(place.offset, dtype=float)
        if place.at == HAND:
            return here + offset, None
        located = self.located.get(place.at) or self._locate(place.at, self.located)
        axis = located.long_axis_yaw
        if place.frame == 'object':
            cos, sin = math.cos(axis), math.sin(axis)
            offset[:2] = cos * offset[0] - sin * offset[1], sin * offset[0] + cos * offset[1]
        base = located.centre.copy()
        base[2] = located.top if place.level == 'top' else located.bottom
        if place.yaw is None:
            return base + offset, None
        wanted = axis + place.yaw_offset + (math.pi / 2 if place.yaw == 'across' else 0.0)
        return base + offset, _nearest_half_turn(wanted, hand_yaw)

    def _need(self, result: ToolResult, reason: str = 'tool_failed') -> Mapping[str, Any]:
        """Data of a result that must be good."""
        if result.ok:
            return result.data
        # Other hands would be fought by a retry, and a node that is gone would be waited for.
        stopped = (
            result.data.get('termination_reason') in STOPPED
            or result.error_code == ErrorCode.TIMEOUT
        )
        raise StepFailedError('stopped' if stopped else reason, result.error)


def _located(instance: Mapping[str, Any], points: Mapping[str, Any]) -> Located:
    return Located(
        label=instance['label'],
        centre=np.array(points['top_centre'], dtype=float),
        top=float(points['maximum'][2]),
        bottom=float(points['minimum'][2]),
        size=np.array(points['top_size'], dtype=float),
        long_axis_yaw=float(points['long_axis_yaw']),
        pixel=(float(instance['centroid'][0]), float(instance['centroid'][1])),
        area=int(instance['area']),
    )


def _nearest_half_turn(angle: float, reference: float) -> float:
    """The angle, up to half turns of a parallel gripper, nearest to the reference."""
    return reference + (angle - reference + math.pi / 2) % math.pi - math.pi / 2
