# SPDX-License-Identifier: Apache-2.0
"""Read a YAML launch file into its description; starts nothing and reads only that file.

Keys, types and refusals follow the YAML front-end of ``ros2 launch``, so that a file which loads
here loads there. What only the real one runs is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from praxis_cli import substitution
from praxis_cli.command_line import split
from praxis_cli.description import (
    Action,
    Argument,
    Assignment,
    Executable,
    Group,
    Include,
    LaunchFile,
    ParameterFile,
    ParameterValue,
    SetParameter,
    Value,
)
from praxis_cli.substitution import LaunchError, Template


def load(path: str | Path) -> LaunchFile:
    """Read and parse a YAML launch file.

    Raises:
        LaunchError: Not readable, not YAML, or an action or key that is not understood; the
            message names the file.
    """
    path = Path(path)
    if path.suffix not in ('.yaml', '.yml'):
        raise LaunchError(
            f'{path}: praxis launch runs YAML launch files; others need the real ros2 launch'
        )
    try:
        tree = yaml.safe_load(path.read_text(encoding='utf-8'))
        if not isinstance(tree, Mapping) or len(tree) != 1:
            raise LaunchError('Expected only one root')
        if 'launch' not in tree:
            raise LaunchError("Expected 'launch' as root tag")
        return LaunchFile(path, _actions(tree['launch'], 'launch'))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LaunchError) as error:
        raise LaunchError(f'{path}: {error}') from error


class _Entity:
    """One action's mapping; remembers which keys were read, so that leftovers are errors."""

    def __init__(self, kind: str, data: Any) -> None:
        if not isinstance(data, Mapping):
            raise LaunchError(f"Entity '{kind}' expected to be a dictionary, got {data!r}")
        self.kind = kind
        self.data = data
        self.read: set[str] = set()

    def get(self, key: str, types: type | tuple[type, ...] = str, default: Any = None) -> Any:
        """Return a key's value, `default` where it is absent."""
        if key not in self.data:
            return default
        self.read.add(key)
        value = self.data[key]
        allowed = types if isinstance(types, tuple) else (types,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            names = ' or '.join(sorted(kind.__name__ for kind in allowed))
            raise LaunchError(
                f"Attribute '{key}' of Entity '{self.kind}' expected to be of type '{names}', "
                f"got '{type(value).__name__}'"
            )
        return value

    def need(self, key: str) -> str:
        if key not in self.data:
            raise LaunchError(f"Can not find attribute '{key}' in Entity '{self.kind}'")
        return self.get(key)

    def template(self, key: str) -> Template | None:
        value = self.get(key)
        return None if value is None else substitution.parse(value)

    def entities(self, key: str) -> list[_Entity]:
        items = self.get(key, list, [])
        if key in self.data and not (items and all(isinstance(item, Mapping) for item in items)):
            raise LaunchError(
                f"Attribute '{key}' of Entity '{self.kind}' expected to be a list of dictionaries."
            )
        return [_Entity(key, item) for item in items]

    def pairs(self, key: str, first: str, second: str) -> tuple[tuple[Template, Template], ...]:
        pairs = []
        for entity in self.entities(key):
            pairs.append(
                (
                    substitution.parse(entity.need(first)),
                    substitution.parse(entity.need(second)),
                )
            )
            entity.finish()
        return tuple(pairs)

    def seconds(self, key: str) -> float | None:
        value = self.get(key, float)
        if value is not None and value < 0:
            raise LaunchError(
                f'Attribute {key} of Entity {self.kind} expected to be a non-negative value '
                f'but got `{value}`'
            )
        return value

    def finish(self) -> None:
        """Raise where keys are left that nobody read."""
        left = set(self.data) - self.read
        if left:
            names = ', '.join(repr(name) for name in sorted(map(str, left)))
            raise LaunchError(f'Unexpected key(s) found in `{self.kind}`: {{{names}}}')


def _actions(children: Any, kind: str) -> tuple[Action, ...]:
    if isinstance(children, Mapping):
        children = children.get('children')
    if not isinstance(children, Sequence) or isinstance(children, str):
        raise LaunchError(f'Expected entity `{kind}` to have children entities')
    actions = []
    for child in children:
        if not isinstance(child, Mapping) or len(child) != 1:
            raise LaunchError(
                'Subentities must be a dictionary with only one key, which is the entity type; '
                f'got {child!r}'
            )
        ((name, data),) = child.items()
        if name not in _PARSERS:
            raise LaunchError(f'Unrecognized entity of the type: {name}')
        actions.append(_PARSERS[name](name, data))
    return tuple(actions)


def _condition(entity: _Entity) -> dict[str, Any]:
    positive, negative = entity.get('if'), entity.get('unless')
    if positive is not None and negative is not None:
        raise LaunchError("if and unless conditions can't be used simultaneously")
    if positive is not None:
        return {'condition': substitution.parse(positive)}
    if negative is not None:
        return {'condition': substitution.parse(negative), 'inverted': True}
    return {}


def _literal(text: str) -> str:
    return ''.join(
        part.value
        for part in substitution.parse(text.replace('$', '\\$'))
        if isinstance(part, substitution.Text)
    )


def _argument(kind: str, data: Any) -> Argument:
    entity = _Entity(kind, data)
    choices = [_literal(choice.need('value')) for choice in entity.entities('choice')]
    description = entity.get('description')
    if description is None:
        text = f'One of: {choices}' if choices else 'no description given'
    else:
        text = _literal(description)
        if choices:
            text = f'{text}{"" if text.endswith(".") else "."} Valid choices are: {choices}'
    argument = Argument(
        **_condition(entity),
        name=_literal(entity.need('name')),
        default=entity.template('default'),
        description=text,
        choices=tuple(choices) or None,
    )
    entity.finish()
    return argument


def _assignment(kind: str, data: Any) -> Assignment:
    entity = _Entity(kind, data)
    condition = _condition(entity)
    if kind in ('push_ros_namespace', 'push-ros-namespace'):
        kind = 'push_ros_namespace'
        name, value = substitution.parse(''), substitution.parse(entity.need('namespace'))
    else:
        first, second = ('from', 'to') if kind == 'set_remap' else ('name', 'value')
        name = substitution.parse(entity.need(first))
        value = substitution.parse(entity.need(second))
    entity.finish()
    return Assignment(**condition, kind=kind, name=name, value=value)


def _set_parameter(kind: str, data: Any) -> SetParameter:
    entity = _Entity(kind, data)
    action = SetParameter(
        **_condition(entity),
        name=substitution.parse(entity.need('name')),
        value=substitution.parse(entity.need('value')),
    )
    entity.finish()
    return action


def _include(kind: str, data: Any) -> Include:
    entity = _Entity(kind, data)
    action = Include(
        **_condition(entity),
        file=substitution.parse(entity.need('file')),
        arguments=entity.pairs('arg', 'name', 'value'),
    )
    entity.finish()
    return action


def _group(kind: str, data: Any) -> Group:
    if isinstance(data, list):
        return Group(actions=_actions(data, kind))
    entity = _Entity(kind, data)
    scoped = entity.get('scoped', (bool, str), True)
    action = Group(
        **_condition(entity),
        actions=_actions(entity.get('children', list), kind),
        scoped=substitution.parse(scoped) if isinstance(scoped, str) else scoped,
    )
    entity.finish()
    return action


def _executable(kind: str, data: Any) -> Executable:
    entity = _Entity(kind, data)
    on_exit = entity.get('on_exit')
    if on_exit not in (None, 'shutdown'):
        raise LaunchError(
            f'Attribute on_exit of Entity {kind} expected to be shutdown but got `{on_exit}`'
        )
    fields = _condition(entity) | {
        'name': entity.template('name'),
        'output': entity.template('output') or (substitution.Text('log'),),
        'cwd': entity.template('cwd'),
        'environment': entity.pairs('env', 'name', 'value'),
        'prefix': entity.template('launch-prefix'),
        'shell': entity.get('shell', bool, False),
        'required': on_exit == 'shutdown',
        'respawn': entity.template('respawn'),
        'respawn_delay': entity.seconds('respawn_delay') or 0.0,
        'respawn_max_retries': entity.get('respawn_max_retries', int, -1),
        'sigterm_timeout': entity.seconds('sigterm_timeout'),
        'sigkill_timeout': entity.seconds('sigkill_timeout'),
    }
    if kind == 'node':
        package = entity.template('pkg')
        if package is None:
            raise LaunchError("Can not find attribute 'pkg' in Entity 'node'")
        fields |= {
            'package': package,
            'executable': substitution.parse(entity.need('exec')),
            'command': split(entity.get('args', str, '')),
            'ros_arguments': split(entity.get('ros_args', str, '')),
            'exec_name': entity.template('exec_name'),
            'namespace': entity.template('namespace'),
            'remaps': entity.pairs('remap', 'from', 'to'),
            'parameters': tuple(_parameter(item) for item in entity.entities('param')),
        }
    else:
        fields['command'] = split(entity.need('cmd'))
        if not fields['command']:
            raise LaunchError("Attribute 'cmd' of Entity 'executable' is empty")
    entity.finish()
    return Executable(**fields)


def _parameter(entity: _Entity) -> ParameterFile | tuple[ParameterValue, ...]:
    source = entity.template('from')
    if source is not None:
        if 'name' in entity.data:
            raise LaunchError('name and from attributes are mutually exclusive')
        allowed = entity.get('allow_substs', bool, False)
        entity.finish()
        return ParameterFile(source, allowed)
    if 'name' not in entity.data:
        raise LaunchError('param Entity should have name or from attribute')
    return tuple(_parameter_values(entity, ()))


def _parameter_values(entity: _Entity, prefix: Template) -> list[ParameterValue]:
    name = prefix + substitution.parse(entity.need('name'))
    type_name = entity.get('type')
    nested = entity.entities('param')
    has_value = 'value' in entity.data
    if has_value and nested:
        raise LaunchError('nested parameters and value attributes are mutually exclusive')
    if nested:
        entity.finish()
        inner = (*name, substitution.Text('.'))
        return [value for item in nested for value in _parameter_values(item, inner)]
    if not has_value:
        raise LaunchError('either a value attribute or nested params are needed')
    raw = entity.get('value', (bool, int, float, str, list))
    entity.finish()
    if (type_name or '').startswith('list_of_') and not isinstance(raw, list):
        raise LaunchError(
            f"Attribute 'value' of Entity 'param' expected to be of type '{type_name}', "
            f"got '{type(raw).__name__}'"
        )
    value = [_template(item) for item in raw] if isinstance(raw, list) else _template(raw)
    return [ParameterValue(name, value, type_name)]


def _template(value: Any) -> Value:
    if not isinstance(value, str):
        return value
    parts = substitution.parse(value)
    if len(parts) == 1 and isinstance(parts[0], substitution.Text):
        return parts[0].value
    return parts


_PARSERS = {
    'arg': _argument,
    'let': _assignment,
    'set_env': _assignment,
    'set_remap': _assignment,
    'push_ros_namespace': _assignment,
    'push-ros-namespace': _assignment,
    'set_parameter': _set_parameter,
    'include': _include,
    'group': _group,
    'node': _executable,
    'executable': _executable,
}
