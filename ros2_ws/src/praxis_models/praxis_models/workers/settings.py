# SPDX-License-Identifier: Apache-2.0
"""Options that every worker has, whatever its model."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from praxis_models.secret import checked_secret, read_secret
from praxis_models.workers import sessions

TOKEN_VARIABLE = 'PRAXIS_MODEL_TOKEN'


class SettingsError(ValueError):
    """Options that do not go together; its text is one line for the user."""


class ServerOptions(BaseModel):
    """How a worker listens and what it allows its clients."""

    model_config = ConfigDict(frozen=True, extra='forbid')

    host: str = Field(
        '127.0.0.1', description='address to listen on; all but loopback need a token'
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(0, description='0: any free one')
    port_file: Path | None = Field(None, description='file to write the port to, once it listens')
    token_file: Path | None = Field(
        None,
        description=f'file with the token that clients send; default: ${TOKEN_VARIABLE}',
    )
    max_message_mb: Annotated[float, Field(gt=0, le=4096)] = Field(
        64.0, description='largest message of a client, MiB'
    )
    max_connections: Annotated[int, Field(ge=1)] = Field(32, description='clients at one time')
    max_waiting: Annotated[int, Field(ge=1)] = Field(
        32, description='requests that may wait for the model; more are refused'
    )
    idle_s: Annotated[float, Field(gt=0)] = Field(
        sessions.IDLE_S, description='a session unused for so long is dropped, s'
    )
    max_sessions: Annotated[int, Field(ge=1)] = Field(
        sessions.LIMIT, description='sessions at one time'
    )
    stop_s: Annotated[float, Field(ge=0)] = Field(
        5.0, description='time a running inference has to finish when the worker is stopped, s'
    )
    exit_on_stdin_eof: bool = Field(
        False, description='stop when standard input is closed, as when the parent dies'
    )

    @property
    def max_message_bytes(self) -> int:
        """Largest message, bytes."""
        return int(self.max_message_mb * 1024 * 1024)


def read_token(token_file: Path | None, host: str, variable: str = TOKEN_VARIABLE) -> str:
    """Token that clients must send, empty: none.

    Args:
        token_file: File that holds it.
        host: Address that is listened on.
        variable: Environment variable that holds it where there is no file.

    Raises:
        SettingsError: It cannot be read, is empty, or the host needs one and there is none.
    """
    try:
        token = checked_secret(os.environ.get(variable, '').strip())
    except ValueError as error:
        raise SettingsError(f'${variable}: {error}') from None
    if token_file is not None:
        try:
            token = read_secret(token_file)
        except ValueError as error:
            raise SettingsError(f'--token-file: {error}') from None
    if not token and not is_loopback(host):
        raise SettingsError(
            f'--host: {host} can be reached by others: give --token-file or ${variable}'
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == 'localhost':
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
