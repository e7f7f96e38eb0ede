"""Translates exceptions of paramiko and sockets into errors."""

import errno
import re
import shlex
import socket
from dataclasses import dataclass

import paramiko

from rollout.errors import (
    SshBrokenError,
    SshError,
    SshNoRouteError,
    SshRefusedError,
    SshTimeoutError,
    SshUnreachableError,
)
from rollout.model.host import Host
from rollout.model.text import excerpt
from rollout.model.tool_output import last_line

AGREEING = "agreeing on keys"
_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
# Parts of paramiko's messages.
_NOT_SSH = ("banner", "protocol version")
_CHANNEL_CLOSED = "Channel closed."
_FORBIDDEN = "Its sshd may forbid commands for this user."
_BEHIND = (
    "The host is newer or stricter than rollout's own SSH. Have OpenSSH connect instead: --executor"
    " ansible."
)
_OUTDATED = (
    "The host's sshd is too old: it offers only algorithms that are no longer considered safe."
    " Update it, or allow them in ~/.ssh/config and have OpenSSH connect: --executor ansible."
)
# Parts of the names of algorithms that OpenSSH has disabled by default.
_UNSAFE = re.compile(
    r"sha1$|sha1-etm|sha1-96|^ssh-(?:rsa|dss)(?:-cert|$)|-cbc(?:@|$)|arcfour|3des"
    r"|blowfish|cast128|hmac-md5|umac-64"
)


@dataclass(frozen=True, slots=True)
class Offer:
    """A host's algorithms of one kind. rollout's own SSH has none of them."""

    kind: str
    names: tuple[str, ...]

    @property
    def is_outdated(self) -> bool:
        """Whether OpenSSH has disabled all of them by default."""
        return all(_UNSAFE.search(name) for name in self.names)


class OutputLimitError(SshError):
    """A command printed more than the limit."""


class TurnedAwayError(SshBrokenError):
    """Too many logins are in progress. Nothing was sent."""


def ssh_error(
    error: Exception,
    host: Host,
    doing: str,
    *,
    greeting: bytes = b"",
    complaint: str = "",
    seconds_allowed: float | None,
    offer: Offer | None = None,
) -> SshError:
    """Return the error for an exception while `doing`, a phrase like "logging in".

    `greeting` is what the host sent first, `complaint` the proxy's stderr. `seconds_allowed` is
    None unless they have passed.
    """
    complaint = last_line(complaint)
    cause = f": {complaint!a}" if complaint else ""
    if seconds_allowed is not None:
        address = f"the address {host.address}"
        return SshTimeoutError(
            f"no response within {seconds_allowed:.3g} s while {doing}{cause}",
            hint=f"Check {address}, and whether a firewall blocks port {host.port}.",
        )
    if host.proxy and doing == AGREEING:
        message = f"its jump host or proxy ended the connection{cause}"
        hint = f"Try it manually: {shlex.join(host.proxy)}"
        return _broken_if(greeting)(message, hint=hint)
    if isinstance(error, ConnectionRefusedError):
        return SshRefusedError("the connection was refused", hint=_is_sshd_running(host))
    message, hint = _cause(error, host, doing, greeting=greeting, offer=offer)
    if isinstance(error, OSError) and error.errno in _NO_ROUTE:
        return SshNoRouteError(message, hint=hint)
    return _broken_if(greeting)(message, hint=hint)


def _broken_if(greeting: bytes) -> type[SshUnreachableError]:
    return SshBrokenError if greeting else SshUnreachableError


def _cause(
    error: Exception, host: Host, doing: str, *, greeting: bytes, offer: Offer | None
) -> tuple[str, str]:
    """Return message and hint."""
    if isinstance(error, socket.gaierror):
        return f"the name {host.address} does not resolve", "Give its address in an inventory."
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return _incompatible(str(error), greeting, offer)
    if isinstance(error, (paramiko.AuthenticationException, EOFError, ConnectionError)):
        message = f"the host ended the connection while {doing}"
        return message, "It may be going down; try again."
    if isinstance(error, paramiko.ChannelException):
        return "the host opens no session", _FORBIDDEN
    if isinstance(error, OSError):
        return f"{error.strerror or error} while {doing}", "Is there a route to the host?"
    return _ssh_cause(str(error), doing, _is_sshd_running(host), greeting)


def _is_sshd_running(host: Host) -> str:
    return f"Is sshd running at {host.address}, port {host.port}?"


def _incompatible(text: str, greeting: bytes, offer: Offer | None) -> tuple[str, str]:
    if offer is None:
        what = text.removeprefix("Incompatible ssh peer ").removeprefix("Incompatible ssh server ")
        peer = _first_line(greeting)
        return f"no SSH algorithm in common with {peer}: {what.strip('()')}", _BEHIND
    offered = excerpt(", ".join(offer.names))
    sentence = f"no {offer.kind} in common with {_first_line(greeting)}, which offers {offered}"
    return sentence, _OUTDATED if offer.is_outdated else _BEHIND


def _ssh_cause(text: str, doing: str, sshd_hint: str, greeting: bytes) -> tuple[str, str]:
    """Return message and hint for paramiko's errors that differ only by `text`."""
    if any(part in text for part in _NOT_SSH):
        detail = f"but says {_first_line(greeting)}" if greeting else "or closed at once"
        return f"what answers there does not speak SSH, {detail}", sshd_hint
    if text == _CHANNEL_CLOSED:
        return "the host runs no commands over SSH", _FORBIDDEN
    return f"{text or 'SSH failed'} while {doing}", ""


def _first_line(greeting: bytes) -> str:
    return ascii(greeting.decode(errors="replace").strip().partition("\n")[0].strip()[:80])
