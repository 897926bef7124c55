# SPDX-License-Identifier: Apache-2.0
"""Command-line options made from pydantic models: a field is an option, its text is the help."""

from __future__ import annotations

import argparse
import difflib
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, NoReturn, TypeVar

from praxis_core.schema import faults, shown
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

M = TypeVar('M', bound=BaseModel)


class OptionError(ValueError):
    """An option that cannot be taken: ``--OPTION: reason (got VALUE)``."""


class Parser(argparse.ArgumentParser):
    """Raises `OptionError` instead of printing the usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        raise OptionError(message)


def parser(program: str, description: str) -> Parser:
    """Create a parser to `add_options` to."""
    return Parser(
        prog=program,
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_options(target: Parser, title: str, model: type[BaseModel]) -> None:
    """Add a group with one option for each field.

    A flag may be given as ``--x``, ``--no-x`` or ``--x true``; a list as words, with commas or as
    JSON; a mapping as ``NAME=VALUE`` words or as JSON; None, where it is permitted, as ``none``.
    """
    group = target.add_argument_group(title)
    for name, field in model.model_fields.items():
        kinds = _kinds(field.annotation)
        flag = f'--{name.replace("_", "-")}'
        more: dict[str, Any] = {'metavar': _metavar(kinds)}
        if bool in kinds:
            more.update(nargs='?', const='true')
        elif _is_many(kinds):
            more.update(nargs='*')
        flags = [flag] if '_' not in name else [flag, f'--{name}']
        group.add_argument(
            flags[0], dest=name, default=argparse.SUPPRESS, help=_help(field), **more
        )
        for hidden in flags[1:]:
            group.add_argument(
                hidden, dest=name, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **more
            )
        if bool in kinds:
            group.add_argument(
                f'--no-{flag[2:]}', dest=name, action='store_const', const='false',
                default=argparse.SUPPRESS, help=argparse.SUPPRESS,
            )  # fmt: skip


def parse(target: Parser, arguments: Sequence[str]) -> dict[str, Any]:
    """Give what was given, by field name, as text.

    Raises:
        OptionError: An option is unknown; names the nearest.
    """
    found, rest = target.parse_known_args(arguments)
    if rest:
        word = rest[0]
        if not word.startswith('-'):
            raise OptionError(f'{word}: is not an option')
        options = [flag for action in target._actions for flag in action.option_strings]
        near = difflib.get_close_matches(word.partition('=')[0], options, n=1, cutoff=0.6)
        raise OptionError(f'{word}: unknown option{f", did you mean {near[0]}?" if near else ""}')
    return vars(found)


def build(model: type[M], given: Mapping[str, Any]) -> M:
    """Make the model from what `parse` gave; fields of other models are left alone.

    Raises:
        OptionError: Names the first option that is missing or not valid.
    """
    values = {}
    for name, field in model.model_fields.items():
        if name in given:
            values[name] = _value(name, field, given[name])
    try:
        return model.model_validate(values)
    except ValidationError as error:
        key, reason, value = faults(error, '')[0]
        where = _flag(key) if key else 'options'
        if not field_given(key, given):
            raise OptionError(f'{where}: {reason}') from None
        raise OptionError(f'{where}: {reason} (got {shown(value)})') from None


def field_given(key: str, given: Mapping[str, Any]) -> bool:
    """Whether the field that a fault is about was on the command line."""
    return key.split('.')[0].split('[')[0] in given


def _flag(key: str) -> str:
    name, dot, rest = key.partition('.')
    return f'--{name.replace("_", "-")}{dot}{rest}'


def _value(name: str, field: FieldInfo, given: Any) -> Any:
    kinds = _kinds(field.annotation)
    words = given if isinstance(given, list) else [given]
    if type(None) in kinds and [word.lower() for word in words] == ['none']:
        return None
    if _is_many(kinds) or any(_is_model(kind) for kind in kinds):
        if len(words) == 1 and words[0][:1] in ('[', '{'):
            return _json(name, words[0])
        words = [part for word in words for part in word.split(',') if part]
        if any(_is(kind, Mapping) for kind in kinds):
            return dict(_pair(name, word) for word in words)
        return words
    text = words[0]
    for kind in kinds:
        for choice in typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ():
            if not isinstance(choice, str) and str(choice) == text:
                return choice
    return text


def _pair(name: str, word: str) -> tuple[str, str]:
    key, equals, value = word.partition('=')
    if not equals:
        raise OptionError(f'{_flag(name)}: must be NAME=VALUE (got {word!r})')
    return key, value


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f'{_flag(name)}: is not JSON: {error} (got {shown(text)})') from None


def _kinds(annotation: Any) -> list[Any]:
    """Members of a union, without ``Annotated``."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _kinds(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [kind for part in typing.get_args(annotation) for kind in _kinds(part)]
    return [annotation]


def _is(kind: Any, wanted: type) -> bool:
    found = typing.get_origin(kind) or kind
    return isinstance(found, type) and issubclass(found, wanted)


def _is_model(kind: Any) -> bool:
    return _is(kind, BaseModel)


def _is_many(kinds: Iterable[Any]) -> bool:
    many = (list, tuple, AbstractSet, Mapping)
    return any(_is(kind, wanted) for kind in kinds for wanted in many)


def _metavar(kinds: Iterable[Any]) -> str:
    names = []
    for kind in kinds:
        if typing.get_origin(kind) is typing.Literal:
            names += [str(choice) for choice in typing.get_args(kind)]
        elif _is(kind, Enum):
            names += [str(member.value) for member in kind]
        elif _is(kind, Mapping):
            names.append('NAME=VALUE')
        elif _is_model(kind):
            names.append('JSON')
        elif kind is type(None):
            names.append('none')
        elif kind is bool:
            names.append('true|false')
        else:
            arguments = [part for part in typing.get_args(kind) if part is not ...]
            inner = _kinds(arguments[0])[0] if arguments else kind
            names.append(getattr(inner, '__name__', str(inner)).lstrip('_').upper())
    return '|'.join(dict.fromkeys(names))


def _help(field: FieldInfo) -> str:
    text = field.description or ''
    if field.is_required():
        return f'{text} (required)'.replace('%', '%%')
    default = field.get_default(call_default_factory=True)
    if default is None or default == '' or default == () or default == {}:
        return text.replace('%', '%%')
    if isinstance(default, (tuple, list)):
        default = ','.join(str(part) for part in default)
    elif isinstance(default, bool):
        default = str(default).lower()
    elif isinstance(default, Mapping):
        default = ' '.join(f'{key}={value}' for key, value in default.items())
    return f'{text} (default: {default})'.replace('%', '%%')
