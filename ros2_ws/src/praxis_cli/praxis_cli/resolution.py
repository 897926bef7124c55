# SPDX-License-Identifier: Apache-2.0
"""From a launch file and arguments to the processes it stands for; starts none of them."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from praxis_cli import parameter, substitution
from praxis_cli.description import (
    Action,
    Argument,
    Assignment,
    Executable,
    Group,
    Include,
    LaunchFile,
    ParameterFile,
    SetParameter,
)
from praxis_cli.frontend import load
from praxis_cli.namespace import absolute, check_name, check_namespace, prefixed
from praxis_cli.substitution import Context, LaunchError


@dataclass(frozen=True)
class Process:
    """One process, every substitution performed.

    Attributes:
        command: Command line of an executable, or the extra arguments of a node.
        label: What its output is prefixed with, before the number.
        package: None for an executable; so are `executable`, `name` and `namespace`.
        global_parameters: From ``set_parameter``, in order.
        parameters: Paths of parameter files and mappings of values, in order.
        environment: The whole environment.
    """

    command: tuple[str, ...]
    label: str
    package: str | None = None
    executable: str | None = None
    name: str | None = None
    namespace: str | None = None
    ros_arguments: tuple[str, ...] = ()
    global_parameters: tuple[tuple[str, Any], ...] = ()
    parameters: tuple[str | Mapping[str, Any], ...] = ()
    remaps: tuple[tuple[str, str], ...] = ()
    output: str = 'log'
    cwd: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    prefix: tuple[str, ...] = ()
    shell: bool = False
    required: bool = False
    respawn: bool = False
    respawn_delay: float = 0.0
    respawn_max_retries: int = -1
    sigterm_timeout: float = 5.0
    sigkill_timeout: float = 5.0

    def node_key(self) -> str:
        """Return the node's key in a parameter file: its full name, or ``/**`` if not known."""
        if self.name is None or self.namespace is None:
            return '/**'
        return prefixed(self.namespace, self.name)

    def summary(self) -> dict[str, Any]:
        """Return what ``--print-nodes`` shows: JSON types only, without the environment."""
        return {
            'namespace': self.namespace,
            'name': self.name,
            'package': self.package,
            'executable': self.executable,
            'command': list(self.command),
            'ros_arguments': list(self.ros_arguments),
            'parameters': [
                *({name: value} for name, value in self.global_parameters),
                *(item if isinstance(item, str) else dict(item) for item in self.parameters),
            ],
            'remaps': [list(remap) for remap in self.remaps],
            'output': self.output,
            'on_exit': 'shutdown' if self.required else None,
            'respawn': self.respawn,
        }


@dataclass
class _Scope:
    context: Context
    namespace: str | None = None
    parameters: list[tuple[str, Any]] = field(default_factory=list)
    remaps: list[tuple[str, str]] = field(default_factory=list)

    def copy(self) -> _Scope:
        context = replace(
            self.context,
            configurations=dict(self.context.configurations),
            environment=dict(self.context.environment),
        )
        return _Scope(context, self.namespace, list(self.parameters), list(self.remaps))


def resolve(
    launch_file: LaunchFile,
    arguments: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Process]:
    """List the processes of a launch file in order of start.

    Args:
        launch_file: As loaded.
        arguments: Launch arguments by name.
        environment: To start from; this process's own by default.

    Raises:
        LaunchError: A missing or invalid argument, a condition that is not a boolean, a package
            that is not found; with the message of ``ros2 launch``.
    """
    start = dict(os.environ if environment is None else environment)
    scope = _Scope(Context({}, start))
    return list(_file(launch_file, dict(arguments or {}), scope))


def _file(
    launch_file: LaunchFile, arguments: Mapping[str, str], scope: _Scope
) -> Iterator[Process]:
    for argument, conditional in declared_arguments(launch_file, nested=False):
        known = argument.name in arguments or argument.name in scope.context.configurations
        if argument.default is None and not conditional and not known:
            raise LaunchError(
                f"Included launch description missing required argument '{argument.name}' "
                f"(description: '{argument.description}'), given: [{', '.join(arguments)}]"
            )
    scope.context.configurations.update(arguments)
    outer = scope.context.directory
    scope.context.directory = Path(os.path.abspath(launch_file.path)).parent
    yield from _visit(launch_file.actions, scope)
    scope.context.directory = outer


def declared_arguments(
    launch_file: LaunchFile, nested: bool = True, given: Mapping[str, str] | None = None
) -> list[tuple[Argument, bool]]:
    """List the arguments of a file, and of those that it includes.

    Args:
        launch_file: As loaded.
        nested: Look into included files, where their path can be told.
        given: Values of arguments, for paths that depend on them; else the defaults count.

    Returns:
        Pairs of argument and whether a condition decides about it; the first of a name wins.
    """
    found: dict[str, tuple[Argument, bool]] = {}
    values = dict(given or {})

    def walk(actions: Iterable[Action], folder: Path, conditional: bool) -> None:
        for action in actions:
            here = conditional or action.condition is not None
            if isinstance(action, Argument):
                found.setdefault(action.name, (action, here))
                if action.name not in values and action.default is not None:
                    with contextlib.suppress(LaunchError):
                        context = Context(values, dict(os.environ), folder)
                        values[action.name] = substitution.perform(action.default, context)
            elif isinstance(action, Group):
                walk(action.actions, folder, here)
            elif isinstance(action, Include) and nested:
                try:
                    path = substitution.perform(action.file, Context(values, {}, folder))
                    included = load(path)
                except LaunchError:
                    continue
                walk(included.actions, included.path.parent, here)

    walk(launch_file.actions, Path(os.path.abspath(launch_file.path)).parent, False)
    return list(found.values())


def evaluate_condition(text: str) -> bool:
    """Return a condition's truth: true or 1, false or 0, in any case; anything else raises."""
    value = text.strip().lower()
    if value in ('true', '1'):
        return True
    if value in ('false', '0'):
        return False
    raise LaunchError(
        f"invalid condition expression, expected one of [true, 1, false, 0] but got '{value}'"
    )


def _visit(actions: Iterable[Action], scope: _Scope) -> Iterator[Process]:
    context = scope.context
    for action in actions:
        if action.condition is not None:
            holds = evaluate_condition(substitution.perform(action.condition, context))
            if holds == action.inverted:
                continue
        if isinstance(action, Argument):
            _declare(action, context)
        elif isinstance(action, Assignment):
            _assign(action, scope)
        elif isinstance(action, SetParameter):
            name = substitution.perform(action.name, context)
            text = substitution.perform(action.value, context)
            scope.parameters.append((name, parameter.typed(text, None, name)))
        elif isinstance(action, Include):
            arguments = {
                substitution.perform(name, context): substitution.perform(value, context)
                for name, value in action.arguments
            }
            included = load(substitution.perform(action.file, context))
            yield from _file(included, arguments, scope)
        elif isinstance(action, Group):
            scoped = action.scoped
            if isinstance(scoped, tuple):
                scoped = evaluate_condition(substitution.perform(scoped, context))
            yield from _visit(action.actions, scope.copy() if scoped else scope)
        elif isinstance(action, Executable):
            yield _process(action, scope)


def _declare(argument: Argument, context: Context) -> None:
    configurations = context.configurations
    if argument.name not in configurations:
        if argument.default is None:
            raise LaunchError(f'Required launch argument "{argument.name}" was not provided.')
        configurations[argument.name] = substitution.perform(argument.default, context)
    value = configurations[argument.name]
    if argument.choices is not None and value not in argument.choices:
        raise LaunchError(
            f'Argument "{argument.name}" provided value "{value}" is not valid. '
            f'Valid options are: {list(argument.choices)}'
        )


def _assign(action: Assignment, scope: _Scope) -> None:
    name = substitution.perform(action.name, scope.context)
    value = substitution.perform(action.value, scope.context)
    if action.kind == 'let':
        scope.context.configurations[name] = value
    elif action.kind == 'set_env':
        scope.context.environment[name] = value
    elif action.kind == 'set_remap':
        scope.remaps.append((name, value))
    else:
        scope.namespace = absolute(prefixed(scope.namespace, value))
        check_namespace(scope.namespace)


def _process(action: Executable, scope: _Scope) -> Process:
    context = scope.context

    def text(template: substitution.Template | None) -> str | None:
        return None if template is None else substitution.perform(template, context)

    def texts(templates: Iterable[substitution.Template]) -> tuple[str, ...]:
        return tuple(substitution.perform(template, context) for template in templates)

    def pairs(templates: Iterable[tuple]) -> tuple[tuple[str, str], ...]:
        return tuple(texts(pair) for pair in templates)

    configurations = context.configurations
    command = texts(action.command)
    prefix = text(action.prefix)
    if prefix is None:
        prefix = configurations.get('launch-prefix', '')
    common: dict[str, Any] = {
        'command': command,
        'output': _output(text(action.output)),
        'cwd': text(action.cwd),
        'environment': dict(context.environment) | dict(pairs(action.environment)),
        'prefix': tuple(shlex.split(prefix)),
        'shell': action.shell,
        'required': action.required,
        'respawn': action.respawn is not None and evaluate_condition(text(action.respawn)),
        'respawn_delay': action.respawn_delay,
        'respawn_max_retries': action.respawn_max_retries,
    }
    for name in ('sigterm_timeout', 'sigkill_timeout'):
        own = getattr(action, name)
        common[name] = float(configurations.get(name, 5)) if own is None else own
    if action.package is None:
        label = text(action.name) or os.path.basename(command[0])
        return Process(label=label, **common)

    name = text(action.name)
    if name is not None:
        check_name(name)
    namespace = absolute(prefixed(scope.namespace, text(action.namespace)))
    if namespace is not None:
        check_namespace(namespace)
    executable = text(action.executable)
    return Process(
        label=text(action.exec_name) or executable,
        package=text(action.package),
        executable=executable,
        name=name,
        namespace=namespace,
        ros_arguments=texts(action.ros_arguments),
        global_parameters=tuple(scope.parameters),
        parameters=tuple(_parameters(item, context) for item in action.parameters),
        remaps=(*scope.remaps, *pairs(action.remaps)),
        **common,
    )


def _parameters(
    item: ParameterFile | tuple[parameter.ParameterValue, ...], context: Context
) -> str | Mapping[str, Any]:
    if not isinstance(item, ParameterFile):
        return {
            substitution.perform(value.name, context): parameter.evaluate(value, context)
            for value in item
        }
    path = substitution.perform(item.file, context)
    if not item.allow_substitutions:
        return path
    raise LaunchError(f'{path}: allow_substs needs the real ros2 launch')


def _output(text: str) -> str:
    if text not in ('screen', 'log', 'both', 'own_log', 'full'):
        raise LaunchError(
            f'{text} is not a valid standard output config i.e. "screen", "log" or "both"'
        )
    return text


def parameter_yaml(process: Process, values: Mapping[str, Any]) -> str:
    """Return the parameter file that hands `values` to a node."""
    tree = {process.node_key(): {'ros__parameters': dict(values)}}
    return yaml.safe_dump(tree, default_flow_style=False)
