# SPDX-License-Identifier: Apache-2.0
"""What a launch file describes: a tree of actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from praxis_cli import substitution
from praxis_cli.substitution import Template

Scalar = bool | int | float | str
# A parameter's value: a plain scalar, a template, or a list of either.
Value = Scalar | Template | list[Any]


@dataclass(frozen=True)
class Action:
    """Something a launch file asks for, under a condition.

    Attributes:
        condition: Template that must come out true, or None.
        inverted: The condition is an ``unless``.
    """

    condition: Template | None = None
    inverted: bool = False


@dataclass(frozen=True)
class Argument(Action):
    """``arg``: a launch argument with its default and valid choices."""

    name: str = ''
    default: Template | None = None
    description: str = ''
    choices: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Assignment(Action):
    """``let``, ``set_env``, ``set_remap`` or ``push_ros_namespace``: `kind` says which."""

    kind: str = ''
    name: Template = ()
    value: Template = ()


@dataclass(frozen=True)
class SetParameter(Action):
    """``set_parameter``: a parameter for every node that follows in the same scope."""

    name: Template = ()
    value: Template = ()


@dataclass(frozen=True)
class Include(Action):
    """``include``: another launch file, with arguments."""

    file: Template = ()
    arguments: tuple[tuple[Template, Template], ...] = ()


@dataclass(frozen=True)
class Group(Action):
    """``group``: actions whose settings end with the group, if scoped."""

    actions: tuple[Action, ...] = ()
    scoped: bool | Template = True


@dataclass(frozen=True)
class ParameterFile:
    """``param: {from: FILE}``."""

    file: Template
    allow_substitutions: bool = False


@dataclass(frozen=True)
class ParameterValue:
    """``param: {name: NAME, value: VALUE, type: TYPE}``; nested ones are flattened by dots."""

    name: Template
    value: Value
    type: str | None = None


@dataclass(frozen=True)
class Executable(Action):
    """``executable`` or ``node``.

    Attributes:
        command: Command line; a node's holds only its extra arguments.
        name: Label of the process, or the node's ROS name.
        package: Of a node, None for an executable.
        settings: Templates for output, cwd and other keys passed on to the process.
    """

    command: tuple[Template, ...] = ()
    name: Template | None = None
    package: Template | None = None
    executable: Template | None = None
    namespace: Template | None = None
    exec_name: Template | None = None
    ros_arguments: tuple[Template, ...] = ()
    parameters: tuple[ParameterFile | tuple[ParameterValue, ...], ...] = ()
    remaps: tuple[tuple[Template, Template], ...] = ()
    output: Template = (substitution.Text('log'),)
    cwd: Template | None = None
    environment: tuple[tuple[Template, Template], ...] = ()
    prefix: Template | None = None
    shell: bool = False
    required: bool = False
    respawn: Template | None = None
    respawn_delay: float = 0.0
    respawn_max_retries: int = -1
    sigterm_timeout: float | None = None
    sigkill_timeout: float | None = None


@dataclass(frozen=True)
class LaunchFile:
    """A parsed launch file."""

    path: Path
    actions: tuple[Action, ...] = field(default_factory=tuple)
