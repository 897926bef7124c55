# SPDX-License-Identifier: Apache-2.0
"""Server loop that LingBot-VLA and APXInf took over from openpi, with openpi-client's own codec.

Robbyant/lingbot-vla 61ef6b14 (``deploy/websocket_policy_server.py``), infinigence/ApxInf 19bbb696
(``serving/websocket.py``): metadata first, one reply per request, after an error its traceback as
text and the close code 1011.
"""

import contextlib
import threading
import time
import traceback

from openpi_client import msgpack_numpy
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve


@contextlib.contextmanager
def served(policy, metadata, port=0):
    """Serve ``policy.infer``; yields ``ws://127.0.0.1:PORT``."""

    def talk(connection):
        packer = msgpack_numpy.Packer()
        connection.send(packer.pack(metadata))
        while True:
            try:
                request = msgpack_numpy.unpackb(connection.recv())
                started = time.monotonic()
                reply = policy.infer(request)
                reply['server_timing'] = {'infer_ms': (time.monotonic() - started) * 1e3}
                connection.send(packer.pack(reply))
            except ConnectionClosed:
                return
            except Exception:
                connection.send(traceback.format_exc())
                connection.close(
                    1011, 'Internal server error. Traceback included in previous frame.'
                )
                return

    with serve(talk, '127.0.0.1', port, compression=None, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f'ws://127.0.0.1:{server.socket.getsockname()[1]}'
        finally:
            server.shutdown()
            thread.join()
