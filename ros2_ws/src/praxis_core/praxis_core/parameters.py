# SPDX-License-Identifier: Apache-2.0
"""A node's parameters as one validated model.

The schema (type, default, bounds, description, read-only) is a pydantic model; descriptors are
made from it, and the whole set is validated before anything changes, at start and at run time.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin

import annotated_types
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.node import Node
from rclpy.parameter import Parameter

from praxis_core.schema import explain, shown, unknown

M = TypeVar('M', bound='ParameterModel')


class ParameterError(ValueError):
    """Parameters that a node must not start with, one line a fault: name, reason and value."""


class _Kind(NamedTuple):
    scalar: type
    is_list: bool
    choices: tuple[str, ...] = ()

    @property
    def ros(self) -> Parameter.Type:
        return (_ARRAYS if self.is_list else _SCALARS)[self.scalar]


_SCALARS = {
    bool: Parameter.Type.BOOL,
    int: Parameter.Type.INTEGER,
    float: Parameter.Type.DOUBLE,
    str: Parameter.Type.STRING,
}
_ARRAYS = {
    bool: Parameter.Type.BOOL_ARRAY,
    int: Parameter.Type.INTEGER_ARRAY,
    float: Parameter.Type.DOUBLE_ARRAY,
    str: Parameter.Type.STRING_ARRAY,
}


class ParameterModel(BaseModel):
    """Base of a node's parameters.

    Each field is a bool, int, float, str, ``Literal`` of texts, or a list of one of these, and has
    a description; ``ge`` and ``le`` become the descriptor's range,
    ``json_schema_extra={'read_only': True}`` its read-only flag. A field without a default must be
    given. Rules between fields are pydantic model validators.
    """

    model_config = ConfigDict(frozen=True, extra='forbid', allow_inf_nan=False, strict=True)
    kinds: ClassVar[dict[str, _Kind]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Refuse a field that ROS cannot carry, or that nobody described."""
        for name, field in cls.model_fields.items():
            if not field.description:
                raise TypeError(f'{cls.__name__}.{name}: needs a description')
        cls.kinds = {name: _kind(cls, name, field) for name, field in cls.model_fields.items()}


def _kind(model: type, name: str, field: FieldInfo) -> _Kind:
    annotation = field.annotation
    is_list = get_origin(annotation) is list
    inner = get_args(annotation)[0] if is_list else annotation
    if get_origin(inner) is Literal and all(isinstance(text, str) for text in get_args(inner)):
        return _Kind(str, is_list, get_args(inner))
    if inner not in _SCALARS:
        raise TypeError(f'{model.__name__}.{name}: {annotation} is no type of a ROS parameter')
    return _Kind(inner, is_list)


def _bound(field: FieldInfo, inclusive: type, exclusive: type, name: str) -> Any:
    for rule in field.metadata:
        if isinstance(rule, (inclusive, exclusive)):
            return getattr(rule, name, getattr(rule, name.replace('e', 't'), None))
    return None


def descriptor(model: type[ParameterModel], name: str) -> ParameterDescriptor:
    """Describe one field for ROS: type, range, description, read-only."""
    field, kind = model.model_fields[name], model.kinds[name]
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    described = ParameterDescriptor(
        name=name,
        type=kind.ros.value,
        description=field.description,
        read_only=bool(extra.get('read_only', False)),
    )
    if kind.choices:
        described.additional_constraints = f'one of: {", ".join(kind.choices)}'
    low = _bound(field, annotated_types.Ge, annotated_types.Gt, 'ge')
    high = _bound(field, annotated_types.Le, annotated_types.Lt, 'le')
    if kind.is_list or (low is None and high is None):
        return described
    if kind.scalar is int:
        whole = IntegerRange(
            from_value=-(2**63) if low is None else int(low),
            to_value=2**63 - 1 if high is None else int(high),
        )
        described.integer_range = [whole]
    elif kind.scalar is float:
        real = FloatingPointRange(
            from_value=-sys.float_info.max if low is None else float(low),
            to_value=sys.float_info.max if high is None else float(high),
        )
        described.floating_point_range = [real]
    return described


def _scalar(kind: type, value: Any) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if kind is not str and isinstance(value, str):  # a launch argument is text
        if kind is bool:
            return {'true': True, 'false': False}.get(value.strip().lower(), value)
        try:
            return kind(value)
        except ValueError:
            return value
    return value


def coerce(kind: _Kind, value: Any) -> Any:
    """Give a value the field's type where it spells it exactly, else leave it as it is.

    Whole numbers serve as float; the texts of launch arguments (``'false'``, ``'0.5'``) serve as
    what they spell. Text stays text, and nothing else becomes text.
    """
    if kind.is_list and value is None:  # rcl reads an empty list as a value without type
        return []
    if kind.is_list and isinstance(value, (list, tuple, array.array)):
        return [_scalar(kind.scalar, item) for item in value]
    return value if kind.is_list else _scalar(kind.scalar, value)


def _validated(model: type[M], values: dict[str, Any]) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = explain(error, root='as a set')
        raise ParameterError('\n'.join(f'parameter {line}' for line in lines)) from None


class ParameterSet(Generic[M]):
    """The declared parameters of a node.

    Attributes:
        value: The validated model; replaced as a whole when parameters are set.
    """

    def __init__(
        self, node: Node, model: type[M], value: M, on_change: Callable[[M], None] | None
    ) -> None:
        self.value = value
        self._node = node
        self._model = model
        self._on_change = on_change

    def _candidate(self, parameters: Iterable[Parameter]) -> M | None:
        kinds = self._model.kinds
        changed = {
            parameter.name: coerce(kinds[parameter.name], parameter.value)
            for parameter in parameters
            if parameter.name in kinds
        }
        if not changed:
            return None
        return _validated(self._model, {**self.value.model_dump(), **changed})

    def _before(self, parameters: list[Parameter]) -> list[Parameter]:
        return [self._typed(parameter) for parameter in parameters]

    def _typed(self, parameter: Parameter) -> Parameter:
        kind = self._model.kinds.get(parameter.name)
        if kind is None or parameter.type_ == Parameter.Type.NOT_SET:
            return parameter
        value = coerce(kind, parameter.value)
        return Parameter(parameter.name, kind.ros, value) if kind.ros.check(value) else parameter

    def _check(self, parameters: list[Parameter]) -> SetParametersResult:
        try:
            self._candidate(parameters)
        except ParameterError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _after(self, parameters: list[Parameter]) -> None:
        value = self._candidate(parameters)
        if value is None or value == self.value:
            return
        self.value = value
        if self._on_change is not None:
            self._on_change(value)

    def _check_and_apply(self, parameters: list[Parameter]) -> SetParametersResult:
        result = self._check(parameters)
        if result.successful:
            self._after(parameters)
        return result

    def _attach(self) -> None:
        node = self._node
        if hasattr(node, 'add_post_set_parameters_callback'):
            node.add_pre_set_parameters_callback(self._before)
            node.add_on_set_parameters_callback(self._check)
            node.add_post_set_parameters_callback(self._after)
        else:  # Humble knows only the check
            node.add_on_set_parameters_callback(self._check_and_apply)


def _refuse_unknown(node: Node, model: type[ParameterModel], given: dict[str, Parameter]) -> None:
    lines = [
        f'parameter {name}: {unknown(name, model.model_fields)} (got {shown(given[name].value)})'
        for name in sorted(given)
        if name not in model.model_fields
        and not node.has_parameter(name)
        and not name.startswith('qos_overrides.')
    ]
    if lines:
        raise ParameterError('\n'.join(lines))


def _declare(node: Node, kind: _Kind, value: Any, described: ParameterDescriptor) -> None:
    name = described.name
    if value != []:
        node.declare_parameter(name, value, described, ignore_override=True)
        return
    # rclpy takes an empty list for bytes unless it is set with its type after the declaration
    node.declare_parameter(name, kind.ros, ignore_override=True)
    node.set_parameters([Parameter(name, kind.ros, value)])
    node.set_descriptor(name, described)


def declare(
    node: Node, model: type[M], on_change: Callable[[M], None] | None = None
) -> ParameterSet[M]:
    """Declare every field of a model as a parameter of a node, and keep the model up to date.

    Call it once in a node's constructor, after any parameter that the node declares by itself.

    Args:
        node: Node that was not told to declare its overrides by itself.
        model: Schema.
        on_change: Called with the whole model after a set that changed it.

    Returns:
        The set, whose ``value`` is the validated model.

    Raises:
        ParameterError: A value of wrong type or out of range, a missing or an unknown parameter;
            the node must not start.
    """
    given = dict(getattr(node, '_parameter_overrides', {}))
    _refuse_unknown(node, model, given)
    values = {
        name: coerce(kind, given[name].value)
        for name, kind in model.kinds.items()
        if name in given
    }
    value = _validated(model, values)
    parameters = ParameterSet(node, model, value, on_change)
    for name, kind in model.kinds.items():
        if not node.has_parameter(name):
            _declare(node, kind, getattr(value, name), descriptor(model, name))
    parameters._attach()
    return parameters
