# SPDX-License-Identifier: Apache-2.0
"""Lifecycle nodes that can bring themselves up."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

from lifecycle_msgs.msg import State
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from praxis_core.contract import ContractError
from praxis_core.parameters import ParameterError

_CALLBACKS = (
    'on_configure',
    'on_activate',
    'on_deactivate',
    'on_cleanup',
    'on_shutdown',
    'on_error',
)


def _logged(callback: Callable[..., TransitionCallbackReturn]) -> Callable[..., Any]:
    """Log an exception of a transition; rclpy turns it into ERROR without a word."""

    @functools.wraps(callback)
    def transition(self: LifecycleNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return callback(self, state)
        except (ParameterError, ContractError) as error:
            # What the user wrote is wrong, not the code: its own words are enough.
            self.get_logger().error(str(error))
            return TransitionCallbackReturn.ERROR
        except Exception as error:
            self.get_logger().error(f'{callback.__name__}: {error}\n{traceback.format_exc()}')
            return TransitionCallbackReturn.ERROR

    return transition


class AutostartNode(LifecycleNode):
    """Lifecycle node with a parameter ``autostart``: configures and activates once it spins.

    Subclasses override ``on_configure`` (load, connect, validate, create publishers),
    ``on_activate``, ``on_deactivate`` (stop safely) and ``on_cleanup`` (release what configure
    made). They publish nothing before they are configured. An exception in a transition is logged
    and leads to ``on_error``, which by default cleans up, so that it can be configured again.
    """

    def __init__(self, node_name: str, *, autostart: bool = True, **kwargs: Any) -> None:
        super().__init__(node_name, **kwargs)
        given = getattr(self, '_parameter_overrides', {}).get('autostart')
        value = autostart if given is None else given.value
        if isinstance(value, str):  # a launch argument is text
            value = {'true': True, 'false': False}.get(value.strip().lower(), value)
        if not isinstance(value, bool):
            raise ParameterError(f'parameter autostart: must be true or false (got {value!r})')
        self.declare_parameter(
            'autostart',
            value,
            ParameterDescriptor(
                description='configure and activate when the process starts', read_only=True
            ),
            ignore_override=True,
        )
        self._autostart_timer = None
        if value:
            # on the steady clock: simulated time may not run before this node is active
            steady = Clock(clock_type=ClockType.STEADY_TIME)
            self._autostart_timer = self.create_timer(0.0, self._autostart, clock=steady)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _CALLBACKS:
            if name in cls.__dict__:
                setattr(cls, name, _logged(cls.__dict__[name]))

    @property
    def state_label(self) -> str:
        """``unconfigured``, ``inactive``, ``active`` or ``finalized``."""
        return self._state_machine.current_state[1]

    @property
    def is_active(self) -> bool:
        """Whether goals are accepted and commands carried out."""
        return self._state_machine.current_state[0] == State.PRIMARY_STATE_ACTIVE

    def _autostart(self) -> None:
        self.destroy_timer(self._autostart_timer)
        self._autostart_timer = None
        if self.state_label != 'unconfigured':
            return
        if self.trigger_configure() != TransitionCallbackReturn.SUCCESS:
            self.get_logger().error('autostart: configure failed, the node stays unconfigured')
        elif self.trigger_activate() != TransitionCallbackReturn.SUCCESS:
            self.get_logger().error('autostart: activate failed')

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release what a failed transition left; the node is unconfigured afterwards."""
        return self.on_cleanup(state)

    def close(self) -> None:
        """Deactivate, clean up and finalise, from whatever state it is in."""
        if self.state_label == 'active':
            self.trigger_deactivate()
        if self.state_label == 'inactive':
            self.trigger_cleanup()
        if self.state_label == 'unconfigured':
            self.trigger_shutdown()
