# SPDX-License-Identifier: Apache-2.0
"""A worker in the test's own process, and a client that says exactly what it is told."""

import asyncio
import contextlib
import threading
import urllib.error
import urllib.request

import numpy as np
from praxis_core.model_exchange import Prediction
from praxis_core.model_meta import ModelMeta
from praxis_core.native_control import LIBERO_7D
from praxis_core.testing import wait_until
from praxis_models.backend import Backend
from praxis_models.transport import wire
from praxis_models.workers.inference import Inference
from praxis_models.workers.server import ModelServer
from praxis_models.workers.settings import ServerOptions
from websockets.sync.client import connect

PRIMARY = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


class Scripted(Backend):
    """Answers with the state's first value in every field; a test may gate or replace a call."""

    meta = ModelMeta(
        backend='scripted',
        control=LIBERO_7D,
        camera_roles=('primary',),
        state_schema={'state': 3},
        chunk_size=2,
        uses_sessions=True,
    )

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.seen = []
        self.forgotten = []
        self.threads = set()
        self.closed = False
        self.answer = None

    def predict(self, observation, session):
        self.threads.add(threading.get_ident())
        value = float(observation.state['state'][0])
        self.seen.append(value)
        self.entered.release()
        assert self.gate.wait(30)
        if self.answer is not None:
            return self.answer()
        count = session.memory.setdefault('count', 0)
        session.memory['count'] = count + 1
        actions = np.full((2, 7), value, np.float32)
        return Prediction(actions, metadata={'count': count, 'session': session.id})

    def reset(self, session):
        self.threads.add(threading.get_ident())
        self.forgotten.append((session.id, dict(session.memory)))
        session.memory.clear()

    def close(self):
        self.closed = True


class Rig:
    """Runs a server until the context ends."""

    def __init__(self, load, token='', **options):
        self.options = ServerOptions(**options)
        self.inference = Inference(self.options.max_waiting)
        self.server = ModelServer('scripted', load, self.options, token, self.inference)
        self.status = None
        self._bound = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve), threading.Thread(target=self.inference.work)
        ]  # fmt: skip

    def _serve(self):
        self.status = asyncio.run(self.server.run(lambda port: self._bound.set()))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        assert self._bound.wait(20)
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Stop and wait for the end."""
        self.server.stop()
        self.join()

    def join(self):
        """Wait for the end."""
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def health(self):
        """Status and body of /healthz."""
        return get(self.server.port, '/healthz')

    def wait_loaded(self):
        """Wait until the model can be asked."""
        wait_until(lambda: self.health()[0] == 200, message='loading')

    @contextlib.contextmanager
    def client(self, **headers):
        """Connect; gives a client whose metadata is read."""
        with Client(self.server.port, headers) as client:
            client.meta = wire.unpack(client.socket.recv(20))
            yield client


class Client:
    """One connection."""

    def __init__(self, port, headers=None):
        self._context = connect(
            f'ws://127.0.0.1:{port}', compression=None, max_size=None,
            additional_headers=headers or {}, open_timeout=20,
        )  # fmt: skip
        self.socket = self._context.__enter__()
        self.meta = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._context.__exit__(None, None, None)

    def send(self, value):
        """Send a dictionary."""
        self.socket.send(wire.pack(value))

    def receive(self):
        """Next frame: text, or what a binary frame holds."""
        frame = self.socket.recv(20)
        return frame if isinstance(frame, str) else wire.unpack(frame)

    def ask(self, value):
        """Send and receive."""
        self.send(value)
        return self.receive()


def request(value=1.0, **more):
    """A good request whose state starts with a value."""
    return {
        'images': {'primary': PRIMARY},
        'state': {'state': np.array([value, 0, 0], np.float32)},
        'instruction': 'pick up the cube',
        'embodiment': LIBERO_7D.embodiment,
        'action_space': LIBERO_7D.action_space,
        **more,
    }


def get(port, path):
    """Status and body of a plain HTTP request."""
    try:
        with urllib.request.urlopen(f'http://127.0.0.1:{port}{path}', timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
