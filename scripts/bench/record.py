# SPDX-License-Identifier: Apache-2.0
"""Does the recorder lose a frame, and what does it cost?

Another process publishes cameras with a counter painted into the pixels, states and commands. The
counters are read back from the MP4 files and from the bag; a counter that is missing, or there
twice, is a lost frame.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import _counter_source as source

HERE = Path(__file__).resolve().parent
WATERMARK_S = 0.2
EDGE_S = 0.25
"""Frames published this close to start and stop may fall on either side."""


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and its threads."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def lost(counters: list[int], first: int, last: int) -> dict[str, int]:
    """Compare counters with the frames `first` to `last` that must be among them."""
    distinct = set(counters)
    inside = set(range(min(first, *counters), max(last, *counters) + 1)) if counters else set()
    return {
        'missing': len((inside | set(range(first, last + 1))) - distinct),
        'duplicates': len(counters) - len(distinct),
        'out_of_order': sum(b < a for a, b in itertools.pairwise(counters)),
    }


class Session:
    """Start and stop an episode, and time the acknowledgements meanwhile."""

    def __init__(self) -> None:
        import rclpy
        from praxis_core import qos
        from praxis_interfaces.msg import EpisodeStatus, ObservationAck
        from rclpy.executors import SingleThreadedExecutor

        rclpy.init()
        self.node = rclpy.create_node('record_bench')
        self.acknowledged: dict[int, int] = {}
        self.status: list[Any] = []
        self.node.create_subscription(
            ObservationAck, 'observation_ack', self._acknowledge, qos.COMMAND_RECORD
        )
        self.node.create_subscription(
            EpisodeStatus, 'episode_status', self.status.append, qos.LATCHED
        )
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._executor.spin, daemon=True)
        self._thread.start()

    def _acknowledge(self, message: Any) -> None:
        self.acknowledged.setdefault(message.observation_seq, time.time_ns())

    def call(self, kind: Any, name: str, **fields: Any) -> Any:
        """Call a service; raises SystemExit when it fails."""
        client = self.node.create_client(kind, name)
        if not client.wait_for_service(30.0):
            raise SystemExit(f'record: no service {name}')
        done = threading.Event()
        future = client.call_async(kind.Request(**fields))
        future.add_done_callback(lambda _: done.set())
        if not done.wait(120.0):
            raise SystemExit(f'record: {name} did not answer')
        return future.result()

    def close(self) -> None:
        """Leave the graph."""
        import rclpy

        self._executor.shutdown()
        self._thread.join(5.0)
        self.node.destroy_node()
        rclpy.try_shutdown()


def bag_images(path: Path) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield camera, pixels and log time of every image of a bag."""
    from praxis_core.images import compressed_rgb, rgb_array
    from praxis_data import messages
    from praxis_data.bag import BagReader

    for topic, typename, data, log_time_ns in BagReader(path):
        if 'Image' in typename:
            message = messages.decode(typename, data)
            compressed = typename.endswith('CompressedImage')
            pixels = compressed_rgb(message) if compressed else rgb_array(message)
            yield topic.split('/cameras/')[1].split('/')[0], pixels, log_time_ns


def percentiles(values: list[float]) -> dict[str, float]:
    """Return p50, p95, p99 and the maximum, rounded."""
    if not values:
        return {}
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    named = {'p50': p50, 'p95': p95, 'p99': p99, 'max': max(values)}
    return {name: round(float(value), 3) for name, value in named.items()}


def read_back(folder: Path, answer: Any, published: dict, window: tuple[int, int]) -> dict:
    """Read the counters of MP4 files and bag and compare them with what was published."""
    import pyarrow.parquet as pq
    from praxis_data import layout
    from praxis_data.video import read_frames

    cameras = list(published['image_ns'])
    must = {}
    for camera in cameras:
        times = published['image_ns'][camera]
        inside = [n for n, t in enumerate(times) if window[0] <= t <= window[1]]
        must[camera] = inside[0], inside[-1]
    result: dict[str, Any] = {'bag': {}, 'mp4': {}, 'lost_frames': 0}
    counters: dict[str, list[int]] = {camera: [] for camera in cameras}
    received = []
    for camera, pixels, log_time_ns in bag_images(Path(answer.bag_path)):
        counter = source.read(pixels)
        counters[camera].append(counter)
        if counter < len(published['image_ns'][camera]):
            received.append((log_time_ns - published['image_ns'][camera][counter]) * 1e-6)
    dataset = Path(answer.dataset_path)
    rows = pq.read_table(dataset / layout.data_file(answer.episode_index)).num_rows
    equal = True
    for camera in cameras:
        result['bag'][camera] = lost(counters[camera], *must[camera])
        video = dataset / layout.video_file(answer.episode_index, f'observation.images.{camera}')
        frames = [source.read(frame) for frame in read_frames(video)]
        equal &= len(frames) == rows
        # A row needs what follows its tick; the last frames before the stop may lack it.
        result['mp4'][camera] = lost(frames, must[camera][0], must[camera][1])
    for kind in ('bag', 'mp4'):
        for counts in result[kind].values():
            result['lost_frames'] += sum(counts.values())
    result.update(rows=rows, rows_equal_frames=equal, received_age_ms=percentiles(received))
    return result


def measure(options: argparse.Namespace, folder: Path) -> dict:
    """Run the stack and return the figures."""
    from praxis_interfaces.srv import StartEpisode, StopEpisode

    contract = folder / 'counter.yaml'
    contract.write_text(source.contract_text(options.width, options.height, options.fps))
    report, ready = folder / 'source.json', folder / 'ready'
    log = (folder / 'recorder.log').open('w')
    parameters = {
        'contract': contract,
        'dataset_root': folder / 'dataset',
        'bag_root': folder / 'bags',
        'bag_storage': options.storage,
        'bag_image_encoding': options.encoding,
        'min_free_gb': 0.5,
    }
    flags = [part for k, v in parameters.items() for part in ('-p', f'{k}:={v}')]
    recorder = subprocess.Popen(
        [sys.executable, '-m', 'praxis_hil.recorder_node', '--ros-args', *flags],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    publisher = None
    session = Session()
    try:
        session.call(StopEpisode, 'stop_episode')
        command = [sys.executable, HERE / '_counter_source.py', '--contract', contract]
        command += ['--fps', str(options.fps), '--state-hz', str(options.state_hz)]
        command += ['--ready', ready, '--report', report]
        publisher = subprocess.Popen(command)
        deadline = time.monotonic() + 30
        while not ready.exists() or len(session.acknowledged) < options.fps:
            if time.monotonic() > deadline or publisher.poll() is not None:
                raise SystemExit('record: the source does not publish')
            time.sleep(0.05)
        idle, began = cpu_seconds(recorder.pid), time.monotonic()
        time.sleep(options.idle_seconds)
        idle_cores = (cpu_seconds(recorder.pid) - idle) / (time.monotonic() - began)
        started = session.call(StartEpisode, 'start_episode', task='count')
        if not started.success:
            raise SystemExit(f'record: {started.error_msg}')
        window_start = time.time_ns() + int(EDGE_S * 1e9)
        busy, began = cpu_seconds(recorder.pid), time.monotonic()
        time.sleep(options.seconds)
        busy_cores = (cpu_seconds(recorder.pid) - busy) / (time.monotonic() - began)
        window_end = time.time_ns() - int(EDGE_S * 1e9)
        stopping = time.monotonic()
        answer = session.call(StopEpisode, 'stop_episode', outcome=1)
        stop_s = time.monotonic() - stopping
        publisher.send_signal(signal.SIGTERM)
        publisher.wait(20)
        recorder.send_signal(signal.SIGTERM)
        recorder_exit = recorder.wait(30)
    finally:
        for process in (publisher, recorder):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        session.close()
        log.close()
    if not answer.success:
        print((folder / 'recorder.log').read_text(), file=sys.stderr)
        raise SystemExit(f'record: {answer.error_msg}')
    published = json.loads(report.read_text())
    written = [
        (t - published['state_ns'][seq]) * 1e-6
        for seq, t in session.acknowledged.items()
        if seq < len(published['state_ns'])
        and window_start <= published['state_ns'][seq] <= window_end
    ]
    dropped = max((s.dropped for s in session.status), default=0)
    stale = max((s.stale for s in session.status), default=0)
    result = read_back(folder, answer, published, (window_start, window_end))
    result.update(
        recorder_cpu_cores=round(busy_cores, 3),
        bare_subscriber_cpu_cores=round(idle_cores, 3),
        publisher_cpu_cores=round(published['cpu_s'] / published['wall_s'], 3),
        publisher_niceness=published['niceness'],
        publisher_late_max_ms=round(published['late_max_s'] * 1e3, 1),
        # Later than the watermark, what the source stamps is late for any recorder.
        source_on_time=published['late_max_s'] < WATERMARK_S,
        age_ms=percentiles(written),
        drops=dropped,
        stale_rows=stale,
        stop_s=round(stop_s, 3),
        bag_mb_per_s=round(
            sum(f.stat().st_size for f in Path(answer.bag_path).iterdir())
            / options.seconds
            * 1e-6,
            2,
        ),
        recorder_exit=recorder_exit,
        message=answer.error_msg,
    )
    return result


def main() -> int:
    """Measure, print a summary and one JSON object; exit 0 if no frame was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seconds', type=float, default=60.0)
    parser.add_argument('--idle-seconds', type=float, default=5.0)
    parser.add_argument('--fps', type=float, default=30.0)
    parser.add_argument('--state-hz', type=float, default=200.0)
    parser.add_argument('--width', type=int, default=640)
    parser.add_argument('--height', type=int, default=480)
    parser.add_argument('--encoding', choices=('jpeg', 'png', 'raw'), default='jpeg')
    parser.add_argument('--storage', choices=('mcap', 'sqlite3'), default='mcap')
    parser.add_argument('--keep', default='', help='folder that keeps bag and dataset')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='praxis_record_') as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = measure(options, folder)
    setting = {k: v for k, v in vars(options).items() if k != 'keep'}
    load = round(os.getloadavg()[0], 2)
    print(json.dumps({'bench': 'record', **setting, **result, 'load_average': load}))
    return 0 if result['lost_frames'] == 0 and result['rows_equal_frames'] else 1


if __name__ == '__main__':
    sys.exit(main())
