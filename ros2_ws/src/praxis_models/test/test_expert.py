# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from praxis_core.model_exchange import check_reply, check_request, reply_of, request_of
from praxis_core.model_meta import read_meta
from praxis_models.adapters import tabletop_teacher as teacher
from praxis_models.backend import BackendError, Session
from praxis_models.workers import expert

REACH, PICK, PLACE = teacher.TASKS
CUBE, RIM, FOOT = 0.02, 0.075, 0.004


class Table:
    """A hand over a table with a cube and a bowl; a plant of its own, not the teacher's.

    A first-order lag with a dead time of one period stands for the controller; the cube goes with
    the fingers while they press on it, and falls when they do not.
    """

    def __init__(self, seed, speed=1.0):
        rng = np.random.default_rng(seed)
        self.eef = np.array([0.45, 0.0, 0.25]) + rng.uniform(-0.03, 0.03, 3)
        self.yaw = rng.uniform(-0.1, 0.1)
        self.opening = 0.04
        self.cube = np.array([rng.uniform(0.36, 0.6), rng.uniform(-0.22, 0.0), CUBE])
        self.cube_yaw = rng.uniform(-math.pi / 4, math.pi / 4)
        self.bowl = np.array([rng.uniform(0.36, 0.6), rng.uniform(0.1, 0.22), 0.0])
        self.pressed = 0
        self.speed = speed
        self._late = np.zeros(7)

    def step(self, action):
        assert np.all(np.abs(action) <= 1.0)
        late, self._late = self._late, action.astype(float)
        move = self.speed * 0.05 * (0.45 * action[:3] + 0.15 * late[:3])
        self.eef = self.eef + move
        if self.pressed:
            self.cube = self.cube + move
        self.yaw += 0.5 * 0.5 * float(action[5])
        limit = CUBE if self._around() else 0.0
        self.opening = float(np.clip(self.opening - 0.005 * np.sign(action[6]), limit, 0.04))
        self.pressed = self.pressed + 1 if self._around() and self.opening <= CUBE + 1e-9 else 0
        if not self.pressed:
            floor = CUBE
            if np.hypot(*(self.cube - self.bowl)[:2]) < RIM - 0.015:
                floor += FOOT
            self.cube[2] = max(floor, self.cube[2] - 0.03)

    def _around(self):
        offset = self.cube - self.eef
        return bool(np.hypot(*offset[:2]) < 0.012 and abs(offset[2]) < 0.018)

    @property
    def inside(self):
        return np.hypot(*(self.cube - self.bowl)[:2]) < RIM - 0.015 and self.cube[2] < 0.05

    def done(self, task):
        if task == REACH:
            return np.linalg.norm(self.cube - self.eef) < 0.03
        if task == PICK:
            return self.pressed > 0 and self.cube[2] > CUBE + 0.08
        return self.inside and self.pressed == 0 and self.opening > 0.03 and self.eef[2] > 0.12

    def state(self):
        def pose(position, yaw):
            return np.array([*position, 0, 0, math.sin(yaw / 2), math.cos(yaw / 2)])

        # The hand looks down: half a turn about x, then the yaw.
        down = [math.cos(self.yaw / 2), math.sin(self.yaw / 2), 0, 0]
        state = {
            'privileged.red_cube': pose(self.cube, self.cube_yaw),
            'privileged.bowl': pose(self.bowl, 0.3),
            'eef_position': self.eef,
            'eef_quaternion_xyzw': np.array(down),
            'gripper_qpos': np.array([self.opening, -self.opening]),
        }
        return {name: value.astype(np.float32) for name, value in state.items()}


def ask(backend, table, task, session):
    request = {
        'images': {},
        'state': table.state(),
        'instruction': task,
        'embodiment': 'tabletop_7d',
        'action_space': 'tabletop.osc_pose.delta.v1',
    }
    prediction = backend.predict(check_request(backend.meta, request), session)
    check_reply(backend.meta, reply_of(prediction))
    return prediction


def drive(backend, table, task, execute, session=None, limit=160):
    """Steps until the task is done, or the limit."""
    session = session or Session('s')
    steps = 0
    while steps < limit:
        for action in ask(backend, table, task, session).actions[:execute]:
            table.step(action)
            steps += 1
            if table.done(task):
                return steps
    return limit


def lift(backend, table, session):
    """Bring the cube up, on the way to the bowl."""
    for _ in range(60):
        if table.pressed > 0 and table.cube[2] > 0.1:
            return
        table.step(ask(backend, table, PLACE, session).actions[0])
    raise AssertionError(f'the cube is at {table.cube}, the hand at {table.eef}')


@pytest.fixture(scope='module')
def backend():
    return expert.load(expert.Options())


@pytest.mark.parametrize('speed', [0.85, 1.0, 1.1])
@pytest.mark.parametrize('execute', [1, 4, 8])
@pytest.mark.parametrize('task', teacher.TASKS)
def test_every_task_is_solved_whatever_part_of_a_chunk_is_executed(backend, task, execute, speed):
    steps = [drive(backend, Table(seed, speed), task, execute) for seed in range(10)]
    assert max(steps) < 130, steps


def test_chunk_from_the_middle_of_an_episode_needs_no_memory(backend):
    table = Table(3)
    session = Session('first')
    lift(backend, table, session)
    assert drive(backend, table, PLACE, 8, Session('second')) < 130


def test_cube_is_not_lifted_before_it_is_seen_to_be_held(backend):
    table, session = Table(3), Session('s')
    for _ in range(40):
        prediction = ask(backend, table, PICK, session)
        if prediction.metadata['stage'] == 'close':
            break
        table.step(prediction.actions[0])
    assert table.pressed == 0
    assert (prediction.actions[:, 6] == teacher.CLOSE).all()
    assert not prediction.actions[:, :6].any()


def test_lost_cube_is_fetched_again(backend):
    table, session = Table(5), Session('s')
    lift(backend, table, session)
    table.pressed, table.cube = 0, np.array([0.5, -0.15, CUBE])
    assert ask(backend, table, PLACE, session).metadata['stage'] in ('above', 'down')
    assert drive(backend, table, PLACE, 4, session) < 130


def test_cube_that_is_held_off_centre_is_lifted_all_the_same(backend):
    table = Table(3)
    table.eef = table.cube + np.array([0.007, -0.003, 0.008])
    table.opening, table.pressed = 0.019, 1
    assert ask(backend, table, PICK, Session('s')).metadata['stage'] == 'lift'


@pytest.mark.parametrize(('opening', 'stage'), [(0.026, 'open'), (0.04, 'leave')])
def test_cube_that_lies_in_the_bowl_is_let_go(backend, opening, stage):
    table = Table(3)
    table.cube = table.bowl + np.array([0.01, 0.0, 0.03])
    table.eef, table.opening = table.cube + np.array([0.0, 0.0, 0.004]), opening
    session = Session('s')
    session.memory.update(task=PLACE, stage='close')
    assert ask(backend, table, PLACE, session).metadata['stage'] == stage


def test_session_remembers_the_stage_and_a_reset_forgets_it(backend):
    table, session = Table(1), Session('s')
    drive(backend, table, PICK, 4, session)
    assert ask(backend, table, PICK, session).metadata['stage'] == 'lift'
    backend.reset(session)
    assert session.memory == {}


def test_another_task_in_the_same_session_begins_at_its_own_start(backend):
    table, session = Table(1), Session('s')
    drive(backend, table, REACH, 4, session)
    assert ask(backend, table, REACH, session).metadata['stage'] == 'down'
    table.eef = table.eef + np.array([0.1, 0.1, 0.15])
    assert ask(backend, table, PICK, session).metadata['stage'] == 'above'


def test_finished_episode_stays_still(backend):
    table, session = Table(2), Session('s')
    drive(backend, table, PLACE, 8, session)
    for _ in range(6):
        actions = ask(backend, table, PLACE, session).actions
        for action in actions:
            table.step(action)
    assert np.abs(actions[:, :6]).max() < 0.02
    assert (actions[:, 6] == teacher.OPEN).all()
    assert table.done(PLACE)


def test_objects_are_not_swept_by_a_low_hand(backend):
    table = Table(4)
    table.eef = np.array([table.bowl[0], table.bowl[1], 0.06])
    for _ in range(60):
        far = np.hypot(*(table.bowl - table.eef)[:2]) > 0.03
        near = np.hypot(*(table.cube - table.eef)[:2]) < 0.05
        assert not far or near or table.eef[2] > 0.12
        table.step(ask(backend, table, PICK, Session('s')).actions[0])
    assert near


def test_rotation_takes_the_shorter_way_to_a_pair_of_faces():
    for hand in np.linspace(-3, 3, 13):
        for cube in np.linspace(-3, 3, 13):
            table = Table(0)
            table.yaw, table.cube_yaw = hand, cube
            turn = teacher.scene(table.state()).turn
            assert abs(turn) <= math.pi / 4 + 1e-6
            rest = (hand + turn - cube) % (math.pi / 2)
            assert min(rest, math.pi / 2 - rest) < 1e-5


@pytest.mark.parametrize('words', [f' {PICK.upper()}. ', 'Pick up  the\nred cube'])
def test_instruction_is_taken_in_other_spellings(backend, words):
    assert ask(backend, Table(0), words, Session('s')).metadata['stage'] == 'above'


def test_unknown_instruction_is_refused_with_the_known_ones(backend):
    with pytest.raises(BackendError) as caught:
        ask(backend, Table(0), 'open the drawer', Session('s'))
    assert all(task in str(caught.value) for task in teacher.TASKS)
    assert "got 'open the drawer'" in str(caught.value)


def test_meta_says_what_it_is_and_can_demand_images():
    meta = expert.load(expert.Options(cameras=('primary', 'wrist'), chunk_size=2)).meta
    assert meta.camera_roles == ('primary', 'wrist')
    assert (meta.chunk_size, meta.execute_steps) == (2, 2)
    assert meta.metadata['privileged'] is True
    assert read_meta(meta.to_wire()) == meta


def test_request_of_the_client_is_the_one_understood(backend):
    table = Table(0)
    observation = check_request(
        backend.meta,
        {
            'images': {}, 'state': table.state(), 'instruction': PICK,
            'embodiment': 'tabletop_7d', 'action_space': 'tabletop.osc_pose.delta.v1',
        },
    )  # fmt: skip
    again = check_request(backend.meta, request_of(backend.meta, observation, session_id='s_1'))
    assert again.instruction == PICK
