# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from praxis_core.contract import load_contract
from praxis_core.model_exchange import Prediction
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import control_of
from praxis_models.goals.policy_driver import Observed, Pace, PolicyDriver
from praxis_models.goals.policy_run import Limits, PolicyRun, Verdict
from praxis_models.inference_statistics import InferenceStatistics
from praxis_models.model_link import Inferred, Trouble
from praxis_models.observation.assembly import Assembler
from praxis_models.observation.plan import Stream, plan_observation
from praxis_models.playback.action_layout import layout_of
from praxis_models.playback.timeline import Playback

CONTRACT = load_contract(Path(__file__).parents[4] / 'params' / 'robots' / 'tabletop.yaml')
PERIOD_NS = 50_000_000
STEPS = 6


class Link:
    """A model that answers when the test says so; each chunk tells its number and its steps."""

    def __init__(self, cameras=()):
        self.layout = layout_of(CONTRACT)
        self.meta = ModelMeta(
            backend='fake',
            control=control_of(CONTRACT),
            camera_roles=cameras,
            state_schema={'state': 8},
        )
        self.trouble = None
        self.takes_calls = False
        self.generation = 1
        self.asked = []
        self.steps = STEPS
        self._waiting = None

    def predict(self, snapshot, instruction, session_id, done):
        assert self._waiting is None, 'one inference at a time'
        self.asked.append(snapshot.seq)
        self._waiting = (snapshot, done)
        return SimpleNamespace(cancel=lambda: None)

    @property
    def is_asked(self):
        return self._waiting is not None

    def answer(self, answer=None):
        (snapshot, done), self._waiting = self._waiting, None
        number = len(self.asked)
        actions = np.zeros((self.steps, 7))
        actions[:, 0] = 0.1 * number + 0.001 * np.arange(self.steps)
        done(answer or Inferred(Prediction(actions), actions, snapshot, 1.0, 1.0))


class Robot:
    """Drives the driver with states and notes its commands."""

    def __init__(self, link, pace, playback, **limits):
        self.now = 0.0
        self.seq = 0
        self.commands = []
        self.run = PolicyRun('a' * 32, Limits(**limits), 0.0)
        self.link = link
        self.assembler = Assembler(CONTRACT, plan_observation(link.meta, CONTRACT), pace.lockstep)
        self.driver = PolicyDriver(
            self.run, link, self.assembler, 'pick', pace, playback, None, self,
            InferenceStatistics(), lambda: self.now,
        )  # fmt: skip
        self.run.bind('one', 0.0)

    def command(self, step, values, observed):
        self.commands.append((observed.message.observation_seq, round(values[0], 6)))

    def chunk(self, chunk_id, inferred):
        pass

    def chunk_id(self):
        return f'{len(self.link.asked)}'

    def observe(self, cameras=()):
        self.seq += 1
        self.now += 0.05
        message = SimpleNamespace(
            values=[0.0] * 8, observation_seq=self.seq, episode_uuid='one', cameras=list(cameras)
        )
        self.driver.observe(Observed(message, self.seq * PERIOD_NS, self.now))

    def image(self, camera, seq=None):
        message = SimpleNamespace()
        stamp = (seq or self.seq) * PERIOD_NS
        self.assembler.add(Stream('camera', camera), stamp, message, self.now)
        self.driver.part_arrived(self.now)


def pace(lockstep, **steps):
    return Pace(policy_hz=20.0, command_hz=20.0, lockstep=lockstep, **steps)


def lockstep_run(delays, prefetch, latency, execute, blending):
    """Commands of thirty ticks where the n-th answer comes delays[n] ticks after its request."""
    robot = Robot(
        Link(),
        pace(True, prefetch_steps=prefetch, execute_steps=execute),
        Playback(execute=execute, blending=blending, fade=2, latency=latency),
    )
    delays, due = list(delays), None
    robot.observe()
    while robot.seq < 30:
        if robot.link.is_asked and due is None:
            due = robot.seq + (delays.pop(0) if delays else 0)
        answered = robot.commands and robot.commands[-1][0] == robot.seq
        if robot.link.is_asked and (robot.seq >= due or not answered):
            due = None
            robot.link.answer()
        elif answered:
            robot.observe()
        else:
            assert robot.link.is_asked, 'it neither asks nor answers'
    # The last tick may be answered already, or wait for its chunk.
    return [each for each in robot.commands if each[0] < 30], [
        seq for seq in robot.link.asked if seq < 30
    ]


@example([0] * 7 + [1], 2, 1, 6, 'none')
@given(
    st.lists(st.integers(0, 5), max_size=12),
    st.integers(0, 6),
    st.integers(0, 4),
    st.integers(1, STEPS),
    st.sampled_from(['none', 'linear', 'exponential']),
)
def test_in_lockstep_it_does_not_matter_how_fast_the_model_is(
    delays, prefetch, latency, execute, blending
):
    fast = lockstep_run([], prefetch, latency, execute, blending)
    assert lockstep_run(delays, prefetch, latency, execute, blending) == fast
    assert [seq for seq, _ in fast[0]] == list(range(1, len(fast[0]) + 1)), 'no tick is left out'


def test_without_prefetch_each_chunk_is_asked_for_when_the_last_is_played():
    robot = Robot(Link(), pace(False, prefetch_steps=0, execute_steps=2), Playback(execute=2))
    for _ in range(6):
        robot.observe()
        if robot.link.is_asked:
            robot.link.answer()
    assert robot.link.asked == [1, 3, 5]
    assert [value for _, value in robot.commands] == [0.1, 0.101, 0.2, 0.201, 0.3, 0.301]


def test_an_answer_is_used_for_the_newest_observation_at_once():
    robot = Robot(Link(), pace(False), Playback())
    robot.observe()
    robot.observe()
    assert not robot.commands
    robot.link.answer()
    assert robot.commands == [(2, 0.1)]


def test_what_was_commanded_while_the_model_thought_is_skipped():
    robot = Robot(Link(), pace(False, prefetch_steps=3), Playback())
    robot.observe()
    robot.link.answer()
    for _ in range(4):
        robot.observe()
    # Asked at observation 4, with three steps left; two more were commanded since.
    assert robot.link.asked == [1, 4]
    robot.link.answer()
    robot.observe()
    assert robot.commands[-1] == (6, 0.202)


def test_an_inference_waits_for_the_images_of_its_observation():
    robot = Robot(Link(('primary',)), pace(False), Playback())
    robot.observe(['agentview'])
    assert not robot.link.asked
    robot.image('agentview')
    assert robot.link.asked == [1]


def test_in_real_time_it_waits_for_one_tick_and_then_takes_the_newest():
    robot = Robot(Link(('primary',)), pace(False), Playback())
    robot.image('agentview', seq=1)
    robot.seq = 1
    robot.observe(['agentview'])
    assert not robot.link.asked
    robot.observe(['agentview'])
    assert robot.link.asked == [3]


def test_a_failed_inference_is_tried_again_after_a_pause_and_the_run_goes_on():
    robot = Robot(Link(), pace(False), Playback(), model_patience_s=5.0)
    robot.observe()
    robot.link.answer(Trouble('invalid', 'reply: not now'))
    robot.observe()
    assert robot.link.asked == [1]
    for _ in range(4):
        robot.observe()
    assert robot.link.asked == [1, 5]
    robot.link.answer()
    assert robot.run.end is None and robot.commands


def test_nothing_is_commanded_after_the_end_by_what_is_still_under_way():
    robot = Robot(Link(), pace(False, prefetch_steps=6), Playback())
    robot.observe()
    robot.link.answer()
    robot.observe()
    count = len(robot.commands)
    robot.run.cancel()
    robot.driver.close()
    robot.link.answer()
    robot.observe()
    assert len(robot.commands) == count and robot.driver.queue_depth == 0


def test_in_lockstep_an_observation_is_answered_after_its_verdict():
    robot = Robot(Link(), pace(True), Playback())
    robot.observe()
    robot.link.answer()
    robot.run.task(Verdict('one', 1))
    robot.observe()
    assert len(robot.commands) == 1
    robot.run.task(Verdict('one', 2, success=True))
    robot.driver.drive(robot.now)
    assert robot.run.end.reason == 'task_success' and len(robot.commands) == 1


@given(reaction=st.integers(0, 3), late=st.integers(0, 2))
def test_a_chunk_begins_with_the_commands_that_its_observation_does_not_show(reaction, late):
    robot = Robot(Link(), pace(False, prefetch_steps=4, reaction_ticks=reaction), Playback())
    robot.observe()
    robot.link.answer()
    while len(robot.link.asked) < 2:
        robot.observe()
    for _ in range(late):
        robot.observe()
    before = len(robot.commands)
    robot.link.answer()
    robot.observe()
    seq, value = robot.commands[before]
    done = seq - robot.link.asked[1] + min(reaction, robot.link.asked[1] - 1)
    assert value == round(0.2 + 0.001 * min(done, STEPS - 1), 6)


def test_nothing_is_skipped_after_a_pause_in_which_the_robot_did_what_it_was_told():
    robot = Robot(Link(), pace(False, prefetch_steps=0, reaction_ticks=1), Playback())
    robot.observe()
    robot.link.answer()
    while len(robot.link.asked) < 2:
        robot.observe()
    robot.observe()
    robot.observe()
    robot.link.answer()
    assert [round(value, 6) for _, value in robot.commands[STEPS:]] == [0.201]


def test_a_chunk_of_one_step_is_played_whatever_the_robot_was_yet_to_do():
    robot = Robot(Link(), pace(False, reaction_ticks=3), Playback())
    robot.link.steps = 1
    for _ in range(4):
        robot.observe()
        robot.link.answer()
    assert [seq for seq, _ in robot.commands] == [1, 2, 3, 4]


def test_images_that_come_after_the_command_of_their_tick_change_nothing_in_what_is_skipped():
    robot = Robot(Link(('primary',)), pace(False, prefetch_steps=4, reaction_ticks=1), Playback())
    camera = 'agentview'
    robot.observe([camera])
    robot.image(camera)
    robot.link.answer()
    robot.observe([camera])
    while len(robot.link.asked) < 2:
        robot.image(camera)
        robot.observe([camera])
    asked, before = robot.link.asked[1], len(robot.commands)
    robot.link.answer()
    robot.observe([camera])
    seq, value = robot.commands[before]
    assert value == round(0.2 + 0.001 * (seq - asked + 1), 6)
