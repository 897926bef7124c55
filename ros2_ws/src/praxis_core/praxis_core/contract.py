# SPDX-License-Identifier: Apache-2.0
"""The contract of one embodiment: names, order, units, rates, limits, cameras. Imports no rclpy.

``params/robots/NAME.yaml`` is the only place where these are stated. Its *interface* part is what
a model is trained on; its *deployment* part is how one machine realises it. Each has a SHA-256
over its canonical JSON, so layout, comments and key order of the file do not matter.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import PrivateAttr, ValidationError, model_validator

from praxis_core import strictyaml
from praxis_core.deployment import Deployment, Limit
from praxis_core.interface import Interface
from praxis_core.legacy import LegacyContract
from praxis_core.schema import Model, Name, Problem, explain, key_problems, refuse, shown


class ContractError(ValueError):
    """A contract that is not valid, one line a fault: ``FILE: KEY: reason (got VALUE)``."""


class Contract(Model):
    """One embodiment on one machine; see the module's text. Frozen."""

    schema_version: Literal[2]
    name: Name
    interface: Interface
    deployment: Deployment
    _path: Path | None = PrivateAttr(default=None)

    @model_validator(mode='after')
    def _consistent(self) -> Contract:
        interface, deployment = self.interface, self.deployment
        actions, limits = interface.action.names, deployment.limits
        problems = key_problems(deployment.cameras, interface.cameras, 'deployment.cameras')
        problems += key_problems(limits, actions, 'deployment.limits')
        if deployment.adapter is not None:
            adapter, where = deployment.adapter, 'deployment.adapter'
            problems += key_problems(
                adapter.state_sources, interface.state.names, f'{where}.state_sources'
            )
            problems += key_problems(
                adapter.observed_sources, actions, f'{where}.observed_sources'
            )
            problems += key_problems(adapter.command_targets, actions, f'{where}.command_targets')
            problems += key_problems(adapter.cameras, interface.cameras, f'{where}.cameras')
        refuse(problems)
        if interface.action_kind == 'delta' and deployment.record_hz != deployment.command_hz:
            reason = f'must equal command_hz {deployment.command_hz:g} in a delta action space'
            problems.append(Problem('deployment.record_hz', reason, deployment.record_hz))
        gripper = interface.gripper
        if gripper.action is not None:
            limit = limits[gripper.action]
            problems += [
                Problem(f'interface.gripper.{end}', f'is outside {_interval(limit)}', value)
                for end, value in (('open', gripper.open), ('close', gripper.close))
                if not limit.min <= value <= limit.max
            ]
        if interface.action_kind == 'absolute' and deployment.home is not None:
            for index, value in enumerate(deployment.home):
                joint = deployment.joints[index]
                limit = limits.get(joint)
                if limit is not None and not limit.min <= value <= limit.max:
                    reason = f'is outside {_interval(limit)} of {joint}'
                    problems.append(Problem(f'deployment.home[{index}]', reason, value))
        refuse(problems)
        return self

    @property
    def path(self) -> Path | None:
        """File it was read from, None where it was not."""
        return self._path

    @cached_property
    def interface_hash(self) -> str:
        """SHA-256 in hex over the canonical JSON of the interface part."""
        return hashlib.sha256(canonical_json(interface_dict(self))).hexdigest()

    @cached_property
    def deployment_hash(self) -> str:
        """SHA-256 in hex over the canonical JSON of the deployment part."""
        return hashlib.sha256(canonical_json(_plain(self.deployment))).hexdigest()

    @property
    def state_dim(self) -> int:
        """Length S of the state vector."""
        return len(self.interface.state.names)

    @property
    def action_dim(self) -> int:
        """Length A of the action vector."""
        return len(self.interface.action.names)

    @property
    def gripper_index(self) -> int | None:
        """Index of the gripper in the action vector, None where there is none."""
        name = self.interface.gripper.action
        return None if name is None else self.interface.action.names.index(name)

    def image_topic(self, camera: str) -> str:
        """Topic of a camera's images."""
        named = self.deployment.cameras[camera].topic
        return named or f'{self.deployment.topics.cameras}/{camera}/image_raw'

    def camera_info_topic(self, camera: str) -> str:
        """Topic of a camera's intrinsics, beside its images."""
        return self._beside_images(camera, 'camera_info')

    def depth_topic(self, camera: str) -> str:
        """Topic of a camera's depth images, aligned with its images."""
        return self._beside_images(camera, 'depth/image_raw')

    def _beside_images(self, camera: str, name: str) -> str:
        namespace, slash, _ = self.image_topic(camera).rpartition('/')
        return f'{namespace}{slash}{name}'

    def request_topic(self, source: str) -> str:
        """Topic on which a source requests commands."""
        return f'{self.deployment.topics.command_request}/{source}'


def _interval(limit: Limit) -> str:
    return f'the limits {limit.min:g} to {limit.max:g}'


def _plain(model: Model) -> dict[str, Any]:
    # keys without a value are left out, so that an optional key added later changes no hash
    return model.model_dump(mode='json', exclude_none=True)


def canonical_json(value: Any) -> bytes:
    """Write JSON with sorted keys, no spaces and one trailing newline, in UTF-8.

    Raises:
        ValueError: A number that is not finite.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(',', ':'), ensure_ascii=False, allow_nan=False
    )
    return f'{text}\n'.encode()


def interface_dict(contract: Contract) -> dict[str, Any]:
    """Interface part as plain JSON values, for the metadata of datasets and checkpoints."""
    return _plain(contract.interface)


def load_contract(path: str | os.PathLike[str]) -> Contract:
    """Read and validate a contract of schema 1 or 2.

    Raises:
        ContractError: One line for each fault, ``FILE: KEY: reason (got VALUE)``.
    """
    path = Path(path)

    def fail(lines: list[str]) -> ContractError:
        return ContractError('\n'.join(f'{path}: {line}' for line in lines))

    try:
        data = strictyaml.load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise fail([f'file: cannot be read (got {error.strerror})']) from None
    except UnicodeDecodeError as error:
        raise fail([f'file: is not UTF-8 (got byte {error.start})']) from None
    except strictyaml.StrictYamlError as error:
        raise fail([str(error)]) from None
    if not isinstance(data, dict):
        raise fail([f'document: must be a mapping (got {shown(data)})'])
    version = data.get('schema_version')
    if type(version) is not int or version not in (1, 2):
        found = shown(version) if 'schema_version' in data else 'nothing'
        raise fail([f'schema_version: must be 1 or 2 (got {found})'])
    try:
        if version == 1:
            data = LegacyContract.model_validate(data).upgraded()
        contract = Contract.model_validate(data)
    except ValidationError as error:
        raise fail(explain(error)) from None
    contract._path = path
    return contract


def interface_difference(
    a: Contract | Mapping[str, Any], b: Contract | Mapping[str, Any]
) -> list[str]:
    """Compare two interfaces field by field; empty where they are the same.

    Args:
        a: Contract, or an interface as `interface_dict` wrote it.
        b: As ``a``.

    Returns:
        One line a field, ``interface.KEY: VALUE in A, VALUE in B``.
    """
    left, right = _named(a, 'a'), _named(b, 'b')
    if left[0] == right[0]:
        left, right = (f'a ({left[0]})', left[1]), (f'b ({right[0]})', right[1])
    first, second = (dict(_flat(side[1], 'interface')) for side in (left, right))
    return [
        f'{key}: {_value(first, key)} in {left[0]}, {_value(second, key)} in {right[0]}'
        for key in [*first, *(key for key in second if key not in first)]
        if first.get(key, ...) != second.get(key, ...)
    ]


def _named(side: Contract | Mapping[str, Any], default: str) -> tuple[str, Any]:
    return (side.name, interface_dict(side)) if isinstance(side, Contract) else (default, side)


def _value(fields: Mapping[str, Any], key: str) -> str:
    return repr(fields[key]) if key in fields else 'absent'


def _flat(value: Any, key: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [pair for name in value for pair in _flat(value[name], f'{key}.{name}')]
    if isinstance(value, (list, tuple)):
        return [
            pair for index, item in enumerate(value) for pair in _flat(item, f'{key}[{index}]')
        ]
    return [(key, value)]
