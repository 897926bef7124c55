# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path

import av
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cv2
import episode_messages as em
from praxis_data import layout
from praxis_data.assembler import Assembler
from praxis_data.compaction import compact
from praxis_data.compare import compare_episodes
from praxis_data.contact_sheet import contact_sheet, episode_video
from praxis_data.layout import DatasetError
from praxis_data.lerobot_reader import LeRobotReader
from praxis_data.lerobot_writer import LeRobotWriter


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp('dataset')
    contract = em.contract(folder / 'contract')
    writer = LeRobotWriter(folder / 'd', contract)
    for name, length in (('a', 4), ('b', 5), ('c', 6)):
        episode = writer.begin('push', name)
        for row in em.ingest(Assembler(contract), em.episode(length)):
            episode.add(row)
        episode.finish()
    writer.tombstone('b', 'spilt')
    return folder / 'd', contract


def test_compaction_renumbers_into_a_whole_dataset(dataset, tmp_path):
    source, contract = dataset
    before = {p: p.read_bytes() for p in source.rglob('*') if p.is_file()}
    assert compact(source, tmp_path / 'e') == {0: 0, 2: 1}
    assert {p: p.read_bytes() for p in source.rglob('*') if p.is_file()} == before
    reader = LeRobotReader(tmp_path / 'e')
    assert reader.problems() == []
    assert [(e.index, e.episode_uuid, e.length) for e in reader.episodes()] == [
        (0, 'a', 4),
        (1, 'c', 6),
    ]
    assert reader.episode(1).column('index').tolist() == list(range(4, 10))
    assert compare_episodes(source, 'c', tmp_path / 'e', 1).equal
    assert reader.info['total_episodes'] == 2
    assert reader.info['total_frames'] == 10
    expert = json.loads((tmp_path / 'e' / layout.EXPERT).read_text())
    assert [entry['episode_index'] for entry in expert['episodes']] == [0, 1]
    stats = [json.loads(x) for x in (tmp_path / 'e' / layout.STATISTICS).read_text().splitlines()]
    assert stats[1]['stats']['index']['min'] == [4]
    writer = LeRobotWriter(tmp_path / 'e', contract)
    assert writer.index.next_episode == 2


def test_compaction_never_overwrites(dataset, tmp_path):
    (tmp_path / 'e').mkdir()
    with pytest.raises(DatasetError, match='exists'):
        compact(dataset[0], tmp_path / 'e')
    assert [p.name for p in tmp_path.iterdir()] == ['e']


def test_failed_compaction_leaves_nothing(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr('praxis_data.compaction._copy_files', lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        compact(dataset[0], tmp_path / 'e')
    assert list(tmp_path.iterdir()) == []


def test_contact_sheet_has_a_row_a_camera_and_a_column_a_time(dataset, tmp_path):
    path = contact_sheet(dataset[0], 'c', tmp_path / 'out/sheet.png', columns=3, tile_width=64)
    sheet = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
    assert sheet.shape == (4 * 22 + 2 * 48, 3 * 64, 3)
    first_row = 3 * 22
    reader = LeRobotReader(dataset[0])
    for column, frame in enumerate(reader.episode('c').frames_at('top', [0, 2, 5])):
        tile = sheet[first_row + 2 : first_row + 46, column * 64 + 2 : column * 64 + 62]
        small = cv2.resize(frame, (60, 44), interpolation=cv2.INTER_AREA)
        assert np.abs(tile.astype(int) - small).mean() < 1


def test_episode_video_shows_all_cameras_side_by_side(dataset, tmp_path):
    path = episode_video(dataset[0], 2, tmp_path / 'share.mp4', height=48)
    with av.open(str(path)) as container:
        frames = [f.to_ndarray(format='rgb24') for f in container.decode(video=0)]
    assert len(frames) == 6
    assert frames[0].shape == (48, 128, 3)
    assert [em.number_in(f[:, :64]) for f in frames] == list(range(6))
    assert [em.number_in(f[:, 64:]) for f in frames] == list(range(1000, 1006))
