# SPDX-License-Identifier: Apache-2.0
"""Node `perception`: services `segment` and `back_project` over a back end chosen by parameter."""

from __future__ import annotations

import time
from typing import Any, Literal

import numpy as np
from geometry_msgs.msg import Point
from praxis_core.contract import load_contract
from praxis_core.diagnostics import START_S, Diagnostics, Level
from praxis_core.errors import ErrorCode
from praxis_core.images import ImageError, fill_image, image_array
from praxis_core.parameters import ParameterModel, declare
from praxis_core.process import run
from praxis_core.waiting import Waits
from praxis_interfaces.msg import SegmentInstance
from praxis_interfaces.srv import BackProject, RenderCamera, Segment
from pydantic import Field
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.task import Future
from sensor_msgs.msg import Image

from praxis_perception import projection
from praxis_perception.backend import PerceptionError
from praxis_perception.instances import Instance
from praxis_perception.oracle import OracleBackend

BACKENDS = {'oracle': OracleBackend}
MAX_SIZE = 4096


class PerceptionParameters(ParameterModel):
    """Parameters of the node `perception`."""

    contract: str = Field(
        description='Path of the contract of the robot.', json_schema_extra={'read_only': True}
    )
    backend: Literal['oracle'] = Field(
        'oracle',
        description="oracle: the simulator's own segmentation and depth, no detector.",
        json_schema_extra={'read_only': True},
    )
    timeout_s: float = Field(
        30.0, ge=0.1, le=600.0, description='Wait for a view of the back end (s).'
    )


class PerceptionNode(Node):
    """Two services; requests wait for their views without blocking the executor."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('perception', **kwargs)
        self._settings = declare(self, PerceptionParameters)
        parameters = self._settings.value
        self._contract = load_contract(parameters.contract)
        group = ReentrantCallbackGroup()
        self._client = self.create_client(RenderCamera, 'render_camera', callback_group=group)
        self._backend = BACKENDS[parameters.backend](self._render)
        self._waits = Waits(self)
        self._served = 0
        self._failed = 0
        self._last_ms = 0.0
        self.create_service(Segment, 'segment', self._segment, callback_group=group)
        self.create_service(BackProject, 'back_project', self._back_project, callback_group=group)
        Diagnostics(self, self._contract.name).add(
            f'backend {self._backend.name}', self._report, patience=START_S
        )

    # Services

    async def _segment(
        self, request: Segment.Request, response: Segment.Response
    ) -> Segment.Response:
        response.backend = self._backend.name
        started = time.monotonic()
        try:
            prompt = request.prompt.strip()
            if bool(prompt) == bool(len(request.point)):
                raise PerceptionError(
                    ErrorCode.INVALID_REQUEST, 'give exactly one of prompt and point'
                )
            if len(request.point) not in (0, 2):
                raise PerceptionError(
                    ErrorCode.INVALID_REQUEST,
                    f'point must be [row, col] (got {list(request.point)})',
                )
            width, height = self._size(request)
            finding = await self._backend.find(
                request.camera,
                width,
                height,
                prompt=prompt,
                point=tuple(request.point) if len(request.point) else None,
                min_score=request.min_score,
            )
        except PerceptionError as error:
            return self._fail(response, error)
        response.observation_seq = finding.observation_seq
        response.known_labels = list(finding.known_labels)
        response.instances = [_instance(instance) for instance in finding.instances]
        response.found = bool(finding.instances)
        response.reason = finding.reason
        if not response.found:
            response.error_code = int(ErrorCode.NO_DETECTION)
            response.error_msg = finding.reason
        self._done(started)
        return response

    async def _back_project(
        self, request: BackProject.Request, response: BackProject.Response
    ) -> BackProject.Response:
        response.backend = self._backend.name
        started = time.monotonic()
        try:
            mask = _mask(request)
            width, height = self._size(request, mask)
            view = await self._backend.depth(request.camera, width, height)
            if mask is None:
                rows, cols = np.asarray(request.rows), np.asarray(request.cols)
            else:
                rows, cols = np.nonzero(mask)
            try:
                points = projection.back_project(view.camera, view.depth, rows, cols)
            except ValueError as error:
                raise PerceptionError(ErrorCode.INVALID_REQUEST, str(error)) from error
        except PerceptionError as error:
            return self._fail(response, error)
        statistics = projection.statistics(points, request.z_min, request.z_max)
        response.observation_seq = view.observation_seq
        response.frame_id = view.frame_id
        if mask is None:
            response.points = [_point(point) for point in points]
        response.valid = statistics.valid
        response.centroid = _point(statistics.centroid)
        response.minimum = _point(statistics.minimum)
        response.maximum = _point(statistics.maximum)
        response.success = statistics.valid > 0
        if not response.success:
            response.error_code = int(ErrorCode.NO_DEPTH)
            response.error_msg = (
                f'none of {len(points)} pixels has valid depth within '
                f'z {request.z_min:g} to {request.z_max:g} m'
            )
        self._done(started)
        return response

    def _size(self, request: Any, mask: np.ndarray | None = None) -> tuple[int, int]:
        """Width and height to render: the request's, the mask's or the contract's."""
        cameras = self._contract.interface.cameras
        if request.camera not in cameras:
            raise PerceptionError(
                ErrorCode.CAMERA_UNKNOWN,
                f'no camera {request.camera!r}; the contract has {", ".join(cameras)}',
            )
        camera = cameras[request.camera]
        if mask is not None:
            size = (mask.shape[1], mask.shape[0])
            if request.width and (request.width, request.height) != size:
                raise PerceptionError(
                    ErrorCode.INVALID_REQUEST,
                    f'the mask is {size[0]} x {size[1]}, the request says '
                    f'{request.width} x {request.height}',
                )
            return size
        width, height = request.width or camera.width, request.height or camera.height
        if max(width, height) > MAX_SIZE:
            raise PerceptionError(
                ErrorCode.INVALID_REQUEST, f'image of {width} x {height} exceeds {MAX_SIZE} pixels'
            )
        return width, height

    def _fail(self, response: Any, error: PerceptionError) -> Any:
        self._failed += 1
        response.error_code = int(error.code)
        response.error_msg = str(error)
        if hasattr(response, 'reason'):
            response.reason = str(error)
        self.get_logger().warning(str(error), throttle_duration_sec=1.0)
        return response

    def _done(self, started: float) -> None:
        self._served += 1
        self._last_ms = (time.monotonic() - started) * 1e3

    # The simulator

    def _render(self, **fields: Any) -> Future:
        """Future of a response of render_camera, None when it does not come in time."""
        call = self._client.call_async(RenderCamera.Request(**fields))
        return self._waits.answer(call, self._settings.value.timeout_s)

    def _report(self) -> tuple[int, str, dict[str, Any]]:
        ready = self._client.service_is_ready()
        values = {
            'served': self._served,
            'failed': self._failed,
            'last_ms': f'{self._last_ms:.1f}',
        }
        if not ready:
            return Level.WARN, 'render_camera is not there', values
        return Level.OK, 'ready', values


def _mask(request: BackProject.Request) -> np.ndarray | None:
    """Mask bool[H, W] of a request, None where it gives rows and cols.

    Raises:
        PerceptionError: Both, neither, or rows and cols of different length.
    """
    by_pixels = bool(len(request.rows) or len(request.cols))
    by_mask = bool(request.mask.height)
    if by_pixels == by_mask:
        raise PerceptionError(
            ErrorCode.INVALID_REQUEST, 'give exactly one of rows with cols, and mask'
        )
    if by_pixels:
        if len(request.rows) != len(request.cols):
            raise PerceptionError(
                ErrorCode.INVALID_REQUEST,
                f'{len(request.rows)} rows but {len(request.cols)} cols',
            )
        return None
    try:
        mask = image_array(request.mask)
    except ImageError as error:
        raise PerceptionError(ErrorCode.INVALID_REQUEST, str(error)) from error
    if mask.ndim != 2:
        raise PerceptionError(
            ErrorCode.INVALID_REQUEST, f'mask must be mono8 (got {request.mask.encoding})'
        )
    return mask > 0


def _instance(instance: Instance) -> SegmentInstance:
    message = SegmentInstance()
    message.label = instance.label
    message.score = float(instance.score)
    message.box = np.array(instance.box, dtype=np.int32)
    message.centroid = np.array(instance.centroid, dtype=np.float32)
    message.area = instance.area
    message.mask = fill_image(Image(), instance.mask.astype(np.uint8) * 255, 'mono8')
    return message


def _point(xyz: np.ndarray) -> Point:
    return Point(x=float(xyz[0]), y=float(xyz[1]), z=float(xyz[2]))


def main() -> int:
    """Run the node until it is interrupted."""
    return run(PerceptionNode)


if __name__ == '__main__':
    raise SystemExit(main())
