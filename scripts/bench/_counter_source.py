# SPDX-License-Identifier: Apache-2.0
"""A robot of nothing but numbers: cameras with a painted frame counter, states, commands.

Run as a process it publishes them at exact rates; imported it paints and reads the counters.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

BITS = 16
COLUMNS = 8
CAMERAS = ('front', 'left', 'right')
STATE_DIM, ACTION_DIM = 8, 7


def contract_text(
    width: int = 640, height: int = 480, fps: float = 30.0, cameras: tuple[str, ...] = CAMERAS
) -> str:
    """Return a robot contract for the source."""
    shapes = '\n'.join(
        f'    {name}: {{role: {name}, width: {width}, height: {height}}}' for name in cameras
    )
    streams = '\n'.join(
        f'    {name}: {{fps: {fps}, frame: {name}_optical_frame, max_age: 0.5}}'
        for name in cameras
    )
    actions = [f'target_{i}' for i in range(ACTION_DIM)]
    limits = '\n'.join(
        f'    {name}: {{min: -1000000.0, max: 1000000.0, max_step: 1000000.0}}' for name in actions
    )
    states = [f'position_{i}' for i in range(STATE_DIM)]
    return f"""schema_version: 2
name: counter
interface:
  embodiment: counter
  robot_type: counter
  policy_hz: {fps}
  action_space: counter.position.absolute.v1
  action_kind: absolute
  state:
    names: [{', '.join(states)}]
    units: [{', '.join(['m'] * STATE_DIM)}]
  action:
    names: [{', '.join(actions)}]
    units: [{', '.join(['m'] * ACTION_DIM)}]
  cameras:
{shapes}
deployment:
  base_frame: world
  command_hz: {fps}
  record_hz: {fps}
  cameras:
{streams}
  limits:
{limits}
  max_age: {{state: 0.5, request: 0.25}}
"""


def background(width: int, height: int) -> np.ndarray:
    """Return uint8[H, W, 3] with edges and gradients, so that encoders have work to do."""
    y, x = np.mgrid[0:height, 0:width]
    waves = 96 + 64 * np.sin(x / 9.0) * np.cos(y / 13.0)
    image = np.stack([waves, (x * 255) // width, (y * 255) // height], axis=-1).astype(np.uint8)
    noise = np.random.default_rng(0).integers(0, 24, image.shape, dtype=np.uint8)
    return image + np.minimum(noise, 255 - image)


def _block(index: int, width: int, height: int) -> tuple[slice, slice]:
    size = width // COLUMNS // 2
    row, column = divmod(index, COLUMNS)
    top, left = size // 2 + row * 2 * size, size // 2 + column * 2 * size
    return slice(top, top + size), slice(left, left + size)


def paint(image: np.ndarray, counter: int) -> None:
    """Paint a counter modulo 2**16 as black and white blocks."""
    height, width = image.shape[:2]
    for bit in range(BITS):
        image[_block(bit, width, height)] = 255 if counter >> bit & 1 else 0


def read(image: np.ndarray) -> int:
    """Return the counter painted into uint8[H, W, 3], from the middle of each block."""
    height, width = image.shape[:2]
    counter = 0
    for bit in range(BITS):
        rows, columns = _block(bit, width, height)
        margin = (rows.stop - rows.start) // 4
        middle = image[
            rows.start + margin : rows.stop - margin,
            columns.start + margin : columns.stop - margin,
        ]
        counter |= int(middle.mean() > 127) << bit
    return counter


def publish(options: argparse.Namespace) -> dict:
    """Publish until SIGTERM; returns what was published and what it cost."""
    import rclpy
    from praxis_core import qos
    from praxis_core.contract import load_contract
    from praxis_interfaces.msg import Command, StateVector
    from rclpy.signals import SignalHandlerOptions
    from sensor_msgs.msg import Image

    contract = load_contract(options.contract)
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node('counter_source')
    running = True

    def stop(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    images, publishers = {}, {}
    for name, shape in contract.interface.cameras.items():
        publishers[name] = node.create_publisher(
            Image, contract.image_topic(name), qos.SENSOR_PUBLISH
        )
        message = Image(
            height=shape.height, width=shape.width, encoding='rgb8', step=3 * shape.width
        )
        message.header.frame_id = f'{name}_optical_frame'
        images[name] = (message, background(shape.width, shape.height))
    topics = contract.deployment.topics
    states = node.create_publisher(StateVector, topics.state, qos.SENSOR_PUBLISH)
    commands = node.create_publisher(Command, topics.command, qos.COMMAND_PUBLISH)
    state = StateVector(
        episode_uuid=options.episode_uuid,
        interface_hash=contract.interface_hash,
        values=array.array('d', [0.0] * STATE_DIM),
    )
    command = Command(
        source='policy',
        interface_hash=contract.interface_hash,
        action_space=contract.interface.action_space,
        values=array.array('d', [0.0] * ACTION_DIM),
        requested=array.array('d', [0.0] * ACTION_DIM),
    )
    fps, state_hz = options.fps, options.state_hz
    published: dict[str, list[int]] = {name: [] for name in images}
    state_times: list[int] = []
    spent_s = 0.0
    late_max_s = 0.0
    start_ns = time.time_ns() + 200_000_000
    start = time.monotonic() + 0.2
    frame = tick = 0
    if options.ready:
        Path(options.ready).write_text('ready')
    while running:
        # frames fall on 1/fps, states on 1/state_hz; a frame's state follows it at its stamp
        frame_due, state_due = frame / fps, tick / state_hz
        due = min(frame_due, state_due)
        pause = start + due - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        else:
            late_max_s = max(late_max_s, -pause)
        stamp_ns = start_ns + round(due * 1e9)
        began = time.monotonic()
        captured = []
        if frame_due <= state_due:
            for name, (message, pixels) in images.items():
                paint(pixels, frame)
                message.header.stamp.sec, message.header.stamp.nanosec = divmod(
                    stamp_ns, 1_000_000_000
                )
                message.data = array.array('B', pixels.tobytes())
                published[name].append(time.time_ns())
                publishers[name].publish(message)
                captured.append(name)
            frame += 1
        if state_due <= frame_due or captured:
            stamp = divmod(stamp_ns, 1_000_000_000)
            state.header.stamp.sec, state.header.stamp.nanosec = stamp
            state.observation_seq = len(state_times)
            state.cameras = captured
            state.values[0] = float(frame - 1)
            state_times.append(time.time_ns())
            states.publish(state)
            tick += state_due <= frame_due
        if captured:
            command.header.stamp.sec, command.header.stamp.nanosec = stamp
            command.seq = frame
            command.observation_seq = state.observation_seq
            command.values[0] = command.requested[0] = float(frame - 1)
            commands.publish(command)
        spent_s += time.monotonic() - began
    wall_s = time.monotonic() - start
    # destroyed only after the readers have fetched what is under way
    time.sleep(0.3)
    node.destroy_node()
    rclpy.try_shutdown()
    return {
        'frames': frame,
        'states': len(state_times),
        'image_ns': published,
        'state_ns': state_times,
        'publish_share': spent_s / wall_s,
        'cpu_s': time.process_time(),
        'wall_s': wall_s,
        'late_max_s': late_max_s,
        'niceness': os.nice(0),
    }


def main() -> int:
    """Publish, and write a report at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--contract', required=True)
    parser.add_argument('--fps', type=float, default=30.0)
    parser.add_argument('--state-hz', type=float, default=200.0)
    parser.add_argument('--episode-uuid', default='')
    parser.add_argument('--ready', default='', help='file to create when publishing begins')
    parser.add_argument('--report', default='', help='JSON file to write at the end')
    options = parser.parse_args()
    # It stands for hardware, which shares no CPU with the recorder; needs the right to do so.
    with contextlib.suppress(OSError):
        os.nice(-10)
    report = publish(options)
    if options.report:
        Path(options.report).write_text(json.dumps(report))
    return 0


if __name__ == '__main__':
    sys.exit(main())
