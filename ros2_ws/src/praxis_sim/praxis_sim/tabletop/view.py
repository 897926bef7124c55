# SPDX-License-Identifier: Apache-2.0
"""Offscreen rendering of a MuJoCo model: colour, metric depth and segmentation."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Mapping, Sequence

if os.environ.get('MUJOCO_GL', '') in ('', 'egl'):
    # The back end is bound when mujoco is first imported.
    os.environ['MUJOCO_GL'] = 'egl' if ctypes.util.find_library('EGL') else 'osmesa'

import mujoco
import numpy as np

from praxis_sim.platform import CameraModel, PlatformError, Pose, Rendering

QUALITIES = ('fast', 'reference')
_TO_OPTICAL = np.diag([1.0, -1.0, -1.0])
_MAX_SIDE = 4096


def set_quality(model: mujoco.MjModel, quality: str) -> None:
    """Choose multisampling and shadow map; must precede the first `View` of the model."""
    model.vis.quality.offsamples = 4 if quality == 'reference' else 0
    model.vis.quality.shadowsize = 2048 if quality == 'reference' else 0


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """Convert a rotation matrix float64[3, 3] to a quaternion x y z w with w >= 0."""
    wxyz = np.empty(4)
    mujoco.mju_mat2Quat(wxyz, np.ascontiguousarray(rotation, float).reshape(9))
    if wxyz[0] < 0:
        wxyz = -wxyz
    return wxyz[[1, 2, 3, 0]]


class View:
    """A renderer bound to the thread that made it.

    Args:
        model: Compiled model.
        data: Its state; read at every `render`.
        quality: ``fast`` or ``reference``.
        size: (width, height) that most renderings have; larger ones resize the buffer for once.
        geom_labels: Category of each geom, by geom id.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        quality: str,
        size: tuple[int, int],
        geom_labels: Mapping[int, str],
    ) -> None:
        self._model, self._data = model, data
        self._size = size
        self.set_labels(geom_labels)
        model.vis.global_.offwidth, model.vis.global_.offheight = size
        context_class = mujoco.gl_context.GLContext
        if context_class is None:
            raise PlatformError('no offscreen OpenGL: install libEGL or libOSMesa')
        self._gl = context_class(*size)
        self._gl.make_current()
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        self._scene = mujoco.MjvScene(model, maxgeom=model.ngeom + 64)
        flags = self._scene.flags
        reference = quality == 'reference'
        flags[mujoco.mjtRndFlag.mjRND_SHADOW] = reference
        flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = reference
        flags[mujoco.mjtRndFlag.mjRND_HAZE] = False
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = (1, 1, 1, 0, 0, 0)
        self._option.sitegroup[:] = 0
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED

    def set_labels(self, geom_labels: Mapping[int, str]) -> None:
        """Change the category of each geom, by geom id."""
        self._labels: Sequence[str] = tuple(sorted(set(geom_labels.values())))
        index = {label: i + 1 for i, label in enumerate(self._labels)}
        self._geom_segment = np.zeros(self._model.ngeom, np.uint16)
        for geom, label in geom_labels.items():
            self._geom_segment[geom] = index[label]

    def camera_model(self, camera: str, width: int, height: int) -> CameraModel:
        """Intrinsics and present pose of a camera."""
        identity = self._camera_id(camera)
        focal = height / 2 / np.tan(np.radians(self._model.cam_fovy[identity]) / 2)
        # Pixel centres are at integers: the principal point lies between the middle two.
        intrinsics = np.array(
            [[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1]]
        )
        rotation = self._data.cam_xmat[identity].reshape(3, 3) @ _TO_OPTICAL
        body = self._model.cam_bodyid[identity]
        parent = self._model.body(body).name if body else 'world'
        pose = Pose(self._data.cam_xpos[identity].copy(), quaternion(rotation))
        return CameraModel(width, height, intrinsics, pose, parent)

    def render(
        self,
        camera: str,
        width: int,
        height: int,
        *,
        rgb: bool = True,
        depth: bool = False,
        segmentation: bool = False,
    ) -> Rendering:
        """Render one camera; see `praxis_sim.platform.Platform.render`."""
        if not (1 <= width <= _MAX_SIDE and 1 <= height <= _MAX_SIDE):
            raise PlatformError(f'image size {width}x{height} is not within 1 to {_MAX_SIDE}')
        self._camera.fixedcamid = self._camera_id(camera)
        self._gl.make_current()
        resized = width > self._size[0] or height > self._size[1]
        if resized:
            mujoco.mjr_resizeOffscreen(width, height, self._context)
        try:
            mujoco.mjv_updateScene(
                self._model, self._data, self._option, None, self._camera,
                mujoco.mjtCatBit.mjCAT_ALL, self._scene,
            )  # fmt: skip
            rect = mujoco.MjrRect(0, 0, width, height)
            colour = metric = segments = None
            if rgb or depth:
                colour = np.empty((height, width, 3), np.uint8)
                buffer = np.empty((height, width), np.float32) if depth else None
                mujoco.mjr_render(rect, self._scene, self._context)
                mujoco.mjr_readPixels(colour, buffer, rect, self._context)
                if depth:
                    metric = self._metric(buffer)
            if segmentation:
                segments = self._segments(rect, width, height)
        finally:
            if resized:
                mujoco.mjr_resizeOffscreen(*self._size, self._context)
        return Rendering(
            camera=self.camera_model(camera, width, height),
            rgb=np.ascontiguousarray(colour[::-1]) if rgb else None,
            depth=metric,
            segmentation=segments,
            labels=self._labels if segmentation else (),
        )

    def close(self) -> None:
        """Free the buffers and the OpenGL context."""
        if self._context is not None:
            self._gl.make_current()
            self._context.free()
            self._gl.free()
            self._context = None

    def _camera_id(self, name: str) -> int:
        identity = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_CAMERA, name)
        if identity < 0:
            known = [self._model.camera(i).name for i in range(self._model.ncam)]
            raise PlatformError(f'no camera {name!r}; the scene has {", ".join(known)}')
        return identity

    def _metric(self, buffer: np.ndarray) -> np.ndarray:
        """Undo the projection of a zero-far depth buffer; row 0 of the result is the top."""
        near = float(np.float32(self._model.vis.map.znear * self._model.stat.extent))
        far = float(np.float32(self._model.vis.map.zfar * self._model.stat.extent))
        raw = np.ascontiguousarray(buffer[::-1])
        with np.errstate(divide='ignore'):
            metric = near * far / (near + raw.astype(np.float64) * (far - near))
        return np.where(raw > 0, metric, np.nan).astype(np.float32)

    def _segments(self, rect: mujoco.MjrRect, width: int, height: int) -> np.ndarray:
        flags = self._scene.flags
        flags[mujoco.mjtRndFlag.mjRND_SEGMENT] = flags[mujoco.mjtRndFlag.mjRND_IDCOLOR] = True
        pixels = np.empty((height, width, 3), np.uint8)
        try:
            mujoco.mjr_render(rect, self._scene, self._context)
            mujoco.mjr_readPixels(pixels, None, rect, self._context)
        finally:
            flags[mujoco.mjtRndFlag.mjRND_SEGMENT] = False
            flags[mujoco.mjtRndFlag.mjRND_IDCOLOR] = False
        wide = pixels[::-1].astype(np.int64)
        identity = wide[..., 0] | wide[..., 1] << 8 | wide[..., 2] << 16
        table = np.zeros(self._scene.ngeom + 2, np.uint16)
        for geom in self._scene.geoms[: self._scene.ngeom]:
            if geom.segid >= 0 and geom.objtype == mujoco.mjtObj.mjOBJ_GEOM:
                table[geom.segid + 1] = self._geom_segment[geom.objid]
        return np.ascontiguousarray(table[np.minimum(identity, len(table) - 1)])
