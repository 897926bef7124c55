# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from praxis_core.contract import load_contract
from praxis_sim.loop import START_NS, SimulationLoop
from praxis_sim.platform import Observation, PlatformError, Rendering, Task
from praxis_sim.stepping import Lockstep

CONTRACT = load_contract(Path(__file__).parents[4] / 'params' / 'robots' / 'tabletop.yaml')


class FakePlatform:
    control_period = 0.05

    def __init__(self):
        self.actions = []
        self.rendered = []
        self.refuse = ''

    def tasks(self):
        return [Task('fake/one', 'fake', 'do one', 0, 3), Task('fake/two', 'fake', 'do two', 0, 3)]

    def reset(self, task_id, seed, init_state, options):
        if self.refuse:
            raise PlatformError(self.refuse)
        return self.observe()

    def step(self, action):
        self.actions.append(action)
        return self.observe()

    def observe(self):
        return Observation(np.zeros(8), (), np.zeros(0), np.zeros(0), {})

    def render(self, camera, width, height, *, depth=False):
        self.rendered.append((camera, width, height, depth))
        return Rendering(None, rgb=np.zeros((height, width, 3), np.uint8))

    def hold_action(self):
        return np.full(7, -7.0)


@pytest.fixture
def platform():
    return FakePlatform()


@pytest.fixture
def frames():
    return []


@pytest.fixture
def loop(platform, frames):
    return make(platform, frames)


def make(platform, frames, **options):
    return SimulationLoop(platform, CONTRACT, Lockstep(), publish=frames.append, **options)


def command(frame, **changes):
    fields = {
        'seq': 1,
        'source': 'arbiter',
        'interface_hash': CONTRACT.interface_hash,
        'action_space': CONTRACT.interface.action_space,
        'episode_uuid': frame.episode_uuid,
        'observation_seq': frame.seq,
        'values': [0.5] * 7,
    }
    return SimpleNamespace(**(fields | changes))


def test_time_sequence_and_steps_over_a_reset(loop, frames):
    loop.reset('fake/one', 0, -1, {}, 0.0)
    for _ in range(3):
        loop.command(command(frames[-1]), 0.0)
        assert loop.poll(0.0)
        assert not loop.poll(0.0)
    loop.reset('', 1, -1, {}, 0.0)
    assert [frame.seq for frame in frames] == [1, 2, 3, 4, 5]
    assert [frame.step for frame in frames] == [0, 1, 2, 3, 0]
    assert [frame.truncated for frame in frames] == [False, False, False, True, False]
    assert np.diff([frame.stamp_ns for frame in frames]).tolist() == [50_000_000] * 4
    assert frames[0].stamp_ns == START_NS + 50_000_000
    assert len({frame.episode_uuid for frame in frames}) == 2
    assert frames[-1].task.task_id == 'fake/one'


def test_every_camera_is_rendered_before_the_frame_is_published(platform, loop, frames):
    loop.reset('fake/one', 0, -1, {}, 0.0)
    assert list(frames[0].renderings) == ['agentview', 'wrist']
    assert platform.rendered[0] == ('agentview', 224, 224, False)


def test_depth_is_rendered_where_it_is_wanted(platform, frames):
    make(platform, frames, depth_wanted=lambda name: name == 'wrist').reset(
        'fake/one', 0, -1, {}, 0.0
    )
    assert [depth for *_, depth in platform.rendered] == [False, True]


def test_a_refused_command_holds_and_the_next_one_clears_the_fault(platform, frames):
    faults = []
    loop = make(platform, frames, report=faults.append)
    loop.reset('fake/one', 0, -1, {}, 0.0)
    loop.command(command(frames[-1], values=[float('nan')] * 7), 0.0)
    assert loop.poll(0.0)
    assert platform.actions[-1].tolist() == [-7.0] * 7
    assert 'not finite' in loop.fault
    loop.command(command(frames[-1]), 0.0)
    loop.poll(0.0)
    assert platform.actions[-1].tolist() == [0.5] * 7
    assert loop.fault == ''
    assert len(faults) == loop.refused == loop.holds == 1


def test_an_intruder_makes_it_hold_until_it_is_gone(platform, frames):
    intruders = ['2 publishers of /command']
    loop = make(platform, frames, intruders=lambda: intruders[0])
    loop.reset('fake/one', 0, -1, {}, 0.0)
    loop.command(command(frames[-1]), 0.0)
    loop.poll(0.0)
    assert platform.actions[-1].tolist() == [-7.0] * 7
    assert loop.fault == intruders[0]
    intruders[0] = ''
    loop.command(command(frames[-1]), 0.0)
    loop.poll(0.0)
    assert platform.actions[-1].tolist() == [0.5] * 7
    assert loop.fault == ''


def test_a_failed_reset_publishes_nothing_and_keeps_the_pending_command(platform, loop, frames):
    loop.reset('fake/one', 0, -1, {}, 0.0)
    loop.command(command(frames[-1]), 0.0)
    platform.refuse = 'no'
    with pytest.raises(PlatformError):
        loop.reset('fake/two', 0, -1, {}, 0.0)
    with pytest.raises(PlatformError, match=r'unknown task.*nearest are fake/t'):
        loop.reset('fake/tow', 0, -1, {}, 0.0)
    assert len(frames) == 1
    assert loop.poll(0.0)


def test_no_task_can_be_left_out_before_the_first(loop):
    with pytest.raises(PlatformError, match='name one'):
        loop.reset('', 0, -1, {}, 0.0)


def test_sequence_goes_on_from_an_earlier_loop(platform, frames):
    make(platform, frames, last_seq=41).reset('fake/one', 0, -1, {}, 0.0)
    assert frames[0].seq == 42
