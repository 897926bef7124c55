# SPDX-License-Identifier: Apache-2.0
"""LIBERO and LIBERO-PRO behind the platform interface."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from praxis_sim import memory
from praxis_sim.libero.catalog import Catalog
from praxis_sim.platform import (
    CameraModel,
    Marker,
    Observation,
    PlatformError,
    PlatformOptions,
    Pose,
    Rendering,
    Task,
)

if TYPE_CHECKING:
    from praxis_sim.libero.camera import SceneRenderer
    from praxis_sim.libero.scene import Scene

ACTION_DIM = 7
CAMERAS = {'agentview': 'agentview', 'wrist': 'robot0_eye_in_hand'}
QUALITIES = ('reference', 'fast')

_ARM_JOINTS = tuple(f'robot0_joint{i}' for i in range(1, 8))
_FINGER_JOINTS = ('gripper0_finger_joint1', 'gripper0_finger_joint2')
_LINKS = {
    'robot0_base': 'base',
    **{f'robot0_link{i}': f'link{i}' for i in range(8)},
    'robot0_right_hand': 'flange',
    'gripper0_right_gripper': 'hand',
    'gripper0_leftfinger': 'finger_left',
    'gripper0_rightfinger': 'finger_right',
}
_EEF_SITE = 'gripper0_grip_site'
_EEF_BODY = 'robot0_right_hand'


class LiberoPlatform:
    """Every suite of the installed LIBERO-PRO wheels.

    Options of a reset: ``settle_steps`` (int, 10). Options of the platform: ``scene_cache``
    (int, 1), how many built scenes are kept.

    Args:
        options: Contract of the robot, render quality and the options above.

    Raises:
        PlatformError: An option that is not known.
    """

    control_period = 0.05

    def __init__(self, options: PlatformOptions) -> None:
        unknown = set(options.extra) - {'scene_cache'}
        if unknown:
            raise PlatformError(f'unknown options {sorted(unknown)}; known: scene_cache')
        if options.render_quality not in QUALITIES:
            raise PlatformError(f'render_quality {options.render_quality!r} not in {QUALITIES}')
        self._fast = options.render_quality == 'fast'
        self._cache_size = int(options.extra.get('scene_cache', 1))
        if self._cache_size < 1:
            raise PlatformError(f'scene_cache {self._cache_size} below 1')
        (self._arm, arm), *others = options.contract.deployment.arms.items()
        names = (*arm.joints, *arm.gripper_joints)
        if others or len(arm.joints) != 7 or len(arm.gripper_joints) != 2:
            raise PlatformError('the contract must have one arm of 7 joints and 2 fingers')
        self._joint_names = names
        self._cameras = {
            name: CAMERAS.get(name, name) for name in options.contract.interface.cameras
        }
        self._catalog = Catalog()
        self._scenes: OrderedDict[str, tuple[Scene, SceneRenderer | None]] = OrderedDict()
        self._current: Scene | None = None
        self._success = False
        self._grip = -1.0

    def tasks(self) -> Sequence[Task]:
        """List every task that the wheels can build."""
        return self._catalog.tasks()

    def reset(
        self, task_id: str, seed: int, init_state: int, options: Mapping[str, Any]
    ) -> Observation:
        """Build the scene of ``SUITE/INDEX``, or take it from the cache, and settle it."""
        unknown = set(options) - {'settle_steps'}
        if unknown:
            raise PlatformError(f'unknown reset options {sorted(unknown)}; known: settle_steps')
        from praxis_sim.libero.scene import SETTLE_STEPS

        settle_steps = options.get('settle_steps', SETTLE_STEPS)
        if not isinstance(settle_steps, int) or not 0 <= settle_steps <= 1000:
            raise PlatformError(f'settle_steps {settle_steps!r} is no integer in 0..1000')
        scene = self._scene(task_id)
        self._current = None  # of no use if the reset fails half-way
        scene.reset(seed, init_state, settle_steps)
        self._current = scene
        self._success = scene.success()
        self._grip = -1.0
        return self._observation(0.0)

    def step(self, action: np.ndarray) -> Observation:
        """Advance 50 ms with an action float64[7]."""
        scene = self._active()
        action = np.asarray(action, np.float64)
        if action.shape != (ACTION_DIM,) or not np.isfinite(action).all():
            raise PlatformError(f'action must be {ACTION_DIM} finite values, got {action}')
        self._grip = float(action[-1])
        reward = scene.step(action)
        self._success = self._success or scene.success()
        return self._observation(reward)

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
        """Render a camera of the contract at the present state, upright."""
        scene = self._active()
        identity = self._camera(camera)
        renderer = self._renderer(scene)
        colour, distance, segments = renderer.render(
            scene.data, identity, width, height, rgb=rgb, depth=depth, segmentation=segmentation
        )
        return Rendering(
            self.camera_model(camera, width, height),
            colour,
            distance,
            segments,
            renderer.labels if segmentation else (),
        )

    def camera_model(self, camera: str, width: int, height: int) -> CameraModel:
        """Intrinsics and present pose of a camera."""
        from praxis_sim.libero.camera import camera_intrinsics, camera_pose

        scene = self._active()
        identity = self._camera(camera)
        body = scene.model.body(scene.model.cam_bodyid[identity]).name
        return CameraModel(
            width,
            height,
            camera_intrinsics(scene.model, identity, width, height),
            camera_pose(scene.data, identity),
            _LINKS.get(body, 'world'),
        )

    def link_poses(self) -> Mapping[str, Pose]:
        """World poses of the links of `robot_description`."""
        scene = self._active()
        return {
            link: _body_pose(scene, scene.model.body(body).id) for body, link in _LINKS.items()
        }

    def robot_description(self) -> str:
        """URDF of the Panda, made from the scene's model."""
        from praxis_sim.urdf import urdf_from_model

        model = self._active().model
        joints = (*_ARM_JOINTS, *_FINGER_JOINTS)
        return urdf_from_model(
            model,
            model.body('robot0_base').id,
            name='panda',
            links={model.body(body).id: link for body, link in _LINKS.items()},
            joints={
                model.joint(joint).id: name
                for joint, name in zip(joints, self._joint_names, strict=True)
            },
        )

    def markers(self) -> Sequence[Marker]:
        """Bounding boxes of table, objects and fixtures."""
        from praxis_sim.libero.geometry import bounding_box

        scene = self._active()
        markers = []
        for name, (category, body) in scene.instances().items():
            box = bounding_box(scene.model, scene.data, body)
            if box is not None:
                markers.append(Marker(name, 'box', *box, _colour(category)))
        return markers

    def privileged(self) -> Mapping[str, Pose]:
        """Poses of objects and fixtures by instance name, and of the goal's regions by theirs."""
        from praxis_sim.libero.camera import rotation_quaternion

        scene = self._active()
        poses = {name: _body_pose(scene, body) for name, (_, body) in scene.instances().items()}
        for name in scene.regions():
            site = scene.data.site(name)
            poses[name] = Pose(site.xpos.copy(), rotation_quaternion(site.xmat.reshape(3, 3)))
        return poses

    def hold_action(self) -> np.ndarray:
        """Zero motion and the last gripper value."""
        action = np.zeros(ACTION_DIM)
        action[-1] = self._grip
        return action

    def state_digest(self) -> bytes:
        """Full integration state, the fixtures' placement and the controller's memory."""
        import mujoco

        scene = self._active()
        spec = mujoco.mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(scene.model, spec))
        mujoco.mj_getState(scene.model, scene.data, state, spec)
        parts = (state, scene.model.body_pos, scene.model.body_quat, scene.controller_state())
        return b''.join(np.ascontiguousarray(part).tobytes() for part in parts)

    def close(self) -> None:
        """Free every scene and its renderer."""
        self._current = None
        while self._scenes:
            self._evict()

    def _scene(self, task_id: str) -> Scene:
        from praxis_sim.libero.scene import Scene

        files = self._catalog.find(task_id)
        if task_id in self._scenes:
            self._scenes.move_to_end(task_id)
            return self._scenes[task_id][0]
        while len(self._scenes) >= self._cache_size:
            self._current = None
            self._evict()
        try:
            scene = Scene(files)
        except (OSError, ValueError, KeyError, AssertionError) as error:
            raise PlatformError(f'{task_id} cannot be built: {error!r}') from error
        self._scenes[task_id] = (scene, None)
        return scene

    def _evict(self) -> None:
        _, (scene, renderer) = self._scenes.popitem(last=False)
        if renderer is not None:
            renderer.close()
        scene.close()
        del scene, renderer
        memory.give_back()

    def _active(self) -> Scene:
        if self._current is None:
            raise PlatformError('no episode: reset first')
        return self._current

    def _camera(self, name: str) -> int:
        try:
            return int(self._active().model.camera(self._cameras[name]).id)
        except KeyError:
            raise PlatformError(
                f'unknown camera {name!r}; the contract has {", ".join(self._cameras)}'
            ) from None

    def _renderer(self, scene: Scene) -> SceneRenderer:
        from praxis_sim.libero.camera import SceneRenderer
        from praxis_sim.libero.geometry import segments

        task_id = scene.files.task.task_id
        renderer = self._scenes[task_id][1]
        if renderer is None:
            labels, table = segments(scene.model, scene.instances())
            renderer = SceneRenderer(scene.model, fast=self._fast, labels=labels, segments=table)
            self._scenes[task_id] = (scene, renderer)
        return renderer

    def _observation(self, reward: float) -> Observation:
        from praxis_sim.libero.geometry import axis_angle

        scene = self._active()
        model, data = scene.model, scene.data
        joints = [model.joint(name) for name in (*_ARM_JOINTS, *_FINGER_JOINTS)]
        positions = np.array([data.qpos[joint.qposadr[0]] for joint in joints])
        velocities = np.array([data.qvel[joint.dofadr[0]] for joint in joints])
        position = data.site(_EEF_SITE).xpos.copy()
        quaternion = data.body(_EEF_BODY).xquat[[1, 2, 3, 0]]
        return Observation(
            state=np.concatenate([position, axis_angle(quaternion), positions[-2:]]),
            joint_names=self._joint_names,
            joint_positions=positions,
            joint_velocities=velocities,
            eef={self._arm: Pose(position, quaternion)},
            reward=reward,
            success=self._success,
            terminated=self._success,
            progress=scene.progress(),
        )


def _body_pose(scene: Scene, body: int) -> Pose:
    return Pose(scene.data.xpos[body].copy(), scene.data.xquat[body][[1, 2, 3, 0]])


def _colour(category: str) -> tuple[float, float, float, float]:
    """Give each category a colour of its own that does not change between processes."""
    code = sum(ord(letter) * (index + 1) for index, letter in enumerate(category))
    return (code % 97 / 96, code % 89 / 88, code % 83 / 82, 0.5)
