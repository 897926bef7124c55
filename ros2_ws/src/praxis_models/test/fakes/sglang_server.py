# SPDX-License-Identifier: Apache-2.0
"""An HTTP server with the action routes that SGLang publishes, and no model behind them.

Made from sgl-project/sglang: ``multimodal_gen/runtime/entrypoints/action/api.py`` 40e1d5f1 and
``protocol.py`` 0350f48f for the routes, the bodies and the answers, ``cosmos3.py`` 21d4b30e for
what is refused. Actions are ``self.values``.
"""

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgpack
import numpy as np

DOMAINS = {'no_action': 0, 'libero': 5, 'droid_lerobot': 8}


def _read_array(found):
    if b'__ndarray__' in found:
        flat = np.frombuffer(found[b'data'], np.dtype(found[b'dtype']))
        return flat.reshape(found[b'shape'])
    return found


def _write_array(value):
    return {
        b'__ndarray__': True,
        b'data': value.tobytes(),
        b'dtype': value.dtype.str,
        b'shape': value.shape,
    }


class RefusedError(ValueError):
    pass


class SGLang:
    """Serves until it is closed.

    Attributes:
        values: Actions [H, D] or [B, H, D] that are answered.
        family: Of the metadata; None: the server is too old to have that route.
        behaviour: '' as SGLang; 'json' lists instead of arrays; 'fail' 500; 'hang'; 'close' after
            every answer; 'cut' in the middle of an answer; 'odd' an answer without data.
        requests: Parsed bodies.
        connections: How many were accepted.
    """

    def __init__(self, values):
        self.values = np.asarray(values, np.float32)
        self.family = 'cosmos3'
        self.behaviour = ''
        self.loading = 0
        self.requests = []
        self.connections = 0
        self._released = threading.Event()
        self._open = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def setup(self):
                super().setup()
                owner.connections += 1
                owner._open.append(self.connection)

            def log_message(self, *_):
                return

            def do_GET(self):
                owner._get(self)

            def do_POST(self):
                owner._post(self)

        self._server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        self.endpoint = f'http://127.0.0.1:{self._server.server_port}'

    def close(self):
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _get(self, handler):
        if handler.path != '/v1/actions/metadata' or self.family is None:
            return self._send(handler, 404, 'application/json', b'{"detail":"Not Found"}')
        if self.loading:
            self.loading -= 1
            return self._send(handler, 503, 'text/plain', b'loading')
        found = {
            'object': 'action.metadata',
            'model': 'cosmos3',
            'model_path': '/models/Cosmos3-Nano-LIBERO',
            'policy_family': self.family,
        }
        self._send(handler, 200, 'application/json', json.dumps(found).encode())

    def _post(self, handler):
        body = handler.rfile.read(int(handler.headers['Content-Length']))
        if handler.path != '/v1/actions/generations':
            return self._send(handler, 404, 'application/json', b'{"detail":"Not Found"}')
        packed = 'msgpack' in handler.headers.get('Content-Type', '')
        payload = (
            msgpack.unpackb(body, object_hook=_read_array, raw=False)
            if packed
            else json.loads(body)
        )
        if self.behaviour == 'hang':
            self._released.wait(30)
            return None
        if self.behaviour == 'fail':
            return self._send(handler, 500, 'text/plain', b'Internal Server Error')
        try:
            self._check(payload)
        except RefusedError as error:
            detail = json.dumps({'detail': str(error)}).encode()
            return self._send(handler, 400, 'application/json', detail)
        self.requests.append(payload)
        response = self._response(preserve=packed and self.behaviour != 'json')
        if self.behaviour == 'odd':
            response = {'object': 'action.generation', 'data': []}
        if self.behaviour == 'json':
            return self._send(handler, 200, 'application/json', json.dumps(response).encode())
        data = msgpack.packb(response, default=_write_array, use_bin_type=True)
        self._send(handler, 200, 'application/msgpack', data)

    def _check(self, payload):
        parameters = payload['parameters']
        if parameters.get('action_mode', 'policy') != 'policy':
            raise RefusedError("Cosmos3 action endpoint supports action_mode='policy'")
        if (int(parameters['num_frames']) - 1) % 4 != 0:
            raise RefusedError('Cosmos3 action_horizon must be divisible by 4')
        image = payload['input'].get('input_reference')
        if image is None:
            raise RefusedError('Cosmos3 policy input requires an observation image')
        if image.dtype != np.uint8:
            raise RefusedError('Cosmos3 observation image arrays must use uint8 dtype')
        if image.ndim not in (2, 3):
            raise RefusedError(
                'Cosmos3 observation image arrays must have shape [H, W] or [H, W, C]'
            )
        if not isinstance(payload['input'].get('prompt'), str):
            raise RefusedError('Cosmos3 action prompt must be a string')
        if parameters.get('domain_name') not in DOMAINS:
            raise RefusedError(f'Unknown Cosmos3 domain_name {parameters.get("domain_name")!r}')
        if not parameters.get('raw_action_dim'):
            raise RefusedError("No raw action dim for Cosmos3 embodiment 'libero'")

    def _response(self, preserve):
        batch = self.values if self.values.ndim == 3 else self.values[None]
        data = [
            {
                'index': index,
                'input_index': index,
                'candidate_index': 0,
                'action': {
                    'type': 'continuous',
                    'dtype': 'float32',
                    'shape': list(values.shape),
                    'values': values if preserve else values.tolist(),
                    'action_mode': 'policy',
                    'domain_id': 5,
                    'raw_action_dim': 10,
                },
            }
            for index, values in enumerate(batch)
        ]
        return {
            'id': 'act_0123',
            'object': 'action.generation',
            'created': 1,
            'model': 'cosmos3',
            'data': data,
            'usage': {'batch_size': len(data), 'denoise_steps': 30},
        }

    def _send(self, handler, status, kind, data):
        handler.send_response(status)
        handler.send_header('Content-Type', kind)
        handler.send_header('Content-Length', str(len(data)))
        handler.end_headers()
        if self.behaviour == 'cut':
            data = data[: len(data) // 2]
        handler.wfile.write(data)
        handler.wfile.flush()
        if self.behaviour in ('close', 'cut'):
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
