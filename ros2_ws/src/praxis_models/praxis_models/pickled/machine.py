# SPDX-License-Identifier: Apache-2.0
"""A machine that follows a pickle's opcodes but knows only data.

A pickle is a program: whoever loads one calls what its author named. Here `pickletools` parses it
and this machine puts containers together. A name that is not permitted ends the reading where it
appears; nothing of that name is imported or called. A permitted name is a label for a function of
this package, not the object that it is elsewhere.
"""

from __future__ import annotations

import io
import pickletools  # parses opcodes; it loads and calls nothing
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from praxis_models.pickled.values import Array, Dtype, Name, PickledError, Storage, sizes, taken

Permitted = Mapping[str, Callable[..., Any] | None]
"""Dotted names and what stands for each; None: a label that cannot be called."""


_DAMAGE = (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error)
"""What parsing and the operations meet in a damaged file."""


class _Mark:
    pass


@dataclass
class Machine:
    """Puts together what the opcodes of one pickle describe.

    Attributes:
        stream: Where the pickle begins.
        permitted: Names that it may have.
        storage_of: What stands for a persistent identity, None: there may be none.
    """

    stream: io.BytesIO
    permitted: Permitted
    storage_of: Callable[[Any], Storage] | None = None

    def run(self) -> Any:
        """Read the pickle; the stream stands behind its end then.

        Raises:
            PickledError: It asks for what is not permitted, or is damaged.
        """
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        at = self.stream.tell()
        try:
            for opcode, argument, position in pickletools.genops(self.stream):
                at = position or 0
                if opcode.name == 'STOP':
                    return self._pop()
                self._step(opcode.name, argument)
        except PickledError as error:
            raise PickledError(f'{error} (at byte {at})') from None
        except (
            ValueError,
            IndexError,
            KeyError,
            TypeError,
            RecursionError,
            struct.error,
        ) as error:
            # genops and the operations below meet whatever a damaged file has
            raise PickledError(f'damaged at byte {at}: {error}') from None
        raise PickledError('has no end')

    def _pop(self) -> Any:
        if not self.stack or isinstance(self.stack[-1], _Mark):
            raise PickledError('damaged: nothing to take')
        return self.stack.pop()

    def _pop_to_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[index], _Mark):
                taken = self.stack[index + 1 :]
                del self.stack[index:]
                return taken
        raise PickledError('damaged: no mark')

    def _top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            raise PickledError(f'damaged: no {kind.__name__} to fill')
        return self.stack[-1]

    def _step(self, name: str, argument: Any) -> None:
        if name in _PLAIN:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in ('PROTO', 'FRAME'):
            return
        elif name == 'MARK':
            self.stack.append(_Mark())
        elif name == 'POP':
            self.stack.pop()
        elif name == 'POP_MARK':
            self._pop_to_mark()
        elif name == 'DUP':
            self.stack.append(self.stack[-1])
        elif name in ('PUT', 'BINPUT', 'LONG_BINPUT', 'MEMOIZE'):
            key = len(self.memo) if name == 'MEMOIZE' else argument
            self.memo[key] = self.stack[-1]
        elif name in ('GET', 'BINGET', 'LONG_BINGET'):
            self.stack.append(self.memo[argument])
        else:
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        if name in ('APPEND', 'APPENDS'):
            items = [self._pop()] if name == 'APPEND' else self._pop_to_mark()
            self._top(list).extend(items)
        elif name in ('SETITEM', 'SETITEMS'):
            items = [self._pop(), self._pop()][::-1] if name == 'SETITEM' else self._pop_to_mark()
            self._top(dict).update(_pairs(items))
        elif name == 'LIST':
            self.stack.append(self._pop_to_mark())
        elif name == 'DICT':
            self.stack.append(_pairs(self._pop_to_mark()))
        elif name == 'TUPLE':
            self.stack.append(tuple(self._pop_to_mark()))
        elif name in _TUPLES:
            items = [self._pop() for _ in range(_TUPLES[name])]
            self.stack.append(tuple(items[::-1]))
        elif name == 'GLOBAL':
            self.stack.append(self._name(*str(argument).split(' ', 1)))
        elif name == 'STACK_GLOBAL':
            attribute, module = self._pop(), self._pop()
            self.stack.append(self._name(module, attribute))
        elif name == 'REDUCE':
            arguments, made = self._pop(), self._pop()
            self.stack.append(self._made(made, arguments))
        elif name == 'BUILD':
            state = self._pop()
            self._fill(self.stack[-1], state)
        elif name == 'BINPERSID':
            self.stack.append(self._persistent(self._pop()))
        else:
            raise PickledError(f'the operation {name} is not permitted')

    def _name(self, module: Any, attribute: Any) -> Name:
        name = Name(taken(module, str, 'a name'), taken(attribute, str, 'a name'))
        if str(name) not in self.permitted:
            raise PickledError(f'{name!s:.120} is not permitted')
        return name

    def _made(self, name: Any, arguments: Any) -> Any:
        make = self.permitted.get(str(name)) if isinstance(name, Name) else None
        if make is None or not isinstance(arguments, tuple):
            raise PickledError(f'a call of {name!s:.120} is not permitted')
        try:
            return make(*arguments)
        except TypeError:
            raise PickledError(f'{name} with {len(arguments)} arguments') from None

    def _fill(self, target: Any, state: Any) -> None:
        if isinstance(target, Array) and target.shape is None:
            if not isinstance(state, tuple) or len(state) != 5:
                raise PickledError('an array with an unknown state')
            _, shape, dtype, fortran, data = state
            target.shape = sizes(shape)
            target.dtype = taken(dtype, Dtype, 'an array')
            target.fortran = fortran is True or fortran == 1
            target.data = taken(data, bytes, 'an array')
        elif isinstance(target, Dtype):
            if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ('<', '>', '|'):
                raise PickledError('a dtype with an unknown state')
            target.order = state[1] if state[1] != '|' else '='
        else:
            raise PickledError(f'a state for {type(target).__name__.lower()} is not permitted')

    def _persistent(self, identity: Any) -> Storage:
        if self.storage_of is None:
            raise PickledError('a persistent identity is not permitted')
        return self.storage_of(identity)


_PLAIN = frozenset(
    (
        *('INT', 'BININT', 'BININT1', 'BININT2', 'LONG', 'LONG1', 'LONG4', 'FLOAT', 'BINFLOAT'),
        *('STRING', 'BINSTRING', 'SHORT_BINSTRING', 'BINBYTES', 'SHORT_BINBYTES', 'BINBYTES8'),
        *('BYTEARRAY8', 'UNICODE', 'BINUNICODE', 'SHORT_BINUNICODE', 'BINUNICODE8'),
    )
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    'NONE': lambda: None,
    'NEWTRUE': lambda: True,
    'NEWFALSE': lambda: False,
    'EMPTY_LIST': list,
    'EMPTY_DICT': dict,
    'EMPTY_TUPLE': tuple,
}
_TUPLES = {'TUPLE1': 1, 'TUPLE2': 2, 'TUPLE3': 3}


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise PickledError('damaged: a key without a value')
    for key in items[::2]:
        if not isinstance(key, (str, bytes, int, float, type(None))):
            raise PickledError(f'a key of type {type(key).__name__.lower()} is not permitted')
    return dict(zip(items[::2], items[1::2], strict=True))
