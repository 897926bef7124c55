# SPDX-License-Identifier: Apache-2.0
"""How a foreign OpenPI server wants its requests, as data. Imports no rclpy.

OpenPI's protocol fixes how a dictionary travels, not its keys: each policy has its own. A format
is chosen by the name of a preset, or written as a JSON object, from nothing or from a preset::

    {"preset": "openpi_aloha", "images": {"images/cam_high": "head"}}

Sources: Physical-Intelligence/openpi 15a9616a, ``src/openpi/policies`` for the keys and
``examples/{libero,droid,aloha_real}`` for what is done to images and actions around them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from praxis_core.schema import (
    Count,
    Flag,
    FrozenDict,
    FrozenMap,
    Model,
    Name,
    Number,
    Positive,
    Problem,
    Text,
    as_list,
    explain,
    refuse,
    unknown,
)
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

_PART = re.compile(r'(?P<name>[^\s\[\]:]+)(\[(?P<first>\d+)(?P<span>:(?P<end>\d+))?\])?')


class StatePart(NamedTuple):
    """A physical state, or a part of one: values ``first`` to before ``end``, None: all."""

    name: str
    first: int = 0
    end: int | None = None


def part_of(text: str) -> StatePart:
    """Read ``NAME``, ``NAME[I]`` or ``NAME[I:J]``.

    Raises:
        ValueError: It is none of them, or an empty range.
    """
    match = _PART.fullmatch(text)
    if match is None:
        raise ValueError('must be NAME, NAME[I] or NAME[I:J]')
    if match['first'] is None:
        return StatePart(match['name'])
    first = int(match['first'])
    end = int(match['end']) if match['span'] else first + 1
    if end <= first:
        raise ValueError('must not be an empty range')
    return StatePart(match['name'], first, end)


def _readable_part(text: str) -> str:
    part_of(text)
    return text


Part = Annotated[Name, AfterValidator(_readable_part)]
Parts = Annotated[tuple[Part, ...], BeforeValidator(as_list), Field(min_length=1)]


class RequestFormat(Model):
    """Keys of a foreign request and reply, and what is done to images and actions.

    Attributes:
        name: For messages.
        backend: Name that the model goes by.
        nested: Keys with ``/`` are paths into nested dictionaries; otherwise they are flat.
        images: Key -> camera role.
        every_camera: Key for each camera of the contract, with ``{camera}`` or ``{role}``.
        image_size: Height and width that images are scaled to, padded with black; None: as is.
        image_flip: Done before scaling. openpi's LIBERO policies know mirrored images only.
        channels_first: Images are sent as [3, H, W].
        state: Key -> physical states that are concatenated, each ``NAME``, ``NAME[I]`` or
            ``NAME[I:J]``.
        state_sizes: Length that a physical state must have.
        prompt: Key of the instruction, empty: it is not sent.
        actions: Key of the chunk in the reply, [H, A].
        action_dim: A that the contract must have, None: any.
        chunk_size: H that every chunk must have, None: any.
        policy_hz: Rate of the steps in Hz, None: the contract's.
        execute_steps: Steps to execute of a chunk, None: all.
        clip: Lowest and highest value of an action; beyond them it is set to them.
        gripper_threshold: Above it the gripper is told to close, otherwise to open, in the
            contract's values; None: it is passed on.
        anchors: Action field -> ``STATE[I]`` that it is an offset from.
        check: What the server's metadata is held to.
    """

    name: Name = 'generic'
    backend: Name = 'openpi'
    nested: Flag = False
    images: FrozenMap[Name] = FrozenDict()
    every_camera: Text = ''
    image_size: tuple[Count, Count] | None = None
    image_flip: Literal['none', 'horizontal', 'vertical', 'both'] = 'none'
    channels_first: Flag = False
    state: FrozenMap[Parts] = FrozenDict()
    state_sizes: FrozenMap[Count] = FrozenDict()
    prompt: Text = 'prompt'
    actions: Name = 'actions'
    action_dim: Count | None = None
    chunk_size: Count | None = None
    policy_hz: Positive | None = None
    execute_steps: Count | None = None
    clip: tuple[Number, Number] | None = None
    gripper_threshold: Number | None = None
    anchors: FrozenMap[Text] = FrozenDict()
    check: Literal['nothing', 'rlt_stage2'] = 'nothing'

    @model_validator(mode='after')
    def _consistent(self) -> RequestFormat:
        problems = list(self._clashes())
        pattern = self.every_camera
        if pattern:
            try:
                distinct = pattern.format(camera='a', role='b') != pattern.format(
                    camera='c', role='d'
                )
            except (KeyError, IndexError, ValueError):
                distinct = False
            if not distinct:
                reason = 'must hold {camera} or {role} and no other field'
                problems.append(Problem('every_camera', reason, pattern))
        if not self.images and not pattern and not self.state:
            problems.append(Problem('images', 'or state must be given', {}))
        named = {part_of(part).name for parts in self.state.values() for part in parts}
        problems += [
            Problem(f'state_sizes.{name}', unknown(name, sorted(named)), size)
            for name, size in self.state_sizes.items()
            if name not in named
        ]
        if self.clip is not None and self.clip[0] >= self.clip[1]:
            problems.append(Problem('clip', 'must be the lower and the higher value', self.clip))
        refuse(problems)
        return self

    def _clashes(self) -> Iterator[Problem]:
        """Two entries of the request in one place."""
        taken: dict[tuple[str, ...], str] = {}
        entries = [(f'images.{key}', key) for key in self.images]
        entries += [(f'state.{key}', key) for key in self.state]
        if self.prompt:
            entries.append(('prompt', self.prompt))
        for where, key in entries:
            path = self.path(key)
            if not all(path):
                yield Problem(where, 'has an empty step', key)
            for other, holder in taken.items():
                shorter = min(len(path), len(other))
                if path[:shorter] == other[:shorter]:
                    yield Problem(where, f'is the place of {holder}', key)
            taken[path] = where

    def path(self, key: str) -> tuple[str, ...]:
        """Keys from the outside in that lead to an entry of the request."""
        return tuple(key.split('/')) if self.nested else (key,)


PRESETS: Mapping[str, RequestFormat] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            RequestFormat(
                name='openpi_libero',
                images={'observation/image': 'primary', 'observation/wrist_image': 'wrist'},
                image_size=(224, 224),
                image_flip='horizontal',
                state={'observation/state': ('state',)},
                state_sizes={'state': 8},
                action_dim=7,
                policy_hz=20.0,
                execute_steps=5,
                clip=(-1.0, 1.0),
            ),
            RequestFormat(
                name='openpi_droid',
                images={
                    'observation/exterior_image_1_left': 'primary',
                    'observation/wrist_image_left': 'wrist',
                },
                image_size=(224, 224),
                state={
                    'observation/joint_position': ('state[0:7]',),
                    'observation/gripper_position': ('state[7]',),
                },
                state_sizes={'state': 8},
                action_dim=8,
                policy_hz=15.0,
                execute_steps=8,
                clip=(-1.0, 1.0),
                gripper_threshold=0.5,
            ),
            RequestFormat(
                name='openpi_aloha',
                nested=True,
                images={
                    'images/cam_high': 'head',
                    'images/cam_left_wrist': 'left_wrist',
                    'images/cam_right_wrist': 'right_wrist',
                },
                image_size=(224, 224),
                channels_first=True,
                state={'state': ('state',)},
                state_sizes={'state': 14},
                action_dim=14,
                policy_hz=50.0,
                execute_steps=25,
            ),
            RequestFormat(
                name='rlt',
                backend='rlt',
                nested=True,
                every_camera='images/{camera}',
                state={'state': ('state',)},
                check='rlt_stage2',
            ),
        )
    }
)
"""By name. ``state`` is the contract's state vector: LIBERO's is position, axis-angle and fingers,
DROID's seven joints and the gripper (0 open, 1 closed), ALOHA's six joints and gripper of the left
arm, then of the right. ``rlt`` is the reference's RL-token actor server."""


def read_format(text: str) -> RequestFormat | None:
    """Read the name of a preset or a JSON object; empty, or ``praxis``: None, our own protocol.

    Raises:
        ValueError: One line a fault, each naming the key and the value.
    """
    text = text.strip()
    if text in ('', 'praxis'):
        return None
    if not text.startswith('{'):
        if text not in PRESETS:
            known = ', '.join(PRESETS)
            raise ValueError(f'must be praxis, {known} or a JSON object (got {text!r})')
        return PRESETS[text]
    try:
        given: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise ValueError(f'is not JSON: {error}') from None
    preset = given.pop('preset', None)
    if preset is not None:
        if preset not in PRESETS:
            raise ValueError(f'preset: must be one of {", ".join(PRESETS)} (got {preset!r})')
        given = {**PRESETS[preset].model_dump(exclude_defaults=True), **given}
    try:
        return RequestFormat.model_validate(given)
    except ValidationError as error:
        raise ValueError('\n'.join(explain(error, 'format'))) from None
