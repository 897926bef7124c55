# SPDX-License-Identifier: Apache-2.0
"""Pictures of an episode to look at and to pass on: a contact sheet, one video of all cameras."""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np

from praxis_data.lerobot_reader import Episode, LeRobotReader
from praxis_data.video import VideoEncoder, VideoSettings

_INK, _PAPER, _MARK = (230, 230, 230), (24, 24, 24), (255, 170, 60)
_BAND = 22


def contact_sheet(
    dataset: str | os.PathLike[str],
    episode: int | str,
    path: str | os.PathLike[str],
    columns: int = 6,
    tile_width: int = 240,
) -> Path:
    """Write a PNG of an episode: one row a camera, one column a time.

    Args:
        dataset: Dataset folder.
        episode: Index or UUID.
        path: PNG to write.
        columns: Times, evenly spaced from the first row to the last.
        tile_width: Width of one picture, pixels.
    """
    reader = LeRobotReader(dataset)
    found = reader.episode(episode)
    rows = sorted(set(np.linspace(0, found.length - 1, columns).round().astype(int).tolist()))
    lines = [
        np.hstack([_tile(rgb, tile_width) for rgb in found.frames_at(camera, rows)])
        for camera in found.cameras
    ]
    sheet = [_caption(found, reader.fps, rows, tile_width)]
    for camera, line in zip(found.cameras, lines, strict=True):
        sheet += [_band(camera, line.shape[1]), line]
    rgb = np.vstack(sheet)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(target), cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)):
        raise OSError(f'{target}: cannot be written')
    return target


def episode_video(
    dataset: str | os.PathLike[str],
    episode: int | str,
    path: str | os.PathLike[str],
    height: int = 320,
    settings: VideoSettings | None = None,
) -> Path:
    """Write one MP4 with all cameras of an episode side by side.

    Args:
        dataset: Dataset folder.
        episode: Index or UUID.
        path: MP4 to write.
        height: Of every camera's picture, pixels, even.
        settings: Video encoding; smaller files than the dataset's by default.
    """
    reader = LeRobotReader(dataset)
    found = reader.episode(episode)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    encoder = None
    for pictures in zip(*(found.frames(camera) for camera in found.cameras), strict=True):
        joined = np.hstack([_scaled(rgb, height) for rgb in pictures])
        if encoder is None:
            encoder = VideoEncoder(
                target,
                joined.shape[1],
                joined.shape[0],
                reader.fps,
                settings or VideoSettings('veryfast', 23, 20),
            )
        encoder.encode(joined)
    if encoder is not None:
        encoder.close()
    return target


def _scaled(rgb: np.ndarray, height: int) -> np.ndarray:
    width = 2 * round(rgb.shape[1] * height / rgb.shape[0] / 2)
    return cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA)


def _tile(rgb: np.ndarray, width: int) -> np.ndarray:
    height = round(rgb.shape[0] * width / rgb.shape[1])
    picture = cv2.resize(rgb, (width - 4, height - 4), interpolation=cv2.INTER_AREA)
    return cv2.copyMakeBorder(picture, 2, 2, 2, 2, cv2.BORDER_CONSTANT, value=_PAPER)


def _band(text: str, width: int, colour: tuple[int, int, int] = _INK) -> np.ndarray:
    band = np.full((_BAND, width, 3), _PAPER, np.uint8)
    return _write(band, text, 6, colour)


def _write(band: np.ndarray, text: str, x: int, colour: tuple[int, int, int] = _INK) -> np.ndarray:
    return cv2.putText(
        band, text, (x, _BAND - 7), cv2.FONT_HERSHEY_SIMPLEX, 0.45, colour, 1, cv2.LINE_AA
    )


def _caption(found: Episode, fps: float, rows: list[int], width: int) -> np.ndarray:
    total = width * len(rows)
    outcome = found.metadata.get('outcome', 'unknown')
    task = '; '.join(found.tasks).encode('ascii', 'replace').decode()
    title = f'{task}  |  episode {found.index}, {found.length} rows at {fps:g} Hz, {outcome}'
    times = _band('', total)
    intervened = found.column('intervention')
    for place, row in enumerate(rows):
        colour = _MARK if intervened[row] else _INK
        times = _write(times, f'{row / fps:.2f} s', place * width + 6, colour)
    return np.vstack([_band(title, total), times])
