# SPDX-License-Identifier: Apache-2.0
"""Rendering of a MuJoCo scene on request: colour, metric depth and segmentation."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Sequence

import mujoco
import numpy as np

from praxis_sim.platform import PlatformError, Pose

MAX_SIZE = 4096

_FLAG = mujoco.mjtRndFlag
# MuJoCo's camera looks along -z with y up; an optical frame looks along z with y down.
_OPTICAL = np.diag([1.0, -1.0, -1.0])


def camera_intrinsics(model: mujoco.MjModel, camera: int, width: int, height: int) -> np.ndarray:
    """Return float64[3, 3] for integer pixel centres, as OpenCV and ROS count them."""
    focal = height / 2 / np.tan(np.deg2rad(model.cam_fovy[camera]) / 2)
    return np.array(
        [[focal, 0.0, (width - 1) / 2], [0.0, focal, (height - 1) / 2], [0.0, 0.0, 1.0]]
    )


def camera_pose(data: mujoco.MjData, camera: int) -> Pose:
    """Return the pose of a camera's optical frame in the world."""
    rotation = data.cam_xmat[camera].reshape(3, 3) @ _OPTICAL
    return Pose(data.cam_xpos[camera].copy(), rotation_quaternion(rotation))


def rotation_quaternion(rotation: np.ndarray) -> np.ndarray:
    """Convert a rotation matrix float64[3, 3] to x y z w."""
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(rotation, np.float64).ravel())
    return quaternion[[1, 2, 3, 0]]


class SceneRenderer:
    """Renders one model off screen. Create, use and close it on one thread.

    Args:
        model: Compiled model; its multisampling is changed by `fast`.
        fast: Without shadows, reflections and multisampling.
        labels: Category of each segment.
        segments: int[nbody], index into `labels`, -1 for background.
    """

    def __init__(
        self, model: mujoco.MjModel, *, fast: bool, labels: Sequence[str], segments: np.ndarray
    ) -> None:
        self._model = model
        self.labels = tuple(labels)
        self._segments = np.asarray(segments)
        self._fast = fast
        self._has_sky = bool((model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX).any())
        self._gl = mujoco.GLContext(MAX_SIZE, MAX_SIZE)
        self._gl.make_current()
        self._contexts: list[mujoco.MjrContext] = []
        # At interpreter exit too, and before mujoco's own exit function ends EGL.
        self._release = functools.partial(_free, self._gl, self._contexts)
        atexit.register(self._release)
        self._scene = mujoco.MjvScene(model, maxgeom=2 * model.ngeom + model.nsite + 100)
        self._option = mujoco.MjvOption()
        self._option.geomgroup[0] = 0  # collision shapes
        self._option.geomgroup[1] = 1
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._perturb = mujoco.MjvPerturb()
        self._colour = self._context(0 if fast else int(model.vis.quality.offsamples))
        # Depth and identity must not be averaged over samples.
        self._exact = self._colour if fast else None

    def render(
        self,
        data: mujoco.MjData,
        camera: int,
        width: int,
        height: int,
        *,
        rgb: bool,
        depth: bool,
        segmentation: bool,
    ) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        """Render a camera; row 0 is the top.

        Returns:
            Colour uint8[H, W, 3], depth float32[H, W] in m and segments uint16[H, W], each None
            where not asked for.

        Raises:
            PlatformError: The size is out of range.
        """
        if not (0 < width <= MAX_SIZE and 0 < height <= MAX_SIZE):
            raise PlatformError(f'image size {width}x{height} outside 1..{MAX_SIZE}')
        self._gl.make_current()
        self._camera.fixedcamid = camera
        self._update(data, camera, width / height)
        flags = self._scene.flags
        flags[_FLAG.mjRND_SHADOW] = flags[_FLAG.mjRND_REFLECTION] = int(not self._fast)
        colour = distance = identity = None
        if rgb:
            with_depth = depth and self._exact is self._colour
            colour, distance = self._draw(self._colour, width, height, True, with_depth)
        if (depth and distance is None) or segmentation:
            if self._exact is None:
                self._exact = self._context(0)
            flags[_FLAG.mjRND_SHADOW] = flags[_FLAG.mjRND_REFLECTION] = 0
            flags[_FLAG.mjRND_SEGMENT] = flags[_FLAG.mjRND_IDCOLOR] = int(segmentation)
            identity, exact = self._draw(
                self._exact, width, height, segmentation, depth and distance is None
            )
            flags[_FLAG.mjRND_SEGMENT] = flags[_FLAG.mjRND_IDCOLOR] = 0
            distance = exact if distance is None else distance
        if distance is not None:
            distance = self._metric(distance)
        return colour, distance, self._identify(identity) if segmentation else None

    def close(self) -> None:
        """Free the contexts; later calls do nothing."""
        if self._release is not None:
            atexit.unregister(self._release)
            self._release()
            self._release = None

    def _update(self, data: mujoco.MjData, camera: int, aspect: float) -> None:
        groups = self._model.geom_group
        kept = groups.copy()
        if self._fast:  # without shadows, what is out of view leaves no trace
            groups[_outside(self._model, data, camera, aspect)] = 0
        mujoco.mjv_updateScene(
            self._model,
            data,
            self._option,
            self._perturb,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        groups[:] = kept

    def _context(self, samples: int) -> mujoco.MjrContext:
        quality = self._model.vis.quality
        configured = int(quality.offsamples)
        quality.offsamples = samples
        try:
            context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100)
        finally:
            quality.offsamples = configured
        # Far away is 0, where floating point is finest.
        context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        self._contexts.append(context)
        return context

    def _draw(
        self, context: mujoco.MjrContext, width: int, height: int, rgb: bool, depth: bool
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        if width > context.offWidth or height > context.offHeight:
            mujoco.mjr_resizeOffscreen(
                max(width, context.offWidth), max(height, context.offHeight), context
            )
        # Two contexts share one OpenGL state, so the buffer is chosen before each drawing.
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)
        viewport = mujoco.MjrRect(0, 0, width, height)
        pixels = np.empty((height, width, 3), np.uint8) if rgb else None
        distance = np.empty((height, width), np.float32) if depth else None
        mujoco.mjr_render(viewport, self._scene, context)
        mujoco.mjr_readPixels(pixels, distance, viewport, context)
        # OpenGL's first row is the bottom one.
        return (
            None if pixels is None else np.ascontiguousarray(pixels[::-1]),
            None if distance is None else np.ascontiguousarray(distance[::-1]),
        )

    def _metric(self, buffer: np.ndarray) -> np.ndarray:
        extent = self._model.stat.extent
        near = self._model.vis.map.znear * extent
        far = self._model.vis.map.zfar * extent
        with np.errstate(divide='ignore', invalid='ignore'):
            distance = near / (near / far + buffer.astype(np.float64) * (1 - near / far))
        # MuJoCo draws the sky as a cube that just fits within the far plane.
        sky = far / np.sqrt(3) * 0.999 if self._has_sky else np.inf
        distance[(buffer <= 0) | (distance > sky)] = np.nan
        return distance.astype(np.float32)

    def _identify(self, pixels: np.ndarray) -> np.ndarray:
        codes = pixels.astype(np.int64) @ np.array([1, 1 << 8, 1 << 16])
        table = np.zeros(self._scene.ngeom + 1, np.uint16)
        for geom in self._scene.geoms[: self._scene.ngeom]:
            if geom.segid < 0:
                continue
            if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM:
                body = self._model.geom_bodyid[geom.objid]
                segment = self._segments[body] if body else self._world_segment(geom.objid)
            elif geom.objtype == mujoco.mjtObj.mjOBJ_SITE:
                segment = self._segments[self._model.site_bodyid[geom.objid]]
            else:
                continue
            table[geom.segid + 1] = segment + 1
        return table[np.where(codes < len(table), codes, 0)]

    def _world_segment(self, geom: int) -> int:
        """Tell floor and walls apart, which are geoms of the world body."""
        name = self._model.geom(geom).name
        kind = 'floor' if name.startswith('floor') else 'wall'
        return self.labels.index(kind) if kind in self.labels else -1


def _outside(model: mujoco.MjModel, data: mujoco.MjData, camera: int, aspect: float) -> np.ndarray:
    """Tell which geoms' bounding spheres miss the view, bool[ngeom]; software pays for each."""
    rotation = data.cam_xmat[camera].reshape(3, 3) @ _OPTICAL
    x, y, z = ((data.geom_xpos - data.cam_xpos[camera]) @ rotation).T
    radius = np.where(model.geom_rbound > 0, model.geom_rbound, np.inf)
    vertical = np.tan(np.deg2rad(model.cam_fovy[camera]) / 2)
    outside = z < -radius
    for offset, slope in ((x, vertical * aspect), (y, vertical)):
        outside |= np.abs(offset) - slope * z > radius * np.hypot(1.0, slope)
    return outside


def _free(gl: mujoco.GLContext, contexts: list[mujoco.MjrContext]) -> None:
    gl.make_current()
    for context in contexts:
        context.free()
    gl.free()
