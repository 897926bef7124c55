# SPDX-License-Identifier: Apache-2.0
"""Launch substitutions: the text ``$(name arg ...)`` as a tree, and its value in a context."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ament_index_python.packages import get_package_prefix, get_package_share_directory


class LaunchError(RuntimeError):
    """A launch file, or an argument to it, that cannot be carried out; says what and why."""


@dataclass(frozen=True)
class Text:
    """Literal text."""

    value: str

    def describe(self) -> str:
        """Return the form that ``--show-args`` prints."""
        return f"'{self.value}'"


@dataclass(frozen=True)
class Call:
    """One ``$(name arg ...)``; each argument is itself a template."""

    name: str
    arguments: tuple[Template, ...] = ()

    def describe(self) -> str:
        """Return the form that ``--show-args`` prints."""
        inner = ' + '.join(part.describe() for part in self.arguments[0]) if self.arguments else ''
        return {
            'var': f'LaunchConfig({inner})',
            'env': f'EnvVar({inner})',
            'find-pkg-share': f'FindPackageShare(pkg={inner})',
            'find-pkg-prefix': f'FindPackagePrefix(pkg={inner})',
            'dirname': 'ThisLaunchFileDir()',
        }[self.name]


Template = tuple['Text | Call', ...]

# Name: fewest and most arguments.
_ARITY = {
    'var': (1, 2),
    'env': (1, 2),
    'find-pkg-share': (1, 1),
    'find-pkg-prefix': (1, 1),
    'dirname': (0, 0),
}
_REAL_ONLY = {'eval', 'command', 'find-exec', 'exec-in-pkg', 'anon', 'file-content', 'param'}
_IDENTIFIER = re.compile(r'[A-Za-z][A-Za-z0-9_-]*')


@dataclass
class Context:
    """What a substitution can see.

    Attributes:
        configurations: Launch arguments and ``let`` values by name.
        environment: Environment of the processes to start.
        directory: Folder of the launch file being read, None outside one.
    """

    configurations: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    directory: Path | None = None


def parse(text: str) -> Template:
    r"""Parse a string with substitutions.

    A backslash before a character makes it literal; ``$`` starts a substitution only when followed
    by a parenthesis. Arguments are parted by single spaces and may be quoted as a whole.

    Raises:
        LaunchError: Unbalanced, unknown, refused (``eval``) or wrongly used substitution.
    """
    if not text:
        return (Text(''),)
    reader = _Reader(text)
    template = reader.template(stop='')
    return template


def perform(template: Template, context: Context) -> str:
    """Return the template's value.

    Raises:
        LaunchError: Unset variable, missing environment variable or package.
    """
    return ''.join(_value(part, context) for part in template)


def describe(template: Template) -> str:
    """Return the template as ``--show-args`` prints a default."""
    return ' + '.join(part.describe() for part in template)


def _value(part: Text | Call, context: Context) -> str:
    if isinstance(part, Text):
        return part.value
    values = [perform(argument, context) for argument in part.arguments]
    if part.name == 'dirname':
        if context.directory is None:
            raise LaunchError('$(dirname) used outside of a launch file')
        return str(context.directory)
    name = values[0]
    if part.name in ('var', 'env'):
        known = context.configurations if part.name == 'var' else context.environment
        if name in known:
            return known[name]
        if len(values) == 2:
            return values[1]
        if part.name == 'var':
            raise LaunchError(f"launch configuration '{name}' does not exist")
        raise LaunchError(f"environment variable '{name}' does not exist")
    find = {
        'find-pkg-share': get_package_share_directory,
        'find-pkg-prefix': get_package_prefix,
    }[part.name]
    try:
        return find(name)
    except (LookupError, ValueError) as error:
        raise LaunchError(str(error)) from error


def _call(name: str, arguments: Sequence[Template]) -> Call:
    if name == 'eval':
        raise LaunchError(
            'substitution $(eval ...) is refused: praxis launch runs no expressions; '
            "use 'let' with 'if' and 'unless'"
        )
    if name in _REAL_ONLY:
        raise LaunchError(f'substitution $({name} ...) needs the real ros2 launch')
    if name not in _ARITY:
        raise LaunchError(f'Unknown substitution: {name}')
    fewest, most = _ARITY[name]
    if not fewest <= len(arguments) <= most:
        expected = str(fewest) if fewest == most else f'{fewest} or {most}'
        raise LaunchError(
            f'{name} substitution expects {expected} argument(s), got {len(arguments)}'
        )
    return Call(name, tuple(arguments))


class _Reader:
    """Recursive descent over one string."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def error(self, message: str) -> LaunchError:
        return LaunchError(f'{message} at character {self.at + 1} of {self.text!r}')

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ''

    def opens(self) -> bool:
        return self.text.startswith('$(', self.at)

    def template(self, stop: str) -> Template:
        """Read text and substitutions up to the quotation mark `stop`, or to the end."""
        parts: list[Text | Call] = []
        literal = ''
        while (char := self.peek()) != stop:
            if not char:
                raise self.error(f'missing {stop}')
            if self.opens():
                if literal:
                    parts.append(Text(literal))
                    literal = ''
                parts.append(self.substitution(quote=stop))
            else:
                literal += self.character()
        if literal or not parts:
            parts.append(Text(literal))
        return tuple(parts)

    def character(self) -> str:
        """Read one character, or the one that a backslash protects."""
        char = self.peek()
        self.at += 1
        if char == '\\' and self.peek():
            char = self.peek()
            self.at += 1
        return char

    def substitution(self, quote: str) -> Call:
        self.at += 2
        match = _IDENTIFIER.match(self.text, self.at)
        if not match:
            raise self.error('expected the name of a substitution')
        self.at = match.end()
        arguments = []
        while self.peek() == ' ':
            self.at += 1
            arguments.append(self.argument(quote))
        if self.peek() != ')':
            raise self.error(f"expected ')' to close $({match.group()}")
        self.at += 1
        return _call(match.group(), arguments)

    def argument(self, quote: str) -> Template:
        """Read one argument: quoted as a whole, or without spaces, quotes and parentheses."""
        if not quote and (mark := self.peek()) in ('"', "'"):
            self.at += 1
            inner = self.template(stop=mark)
            self.at += 1
            return inner
        forbidden = ' ()' + (quote or '\'"')
        parts: list[Text | Call] = []
        literal = ''
        while (char := self.peek()) and char not in forbidden:
            if self.opens():
                if literal:
                    parts.append(Text(literal))
                    literal = ''
                parts.append(self.substitution(quote))
            else:
                literal += self.character()
        if literal:
            parts.append(Text(literal))
        if not parts:
            raise self.error('expected an argument')
        return tuple(parts)
