# SPDX-License-Identifier: Apache-2.0
"""`worker BACKEND [OPTION ...]`: one model, one process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from praxis_models.backend import BackendError
from praxis_models.workers import options, process, registry, server
from praxis_models.workers.settings import ServerOptions, SettingsError, read_token

PROGRAM = 'python -m praxis_models.workers'
REFUSED = 2
"""Exit status after a command line that cannot be taken."""


def overview() -> str:
    """Help without a back end."""
    width = max(map(len, registry.BACKENDS)) + 2
    lines = [f'  {name:{width}}{summary}' for name, summary in registry.BACKENDS.items()]
    return '\n'.join(
        (
            f'usage: {PROGRAM} BACKEND [OPTION ...]',
            '',
            "Serve a model by OpenPI's protocol (WebSocket, MessagePack with numpy).",
            '',
            'back ends:',
            *lines,
            f'  {"PACKAGE.MODULE":{width}}one of your own, with Options and load(options)',
            '',
            f'`{PROGRAM} BACKEND --help` shows the options of one.',
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a back end until it is stopped.

    Returns:
        Exit status: 0 after a stop, 1 where the model does not load, 2 after bad options.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ('-h', '--help'):
        print(overview())
        return 0 if words else REFUSED
    name, *rest = words
    try:
        loader = registry.find(name)
        parser = options.parser(f'{PROGRAM} {name}', f'{loader.name}: {loader.summary}')
        options.add_options(parser, 'model', loader.options)
        options.add_options(parser, 'server', ServerOptions)
        given = options.parse(parser, rest)
        model_options = options.build(loader.options, given)
        server_options = options.build(ServerOptions, given)
        token = read_token(server_options.token_file, server_options.host)
    except (BackendError, options.OptionError, SettingsError) as error:
        print(f'worker {name}: {error}', file=sys.stderr)
        return REFUSED
    logging.basicConfig(
        level=logging.INFO, format='%(asctime)s %(levelname)s %(name)s: %(message)s'
    )
    process.quieten_handshakes()
    return server.run(loader.name, lambda: loader.load(model_options), server_options, token)
