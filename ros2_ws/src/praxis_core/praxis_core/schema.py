# SPDX-License-Identifier: Apache-2.0
"""Vocabulary of the contract's pydantic models, and how their errors read. Imports no rclpy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from praxis_core import fieldpath

T = TypeVar('T')


class FrozenDict(dict):
    """A mapping that cannot be changed."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError('a contract cannot be changed')

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class Problem(NamedTuple):
    """One fault: the key relative to the model that found it, the reason and the value there."""

    key: str
    reason: str
    value: Any


NOTHING = type('Nothing', (), {'__repr__': lambda self: 'nothing'})()
"""Stands for the value of a key that is not there."""


def refuse(problems: Iterable[Problem]) -> None:
    """Raise the problems, if there are any, from inside a pydantic validator."""
    found = list(problems)
    if found:
        raise PydanticCustomError('problems', 'invalid', {'problems': found})


def unknown(key: str, known: Iterable[str]) -> str:
    """Say that a key is unknown and which one may have been meant."""
    known = [str(name) for name in known]
    near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.6)
    if near:
        return f'unknown key, did you mean {near[0]!r}?'
    return f'unknown key, known are {", ".join(known)}' if known else 'unknown key'


def key_problems(found: Iterable[str], wanted: Iterable[str], prefix: str) -> list[Problem]:
    """Compare the keys of a mapping with the names that it must have."""
    found, wanted = list(found), list(wanted)
    missing = [name for name in wanted if name not in found]
    problems = []
    for name in found:
        if name not in wanted:
            problems.append(Problem(f'{prefix}.{name}', unknown(name, wanted), name))
    if not problems:
        problems = [Problem(f'{prefix}.{name}', 'is missing', NOTHING) for name in missing]
    return problems


def repeated(names: Iterable[Any], key: str) -> list[Problem]:
    """Find entries of a list that were there before."""
    seen: dict[Any, int] = {}
    problems = []
    for index, name in enumerate(names):
        if name in seen:
            problems.append(Problem(f'{key}[{index}]', f'repeats entry {seen[name]}', name))
        seen.setdefault(name, index)
    return problems


def shared(bindings: Iterable[tuple[str, str]]) -> list[Problem]:
    """Find values that two keys are bound to; takes (key, value) pairs."""
    seen: dict[str, str] = {}
    problems = []
    for key, value in bindings:
        if value in seen:
            problems.append(Problem(key, f'is used by {seen[value]} already', value))
        seen.setdefault(value, key)
    return problems


class Model(BaseModel):
    """Frozen; unknown keys are an error that names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra='forbid', allow_inf_nan=False)

    @model_validator(mode='before')
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            fields = cls.model_fields
            refuse(
                Problem(str(key), unknown(key, fields), value)
                for key, value in data.items()
                if key not in fields
            )
        return data


def _positive_zero(value: float) -> float:
    return value + 0.0


def _field_path(text: str) -> str:
    fieldpath.parse(text)
    return text


def as_list(value: Any) -> Any:
    """Take a single text for a list of one."""
    return [value] if isinstance(value, str) else value


def _one_word(text: str) -> str:
    if not text or any(letter.isspace() for letter in text):
        raise ValueError('must be a name without spaces')
    return text


def has_length(count: int) -> AfterValidator:
    """Demand a number of entries."""

    def check(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(values) != count:
            raise ValueError(f'must have {count} entries')
        return values

    return AfterValidator(check)


_NAME = r'[A-Za-z_][A-Za-z0-9_]*'

Text = Annotated[str, Strict()]
Name = Annotated[str, Strict(), AfterValidator(_one_word)]
Topic = Annotated[str, Strict(), StringConstraints(pattern=rf'^(~?/)?{_NAME}(/{_NAME})*$')]
Frame = Annotated[str, Strict(), StringConstraints(pattern=r'^[^\s/]\S*$')]
Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=1)]
Number = Annotated[float, Strict(), AfterValidator(_positive_zero)]
Positive = Annotated[float, Strict(), Field(gt=0)]
Names = tuple[Name, ...]
Path = Annotated[str, Strict(), AfterValidator(_field_path)]
FrozenMap = Annotated[dict[Name, T], AfterValidator(FrozenDict)]

_REASONS = {
    'missing': 'is missing',
    'float_type': 'must be a number',
    'finite_number': 'must be finite',
    'int_type': 'must be a whole number',
    'bool_type': 'must be true or false',
    'string_type': 'must be text',
    'dict_type': 'must be a mapping',
    'model_type': 'must be a mapping',
    'tuple_type': 'must be a list',
    'list_type': 'must be a list',
    'greater_than': 'must be greater than {gt:g}',
    'greater_than_equal': 'must be at least {ge:g}',
    'less_than_equal': 'must be at most {le:g}',
    'literal_error': 'must be {expected}',
    'too_short': 'must have {min_length} or more entries, has {actual_length}',
    'too_long': 'must have {max_length} or fewer entries, has {actual_length}',
    'value_error': '{error}',
}


def _join(location: Iterable[Any], key: str = '') -> str:
    path = ''
    for step in location:
        if step == '[key]':
            continue
        path += f'[{step}]' if isinstance(step, int) else f'.{step}' if path else str(step)
    if key:
        path += key if key.startswith('[') or not path else f'.{key}'
    return path


def _reason(error: Mapping[str, Any], value: Any) -> str:
    if error['type'] == 'string_pattern_mismatch':
        return f'is no valid {"topic" if "~" in error["ctx"]["pattern"] else "name"}'
    template = _REASONS.get(error['type'])
    if template is None:
        return error['msg'][:1].lower() + error['msg'][1:]
    return template.format(**error.get('ctx', {}))


def shown(value: Any) -> str:
    """Write a value for an error message, at most 80 characters."""
    text = repr(dict(value) if isinstance(value, FrozenDict) else value)
    return text if len(text) <= 80 else f'{text[:77]}...'


def faults(error: ValidationError, root: str = 'document') -> list[Problem]:
    """List each fault of a validation; ``root`` is the key of the whole."""
    found = []
    for fault in error.errors():
        if fault['type'] == 'problems':
            for problem in fault['ctx']['problems']:
                found.append(problem._replace(key=_join(fault['loc'], problem.key)))
            continue
        value = NOTHING if fault['type'] == 'missing' else fault['input']
        found.append(Problem(_join(fault['loc']) or root, _reason(fault, value), value))
    return found


def explain(error: ValidationError, root: str = 'document') -> list[str]:
    """Write each fault as ``KEY: reason (got VALUE)``; ``root`` is the key of the whole."""
    return [f'{key}: {reason} (got {shown(value)})' for key, reason, value in faults(error, root)]
