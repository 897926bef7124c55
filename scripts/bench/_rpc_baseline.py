# SPDX-License-Identifier: Apache-2.0
"""Inference over HTTP with base64 JSON, as agent stacks without a binary protocol do it.

One POST a call on a connection of its own, arrays as base64 text, a thread a connection. It is a
baseline for measuring: nothing of Praxis uses it.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np


class _Encoder(json.JSONEncoder):
    def default(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            text = base64.b64encode(value.tobytes()).decode('ascii')
            return {'__ndarray__': text, 'dtype': str(value.dtype), 'shape': list(value.shape)}
        return super().default(value)


def _restored(found: dict[str, Any]) -> Any:
    if '__ndarray__' not in found:
        return found
    flat = np.frombuffer(base64.b64decode(found['__ndarray__']), dtype=found['dtype'])
    return flat.reshape(found['shape']).copy()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers['Content-Length']))
        json.loads(body, object_hook=_restored)
        reply = {'ok': True, 'result': self.server.actions}
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.end_headers()
        self.wfile.write(json.dumps(reply, cls=_Encoder).encode())


def serve(actions: np.ndarray) -> ThreadingHTTPServer:
    """Answer every call with the same actions float32[B, H, A], on a free loopback port."""
    server = ThreadingHTTPServer(('127.0.0.1', 0), _Handler)
    server.actions = actions
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def call(port: int, observation: dict[str, Any]) -> np.ndarray:
    """Ask for actions."""
    payload = {'method': 'vla.predict', 'args': [observation, {'mode': 'eval'}], 'kwargs': {}}
    request = urllib.request.Request(
        f'http://127.0.0.1:{port}/call',
        data=json.dumps(payload, cls=_Encoder).encode(),
        headers={'Content-Type': 'application/json'},
    )
    with urllib.request.urlopen(request, timeout=30.0) as response:
        return json.loads(response.read(), object_hook=_restored)['result']
