"""The operator's ssh-agent: its keys and certificates, and signatures by them.

paramiko's own agent client connects to `SSH_AUTH_SOCK` alone, forgets to close its socket where nobody answers, and
offers a certificate that the agent holds as the bare key.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko
from paramiko.agent import AgentKey, AgentSSH
from typing_extensions import override

VARIABLE = "SSH_AUTH_SOCK"
_CERTIFICATE = "-cert-v01@openssh.com"
# Somebody may have to confirm the use of a key, or touch a token; an agent that hangs must not hang us.
_PATIENCE = 60.0


class _Agent(AgentSSH):
    """A line to an agent. It answers one request at a time, so each connection to a host has its own."""

    def __init__(self, line: socket.socket) -> None:
        super().__init__()
        self._connect(line)  # type: ignore[attr-defined]


class UnsignedError(paramiko.AuthenticationException):
    """The agent holds a key, and does not sign with it: its token is away, or somebody said no."""


class HeldKey(AgentKey):
    """A key of the agent's: one that it does not sign with is like one that the host refuses, and the next may do."""

    @override
    def sign_ssh_data(self, data: Any, algorithm: str | None = None) -> paramiko.Message:
        try:
            return super().sign_ssh_data(data, algorithm)
        except paramiko.SSHException as error:
            raise UnsignedError(str(error)) from error


class _Certified(HeldKey):
    """A certificate that the agent has the key of: shown whole, and signed for by its own name."""

    @override
    def asbytes(self) -> bytes:
        return bytes(self.blob)


@contextmanager
def agent_keys(path: str | None) -> Iterator[tuple[HeldKey, ...]]:
    """Yield the keys of the agent that listens at `path`, else of the usual one; none where it makes no sense."""
    try:
        line = _connected(str(Path(path).expanduser()) if path is not None else os.environ.get(VARIABLE, ""))
    except OSError:
        yield ()
        return
    with line:
        yield _keys(line)


def _connected(path: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(_PATIENCE)
    try:
        line.connect(path)
    except OSError:
        line.close()
        raise
    return line


def _keys(line: socket.socket) -> tuple[HeldKey, ...]:
    try:
        agent = _Agent(line)
    except (paramiko.SSHException, OSError):
        return ()
    return tuple(_usable(agent, key) for key in agent.get_keys())


def _usable(agent: _Agent, key: AgentKey) -> HeldKey:
    kind = _Certified if key.name.endswith(_CERTIFICATE) else HeldKey
    return kind(agent, key.blob, key.comment)
