# SPDX-License-Identifier: Apache-2.0
"""Back end `oracle`: segmentation and depth rendered by the simulator. Not a detector."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from praxis_core.errors import ErrorCode
from praxis_core.images import image_array

from praxis_perception import instances, matching
from praxis_perception.backend import Finding, PerceptionError, View
from praxis_perception.projection import Camera, rotation_matrix

Render = Callable[..., Awaitable[Any]]
"""Call of the simulator's ``render_camera``; its response, None without an answer."""


class OracleBackend:
    """Asks the simulator what it sees; knows every category by name."""

    name = 'oracle'

    def __init__(self, render: Render) -> None:
        self._render = render

    async def find(
        self,
        camera: str,
        width: int,
        height: int,
        *,
        prompt: str,
        point: tuple[int, int] | None,
        min_score: float,
    ) -> Finding:
        """Find objects by words or by a point, among all that is drawn.

        Raises:
            PerceptionError: The simulator gives no view, or the point is outside the image.
        """
        view = await self._view(camera, width, height, segmentation=True)
        visible = instances.visible_labels(view.segmentation, view.labels)
        if point is None:
            found = instances.by_prompt(view.segmentation, view.labels, prompt, min_score)
            reason = '' if found else matching.not_found(prompt, visible)
        else:
            try:
                instance = instances.by_point(view.segmentation, view.labels, *point)
            except ValueError as error:
                raise PerceptionError(ErrorCode.INVALID_REQUEST, str(error)) from error
            found = [] if instance is None else [instance]
            reason = '' if found else f'there is no object at pixel {list(point)}'
        return Finding(found, reason, view.observation_seq, visible)

    async def depth(self, camera: str, width: int, height: int) -> View:
        """Metric depth of a camera.

        Raises:
            PerceptionError: The simulator gives no view.
        """
        return await self._view(camera, width, height, depth=True)

    async def _view(
        self,
        camera: str,
        width: int,
        height: int,
        *,
        depth: bool = False,
        segmentation: bool = False,
    ) -> View:
        answer = await self._render(
            camera=camera, width=width, height=height, depth=depth, segmentation=segmentation
        )
        if answer is None:
            raise PerceptionError(ErrorCode.TIMEOUT, 'render_camera does not answer')
        if answer.error_code:
            raise PerceptionError(answer.error_code, answer.error_msg)
        pose = answer.camera_pose.pose
        return View(
            observation_seq=answer.observation_seq,
            frame_id=answer.camera_pose.header.frame_id,
            camera=Camera(
                intrinsics=np.array(answer.camera_info.k, dtype=float).reshape(3, 3),
                position=np.array([pose.position.x, pose.position.y, pose.position.z]),
                rotation=rotation_matrix(
                    pose.orientation.x, pose.orientation.y, pose.orientation.z, pose.orientation.w
                ),
            ),
            depth=image_array(answer.depth_image) if depth else None,
            segmentation=image_array(answer.segmentation_image) if segmentation else None,
            labels=tuple(answer.labels),
        )
