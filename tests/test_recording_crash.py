# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the recorder at random moments. PRAXIS_KILLS sets how often (20 for acceptance)."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from praxis_core.testing import wait_until

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'scripts' / 'bench'))
import _counter_source as source  # noqa: E402

KILLS = int(os.environ.get('PRAXIS_KILLS', '4'))
WIDTH, HEIGHT, FPS = 160, 120, 20.0
CAMERAS = ('front', 'side')
PHASES = ('recording', 'saving', 'starting', 'idle')
# A moment is drawn anew in each run; the seed is printed so that a failure can be repeated.
SEED = int(os.environ.get('PRAXIS_SEED', random.SystemRandom().randrange(1 << 32)))


class Stack:
    """A source that publishes throughout, and a recorder that is killed and started again."""

    def __init__(self, folder, spawn, probe):
        self.folder, self.spawn, self.probe = folder, spawn, probe
        self.contract = folder / 'counter.yaml'
        self.contract.write_text(source.contract_text(WIDTH, HEIGHT, FPS, CAMERAS))
        self.dataset, self.bags = folder / 'dataset', folder / 'bags'
        self.stopped: dict[str, int] = {}
        self.source = spawn(
            [
                *(sys.executable, ROOT / 'scripts' / 'bench' / '_counter_source.py'),
                *('--contract', self.contract, '--fps', FPS, '--state-hz', 40),
            ]
        )
        self.recorder = None

    def start_recorder(self):
        from praxis_core import qos
        from praxis_interfaces.msg import EpisodeStatus, ObservationAck

        status = self.probe.collect(EpisodeStatus, 'episode_status', qos.LATCHED)
        acknowledged = self.probe.collect(ObservationAck, 'observation_ack', 100)
        parameters = {
            'contract': self.contract,
            'dataset_root': self.dataset,
            'bag_root': self.bags,
            'min_free_gb': 0.1,
        }
        flags = [part for k, v in parameters.items() for part in ('-p', f'{k}:={v}')]
        self.recorder = self.spawn(
            [sys.executable, '-m', 'praxis_hil.recorder_node', '--ros-args', *flags]
        )
        status.wait(1, 60.0)
        acknowledged.wait(3, 60.0)
        return acknowledged

    def call(self, kind, name, **fields):
        return self.probe.call(kind, name, kind.Request(**fields), timeout=60.0)

    def record(self, acknowledged, frames):
        from praxis_interfaces.srv import StartEpisode, StopEpisode

        started = self.call(StartEpisode, 'start_episode', task='count')
        assert started.success, started.error_msg
        acknowledged.wait(len(acknowledged.messages) + frames, 60.0)
        answer = self.call(StopEpisode, 'stop_episode', outcome=1)
        assert answer.success, answer.error_msg
        self.stopped[answer.episode_uuid] = answer.episode_index

    def kill(self):
        self.recorder.send_signal(signal.SIGKILL)
        killed_ns = time.time_ns()
        self.recorder.wait()
        return killed_ns

    def listed(self):
        path = self.dataset / 'meta' / 'episodes.jsonl'
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return {line['metadata']['episode_uuid']: line for line in lines}


def check_episode(dataset, line):
    """Load an episode with readers that are not ours."""
    index = line['episode_index']
    table = pq.read_table(dataset / f'data/chunk-000/episode_{index:06d}.parquet')
    assert table.num_rows == line['length'] > 0
    assert table['frame_index'].to_pylist() == list(range(table.num_rows))
    assert set(table['episode_index'].to_pylist()) == {index}
    stamps = {}
    for camera in CAMERAS:
        video = dataset / f'videos/chunk-000/observation.images.{camera}/episode_{index:06d}.mp4'
        with av.open(str(video)) as container:
            frames = [f.to_ndarray(format='rgb24') for f in container.decode(video=0)]
        assert len(frames) == table.num_rows
        stamps[camera] = [source.read(frame) for frame in frames]
        assert stamps[camera] == sorted(stamps[camera])
    # Rows and frames belong together: both cameras and the action carry the same counter.
    actions = np.array(table['action'].to_pylist())[:, 0]
    for counters in stamps.values():
        assert np.abs(np.array(counters) - actions).max() <= 1


@pytest.mark.timeout(120 + 60 * KILLS)
def test_stopped_episodes_survive_and_the_open_one_is_recovered(tmp_path, spawn, graph_probe):
    from praxis_data.bag import BagReader
    from praxis_data.layout import DatasetError
    from praxis_data.recover import recover_bag, recover_episode, unfinished_bags
    from praxis_interfaces.srv import StartEpisode, StopEpisode

    print(f'PRAXIS_SEED={SEED}')
    draw = random.Random(SEED)
    stack = Stack(tmp_path, spawn, graph_probe)
    losses, phases = [], [PHASES[k % len(PHASES)] for k in range(KILLS)]
    for phase in phases:
        acknowledged = stack.start_recorder()
        stack.record(acknowledged, 10)
        pending, open_bag = [], None
        if phase in ('recording', 'saving'):
            started = stack.call(StartEpisode, 'start_episode', task='count')
            assert started.success, started.error_msg
            open_bag = Path(started.bag_path)
            acknowledged.wait(len(acknowledged.messages) + draw.randint(20, 80), 60.0)
        if phase in ('saving', 'starting'):
            kind, name = (
                (StopEpisode, 'stop_episode')
                if phase == 'saving'
                else (StartEpisode, 'start_episode')
            )
            client = stack.probe.node.create_client(kind, name)
            wait_until(client.service_is_ready)
            request = kind.Request() if phase == 'saving' else kind.Request(task='count')
            pending.append(client.call_async(request))
            deadline = time.monotonic() + draw.uniform(0.0, 0.25)
            wait_until(lambda d=deadline: time.monotonic() >= d)
        before = stack.listed()
        killed_ns = stack.kill()
        for future in pending:
            if phase == 'saving' and future.done() and future.result().success:
                stack.stopped[future.result().episode_uuid] = future.result().episode_index
        for path in unfinished_bags(stack.bags):
            in_progress = phase == 'recording' and path == open_bag
            if in_progress:
                recovered = recover_bag(path, tmp_path / 'check' / path.name)
                losses.append((killed_ns - recovered.end_ns) * 1e-9)
                assert losses[-1] < 1.0, f'{losses[-1]:.2f} s lost'
                assert not BagReader(path).closed
            try:
                conversion = recover_episode(path, stack.dataset)
            except DatasetError as error:
                # Killed before a row was complete, or after the episode was published.
                assert not in_progress, error
                continue
            assert conversion.episode_index not in stack.stopped.values()
        after = stack.listed()
        for uuid, index in stack.stopped.items():
            assert after[uuid]['episode_index'] == index
        for uuid, line in before.items():
            assert after[uuid] == line
    assert len(losses) == phases.count('recording')
    for line in stack.listed().values():
        check_episode(stack.dataset, line)
    # The next recorder finds nothing left to recover, and goes on with the next index.
    stack.record(stack.start_recorder(), 5)
    assert max(stack.stopped.values()) == len(stack.listed()) - 1
    assert stack.recorder.stop(signal.SIGTERM) == 0
    print('seconds lost:', [round(loss, 3) for loss in losses])
