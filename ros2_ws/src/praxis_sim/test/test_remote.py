# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from praxis_core.contract import load_contract
from praxis_core.testing import wait_until
from praxis_sim.platform import PlatformError, PlatformOptions
from praxis_sim.remote import RemotePlatform

ROOT = Path(__file__).resolve().parents[4]
OPTIONS = PlatformOptions(load_contract(ROOT / 'params/robots/tabletop.yaml'), 'fast', {})

# A platform without physics, that also misbehaves on request.
FAKE = """
import os, time
import numpy as np
from praxis_sim.platform import *

class Fake:
    control_period = 0.1

    def __init__(self, options):
        if 'refuse' in options.extra:
            raise PlatformError('refused: ' + options.extra['refuse'])
        self.rng = np.random.default_rng(0)

    def tasks(self):
        return [Task('fake/0', 'fake', 'do nothing', 0, 10)]

    def reset(self, task_id, seed, init_state, options):
        if task_id != 'fake/0':
            raise PlatformError(f'unknown task {task_id!r}')
        self.rng = np.random.default_rng(seed)
        return self.observe()

    def observe(self):
        values = self.rng.random(4)
        pose = Pose(values[:3], np.array([0.0, 0.0, 0.0, 1.0]))
        return Observation(values, ('a', 'b'), values[:2], values[2:], {'arm': pose})

    def step(self, action):
        if action[0] == 1:
            os._exit(7)
        if action[0] == 2:
            time.sleep(3600)
        if action[0] == 3:
            raise RuntimeError('a fault of its own')
        if action[0] == 4:
            print('noise on stdout', flush=True)
        return self.observe()

    def render(self, camera, width, height, *, rgb=True, depth=False, segmentation=False):
        shape = (height, width)
        return Rendering(
            self.camera_model(camera, width, height),
            self.rng.integers(0, 255, (*shape, 3), np.uint8) if rgb else None,
            self.rng.random(shape, np.float32) if depth else None,
            self.rng.integers(0, 3, shape, np.uint16) if segmentation else None,
            ('bowl', 'bowl', 'plate'),
        )

    def camera_model(self, camera, width, height):
        pose = Pose(np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
        return CameraModel(width, height, np.eye(3), pose, camera)

    def link_poses(self):
        return {'link': Pose(np.ones(3), np.array([0.0, 0.0, 0.0, 1.0]))}

    def robot_description(self):
        return '<robot/>'

    def markers(self):
        pose = Pose(np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
        return [Marker('box', 'box', pose, (1.0, 1.0, 1.0), (1.0, 0.0, 0.0, 1.0))]

    def privileged(self):
        return self.link_poses()

    def hold_action(self):
        return np.zeros(2)

    def state_digest(self):
        return repr(self.rng.bit_generator.state).encode()

    def close(self):
        print('closed', flush=True)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / 'praxis_fake_platform.py').write_text(FAKE)
    monkeypatch.setenv('PYTHONPATH', f'{tmp_path}:{os.environ.get("PYTHONPATH", "")}')
    monkeypatch.syspath_prepend(str(tmp_path))
    return 'praxis_fake_platform:Fake'


@pytest.fixture
def start(module, tmp_path):
    platforms = []

    def run(options=OPTIONS, **kwargs):
        kwargs.setdefault('log', tmp_path / 'worker.log')
        platforms.append(RemotePlatform(sys.executable, module, options, **kwargs))
        return platforms[-1]

    yield run
    for platform in platforms:
        platform.close()
        assert platform.pid is None


def exists(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
    return False


def children():
    found = set()
    for stat in Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rsplit(')', 1)[1].split()[1]) == os.getpid():
                found.add(stat.parent.name)
    return found


def equal(a, b):
    """Compare nested dataclasses, mappings and arrays, types included."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if hasattr(a, '__dataclass_fields__'):
        return type(a) is type(b) and all(
            equal(getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__
        )
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b or (a != a and b != b)


def test_every_call_answers_as_in_process(start):
    import praxis_fake_platform

    local, remote = praxis_fake_platform.Fake(OPTIONS), start()
    assert remote.control_period == local.control_period
    for platform in (local, remote):
        platform.answers = [
            platform.tasks(),
            platform.reset('fake/0', 5, -1, {}),
            platform.step(np.zeros(2)),
            platform.render('wrist', 640, 480, rgb=True, depth=True, segmentation=True),
            platform.render('wrist', 4, 3, rgb=False, depth=True),
            platform.camera_model('agentview', 4, 3),
            platform.link_poses(),
            platform.robot_description(),
            platform.markers(),
            platform.privileged(),
            platform.hold_action(),
            platform.state_digest(),
        ]
    for mine, theirs in zip(local.answers, remote.answers, strict=True):
        assert equal(mine, theirs)


def test_images_stay_as_they_are_when_the_next_one_is_rendered(start):
    remote = start()
    first = remote.render('wrist', 64, 64).rgb
    kept = first.copy()
    assert not np.array_equal(remote.render('wrist', 64, 64).rgb, kept)
    np.testing.assert_array_equal(first, kept)


def test_refusals_keep_their_words_and_the_worker(start):
    remote = start()
    with pytest.raises(PlatformError, match=r"^unknown task 'nonsense'$"):
        remote.reset('nonsense', 0, -1, {})
    with pytest.raises(PlatformError, match='step failed: RuntimeError: a fault of its own'):
        remote.step(np.array([3.0, 0.0]))
    assert 'a fault of its own' in remote.log.read_text()
    assert remote.tasks()[0].task_id == 'fake/0'


def test_options_that_the_platform_refuses_leave_no_process(start):
    before = children()
    with pytest.raises(PlatformError, match='refused: because'):
        start(PlatformOptions(OPTIONS.contract, 'fast', {'refuse': 'because'}))
    assert children() == before


def test_a_value_without_encoding_is_refused_before_it_is_sent(start):
    remote = start()
    with pytest.raises(PlatformError, match='reset: cannot encode'):
        remote.reset('fake/0', 0, -1, {'callback': print})
    with pytest.raises(PlatformError, match='exceeds'):
        remote.reset('fake/0', 0, -1, {'long': b'x' * (17 * 1024 * 1024)})
    assert remote.reset('fake/0', 0, -1, {}).state.shape == (4,)


def test_output_goes_to_the_log(start):
    remote = start()
    remote.reset('fake/0', 0, -1, {})
    remote.step(np.array([4.0, 0.0]))
    assert 'noise on stdout' in remote.log.read_text()
    remote.close()
    assert 'closed' in remote.log.read_text()


def test_a_worker_that_exits_during_a_call_is_reported_and_replaced(start):
    remote = start()
    first = remote.reset('fake/0', 3, -1, {}).state
    pid = remote.pid
    with pytest.raises(PlatformError, match=r'exited with 7 \(during step'):
        remote.step(np.array([1.0, 0.0]))
    with pytest.raises(PlatformError, match='exited with 7'):
        remote.step(np.zeros(2))
    np.testing.assert_array_equal(remote.reset('fake/0', 3, -1, {}).state, first)
    assert remote.pid != pid


def test_a_killed_worker_is_noticed_between_calls(start):
    remote = start()
    os.kill(remote.pid, signal.SIGKILL)
    wait_until(remote.failure, timeout=5.0)
    assert 'died of SIGKILL' in remote.failure()
    with pytest.raises(PlatformError, match='SIGKILL'):
        remote.tasks()


def test_a_late_worker_is_killed(start):
    remote = start(timeouts={'step': 0.3})
    remote.reset('fake/0', 0, -1, {})
    pid = remote.pid
    with pytest.raises(PlatformError, match=r'killed \(step took longer than 0\.3 s\)'):
        remote.step(np.array([2.0, 0.0]))
    assert not exists(pid)


@pytest.mark.parametrize('busy', [False, True])
def test_the_worker_dies_with_its_parent(module, tmp_path, busy):
    script = textwrap.dedent(
        f"""
        import sys, numpy as np
        from praxis_core.contract import load_contract
        from praxis_sim.platform import PlatformOptions
        from praxis_sim.remote import RemotePlatform
        options = PlatformOptions(load_contract({str(ROOT / 'params/robots/tabletop.yaml')!r}))
        remote = RemotePlatform(sys.executable, {module!r}, options, log={str(tmp_path / 'log')!r})
        print(remote.pid, flush=True)
        if {busy}:
            remote.step(np.array([2.0, 0.0]))
        sys.stdin.read()
        """
    )
    parent = subprocess.Popen(
        [sys.executable, '-c', script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pid = int(parent.stdout.readline())
    assert exists(pid)
    parent.kill()
    parent.communicate()
    wait_until(lambda: not exists(pid), timeout=5.0)


def test_no_descriptor_or_directory_is_left_behind(start, tmp_path, monkeypatch):
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    start().close()
    before = len(os.listdir('/proc/self/fd'))
    start().close()
    assert len(os.listdir('/proc/self/fd')) == before
    assert not list(tmp_path.glob('praxis_worker_*'))


def test_an_executable_that_is_missing_is_named(module, tmp_path):
    with pytest.raises(PlatformError, match='cannot start /nonexistent/python'):
        RemotePlatform('/nonexistent/python', module, OPTIONS, log=tmp_path / 'log')


def test_an_unknown_platform_is_named(tmp_path):
    with pytest.raises(PlatformError, match="unknown platform 'tabeltop'"):
        RemotePlatform(sys.executable, 'tabeltop', OPTIONS, log=tmp_path / 'log')


def test_the_tabletop_gives_equal_states_and_pixels_in_both(tmp_path):
    from praxis_sim import platforms

    runs = []
    for process in ('', sys.executable):
        platform = platforms.create('tabletop', OPTIONS, process)
        try:
            task = platform.tasks()[0].task_id
            observations = [platform.reset(task, 3, -1, {})]
            for _ in range(3):
                observations.append(platform.step(platform.hold_action() + 0.01))
            view = platform.render('agentview', 64, 48, rgb=True, depth=True, segmentation=True)
            runs.append((observations, view, platform.state_digest(), platform.link_poses()))
        finally:
            platform.close()
    assert runs[0][2] == runs[1][2]
    for mine, theirs in zip(runs[0], runs[1], strict=True):
        assert equal(mine, theirs)
