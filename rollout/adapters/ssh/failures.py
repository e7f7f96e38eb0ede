import errno
import re
import shlex
import socket
from enum import StrEnum

import paramiko
from msgspec import Struct

from rollout.errors import (
    SshBrokenError,
    SshError,
    SshNoRouteError,
    SshRefusedError,
    SshStalledError,
    SshTimeoutError,
    SshUnreachableError,
)
from rollout.model.host import Host
from rollout.model.text import excerpt
from rollout.model.tool_output import last_line

_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
_NOT_SSH = ("banner", "protocol version")
_CHANNEL_CLOSED = "Channel closed."
_LONGEST_LINE = 80
_FORBIDDEN_HINT = "Its sshd may forbid commands for this user."
_NEWER_HOST_HINT = (
    "The host accepts only algorithms that rollout's own SSH does not support. Use OpenSSH instead,"
    " with --executor ansible."
)
_OLD_HOST_HINT = (
    "The host's sshd is too old: it offers only algorithms that are no longer considered safe."
    " Update it, or allow them in ~/.ssh/config and use OpenSSH, with --executor ansible."
)
# OpenSSH disables these by default.
_UNSAFE = re.compile(
    r"sha1$|sha1-etm|sha1-96|^ssh-(?:rsa|dss)(?:-cert|$)|-cbc(?:@|$)|arcfour|3des"
    r"|blowfish|cast128|hmac-md5|umac-64"
)


class Stage(StrEnum):
    """For messages."""

    CONNECTING = "connecting"
    AGREEING_ON_KEYS = "exchanging keys"
    LOGGING_IN = "logging in"
    RUNNING_COMMAND = "running the command"


class Offer(Struct, frozen=True):
    """A host's algorithms of a kind, which paramiko lacks."""

    kind: str
    names: tuple[str, ...]

    @property
    def is_outdated(self) -> bool:
        """Whether OpenSSH disables all of them."""
        return all(_UNSAFE.search(name) for name in self.names)


class OutputLimitError(SshError):
    """A command printed more than the limit."""


class TurnedAwayError(SshBrokenError):
    """Too many logins are in progress; nothing was sent."""


def ssh_error(
    error: Exception,
    host: Host,
    stage: Stage,
    *,
    greeting: bytes = b"",
    proxy_stderr: str = "",
    exceeded_timeout: float | None,
    offer: Offer | None = None,
) -> SshError:
    """Translate an exception.

    `greeting` is what the host sent first, `exceeded_timeout` in seconds. `offer` is None if
    algorithms were in common.
    """
    proxy_message = last_line(proxy_stderr)
    cause = f": {proxy_message!a}" if proxy_message else ""
    if exceeded_timeout is not None:
        message = f"no response within {exceeded_timeout:.3g} s while {stage}{cause}"
        if greeting:
            hint = "The host is up but too slow: check its load, disks and directory server."
            return SshStalledError(message, hint=hint)
        hint = f"Check the address {host.address}, and whether a firewall blocks port {host.port}."
        return SshTimeoutError(message, hint=hint)
    # A proxy always starts, and fails here if it does not reach the host.
    if host.proxy and stage is Stage.AGREEING_ON_KEYS:
        message = f"its jump host or proxy ended the connection{cause}"
        hint = f"Try it manually: {shlex.join(host.proxy)}"
        return _unreachable_error(greeting, message, hint)
    if isinstance(error, ConnectionRefusedError):
        return SshRefusedError("the connection was refused", hint=_sshd_hint(host))
    message, hint = _message_and_hint(error, host, stage, greeting=greeting, offer=offer)
    if isinstance(error, OSError) and error.errno in _NO_ROUTE:
        return SshNoRouteError(message, hint=hint)
    return _unreachable_error(greeting, message, hint)


def _unreachable_error(greeting: bytes, message: str, hint: str) -> SshUnreachableError:
    # With a greeting, the host is up.
    error_type = SshBrokenError if greeting else SshUnreachableError
    return error_type(message, hint=hint)


def _message_and_hint(
    error: Exception, host: Host, stage: Stage, *, greeting: bytes, offer: Offer | None
) -> tuple[str, str]:
    if isinstance(error, socket.gaierror):
        return f"the name {host.address} does not resolve", "Specify its address in an inventory."
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return _incompatible_message_and_hint(str(error), greeting, offer)
    if isinstance(error, (paramiko.AuthenticationException, EOFError, ConnectionError)):
        message = f"the host ended the connection while {stage}"
        return message, "It may be going down; try again."
    if isinstance(error, paramiko.ChannelException):
        return "the host refuses to open a session", _FORBIDDEN_HINT
    # After its subclasses.
    if isinstance(error, OSError):
        return f"{error.strerror or error} while {stage}", "Is there a route to the host?"
    return _paramiko_message_and_hint(str(error), stage, _sshd_hint(host), greeting)


def _sshd_hint(host: Host) -> str:
    return f"Is sshd running at {host.address}, port {host.port}?"


def _incompatible_message_and_hint(
    text: str, greeting: bytes, offer: Offer | None
) -> tuple[str, str]:
    if offer is None:
        detail = text.removeprefix("Incompatible ssh peer ")
        detail = detail.removeprefix("Incompatible ssh server ").strip("()")
        message = f"no SSH algorithm in common with {_first_line(greeting)}: {detail}"
        return message, _NEWER_HOST_HINT
    offered = excerpt(", ".join(offer.names))
    message = f"no {offer.kind} in common with {_first_line(greeting)}, which offers {offered}"
    return message, _OLD_HOST_HINT if offer.is_outdated else _NEWER_HOST_HINT


def _paramiko_message_and_hint(
    text: str, stage: Stage, sshd_hint: str, greeting: bytes
) -> tuple[str, str]:
    is_no_ssh = any(part in text for part in _NOT_SSH)
    if is_no_ssh:
        detail = f"it says {_first_line(greeting)}" if greeting else "it closed the connection"
        return f"the service there does not speak SSH: {detail}", sshd_hint
    if text == _CHANNEL_CLOSED:
        return "the host refuses to run commands over SSH", _FORBIDDEN_HINT
    return f"{text or 'SSH failed'} while {stage}", ""


def _first_line(greeting: bytes) -> str:
    line, _, _ = greeting.decode(errors="replace").strip().partition("\n")
    return ascii(line.strip()[:_LONGEST_LINE])
