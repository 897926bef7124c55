# SPDX-License-Identifier: Apache-2.0
"""Serialized messages of a made-up episode, for the tests of this package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from praxis_core.contract import Contract, load_contract
from praxis_core.images import encode_jpeg, encode_png
from praxis_data import messages

ROOT = Path(__file__).resolve().parents[4]
T0 = 1_700_000_000_000_000_000

CONTRACT = """\
schema_version: 2
name: bench
interface:
  embodiment: bench_2d
  robot_type: bench
  policy_hz: 20.0
  action_space: bench.delta.v1
  action_kind: delta
  gripper: {action: grip, open: -1.0, close: 1.0}
  state: {names: [x, y, opening], units: [m, m, m]}
  action: {names: [dx, grip], units: [normalised, normalised]}
  cameras:
    top: {role: primary, width: %(width)d, height: %(height)d, channels: 3}
    wrist: {role: wrist, width: %(width)d, height: %(height)d, channels: 3}
deployment:
  base_frame: world
  command_hz: 20.0
  record_hz: 20.0
  cameras:
    top: {fps: 20.0, frame: top_optical_frame, max_age: 0.15}
    wrist: {fps: 20.0, frame: wrist_optical_frame, max_age: 0.15}
  limits:
    dx: {min: -1.0, max: 1.0, max_step: 2.0}
    grip: {min: -1.0, max: 1.0, max_step: 2.0}
  max_age: {state: 0.25, request: 0.25}
"""


def contract(folder: Path, width: int = 64, height: int = 48, **changes: str) -> Contract:
    """Load a contract with two cameras; `changes` replace text in its YAML."""
    text = CONTRACT % {'width': width, 'height': height}
    for old, new in changes.items():
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / 'bench.yaml'
    path.write_text(text)
    return load_contract(path)


@dataclass(frozen=True)
class Event:
    """One message, its header stamp and the delay after which it arrives, ns."""

    topic: str
    typename: str
    data: bytes
    stamp: int
    delay: int = 0

    @property
    def arrival(self) -> int:
        return self.stamp + self.delay


def header(stamp: int, frame: str = 'world') -> dict:
    return {'stamp': messages.time_fields(stamp), 'frame_id': frame}


def state(stamp, seq, values, uuid='episode-a', cameras=('top', 'wrist'), interface_hash=''):
    kind = 'praxis_interfaces/msg/StateVector'
    message = messages.make(
        kind,
        header=header(stamp),
        observation_seq=seq,
        episode_uuid=uuid,
        interface_hash=interface_hash,
        values=values,
        cameras=list(cameras),
    )
    return Event('state', kind, messages.encode(kind, message), stamp)


def command(stamp, seq, values, requested=None, source='policy', hold=False, uuid='episode-a'):
    kind = 'praxis_interfaces/msg/Command'
    message = messages.make(
        kind,
        header=header(stamp),
        seq=seq,
        source=source,
        episode_uuid=uuid,
        values=values,
        requested=values if requested is None else requested,
        hold=hold,
    )
    return Event('command', kind, messages.encode(kind, message), stamp)


def status(stamp, mode, source='', intervention=False):
    kind = 'praxis_interfaces/msg/ControlStatus'
    message = messages.make(
        kind,
        header=header(stamp),
        mode=mode,
        active_source=source,
        intervention=intervention,
        holding=mode == 0,
    )
    return Event('control_status', kind, messages.encode(kind, message), stamp)


def picture(number: int, width: int = 64, height: int = 48) -> np.ndarray:
    """Draw an image that shows `number` as 16 black or white blocks, over a soft pattern."""
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([x * 3 + number, y * 5, (x + y + 7 * number) * 2], axis=-1).astype(np.uint8)
    rgb = cv2.GaussianBlur(rgb, (5, 5), 0)
    size = width // 16
    for bit in range(16):
        rgb[:size, bit * size : (bit + 1) * size] = 255 if number >> bit & 1 else 0
    return rgb


def number_in(rgb: np.ndarray) -> int:
    """Read back what `picture` painted."""
    size = rgb.shape[1] // 16
    blocks = [rgb[: size or 1, bit * size : (bit + 1) * size].mean() for bit in range(16)]
    return sum(1 << bit for bit, level in enumerate(blocks) if level > 127)


def image(stamp, camera, rgb, encoding='raw', namespace=''):
    if encoding == 'raw':
        kind, topic = 'sensor_msgs/msg/Image', f'cameras/{camera}/image_raw'
        height, width = rgb.shape[:2]
        message = messages.make(
            kind,
            header=header(stamp, f'{camera}_optical_frame'),
            height=height,
            width=width,
            encoding='rgb8',
            step=3 * width,
            data=np.ascontiguousarray(rgb).tobytes(),
        )
    else:
        kind = 'sensor_msgs/msg/CompressedImage'
        topic = f'cameras/{camera}/image_raw/compressed'
        payload = encode_jpeg(rgb) if encoding == 'jpeg' else encode_png(rgb)
        message = messages.make(
            kind, header=header(stamp, f'{camera}_optical_frame'), format=encoding, data=payload
        )
    return Event(namespace + topic, kind, messages.encode(kind, message), stamp)


def tick(number: int, hz: float = 20.0) -> int:
    return T0 + round(number * 1e9 / hz)


def episode(length=12, uuid='episode-a', first=0, encoding='raw', size=(64, 48), hz=20.0):
    """Return the events of a regular episode in the order a simulator and arbiter send them."""
    events = [status(tick(first, hz) - 1_000_000, 1, 'policy')]
    for k in range(first, first + length):
        stamp = tick(k, hz)
        for camera in ('top', 'wrist'):
            rgb = picture(k if camera == 'top' else k + 1000, *size)
            events.append(image(stamp, camera, rgb, encoding))
        events.append(state(stamp, k, [k * 0.01, -k * 0.01, 0.05], uuid))
        events.append(command(stamp, k, [np.sin(k / 5), 1.0], [2 * np.sin(k / 5), 1.0], uuid=uuid))
    return events


def ingest(assembler, events, close=True):
    """Feed events by arrival, log time running like the recorder's; return the rows."""
    rows, log = [], 0
    for event in events:
        log = max(log, event.arrival)
        rows += assembler.ingest(event.topic, event.typename, event.data, log)
    return rows + assembler.close() if close else rows
