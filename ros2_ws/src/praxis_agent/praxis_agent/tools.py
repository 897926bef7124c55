# SPDX-License-Identifier: Apache-2.0
"""The planner's tools: what each does with a robot.

One registry serves every planner. Read-only tools run concurrently; those that move the robot
one at a time, in the order of their calls, and end early when the run is cancelled.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import ValidationError

from praxis_agent.arguments import (
    Arguments,
    BackProject,
    Finish,
    MovePose,
    MoveTo,
    Release,
    RotatePitch,
    RotateWrist,
    SegmentArguments,
    SetGripper,
    ViewCameraMeta,
    ViewEnvState,
)
from praxis_agent.fair_lock import FairLock
from praxis_agent.robot import (
    CancelledError,
    CancelToken,
    Motion,
    Robot,
    RobotError,
    RobotState,
    Segment,
)
from praxis_agent.shape import describe_points

RESULT_LIMIT = 60_000
"""Bytes of a result's JSON text."""

MASKS_KEPT = 64
MASK_SAMPLES = 2500
RESOLUTIONS = {'high': 1024, 'low': 256}


@dataclass(frozen=True)
class ToolResult:
    """What a planner gets back.

    Attributes:
        ok: The call did what it says.
        data: JSON object.
        images: uint8[H, W, 3] RGB by name, not part of the text.
        error: Why it failed, empty otherwise.
        error_code: 0 where it did not fail.
    """

    ok: bool
    data: dict[str, Any] = field(default_factory=dict)
    images: Mapping[str, np.ndarray] = field(default_factory=dict)
    error: str = ''
    error_code: int = 0

    def text(self) -> str:
        """JSON text, at most `RESULT_LIMIT` bytes."""
        body = {'ok': self.ok, **({'error': self.error} if self.error else {}), **self.data}
        text = json.dumps(body, allow_nan=False)
        if len(text.encode()) > RESULT_LIMIT:
            cut = text.encode()[: RESULT_LIMIT - 200].decode(errors='ignore')
            return json.dumps({'ok': self.ok, 'truncated': True, 'text': cut[: RESULT_LIMIT // 2]})
        return text


@dataclass(frozen=True)
class Tool:
    """One entry of the registry.

    Attributes:
        name: As a planner calls it.
        arguments: Schema; its docstring is the description.
        exclusive: It moves the robot, so that one runs at a time.
        function: Carries it out.
    """

    name: str
    arguments: type[Arguments]
    exclusive: bool
    function: Callable[[Any, CancelToken], ToolResult]


Observer = Callable[[str, Mapping[str, Any], ToolResult, float], None]


class Registry:
    """All tools of one run on one robot."""

    def __init__(self, robot: Robot, observe: Observer | None = None) -> None:
        """Create the tools.

        Args:
            robot: To act on.
            observe: Told every call after its end: name, arguments, result and s it took.
        """
        self._robot = robot
        self._observe = observe or (lambda *call: None)
        self._masks: OrderedDict[str, tuple[str, int, np.ndarray]] = OrderedDict()
        self._mask_lock = threading.Lock()
        self._mask_count = 0
        self._turn = FairLock()
        self.finished: Finish | None = None
        entries = (
            ('view_env_state', ViewEnvState, False, self._view_env_state),
            ('move_to', MoveTo, True, self._move_to),
            ('move_pose', MovePose, True, self._move_pose),
            ('rotate_wrist', RotateWrist, True, self._rotate_wrist),
            ('rotate_pitch', RotatePitch, True, self._rotate_pitch),
            ('set_gripper', SetGripper, True, self._set_gripper),
            ('release', Release, True, self._release),
            ('segment', SegmentArguments, False, self._segment),
            ('back_project', BackProject, False, self._back_project),
            ('view_camera_meta', ViewCameraMeta, False, self._view_camera_meta),
            ('finish', Finish, True, self._finish),
        )
        self.tools = {entry[0]: Tool(*entry) for entry in entries}

    def schemas(self) -> list[dict[str, Any]]:
        """Name, description and JSON schema of every tool, as language models take them."""
        return [
            {
                'name': tool.name,
                'description': (tool.arguments.__doc__ or '').strip(),
                'input_schema': tool.arguments.model_json_schema(),
            }
            for tool in self.tools.values()
        ]

    def call(
        self, name: str, arguments: Mapping[str, Any], cancel: CancelToken | None = None
    ) -> ToolResult:
        """Validate and carry out one call; may be called from any thread.

        Raises:
            CancelledError: The run was cancelled before or during the call.
        """
        started = time.monotonic()
        try:
            result = self._call(name, arguments, cancel or CancelToken())
        except CancelledError as error:
            cancelled = ToolResult(False, error=f'cancelled: {error}', error_code=103)
            self._observe(name, arguments, cancelled, time.monotonic() - started)
            raise
        self._observe(name, arguments, result, time.monotonic() - started)
        return result

    def _call(self, name: str, arguments: Mapping[str, Any], cancel: CancelToken) -> ToolResult:
        tool = self.tools.get(name)
        if tool is None:
            return ToolResult(False, error=f'no tool {name!r}; there are {", ".join(self.tools)}')
        try:
            checked = tool.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            return ToolResult(False, error=_reasons(name, error), error_code=100)
        if getattr(checked, 'step', -1) != -1:
            return ToolResult(
                False, error=f'{name}: step must be -1: only the newest observation is kept'
            )
        try:
            if not tool.exclusive:
                cancel.check()
                return tool.function(checked, cancel)
            with self._turn:
                cancel.check()
                return tool.function(checked, cancel)
        except RobotError as error:
            return ToolResult(False, error=str(error), error_code=error.code)

    # Reading

    def _view_env_state(self, arguments: ViewEnvState, cancel: CancelToken) -> ToolResult:
        state = self._robot.state()
        return ToolResult(True, _state(state), dict(state.images))

    def _segment(self, arguments: SegmentArguments, cancel: CancelToken) -> ToolResult:
        point = None if arguments.point is None else (arguments.point[0], arguments.point[1])
        size = RESOLUTIONS[arguments.resolution]
        found = self._robot.segment(
            arguments.camera, arguments.prompt or '', point, size, arguments.min_score, cancel
        )
        instances = [
            {
                'mask_id': self._keep(arguments.camera, size, segment),
                'label': segment.label,
                'score': round(segment.score, 4),
                'box': list(segment.box),
                'centroid': [round(v, 2) for v in segment.centroid],
                'area': segment.area,
            }
            for segment in found.segments
        ]
        data = {
            'found': bool(instances),
            'backend': found.backend,
            'observation_seq': found.observation_seq,
            'camera': arguments.camera,
            'resolution': arguments.resolution,
            'instances': instances,
        }
        if not instances:
            data |= {'reason': found.reason, 'known_labels': list(found.known_labels)}
        return ToolResult(True, data)

    def _keep(self, camera: str, size: int, segment: Segment) -> str:
        with self._mask_lock:
            self._mask_count += 1
            name = f'm{self._mask_count}'
            self._masks[name] = (camera, size, segment.mask)
            while len(self._masks) > MASKS_KEPT:
                self._masks.popitem(last=False)
        return name

    def _back_project(self, arguments: BackProject, cancel: CancelToken) -> ToolResult:
        camera, size = arguments.camera, RESOLUTIONS[arguments.resolution]
        if arguments.mask is not None:
            with self._mask_lock:
                kept = self._masks.get(arguments.mask)
            if kept is None:
                return ToolResult(False, error=f'no mask {arguments.mask!r}', error_code=105)
            camera, size, mask = kept
            pixels = np.argwhere(mask)
        elif arguments.row is not None:
            pixels = np.array([[arguments.row, arguments.col]])
        else:
            rows = np.arange(*arguments.row_range)
            cols = np.arange(*arguments.col_range)
            pixels = np.stack(np.meshgrid(rows, cols, indexing='ij'), axis=-1).reshape(-1, 2)
        if not len(pixels):
            return ToolResult(False, error='no pixels: the range is empty', error_code=100)
        # An even sample keeps the answer's shape and bounds its size.
        stride = max(1, len(pixels) // MASK_SAMPLES)
        points = self._robot.back_project(
            camera, size, pixels[::stride], arguments.z_min, arguments.z_max, cancel
        )
        data = {
            'backend': points.backend,
            'observation_seq': points.observation_seq,
            'frame': points.frame_id,
            'camera': camera,
            'valid': points.valid,
        }
        if arguments.row is not None:
            xyz = points.points[0]
            if not np.isfinite(xyz).all():
                return ToolResult(False, data, error='no depth at this pixel', error_code=601)
            return ToolResult(True, data | {'xyz': _round(xyz)})
        if not points.valid:
            return ToolResult(
                False, data, error='no valid depth within z_min to z_max', error_code=601
            )
        data |= {
            'centroid': _round(points.centroid),
            'minimum': _round(points.minimum),
            'maximum': _round(points.maximum),
        }
        return ToolResult(
            True, data | describe_points(points.points, arguments.z_min, arguments.z_max)
        )

    def _view_camera_meta(self, arguments: ViewCameraMeta, cancel: CancelToken) -> ToolResult:
        meta = self._robot.camera_meta(arguments.camera)
        data = {
            'camera': arguments.camera,
            'width': meta.width,
            'height': meta.height,
            'intrinsic_K': meta.intrinsics.tolist(),
            'frame_id': meta.frame_id,
            'extrinsic_cam2world': (
                None if meta.cam_to_world is None else meta.cam_to_world.tolist()
            ),
        }
        return ToolResult(True, data)

    # Moving

    def _move_to(self, arguments: MoveTo, cancel: CancelToken) -> ToolResult:
        goal = {
            'position': arguments.xyz,
            'gripper': arguments.gripper,
            'tolerance': arguments.tol,
            'step_clip': arguments.step_clip,
            'max_steps': arguments.max_steps,
            'action_scale': arguments.action_scale,
            'has_target_yaw': arguments.target_yaw is not None,
            'target_yaw': arguments.target_yaw or 0.0,
            'yaw_step_clip': arguments.yaw_step_clip,
        }
        return self._move('move_to', goal, cancel)

    def _move_pose(self, arguments: MovePose, cancel: CancelToken) -> ToolResult:
        goal = {
            'position': arguments.xyz,
            'target_pitch': arguments.target_pitch,
            'target_yaw': arguments.target_yaw,
            'gripper': arguments.gripper,
            'step_clip': arguments.step_clip,
            'pitch_step': arguments.pitch_step,
            'yaw_step': arguments.yaw_step,
            'tolerance': arguments.tol,
            'orientation_tolerance': arguments.ori_tol,
            'action_scale': arguments.action_scale,
            'max_steps': arguments.max_steps,
        }
        return self._move('move_pose', goal, cancel)

    def _rotate_wrist(self, arguments: RotateWrist, cancel: CancelToken) -> ToolResult:
        return self._rotate('rotate_wrist', 'yaw', arguments, cancel)

    def _rotate_pitch(self, arguments: RotatePitch, cancel: CancelToken) -> ToolResult:
        return self._rotate('rotate_pitch', 'pitch', arguments, cancel)

    def _rotate(
        self, name: str, angle: str, arguments: RotateWrist | RotatePitch, cancel: CancelToken
    ) -> ToolResult:
        target = getattr(arguments, f'target_{angle}')
        relative = target is None
        goal = {
            'relative': relative,
            angle: getattr(arguments, f'delta_{angle}') if relative else target,
            'gripper': arguments.gripper,
            'max_steps': arguments.max_steps,
            'tolerance': arguments.tol,
            'step_clip': arguments.step_clip,
        }
        return self._move(name, goal, cancel)

    def _set_gripper(self, arguments: SetGripper, cancel: CancelToken) -> ToolResult:
        goal = {'gripper': arguments.gripper, 'steps': arguments.steps}
        return self._move('set_gripper', goal, cancel)

    def _release(self, arguments: Release, cancel: CancelToken) -> ToolResult:
        return self._move('release', {'steps': arguments.max_steps}, cancel)

    def _move(self, name: str, goal: Mapping[str, Any], cancel: CancelToken) -> ToolResult:
        motion = self._robot.move(name, goal, cancel)
        if motion.termination_reason == 'cancelled':
            raise CancelledError(cancel.reason or 'cancelled')
        return ToolResult(
            motion.error_code == 0,
            _motion(motion),
            error=motion.error_msg if motion.error_code else '',
            error_code=motion.error_code,
        )

    def _finish(self, arguments: Finish, cancel: CancelToken) -> ToolResult:
        self.finished = arguments
        return ToolResult(True, {'status': arguments.status})


def _reasons(name: str, error: ValidationError) -> str:
    parts = []
    for item in error.errors():
        where = '.'.join(str(part) for part in item['loc'])
        parts.append(f'{where}: {item["msg"]}' if where else item['msg'])
    return f'{name}: ' + '; '.join(parts)


def _round(vector: np.ndarray) -> list[float | None]:
    return [round(float(v), 5) if math.isfinite(v) else None for v in vector]


def _number(value: float) -> float | None:
    return round(float(value), 5) if math.isfinite(value) else None


def _motion(motion: Motion) -> dict[str, Any]:
    return {
        'reached': motion.reached,
        'termination_reason': motion.termination_reason,
        'steps': motion.steps,
        'final_position': _round(motion.position),
        'final_error': _number(motion.error),
        'gripper_opening': _number(motion.gripper_opening),
    }


def _state(state: RobotState) -> dict[str, Any]:
    return {
        'observation_seq': state.observation_seq,
        'episode_uuid': state.episode_uuid,
        'eef_xyz': _round(state.position),
        'eef_yaw': _number(state.yaw),
        'eef_pitch': _number(state.pitch),
        'gripper_opening': _number(state.gripper_opening),
        'joints': {name: _number(value) for name, value in state.joints.items()},
        'cameras': list(state.cameras),
        'images': sorted(state.images),
    }
