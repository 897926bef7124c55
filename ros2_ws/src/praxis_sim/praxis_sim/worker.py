# SPDX-License-Identifier: Apache-2.0
"""A platform in a process of its own, with a Python environment of its own.

`python -m praxis_sim.worker --platform NAME` is started by `praxis_sim.remote.RemotePlatform`,
which hands over a socket and an arena. Needs NumPy, msgpack, the contract's reader and what the
platform imports; no ROS.
"""

from __future__ import annotations

import argparse
import importlib
import os
import select
import socket
import sys
import threading
import traceback
from typing import Any

from praxis_sim import platforms
from praxis_sim.platform import Platform, PlatformError, PlatformOptions
from praxis_sim.remote_protocol import VERSION, Arena, Channel, ConnectionLostError, ProtocolError

METHODS = frozenset(
    (
        'tasks',
        'reset',
        'step',
        'render',
        'camera_model',
        'link_poses',
        'robot_description',
        'markers',
        'privileged',
        'hold_action',
        'state_digest',
        'close',
    )
)


def create_platform(name: str, options: PlatformOptions) -> Platform:
    """Create a platform named by an entry point, or by ``MODULE:CLASS``.

    Raises:
        PlatformError: There is none, it does not import, or it refuses the options.
    """
    if ':' not in name:
        return platforms.create(name, options)
    module, _, attribute = name.partition(':')
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise PlatformError(f'platform {name!r} cannot be loaded: {error}') from error
    return kind(options)


def serve(channel: Channel, name: str) -> None:
    """Create the platform as the first message says, and answer calls until `close` or EOF."""
    platform: Platform | None = None
    try:
        while True:
            request = channel.receive()
            method = request.get('method') if isinstance(request, dict) else None
            try:
                if method == 'create':
                    platform = _create(name, request)
                    result = {'version': VERSION, 'control_period': platform.control_period}
                elif method in METHODS and platform is not None:
                    result = getattr(platform, method)(
                        *request.get('args', ()), **request.get('kwargs', {})
                    )
                else:
                    raise PlatformError(f'no such call: {method!r}')
                reply = {'result': result}
            except PlatformError as error:
                reply = {'error': str(error)}
            except Exception as error:
                traceback.print_exc()
                reply = {'error': f'{method} failed: {type(error).__name__}: {error}'}
            try:
                channel.send(reply)
            except ProtocolError as error:
                channel.send({'error': f'{method}: {error}'})
            if method == 'close':
                platform = None
                return
    except ConnectionLostError:
        pass  # the parent is gone, or closed without a word
    finally:
        if platform is not None:
            platform.close()


def _create(name: str, request: dict[str, Any]) -> Platform:
    from praxis_core.contract import load_contract

    options = PlatformOptions(
        load_contract(request['contract']), request['render_quality'], request['extra']
    )
    return create_platform(name, options)


def _exit_with_parent(stream: socket.socket) -> None:
    """End the process when the other side is gone, also in the middle of a call."""

    def watch() -> None:
        poller = select.poll()
        poller.register(stream, select.POLLRDHUP)
        while True:
            for _, event in poller.poll():
                if event & (select.POLLRDHUP | select.POLLHUP | select.POLLERR):
                    os._exit(1)

    # The death signal of prctl would follow the parent's thread instead of its process.
    threading.Thread(target=watch, name='parent_watch', daemon=True).start()


def main() -> int:
    """Serve one platform over the descriptors given."""
    parser = argparse.ArgumentParser(description='Run a Praxis platform for another process.')
    parser.add_argument('--platform', required=True, help='entry point name, or MODULE:CLASS')
    parser.add_argument('--socket', type=int, required=True, help='descriptor of the socket')
    parser.add_argument('--arena', type=int, required=True, help='descriptor of the arena')
    arguments = parser.parse_args()
    stream = socket.socket(fileno=arguments.socket)
    arena = Arena(arguments.arena)
    _exit_with_parent(stream)
    serve(Channel(stream, arena), arguments.platform)
    # Skip destructors of graphics drivers: everything of value has been closed.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == '__main__':
    sys.exit(main())
