# SPDX-License-Identifier: Apache-2.0
"""Types of the parameter values in a launch file."""

from __future__ import annotations

from typing import Any

import yaml

from praxis_cli import substitution
from praxis_cli.description import ParameterValue
from praxis_cli.substitution import Context, LaunchError

_SCALARS = {'str': str, 'bool': bool, 'int': int, 'float': float}


def evaluate(parameter: ParameterValue, context: Context) -> Any:
    """Return a parameter's value.

    What is written plainly in the file keeps its YAML type; what holds a substitution is read by
    YAML rules once performed, or as the declared `type`.

    Raises:
        LaunchError: The value does not fit the declared type, or is no parameter type at all.
    """
    name = substitution.perform(parameter.name, context)
    kind, listed = _kind(parameter.type, name)
    value = parameter.value
    if isinstance(value, tuple):
        return typed(substitution.perform(value, context), parameter.type, name)
    if isinstance(value, list):
        if kind is not None and not listed:
            raise LaunchError(f"parameter '{name}': got the list {value!r}, expected {kind}")
        items = [
            typed(substitution.perform(item, context), kind, name)
            if isinstance(item, tuple)
            else item
            for item in value
        ]
        if kind == 'float':
            items = [float(item) if type(item) is int else item for item in items]
        return _uniform(items, kind, name)
    if kind is not None and (listed or type(value) is not _SCALARS[kind]):
        raise LaunchError(f"parameter '{name}': value={value!r} is not of type '{parameter.type}'")
    return value


def typed(text: str, type_name: str | None, name: str) -> Any:
    """Read text as a parameter value: by YAML rules, or as the type named.

    Args:
        text: Performed substitutions.
        type_name: str, bool, int, float, list_of_..., yaml or None for YAML rules.
        name: Of the parameter, for the message.
    """
    kind, listed = _kind(type_name, name)
    if kind == 'str' and not listed:
        return text
    if not text:
        return text
    if kind in ('int', 'float') and not listed:
        try:
            return _SCALARS[kind](text)
        except ValueError as error:
            raise LaunchError(f"parameter '{name}': cannot convert '{text}' to {kind}") from error
    if kind == 'bool' and text in ('1', '0'):
        return text == '1'
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LaunchError(f"parameter '{name}': cannot parse '{text}' as yaml") from error
    if listed:
        if not isinstance(value, list):
            raise LaunchError(f"parameter '{name}': cannot convert '{text}' to a list of {kind}")
        return _uniform(value, kind, name)
    if isinstance(value, list) and kind is None:
        return _uniform(value, None, name)
    if type(value) not in _SCALARS.values() or (kind and type(value) is not _SCALARS[kind]):
        raise LaunchError(
            f"parameter '{name}': cannot convert value '{text}' to "
            f'{kind or "a parameter type"}, got {type(value).__name__}; '
            "if it is meant as text, give 'type: str'"
        )
    return value


def _kind(type_name: str | None, name: str) -> tuple[str | None, bool]:
    if type_name in (None, 'yaml'):
        return None, False
    listed = type_name.startswith('list_of_')
    kind = type_name.removeprefix('list_of_')
    if kind not in _SCALARS:
        raise LaunchError(f"parameter '{name}': Got invalid type identifier '{type_name}'")
    return kind, listed


def _uniform(items: list, kind: str | None, name: str) -> list:
    kinds = {type(item) for item in items}
    allowed = {_SCALARS[kind]} if kind else set(_SCALARS.values())
    if len(kinds) > 1 or not kinds <= allowed:
        raise LaunchError(
            f"parameter '{name}': expected a list of {kind or 'one scalar type'}, got {items!r}"
        )
    return items
