# SPDX-License-Identifier: Apache-2.0
import json
import os

import pytest
from praxis_cli import checks, doctor
from praxis_cli.checks import Finding, Machine, State
from praxis_cli.main import main

PROFILE = '<profiles><transport><segment_size>{}</segment_size></transport></profiles>'


@pytest.fixture
def machine(tmp_path):
    """Return a function that makes a machine with some variables changed."""

    def machine(**changes: str) -> Machine:
        environment = {**os.environ, **changes}
        kept = {name: value for name, value in environment.items() if value != 'ABSENT'}
        return Machine(kept, tmp_path / 'data/below', tmp_path)

    return machine


@pytest.mark.parametrize(
    ('value', 'state'),
    [
        ('0', State.OK),
        ('101', State.OK),
        ('232', State.OK),
        ('150', State.NOTE),
        ('233', State.MISSING),
        ('-1', State.MISSING),
        ('x', State.MISSING),
    ],
)
def test_domain_must_have_ports(machine, value, state):
    assert checks.domain(machine(ROS_DOMAIN_ID=value)).state is state


@pytest.mark.parametrize(
    ('content', 'state'),
    [
        (PROFILE.format(64 << 20), State.OK),
        (PROFILE.format(512 << 10), State.NOTE),
        ('<profiles/>', State.NOTE),
        ('<profiles', State.MISSING),
    ],
)
def test_fastdds_profile_needs_a_segment_for_images(machine, tmp_path, content, state):
    path = tmp_path / 'profile.xml'
    path.write_text(content)
    finding = checks.fastdds(
        machine(FASTRTPS_DEFAULT_PROFILES_FILE=str(path), RMW_IMPLEMENTATION='rmw_fastrtps_cpp')
    )
    assert finding.state is state


def test_fastdds_profile_unset_or_lost_is_missing(machine, tmp_path):
    for value in ('ABSENT', str(tmp_path / 'none.xml')):
        finding = checks.fastdds(
            machine(FASTRTPS_DEFAULT_PROFILES_FILE=value, RMW_IMPLEMENTATION='ABSENT')
        )
        assert (finding.state, finding.mend) == (State.MISSING, '. scripts/env.sh')


def test_no_ros_names_the_setup(machine):
    finding = checks.ros(machine(ROS_DISTRO='ABSENT'))
    assert finding.state is State.MISSING
    assert finding.mend == checks.SETUP


def test_an_unbuilt_package_is_named(machine, tmp_path):
    index = tmp_path / 'share/ament_index/resource_index/packages'
    index.mkdir(parents=True)
    for name in checks.PACKAGES:
        if name != 'praxis_sim':
            (index / name).touch()
    finding = checks.workspace(machine(AMENT_PREFIX_PATH=str(tmp_path)))
    assert (finding.state, finding.detail) == (State.MISSING, 'not built: praxis_sim')


def test_a_broken_renderer_is_found_and_the_working_one_offered(machine):
    pytest.importorskip('mujoco')
    if checks.rendering(machine(MUJOCO_GL='egl')).state is not State.OK:
        pytest.skip('EGL does not render here')
    finding = checks.rendering(machine(MUJOCO_GL='osmesa', PYOPENGL_PLATFORM='ABSENT'))
    if finding.state is not State.OK:
        assert finding.mend == 'export MUJOCO_GL=egl'


def test_video_is_encoded_for_real(machine):
    assert checks.video(machine()).state is State.OK
    assert checks.video(machine(PYTHONHOME='/nowhere')).state is State.MISSING


def test_disk_looks_at_the_nearest_folder_that_exists(machine):
    assert checks.disk(machine()).detail.endswith('data/below')


def test_little_shared_memory_is_mended_by_a_remount(machine, monkeypatch):
    monkeypatch.setattr(checks.shutil, 'disk_usage', lambda _: _Usage)
    finding = checks.shared_memory(machine())
    assert finding.state is State.MISSING
    assert 'mount -o remount' in finding.mend


def test_a_check_that_hangs_is_cut_off(machine):
    assert machine().run('import time; time.sleep(100)', timeout=0.2) == (
        False,
        'no answer within 0 s',
    )


@pytest.mark.parametrize(
    ('states', 'code'),
    [([State.OK], 0), ([State.OK, State.NOTE], 0), ([State.OK, State.MISSING], 1)],
)
def test_exit_code_tells_whether_something_is_missing(monkeypatch, capsys, states, code):
    found = [Finding(f'check {i}', state, 'detail', f'mend {i}') for i, state in enumerate(states)]
    monkeypatch.setattr(doctor, 'CHECKS', [lambda _, one=one: one for one in found])
    assert main(['doctor', '--json']) == code
    printed = json.loads(capsys.readouterr().out)
    assert [item['state'] for item in printed] == [state.value for state in states]


def test_the_commands_are_listed_once(capsys):
    findings = [Finding(name, State.MISSING, '', 'scripts/setup.sh') for name in 'ab']
    assert doctor.summary(findings).count('scripts/setup.sh') == 1
    assert doctor.summary([Finding('a', State.OK, '')]).strip() == 'Nothing is missing.'


class _Usage:
    total, used, free = 64 << 20, 0, 64 << 20
