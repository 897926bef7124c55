# SPDX-License-Identifier: Apache-2.0
"""H.264 episode videos that browsers play: encoding on threads, exact decoding."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from av.video.reformatter import ColorRange, Colorspace

from praxis_data.statistics import ImageStatistics


class VideoError(RuntimeError):
    """A video cannot be written or read; the message names file and reason."""


@dataclass(frozen=True)
class VideoSettings:
    """How episodes are encoded; equal settings and images give equal files.

    Attributes:
        preset: x264 speed against size, `ultrafast` to `veryslow`.
        crf: Constant rate factor, 0 (lossless) to 51.
        gop: Frames from one key frame to the next; a reader that wants one frame decodes at
            most this many.
    """

    preset: str = 'ultrafast'
    crf: int = 20
    gop: int = 10

    def info(self, fps: float) -> dict[str, Any]:
        """Return the `info` of a video feature, less height and width."""
        return {
            'video.codec': 'h264',
            'video.pix_fmt': 'yuv420p',
            'video.is_depth_map': False,
            'video.fps': fps,
            'video.channels': 3,
            'has_audio': False,
        }

    def asdict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)


class VideoEncoder:
    """Write one MP4, frame after frame.

    Args:
        path: File to create.
        width: Pixels, even.
        height: Pixels, even.
        fps: Frames per second.
        settings: Encoder settings.

    Raises:
        VideoError: Odd size (4:2:0 needs even ones), or the encoder refuses the settings.
    """

    def __init__(
        self, path: Path, width: int, height: int, fps: float, settings: VideoSettings
    ) -> None:
        if width % 2 or height % 2:
            raise VideoError(f'{path}: H.264 4:2:0 needs an even size, not {width}x{height}')
        self.path = path
        self.frames = 0
        self._shape = (height, width, 3)
        rate = Fraction(fps).limit_denominator(1001)
        try:
            self._container = av.open(
                str(path), 'w', format='mp4', options={'movflags': '+faststart'}
            )
            stream = self._container.add_stream('libx264', rate=rate)
            stream.width, stream.height, stream.pix_fmt = width, height, 'yuv420p'
            stream.gop_size = settings.gop
            context = stream.codec_context
            context.time_base = Fraction(rate.denominator, rate.numerator)
            # One thread per camera and no B-frames: the same bytes on every machine, and
            # presentation in row order from 0.
            context.thread_count = 1
            context.max_b_frames = 0
            context.color_range = ColorRange.MPEG
            context.colorspace = Colorspace.SMPTE170M
            context.color_primaries = 6
            context.color_trc = 6
            context.options = {
                'preset': settings.preset,
                'crf': str(settings.crf),
                'x264-params': f'keyint={settings.gop}:min-keyint={settings.gop}:scenecut=0',
            }
            context.open()
        except (av.FFmpegError, ValueError) as error:
            raise VideoError(f'{path}: encoder does not open: {error}') from error
        self._stream = stream

    def encode(self, rgb: np.ndarray) -> None:
        """Append one frame, uint8[H, W, 3] RGB."""
        if rgb.shape != self._shape or rgb.dtype != np.uint8:
            raise VideoError(
                f'{self.path}: frame is {rgb.dtype} {rgb.shape}, not uint8 {self._shape}'
            )
        planes = cv2.cvtColor(rgb, cv2.COLOR_RGB2YUV_I420)
        frame = av.VideoFrame.from_numpy_buffer(planes, format='yuv420p')
        frame.pts = self.frames
        frame.time_base = self._stream.codec_context.time_base
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
        self.frames += 1

    def close(self) -> int:
        """Finish the file and return the number of frames in it."""
        for packet in self._stream.encode(None):
            self._container.mux(packet)
        self._container.close()
        return self.frames


class EncoderThread:
    """A `VideoEncoder` fed by a bounded queue; libx264 and OpenCV release the interpreter lock.

    Args:
        encoder: The encoder; used by the thread alone until `finish` or `abort` returns.
        depth: Frames that may wait; `put` blocks beyond it.
    """

    def __init__(self, encoder: VideoEncoder, depth: int = 16) -> None:
        self._encoder = encoder
        self._queue: queue.Queue[np.ndarray | None] = queue.Queue(depth)
        self._error: Exception | None = None
        self.statistics = ImageStatistics()
        self._thread = threading.Thread(
            target=self._work, name=f'encode-{encoder.path.stem}', daemon=True
        )
        self._thread.start()

    @property
    def path(self) -> Path:
        """File being written."""
        return self._encoder.path

    def put(self, rgb: np.ndarray) -> None:
        """Hand over the next frame, which must not change afterwards.

        Raises:
            VideoError: An earlier frame could not be encoded.
        """
        if self._error is not None:
            raise VideoError(f'{self.path}: {self._error}') from self._error
        self._queue.put(rgb)

    def _work(self) -> None:
        while (rgb := self._queue.get()) is not None:
            if self._error is not None:
                continue
            try:
                self._encoder.encode(rgb)
                self.statistics.add(rgb)
            except Exception as error:
                self._error = error

    def finish(self) -> int:
        """Encode what waits, close the file and return its frames.

        Raises:
            VideoError: Something could not be encoded.
        """
        self.abort_wait()
        try:
            if self._error is not None:
                raise self._error
            return self._encoder.close()
        except Exception as error:
            self._error = error
            raise VideoError(f'{self.path}: {error}') from error

    def abort(self) -> None:
        """Stop without finishing the file."""
        self._error = self._error or VideoError('aborted')
        self.abort_wait()

    def abort_wait(self) -> None:
        """End the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()


def read_frames(path: Path) -> Iterator[np.ndarray]:
    """Decode a video; yields uint8[H, W, 3] RGB in order of presentation.

    Raises:
        VideoError: The file is missing or damaged.
    """
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_type = 'AUTO'
            for frame in container.decode(stream):
                yield frame.to_ndarray(format='rgb24')
    except (av.FFmpegError, IndexError) as error:
        raise VideoError(f'{path}: {error}') from error


def count_frames(path: Path) -> int:
    """Return the number of frames that a video decodes to."""
    try:
        with av.open(str(path)) as container:
            return sum(1 for _ in container.decode(container.streams.video[0]))
    except (av.FFmpegError, IndexError) as error:
        raise VideoError(f'{path}: {error}') from error


def pick_frames(path: Path, indices: list[int]) -> list[np.ndarray]:
    """Decode single frames by row index, each from the key frame before it."""
    picked = []
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            step = 1 / (stream.average_rate * stream.time_base)
            for index in indices:
                target = round(index * step)
                container.seek(target, stream=stream)
                for frame in container.decode(stream):
                    if frame.pts >= target:
                        picked.append(frame.to_ndarray(format='rgb24'))
                        break
                else:
                    raise VideoError(f'{path}: has no frame {index}')
    except (av.FFmpegError, IndexError) as error:
        raise VideoError(f'{path}: {error}') from error
    return picked
