# SPDX-License-Identifier: Apache-2.0
"""YAML in which a repeated key is an error. Imports no rclpy."""

from __future__ import annotations

import re
from typing import Any

import yaml


class StrictYamlError(ValueError):
    """A text that is no YAML, or repeats a key.

    Attributes:
        key: Dotted path of the key concerned, or ``line N`` where there is none.
        reason: What is wrong.
        value: What was found there.
    """

    def __init__(self, key: str, reason: str, value: Any) -> None:
        super().__init__(f'{key}: {reason} (got {value!r})')
        self.key, self.reason, self.value = key, reason, value


class _Loader(yaml.SafeLoader):
    """YAML 1.1 with numbers such as 1e-3, which PyYAML takes for text."""


_Loader.add_implicit_resolver(
    'tag:yaml.org,2002:float',
    re.compile(r'[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$'),
    list('-+.0123456789'),
)


def _refuse_repeated_keys(
    node: yaml.Node | None, path: str, inside: frozenset[int], checked: set[int]
) -> None:
    if node is None or isinstance(node, yaml.ScalarNode):
        return
    if id(node) in inside:
        raise StrictYamlError(path or 'document', 'refers to itself', '*alias')
    if id(node) in checked:  # an alias: each node is looked at once, however often it is named
        return
    checked.add(id(node))
    inside |= {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _refuse_repeated_keys(item, f'{path}[{index}]', inside, checked)
        return
    seen: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise StrictYamlError(path or 'document', 'a key must be text', 'a list or mapping')
        name = f'{path}.{key.value}' if path else key.value
        if key.value in seen:
            line = key.start_mark.line + 1
            shown = value.value if isinstance(value, yaml.ScalarNode) else 'a list or mapping'
            raise StrictYamlError(name, f'key is repeated in line {line}', shown)
        seen.add(key.value)
        _refuse_repeated_keys(value, name, inside, checked)


def load(text: str) -> Any:
    """Parse one YAML document.

    Raises:
        StrictYamlError: No YAML, a repeated key, or an alias that contains itself.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _refuse_repeated_keys(node, '', frozenset(), set())
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f'line {mark.line + 1}' if mark else 'document'
        raise StrictYamlError(line, 'is no valid YAML', error.problem or error.context) from None
    except yaml.YAMLError as error:
        raise StrictYamlError('document', 'is no valid YAML', str(error)) from None
    except ValueError as error:
        if isinstance(error, StrictYamlError):
            raise
        raise StrictYamlError(
            'document', 'holds a value that cannot be read', str(error)
        ) from None
