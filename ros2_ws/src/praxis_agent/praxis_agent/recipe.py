# SPDX-License-Identifier: Apache-2.0
"""Recipes: a plan over anchors that are found again by perception each time. Imports no rclpy.

An anchor is a relation ("the bowl between the plate and the ramekin"), never a coordinate: the
schema has no field that takes one. Steps are placed by offsets from an anchor or from the hand,
in metres and bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

HAND = 'hand'
"""Anchor of the end effector itself, for moves relative to where it is."""

MAX_OFFSET = 0.40
"""m; an offset beyond it would be a coordinate in disguise."""

Name = Annotated[str, Field(pattern=r'^[a-z][a-z0-9_]*$')]
Phrase = Annotated[str, Field(min_length=1, pattern=r'[a-zA-Z]')]
Component = Annotated[float, Field(ge=-MAX_OFFSET, le=MAX_OFFSET)]
Offset = Annotated[list[Component], Field(min_length=3, max_length=3)]
GripperWord = Literal['open', 'close']


class RecipeError(ValueError):
    """A recipe that cannot be used; the message names file, key and reason."""


class Part(BaseModel):
    """Base of everything in a recipe: an unknown key is an error."""

    model_config = ConfigDict(extra='forbid', frozen=True, allow_inf_nan=False)


class Relation(Part):
    """Which of several objects is meant; exactly one field is given.

    Sides are those of the camera image: ``left_of`` is towards smaller columns.
    """

    between: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None
    nearest_to: Name | None = None
    farthest_from: Name | None = None
    left_of: Name | None = None
    right_of: Name | None = None
    on_top_of: Name | None = None
    in_front_of: Name | None = None
    behind: Name | None = None
    only: Literal[True] | None = None
    leftmost: Literal[True] | None = None
    rightmost: Literal[True] | None = None
    largest: Literal[True] | None = None

    @model_validator(mode='after')
    def _one(self) -> Relation:
        if len(self.model_fields_set) != 1:
            raise ValueError(f'give exactly one relation of {", ".join(type(self).model_fields)}')
        return self

    @property
    def kind(self) -> str:
        """Name of the relation."""
        return next(iter(self.model_fields_set))

    @property
    def references(self) -> list[str]:
        """Anchors it refers to."""
        value = getattr(self, self.kind)
        return [] if value is True else [value] if isinstance(value, str) else list(value)


class Anchor(Part):
    """An object of the scene, in words."""

    find: Phrase
    where: Relation = Relation(only=True)
    camera: Annotated[str, Field(min_length=1)] = 'agentview'


class Place(Part):
    """Where a move goes: an offset from an anchor.

    Attributes:
        at: Anchor, or ``hand``.
        level: Height the offset counts from: top or bottom of the anchor's visible surface.
        offset: m; x and y are the base frame's, or the object's with ``frame: object`` (x along
            its long
            side).
        frame: Axes of the offset.
        yaw: ``along`` puts the hand's x axis along the object's long side, ``across`` across
            it, so
            that the fingers close over the other side; unset leaves the wrist.
        yaw_offset: rad added to it.
    """

    at: Name
    level: Literal['top', 'bottom'] = 'top'
    offset: Offset = [0.0, 0.0, 0.0]
    frame: Literal['base', 'object'] = 'base'
    yaw: Literal['along', 'across'] | None = None
    yaw_offset: Annotated[float, Field(ge=-3.2, le=3.2)] = 0.0

    @model_validator(mode='after')
    def _hand(self) -> Place:
        if self.at == HAND and (self.frame == 'object' or self.yaw is not None):
            raise ValueError('the hand has no long side: use the base frame and no yaw')
        return self


class MoveTo(Place):
    """Arguments of ``move_to`` relative to an anchor."""

    gripper: GripperWord = 'open'
    tol: Annotated[float, Field(gt=0, le=0.1)] | None = None
    step_clip: Annotated[float, Field(gt=0, le=0.1)] | None = None
    max_steps: Annotated[int, Field(ge=1, le=400)] | None = None
    must_reach: bool = True


class RotateWrist(Part):
    """Turn the wrist by an angle in rad."""

    delta_yaw: Annotated[float, Field(ge=-3.2, le=3.2)]
    gripper: GripperWord = 'close'
    max_steps: Annotated[int, Field(ge=1, le=400)] | None = None


class RotatePitch(Part):
    """Pitch the hand by, or to, an angle in rad."""

    delta_pitch: Annotated[float, Field(ge=-1.5, le=1.5)] | None = None
    target_pitch: Annotated[float, Field(ge=-1.5, le=1.5)] | None = None
    gripper: GripperWord = 'close'
    max_steps: Annotated[int, Field(ge=1, le=400)] | None = None

    @model_validator(mode='after')
    def _one(self) -> RotatePitch:
        if (self.delta_pitch is None) == (self.target_pitch is None):
            raise ValueError('give exactly one of delta_pitch and target_pitch')
        return self


class SetGripper(Part):
    """Open or close for a number of control periods."""

    gripper: GripperWord
    steps: Annotated[int, Field(ge=1, le=100)] = 5


class Release(Part):
    """Open until the hand has opened."""

    max_steps: Annotated[int, Field(ge=1, le=100)] = 20


class Opening(Part):
    """Bounds on the gripper's opening in m."""

    above: Annotated[float, Field(ge=0, le=0.2)] = 0.0
    below: Annotated[float, Field(ge=0, le=0.2)] = 0.2


class Stands(Part):
    """An object stands on, or in, another, as perception sees it."""

    object: Name
    over: Name
    within: Annotated[float, Field(gt=0, le=0.3)] = 0.06


class Verify(Part):
    """A check by gripper or perception; exactly one is given."""

    gripper_opening: Opening | None = None
    stands: Stands | None = None

    @model_validator(mode='after')
    def _one(self) -> Verify:
        if len(self.model_fields_set) != 1:
            raise ValueError('give exactly one of gripper_opening and stands')
        return self


class Attempt(Part):
    """Steps, a check, and what to do before trying again.

    Attributes:
        steps: Tried in order; a step that fails ends the attempt.
        verify: Must hold afterwards.
        retries: Further attempts.
        recover: Carried out before each of them; its failures do not count.
        required: Whether the run fails when no attempt has worked.
    """

    steps: Annotated[list[Step], Field(min_length=1)]
    verify: Verify | None = None
    retries: Annotated[int, Field(ge=0, le=5)] = 1
    recover: list[Step] = []
    required: bool = True


class Step(Part):
    """One step of a plan: a mapping with exactly one key."""

    locate: Annotated[list[Name], Field(min_length=1)] | None = None
    move_to: MoveTo | None = None
    rotate_wrist: RotateWrist | None = None
    rotate_pitch: RotatePitch | None = None
    set_gripper: SetGripper | None = None
    release: Release | None = None
    verify: Verify | None = None
    attempt: Attempt | None = None

    @model_validator(mode='after')
    def _one(self) -> Step:
        if len(self.model_fields_set) != 1 or getattr(self, self.kind) is None:
            raise ValueError(f'a step is one of {", ".join(type(self).model_fields)}')
        return self

    @property
    def kind(self) -> str:
        """Name of the step."""
        return next(iter(self.model_fields_set))


Attempt.model_rebuild()


class Recipe(Part):
    """How to carry out one task on some embodiments."""

    schema_version: Literal[1]
    name: Name
    embodiments: Annotated[list[str], Field(min_length=1)]
    instructions: Annotated[list[Phrase], Field(min_length=1)]
    anchors: Annotated[dict[Name, Anchor], Field(min_length=1)]
    plan: Annotated[list[Step], Field(min_length=1)]

    @field_validator('anchors')
    @classmethod
    def _known(cls, anchors: dict[str, Anchor]) -> dict[str, Anchor]:
        if HAND in anchors:
            raise ValueError(f'{HAND!r} is the end effector, not an anchor')
        for name, anchor in anchors.items():
            for other in anchor.where.references:
                if other not in anchors or other == name:
                    raise ValueError(f'{name}: relation to {other!r}, which is no other anchor')
        for name in anchors:
            _check_cycle(name, anchors, ())
        return anchors

    @model_validator(mode='after')
    def _steps(self) -> Recipe:
        for step in walk(self.plan):
            for name in _anchors_of(step):
                if name != HAND and name not in self.anchors:
                    raise ValueError(
                        f'{step.kind}: {name!r} is no anchor; there are {", ".join(self.anchors)}'
                    )
        return self

    @property
    def step_count(self) -> int:
        """Steps of one pass through the plan."""
        return sum(1 for step in walk(self.plan) if step.attempt is None)


def _check_cycle(name: str, anchors: Mapping[str, Anchor], path: tuple[str, ...]) -> None:
    if name in path:
        raise ValueError(f'anchors refer to each other in a circle: {" -> ".join((*path, name))}')
    for other in anchors[name].where.references:
        if other in anchors:
            _check_cycle(other, anchors, (*path, name))


def _anchors_of(step: Step) -> list[str]:
    if step.locate is not None:
        return step.locate
    if step.move_to is not None:
        return [step.move_to.at]
    verify = step.verify or (step.attempt.verify if step.attempt is not None else None)
    if verify is not None and verify.stands is not None:
        return [verify.stands.object, verify.stands.over]
    return []


def walk(steps: Iterable[Step]) -> Iterable[Step]:
    """Every step of a plan, those within attempts included."""
    for step in steps:
        yield step
        if step.attempt is not None:
            yield from walk(step.attempt.steps)
            yield from walk(step.attempt.recover)


def parse_recipe(text: str, origin: str = 'recipe') -> Recipe:
    """Recipe of a YAML text.

    Raises:
        RecipeError: Not YAML, or against the schema; names ``origin``, key and reason.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f'{origin}: not YAML: {error}') from error
    if not isinstance(data, dict):
        raise RecipeError(f'{origin}: a recipe is a mapping')
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        reasons = '; '.join(_reason(item) for item in error.errors())
        raise RecipeError(f'{origin}: {reasons}') from error


def _reason(item: Mapping[str, Any]) -> str:
    """Key, reason and value of one pydantic error."""
    key = '.'.join(str(part) for part in item['loc']) or 'recipe'
    if item['type'] == 'missing':
        return f'{key}: is missing'
    text = 'unknown key' if item['type'] == 'extra_forbidden' else item['msg']
    # Of a mapping the key says enough.
    value = '' if isinstance(item['input'], Mapping | BaseModel) else f' (got {item["input"]!r})'
    return f'{key}: {text}{value}'


def describe(step: Step) -> str:
    """A step in a few words, for feedback."""
    part = getattr(step, step.kind)
    if step.kind == 'locate':
        return f'locate {", ".join(part)}'
    if step.kind == 'move_to':
        return f'move_to {part.at}'
    return step.kind
