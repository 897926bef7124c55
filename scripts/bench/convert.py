#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the conversion of a bag to a dataset; one frame is one row with three 640x480 images.

The bag is what the recorder writes: state and commands at 30 Hz, images encoded as the recorder's
default has it. The baseline, in the same run and in turns with it, is bare PyAV encoding the same
decoded frames from memory with the same settings, one thread a camera: the ceiling. The last line
printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from praxis_core.contract import load_contract
from praxis_core.images import decode_image, encode_jpeg, encode_png
from praxis_data import messages
from praxis_data.bag import BagTopic, BagWriter
from praxis_data.convert import convert_bag
from praxis_data.lerobot_reader import LeRobotReader
from praxis_data.video import VideoSettings, count_frames

HZ, WIDTH, HEIGHT, JOINTS = 30.0, 640, 480, 7
CAMERAS = ('top', 'left_wrist', 'right_wrist')
PICTURES = 60
T0 = 1_700_000_000_000_000_000
STATE, COMMAND, STATUS = (
    f'praxis_interfaces/msg/{name}' for name in ('StateVector', 'Command', 'ControlStatus')
)
IMAGE, COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'


def contract_text() -> str:
    """Return the YAML of a robot with seven joints and three cameras."""
    names = ', '.join(f'joint_{k}' for k in range(JOINTS))
    units = ', '.join(['rad'] * JOINTS)
    lines = [
        'schema_version: 2',
        'name: bench',
        'interface:',
        '  embodiment: bench',
        '  robot_type: bench',
        f'  policy_hz: {HZ}',
        '  action_space: bench.joint_position.absolute.v1',
        '  action_kind: absolute',
        f'  state: {{names: [{names}], units: [{units}]}}',
        f'  action: {{names: [{names}], units: [{units}]}}',
        '  cameras:',
        *(
            f'    {c}: {{role: {c}, width: {WIDTH}, height: {HEIGHT}, channels: 3}}'
            for c in CAMERAS
        ),
        'deployment:',
        '  base_frame: world',
        f'  command_hz: {HZ}',
        f'  record_hz: {HZ}',
        '  cameras:',
        *(f'    {c}: {{fps: {HZ}, frame: {c}_optical_frame, max_age: 0.15}}' for c in CAMERAS),
        '  limits:',
        *(f'    joint_{k}: {{min: -3.0, max: 3.0, max_step: 1.0}}' for k in range(JOINTS)),
        '  max_age: {state: 0.25, request: 0.25}',
    ]
    return '\n'.join(lines) + '\n'


def pictures(seed: int) -> list[np.ndarray]:
    """Draw a panning textured table, moving objects and sensor noise: uint8[H, W, 3] each."""
    rng = np.random.default_rng(seed)
    texture = rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    table = cv2.normalize(cv2.GaussianBlur(texture, (0, 0), 6), None, 60, 200, cv2.NORM_MINMAX)
    noise = rng.normal(0, 2, (HEIGHT + PICTURES, WIDTH, 3)).astype(np.int16)
    result = []
    for k in range(PICTURES):
        turn = 2 * np.pi * k / PICTURES
        picture = np.roll(table, round(20 * np.sin(turn)), axis=1)
        for ball in range(4):
            x = round(WIDTH * (0.2 + 0.2 * ball) + 60 * np.cos(turn + ball))
            y = round(HEIGHT * 0.5 + 120 * np.sin(turn + 2 * ball))
            colour = [(220, 60, 40), (40, 160, 220), (240, 200, 60), (70, 190, 90)][ball]
            cv2.circle(picture, (x, y), 40, colour, -1, cv2.LINE_AA)
        noisy = picture.astype(np.int16) + noise[k : k + HEIGHT]
        result.append(np.clip(noisy, 0, 255).astype(np.uint8))
    return result


def image_message(camera: str, rgb: np.ndarray, encoding: str) -> tuple[str, str, bytes]:
    """Return topic, type and serialized message, its stamp zero."""
    topic = f'/cameras/{camera}/image_raw'
    header = {'frame_id': f'{camera}_optical_frame'}
    if encoding == 'raw':
        fields = {'height': HEIGHT, 'width': WIDTH, 'encoding': 'rgb8', 'step': 3 * WIDTH}
        message = messages.make(IMAGE, header=header, data=rgb.tobytes(), **fields)
        return topic, IMAGE, messages.encode(IMAGE, message)
    payload = encode_jpeg(rgb) if encoding == 'jpeg' else encode_png(rgb)
    message = messages.make(COMPRESSED, header=header, format=encoding, data=payload)
    return f'{topic}/compressed', COMPRESSED, messages.encode(COMPRESSED, message)


def stamped(data: bytes, stamp: int) -> bytes:
    """Return a serialized message with another stamp: its first field after the CDR header."""
    sec, nanosec = divmod(stamp, 1_000_000_000)
    return data[:4] + sec.to_bytes(4, 'little') + nanosec.to_bytes(4, 'little') + data[12:]


def stream(scenes: dict[str, list[np.ndarray]], rows: int, encoding: str) -> Iterator[tuple]:
    """Yield (topic, type, data, stamp) of the whole episode."""
    images = {
        camera: [image_message(camera, rgb, encoding) for rgb in scene]
        for camera, scene in scenes.items()
    }
    status = messages.make(STATUS, mode=1, active_source='policy')
    yield '/control_status', STATUS, stamped(messages.encode(STATUS, status), T0 - 1000), T0 - 1000
    for k in range(rows):
        stamp = T0 + round(k * 1e9 / HZ)
        values = np.sin(k / 30 + np.arange(JOINTS))
        for camera in CAMERAS:
            topic, kind, data = images[camera][k % PICTURES]
            yield topic, kind, stamped(data, stamp), stamp
        state = messages.make(
            STATE, observation_seq=k, values=values, episode_uuid='bench', cameras=list(CAMERAS)
        )
        yield '/state', STATE, stamped(messages.encode(STATE, state), stamp), stamp
        command = messages.make(
            COMMAND, seq=k, source='policy', values=values, requested=values, observation_seq=k
        )
        yield '/command', COMMAND, stamped(messages.encode(COMMAND, command), stamp), stamp


def write_bag(path: Path, scenes: dict, rows: int, encoding: str) -> None:
    """Write the bag."""
    metadata = {
        'praxis.contract': contract_text(),
        'praxis.task': 'bench',
        'praxis.episode_uuid': 'bench',
    }
    known: set[str] = set()
    with BagWriter(path, 'mcap', metadata=metadata) as bag:
        for topic, kind, data, stamp in stream(scenes, rows, encoding):
            if topic not in known:
                known.add(topic)
                bag.add_topic(BagTopic(topic, kind))
            bag.write(topic, data, stamp)


def bare_encode(folder: Path, scenes: dict, rows: int, settings: VideoSettings) -> None:
    """Encode the frames with PyAV alone, one thread a camera."""

    def work(camera: str) -> None:
        with av.open(str(folder / f'{camera}.mp4'), 'w') as container:
            track = container.add_stream('libx264', rate=Fraction(HZ))
            track.width, track.height, track.pix_fmt = WIDTH, HEIGHT, 'yuv420p'
            track.gop_size = settings.gop
            track.codec_context.thread_count = 1
            track.options = {'preset': settings.preset, 'crf': str(settings.crf)}
            for k in range(rows):
                frame = av.VideoFrame.from_ndarray(scenes[camera][k % PICTURES], format='rgb24')
                container.mux(track.encode(frame))
            container.mux(track.encode(None))

    threads = [threading.Thread(target=work, args=(camera,)) for camera in CAMERAS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds of a call."""
    wall, cpu = time.monotonic(), time.process_time()
    work()
    return time.monotonic() - wall, time.process_time() - cpu


def main() -> int:
    """Run the bench; 1 when rows or frames are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rows', type=int, default=450, help='rows of the episode')
    parser.add_argument('--rounds', type=int, default=3, help='conversions, medians are printed')
    parser.add_argument('--encoding', choices=['raw', 'jpeg', 'png'], default='jpeg')
    parser.add_argument('--preset', default=VideoSettings().preset)
    args = parser.parse_args()
    settings = VideoSettings(preset=args.preset)
    converted, bare = [], []
    whole = True
    with tempfile.TemporaryDirectory(prefix='praxis_bench_') as name:
        folder = Path(name)
        (folder / 'contract.yaml').write_text(contract_text())
        load_contract(folder / 'contract.yaml')
        scenes = {camera: pictures(seed) for seed, camera in enumerate(CAMERAS)}
        write_bag(folder / 'bag', scenes, args.rows, args.encoding)
        if args.encoding == 'jpeg':
            # The same pixels for both.
            scenes = {
                camera: [decode_image(encode_jpeg(rgb)) for rgb in scene]
                for camera, scene in scenes.items()
            }
        for turn in range(args.rounds):
            root = folder / f'dataset_{turn}'
            converted.append(
                timed(lambda r=root: convert_bag(folder / 'bag', r, settings=settings))
            )
            bare.append(timed(lambda: bare_encode(folder, scenes, args.rows, settings)))
            episode = LeRobotReader(root).episode(0)
            frames = [count_frames(path) for path in episode.video_paths.values()]
            whole &= frames == [args.rows] * 3 and episode.table.num_rows == args.rows
            megabytes = sum(p.stat().st_size for p in episode.video_paths.values()) / 1e6
            print(
                f'round {turn}: convert {args.rows / converted[-1][0]:.1f} rows/s, '
                f'bare PyAV {args.rows / bare[-1][0]:.1f} rows/s',
                flush=True,
            )
    rate, ceiling = (
        args.rows / statistics.median(wall for wall, _ in runs) for runs in (converted, bare)
    )
    cpu = statistics.median(cpu for _, cpu in converted) / args.rows
    print(
        json.dumps(
            {
                'bench': 'convert',
                'frames_per_s': round(rate, 1),
                'baseline_frames_per_s': round(ceiling, 1),
                'ratio': round(rate / ceiling, 3),
                'cpu_ms_per_frame': round(1e3 * cpu, 2),
                'frames_per_s_per_core': round(1 / cpu, 1),
                'baseline_cpu_ms_per_frame': round(
                    1e3 * statistics.median(c for _, c in bare) / args.rows, 2
                ),
                'rows': args.rows,
                'rows_equal_frames': whole,
                'images_per_row': len(CAMERAS),
                'image_size': [WIDTH, HEIGHT],
                'bag_image_encoding': args.encoding,
                'video': settings.asdict(),
                'video_megabytes': round(megabytes, 1),
                'rounds': args.rounds,
                'cores': len(os.sched_getaffinity(0)),
                'load_average': round(os.getloadavg()[0], 1),
            }
        )
    )
    return 0 if whole else 1


if __name__ == '__main__':
    sys.exit(main())
