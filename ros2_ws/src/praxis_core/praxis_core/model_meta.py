# SPDX-License-Identifier: Apache-2.0
"""What an action model says of itself before its first inference. Imports no rclpy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from praxis_core.exchange_error import ExchangeError, described
from praxis_core.native_control import NativeControl
from praxis_core.schema import (
    Count,
    Flag,
    FrozenDict,
    FrozenMap,
    Model,
    Name,
    Names,
    Positive,
    Problem,
    Text,
    faults,
    refuse,
    repeated,
    unknown,
)

PROTOCOL = 'praxis.model.v1'
"""A server that does not say it speaks OpenPI's protocol with a dictionary of its own."""

_STATE_FIELD = re.compile(r'(?P<name>[^\s\[\]]+)\[(?P<index>\d+)\]')


class ModelMeta(Model):
    """Capability of one loaded model.

    Attributes:
        backend: Name of the back end, such as ``openpi``.
        checkpoint: What was loaded; empty where the back end has no weights.
        control: Control that its actions are in.
        camera_roles: Roles of the images that it wants, uint8[H, W, 3] RGB.
        state_schema: Physical states that it wants, and the length of each.
        chunk_size: Steps H of every chunk, None where it varies.
        uses_sessions: It remembers an episode, and must be told when one ends.
        returns_future_observation: It predicts frames.
        returns_value: It predicts a value of the state.
        policy_hz: Rate of the steps in Hz, None: that of the contract.
        execute_steps: Steps to execute of a chunk before the next, None: all.
        anchors: Action field -> ``STATE[INDEX]`` of the observation that the value is an offset
            from. Fields that are not named are as the control says.
        interface_hash: Contract it was trained for, empty where it is not known.
        metadata: Whatever else it states, as JSON values.
    """

    protocol: Literal['praxis.model.v1'] = PROTOCOL
    backend: Name
    checkpoint: Text = ''
    control: NativeControl
    camera_roles: Names = ()
    state_schema: FrozenMap[Count] = FrozenDict()
    chunk_size: Count | None = None
    uses_sessions: Flag = False
    returns_future_observation: Flag = False
    returns_value: Flag = False
    policy_hz: Positive | None = None
    execute_steps: Count | None = None
    anchors: FrozenMap[Text] = FrozenDict()
    interface_hash: Text = ''
    metadata: Annotated[dict[str, Any], Field(default_factory=dict)]

    @model_validator(mode='after')
    def _consistent(self) -> ModelMeta:
        problems = repeated(self.camera_roles, 'camera_roles')
        for field, anchor in self.anchors.items():
            key = f'anchors.{field}'
            if field not in self.control.action_schema:
                problems.append(Problem(key, unknown(field, self.control.action_schema), field))
            match = _STATE_FIELD.fullmatch(anchor)
            if match is None:
                problems.append(Problem(key, 'must be STATE[INDEX]', anchor))
            elif int(match['index']) >= self.state_schema.get(match['name'], 0):
                problems.append(Problem(key, 'must be in state_schema', anchor))
        if (
            self.chunk_size is not None
            and self.execute_steps is not None
            and self.execute_steps > self.chunk_size
        ):
            reason = f'must be at most chunk_size {self.chunk_size}'
            problems.append(Problem('execute_steps', reason, self.execute_steps))
        refuse(problems)
        return self

    def to_wire(self) -> dict[str, Any]:
        """Plain values, as the first frame of a connection carries them."""
        return self.model_dump(mode='json')

    def anchored(self) -> Iterator[tuple[int, str, int]]:
        """Relative fields: index of the action field, name of the state and index in it."""
        for field, anchor in self.anchors.items():
            match = _STATE_FIELD.fullmatch(anchor)
            assert match is not None
            yield self.control.action_schema.index(field), match['name'], int(match['index'])


def read_meta(wire: Any) -> ModelMeta:
    """Read what `ModelMeta.to_wire` wrote; keys that a later version adds are left out.

    Raises:
        ExchangeError: It is not the metadata of a model; names the field.
    """
    if not isinstance(wire, Mapping):
        raise ExchangeError('metadata', 'a mapping', described(wire))
    known = {key: value for key, value in wire.items() if key in ModelMeta.model_fields}
    if 'protocol' not in known:
        raise ExchangeError('metadata.protocol', PROTOCOL, 'nothing')
    try:
        return ModelMeta.model_validate(known)
    except ValidationError as error:
        key, reason, value = faults(error)[0]
        raise ExchangeError(f'metadata.{key}', _wanted(reason), described(value)) from None


def _wanted(reason: str) -> str:
    prefix = 'must be '
    return reason.removeprefix(prefix) if reason.startswith(prefix) else f'another value: {reason}'
