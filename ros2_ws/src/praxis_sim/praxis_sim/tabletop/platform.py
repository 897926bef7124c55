# SPDX-License-Identifier: Apache-2.0
"""The tabletop platform: our own light scene, for tests and learning on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import praxis_sim.tabletop.view as view  # binds the renderer's back end before mujoco loads

# isort: split
import mujoco
import numpy as np

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
from praxis_sim.tabletop import control, panda, scene, tasks, urdf

ACTION_SPACES = ('tabletop.osc_pose.delta.v1', 'tabletop.joint_position.absolute.v1')

_SETTLE_STEPS = 150


class TabletopPlatform:
    """Implements `praxis_sim.platform.Platform`.

    Args:
        options: The contract's action space chooses end-effector or joint control. Extra options:
            none. `reset` takes ``{"poses": {ITEM: [x, y, yaw]}}``, m and rad on the table.

    Raises:
        PlatformError: Unknown action space, render quality, camera or option.
    """

    def __init__(self, options: PlatformOptions) -> None:
        contract = options.contract
        self._space = contract.interface.action_space
        if self._space not in ACTION_SPACES:
            raise PlatformError(
                f'tabletop cannot execute {self._space!r}; it has {", ".join(ACTION_SPACES)}'
            )
        if options.render_quality not in view.QUALITIES:
            raise PlatformError(
                f'unknown render quality {options.render_quality!r}; '
                f'known are {", ".join(view.QUALITIES)}'
            )
        if options.extra:
            raise PlatformError(f'tabletop takes no options, got {sorted(options.extra)}')
        self.control_period = 1.0 / contract.interface.policy_hz
        self._steps = round(self.control_period / scene.PHYSICS_STEP)
        if abs(self._steps * scene.PHYSICS_STEP - self.control_period) > 1e-9:
            raise PlatformError(
                f'policy_hz {contract.interface.policy_hz} is no whole number of '
                f'{scene.PHYSICS_STEP} s physics steps'
            )
        self._action_dim = len(contract.interface.action.names)
        self._arm_name = next(iter(contract.deployment.arms))
        self._quality = options.render_quality
        self._model = scene.build(options.render_quality)
        self._data = mujoco.MjData(self._model)
        known = {self._model.camera(i).name for i in range(self._model.ncam)}
        cameras = contract.interface.cameras
        if missing := sorted(set(cameras) - known):
            raise PlatformError(f'tabletop has no camera {missing}; it has {sorted(known)}')
        self._size = (
            max([camera.width for camera in cameras.values()], default=224),
            max([camera.height for camera in cameras.values()], default=224),
        )
        self._joints = (*panda.ARM_JOINTS, *panda.FINGER_JOINTS)
        self._tcp = self._model.site('tcp').id
        self._actuators = [self._model.actuator(name).id for name in self._joints]
        self._links = [(link.name, self._model.body(link.name).id) for link in panda.LINKS]
        self._view: view.View | None = None
        self._colours: Mapping[str, str] = {}
        self._verdict: tasks.Verdict | None = None
        self._gripper = control.Gripper()
        self._data.qpos[:7] = panda.HOME
        mujoco.mj_forward(self._model, self._data)
        self._controller: control.Controller = (
            control.EndEffectorControl(self._model, self._data)
            if self._space == ACTION_SPACES[0]
            else control.JointControl(self._data, self._steps)
        )

    def mujoco_handles(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """Model and data, for a viewer on the same thread."""
        return self._model, self._data

    def tasks(self) -> Sequence[Task]:
        """See `Platform.tasks`."""
        return tasks.TASKS

    def reset(
        self, task_id: str, seed: int, init_state: int, options: Mapping[str, Any]
    ) -> Observation:
        """See `Platform.reset`."""
        tasks.find(task_id)
        if init_state != -1:
            raise PlatformError('tabletop stores no initial states; use init_state -1 and a seed')
        layout = tasks.layout(task_id, seed, _fixed_poses(options))
        data = self._data
        mujoco.mj_resetData(self._model, data)
        data.qpos[:7] = panda.HOME + layout.arm_noise
        data.qpos[7:9] = panda.FINGER_OPEN
        for item in scene.ITEMS:
            x, y, yaw = layout.poses[item.name]
            data.joint(item.name).qpos[:] = (
                x, y, item.height + 0.0005, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)
            )  # fmt: skip
        for body, colour in layout.colours.items():
            self._model.geom(body).rgba[:3] = scene.COLOURS[colour]
        self._colours = layout.colours
        if self._view is not None:
            self._view.set_labels(scene.geom_labels(self._model, dict(self._colours)))
        mujoco.mj_forward(self._model, data)
        self._controller.reset()
        self._gripper.reset(panda.FINGER_OPEN)
        data.ctrl[self._actuators[:7]] = data.qpos[:7]
        data.ctrl[self._actuators[7:]] = panda.FINGER_OPEN
        mujoco.mj_step(self._model, data, _SETTLE_STEPS)
        data.qvel[:] = 0
        data.time = 0
        mujoco.mj_forward(self._model, data)
        self._controller.reset()
        self._verdict = tasks.Verdict(task_id, self._model, data)
        return self._observe(0.0)

    def step(self, action: np.ndarray) -> Observation:
        """See `Platform.step`."""
        if self._verdict is None:
            raise PlatformError('step before the first reset')
        action = np.asarray(action, np.float64)
        if action.shape != (self._action_dim,) or not np.all(np.isfinite(action)):
            raise PlatformError(f'an action is {self._action_dim} finite numbers, got {action}')
        if self._space == ACTION_SPACES[0]:
            action = np.clip(action, -1.0, 1.0)
        self._controller.set_action(action[:-1])
        self._gripper.set_action(float(action[-1]))
        model, data = self._model, self._data
        for _ in range(self._steps):
            data.ctrl[:7] = self._controller.advance()
            data.ctrl[7:9] = self._gripper.advance()
            mujoco.mj_step(model, data)
        # Poses and contacts belong to the state that is reported, not to the step before it.
        mujoco.mj_forward(model, data)
        before = self._verdict.success
        self._verdict.update()
        return self._observe(1.0 if self._verdict.success and not before else 0.0)

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
        """See `Platform.render`."""
        return self._renderer().render(
            camera, width, height, rgb=rgb, depth=depth, segmentation=segmentation
        )

    def camera_model(self, camera: str, width: int, height: int) -> CameraModel:
        """See `Platform.camera_model`."""
        return self._renderer().camera_model(camera, width, height)

    def link_poses(self) -> Mapping[str, Pose]:
        """See `Platform.link_poses`."""
        return {name: self._body_pose(body) for name, body in self._links}

    def robot_description(self) -> str:
        """See `Platform.robot_description`."""
        return urdf.description()

    def markers(self) -> Sequence[Marker]:
        """See `Platform.markers`."""
        table = self._model.geom('table')
        markers = [
            Marker('table', 'box', Pose(table.pos.copy(), np.array([0.0, 0, 0, 1])),
                   tuple(2 * table.size), (0.73, 0.58, 0.41, 1.0))
        ]  # fmt: skip
        poses = self.privileged()
        for name, colour in self._colours.items():
            rgba = (*scene.COLOURS[colour], 1.0)
            markers.append(Marker(name, 'box', poses[name], (2 * scene.CUBE,) * 3, rgba))
        can = (2 * scene.CAN_RADIUS, 2 * scene.CAN_RADIUS, 2 * scene.CAN_HALF)
        markers.append(Marker('can', 'cylinder', poses['can'], can, (0.05, 0.50, 0.48, 1.0)))
        bowl = poses['bowl']
        raised = Pose(bowl.position + np.array([0, 0, scene.BOWL_HEIGHT / 2]), bowl.quaternion)
        width = 2 * scene.BOWL_RADIUS
        markers.append(
            Marker('bowl', 'cylinder', raised, (width, width, scene.BOWL_HEIGHT),
                   (0.93, 0.92, 0.88, 0.6))
        )  # fmt: skip
        return markers

    def privileged(self) -> Mapping[str, Pose]:
        """See `Platform.privileged`."""
        return {item.name: self._body_pose(self._model.body(item.name).id) for item in scene.ITEMS}

    def hold_action(self) -> np.ndarray:
        """See `Platform.hold_action`."""
        return np.append(self._controller.hold_action(), self._gripper.command)

    def state_digest(self) -> bytes:
        """See `Platform.state_digest`."""
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(self._model, kind))
        mujoco.mj_getState(self._model, self._data, state, kind)
        verdict = self._verdict.digest() if self._verdict else b''
        return state.tobytes() + self._controller.digest() + self._gripper.digest() + verdict

    def close(self) -> None:
        """See `Platform.close`."""
        if self._view is not None:
            self._view.close()
            self._view = None

    def _renderer(self) -> view.View:
        if self._view is None:
            labels = scene.geom_labels(self._model, dict(self._colours))
            self._view = view.View(self._model, self._data, self._quality, self._size, labels)
        return self._view

    def _body_pose(self, body: int) -> Pose:
        wxyz = self._data.xquat[body]
        sign = -1.0 if wxyz[0] < 0 else 1.0
        return Pose(self._data.xpos[body].copy(), sign * wxyz[[1, 2, 3, 0]])

    def _observe(self, reward: float) -> Observation:
        data, verdict = self._data, self._verdict
        positions, velocities = data.qpos[:9].copy(), data.qvel[:9].copy()
        eef = Pose(
            data.site_xpos[self._tcp].copy(),
            view.quaternion(data.site_xmat[self._tcp].reshape(3, 3)),
        )
        if self._space == ACTION_SPACES[0]:
            fingers = (positions[7], -positions[8])
            state = np.concatenate([eef.position, _axis_angle(eef.quaternion), fingers])
        else:
            state = np.append(positions[:7], positions[7] + positions[8])
        return Observation(
            state=state,
            joint_names=self._joints,
            joint_positions=positions,
            joint_velocities=velocities,
            eef={self._arm_name: eef},
            reward=reward,
            success=verdict.success,
            terminated=verdict.success,
            progress=verdict.progress,
        )


def _axis_angle(quaternion: np.ndarray) -> np.ndarray:
    """Rotation vector of x y z w, with an angle of 0 to 2 pi about an axis with x >= 0.

    That choice is continuous where the gripper points down, unlike an angle of 0 to pi.
    """
    if quaternion[0] < 0:
        quaternion = -quaternion
    sine = float(np.linalg.norm(quaternion[:3]))
    if sine < 1e-12:
        return np.zeros(3)
    return quaternion[:3] / sine * 2 * np.arctan2(sine, quaternion[3])


def _fixed_poses(options: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    if unknown := sorted(set(options) - {'poses'}):
        raise PlatformError(f'unknown option {unknown}; tabletop knows poses')
    names = [item.name for item in scene.ITEMS]
    fixed = {}
    for name, pose in dict(options.get('poses', {})).items():
        if name not in names:
            raise PlatformError(f'poses: unknown item {name!r}; there are {", ".join(names)}')
        try:
            x, y, yaw = (float(value) for value in pose)
        except (TypeError, ValueError):
            raise PlatformError(f'poses: {name}: want [x, y, yaw], got {pose!r}') from None
        if not np.all(np.isfinite((x, y, yaw))):
            raise PlatformError(f'poses: {name}: not finite: {pose!r}')
        fixed[name] = (x, y, yaw)
    return fixed
