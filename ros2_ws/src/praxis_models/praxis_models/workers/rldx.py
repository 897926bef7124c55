# SPDX-License-Identifier: Apache-2.0
"""RLDX-1, with memory per session (RoboCasa365).

Source: RLWRLD/RLDX-1 21007bd4: ``RLDXPolicy`` in ``RLDXSimPolicyWrapper``, loaded here, or the
project's own server (``rldx/eval/run_rldx_server.py --use-sim-policy-wrapper``), asked by ZeroMQ.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any

from praxis_core.model_exchange import PhysicalObservation, Prediction
from praxis_core.model_meta import ModelMeta
from pydantic import Field

from praxis_models.adapters import rldx as adapter
from praxis_models.backend import Backend, BackendError, BackendOptions, Session
from praxis_models.secret import read_secret
from praxis_models.transport import zmtp
from praxis_models.wording import quoted
from praxis_models.workers.foreign import bring

PACKAGE = 'RLDX-1 (github.com/RLWRLD/RLDX-1)'
_PING_S = 5.0
_PAUSE_S = 0.5


class Options(BackendOptions):
    """Which checkpoint of RLDX-1, or which server of it, and how it is asked."""

    checkpoint: str = Field(
        '', description='repository on Hugging Face or folder; or give endpoint'
    )
    endpoint: str = Field(
        '', description="tcp://HOST:PORT of the project's own server; or give checkpoint"
    )
    api_token_file: str = Field(
        '', description="file with the token of the project's own server; none: no token"
    )
    embodiment_tag: str = Field('GENERAL_EMBODIMENT', description='action head of the checkpoint')
    memory: bool = Field(True, description='use the memory of a checkpoint that has one')
    flow_steps: Annotated[int, Field(ge=1)] | None = Field(
        None, description="evenly spaced steps of the flow; none: the checkpoint's 4"
    )
    seed: Annotated[int, Field(ge=0)] | None = Field(
        None, description='of the noise, from the start of the worker; none: any'
    )
    execute_steps: Annotated[int, Field(ge=1)] = Field(
        8, description='steps to execute of a chunk, which is also the spacing of the video'
    )
    device: str = Field('cuda', description='cuda, cuda:N or cpu')
    timeout_s: Annotated[float, Field(gt=0)] = Field(
        120.0, description="of an inference of the project's own server, s"
    )
    ready_timeout_s: Annotated[float, Field(ge=0)] = Field(
        600.0, description="how long to wait for the project's own server to load, s"
    )
    interface_hash: str = Field('', description='contract that the checkpoint was trained for')


class RefusedError(BackendError):
    """The project's own server answers that it will not."""


class NativeServer:
    """The project's own server, with the methods of its policy."""

    def __init__(self, host: str, port: int, timeout_s: float, token: str) -> None:
        self.name = f'tcp://{host}:{port}'
        self._socket = zmtp.RequestSocket(host, port)
        self._timeout_s = timeout_s
        self._token = token

    def wait(self, timeout_s: float) -> None:
        """Wait until it answers.

        Raises:
            BackendError: It does not in time, or refuses the token.
        """
        end = time.monotonic() + timeout_s
        while True:
            try:
                self._call('ping', None, _PING_S)
                return
            except BackendError as error:
                if isinstance(error, RefusedError) or time.monotonic() >= end:
                    raise
            time.sleep(_PAUSE_S)

    def get_action(
        self, observation: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Actions by name, and what the policy says besides."""
        found = self._call('get_action', {'observation': observation, 'options': options})
        if (
            not isinstance(found, (list, tuple))
            or len(found) != 2
            or not isinstance(found[0], dict)
        ):
            raise BackendError(f'{self.name} answers without actions')
        return found[0], dict(found[1] or {})

    def reset(self, options: Mapping[str, Any]) -> Any:
        """Forget the sessions named."""
        return self._call('reset', {'options': options})

    def get_modality_config(self) -> Any:
        """Keys and frames of each modality."""
        return self._call('get_modality_config', None)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _call(
        self, endpoint: str, data: Mapping[str, Any] | None, timeout_s: float | None = None
    ) -> Any:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        request: dict[str, Any] = {'endpoint': endpoint}
        if data is not None:
            request['data'] = data
        if self._token:
            request['api_token'] = self._token
        try:
            reply = adapter.unpack(self._socket.request(adapter.pack(request), timeout_s))
        except TimeoutError as error:
            raise BackendError(f'{self.name} does not answer in time') from error
        except (OSError, ValueError) as error:
            raise BackendError(f'{self.name}: {quoted(error)}') from error
        if isinstance(reply, dict) and 'error' in reply:
            raise RefusedError(f'{self.name} refuses {endpoint}: {quoted(reply["error"])}')
        return reply


class RldxBackend(Backend):
    """A policy of RLDX-1's; a session's memory lasts until a reset or another instruction."""

    def __init__(self, options: Options, policy: Any, name: str) -> None:
        modality = policy.get_modality_config()
        self._deltas, chunk_size = _checked(modality)
        self.meta = ModelMeta(
            backend='rldx',
            checkpoint=name,
            control=adapter.CONTROL,
            camera_roles=adapter.CAMERAS,
            state_schema=adapter.STATE_SCHEMA,
            chunk_size=chunk_size,
            uses_sessions=True,
            policy_hz=adapter.POLICY_HZ,
            execute_steps=min(options.execute_steps, chunk_size),
            interface_hash=options.interface_hash,
            metadata={
                'embodiment_tag': options.embodiment_tag,
                'image_size': adapter.IMAGE_SIZE,
                'video_delta_indices': self._deltas,
            },
        )
        self._policy = policy
        self._spacing = options.execute_steps

    def predict(self, observation: PhysicalObservation, session: Session) -> Prediction:
        """See `Backend.predict`."""
        try:
            adapter.check_images(observation.images)
        except ValueError as error:
            raise BackendError(str(error)) from error
        memory = session.memory
        fresh = memory.get('instruction') != observation.instruction
        if fresh:
            length = -min(self._deltas) // self._spacing + 2
            memory['frames'] = deque(maxlen=length)
            memory['instruction'] = observation.instruction
        memory['frames'].append(observation.images)
        video = adapter.history(memory['frames'], self._deltas, self._spacing)
        choice = {'reset_memory': [fresh], 'session_ids': [session.id]}
        try:
            actions, _ = self._policy.get_action(adapter.encode(observation, video), choice)
            chunk = adapter.decode(actions, self.meta.chunk_size)
        except BaseException as error:
            # what the policy remembers of a failed call is not known
            memory.clear()
            if isinstance(error, (AssertionError, ValueError)):
                raise BackendError(f'rldx: {quoted(error)}') from error
            raise
        return Prediction(chunk, metadata={'memory_reset': fresh})

    def reset(self, session: Session) -> None:
        """See `Backend.reset`."""
        used = bool(session.memory)
        super().reset(session)
        if used:
            self._policy.reset({'session_ids': [session.id]})

    def close(self) -> None:
        """See `Backend.close`; the project's own server goes on."""
        if isinstance(self._policy, NativeServer):
            self._policy.close()


def load(options: Options) -> RldxBackend:
    """Load a policy, or find its server.

    Raises:
        BackendError: It is not there, or is not one of RoboCasa365.
    """
    if bool(options.checkpoint) == bool(options.endpoint):
        raise BackendError('give one of checkpoint and endpoint')
    if options.endpoint:
        for name in ('flow_steps', 'seed'):
            if getattr(options, name) is not None:
                raise BackendError(f'{name}: is for the server at endpoint to know')
        try:
            host, port = zmtp.address(options.endpoint)
        except ValueError as error:
            raise BackendError(f'endpoint: {error}') from error
        token = _token(options.api_token_file)
        server = NativeServer(host, port, options.timeout_s, token)
        server.wait(options.ready_timeout_s)
        return RldxBackend(options, server, server.name)
    return RldxBackend(options, _policy(options), options.checkpoint)


def _token(file: str) -> str:
    try:
        return read_secret(file) if file else ''
    except ValueError as error:
        raise BackendError(f'api_token_file: {error}') from None


def _policy(options: Options) -> Any:
    if importlib.util.find_spec('flash_attn') is None:
        os.environ.setdefault('RLDX_ATTN_IMPL', 'sdpa')
    tags = bring('rldx.data.embodiment_tags', PACKAGE).EmbodimentTag
    policies = bring('rldx.policy.rldx_policy', PACKAGE)
    if options.embodiment_tag not in tags.__members__:
        raise BackendError(f'embodiment_tag: RLDX has none of the name {options.embodiment_tag!r}')
    if options.seed is not None:
        bring('torch', PACKAGE).manual_seed(options.seed)
    steps = options.flow_steps
    policy = policies.RLDXPolicy(
        embodiment_tag=tags[options.embodiment_tag],
        model_path=options.checkpoint,
        device=options.device,
        denoising_timesteps=None if steps is None else [step / steps for step in range(steps)],
        deactivate_memory=not options.memory,
    )
    return policies.RLDXSimPolicyWrapper(policy)


def _checked(modality: Any) -> tuple[list[int], int]:
    """Frames of the video and steps of a chunk, of a policy that is fed as the adapter does.

    Raises:
        BackendError: It is fed in another way.
    """
    expected = {
        'video': list(adapter.CAMERAS),
        'state': list(adapter.STATES),
        'action': list(adapter.ACTIONS),
        'language': [adapter.LANGUAGE],
    }
    for name, keys in expected.items():
        found = _of(modality, name, 'modality_keys')
        if sorted(found) != sorted(keys):
            raise BackendError(
                f'checkpoint: {name}: expected {", ".join(keys)} (got {", ".join(found)}): it is '
                'not one of RoboCasa365'
            )
    if _of(modality, 'state', 'delta_indices') != [0]:
        raise BackendError('checkpoint: state: expected the present one only')
    deltas = _of(modality, 'video', 'delta_indices')
    if not deltas or deltas[-1] != 0 or max(deltas) > 0:
        raise BackendError(f'checkpoint: video: expected frames up to the present (got {deltas})')
    return deltas, len(_of(modality, 'action', 'delta_indices'))


def _of(modality: Any, name: str, attribute: str) -> list[Any]:
    """Attribute of a modality, which is an object here and a mapping from the server."""
    try:
        part = modality[name]
        found = part[attribute] if isinstance(part, Mapping) else getattr(part, attribute)
    except (KeyError, TypeError, AttributeError):
        raise BackendError(f'checkpoint: {name} has no {attribute}') from None
    if attribute == 'delta_indices':
        return [int(index) for index in found]
    return [str(key) for key in found]
