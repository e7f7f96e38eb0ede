"""Reads or asks for what a kubeconfig's user logs in with.

Source of the protocol of credential programs: `client.authentication.k8s.io` in the Kubernetes
reference. The precedence is client-go's.
"""

import base64
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
from msgspec.structs import replace

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.adapters.kube.kubeconfig import Login, Program
from rollout.adapters.programs import run_program
from rollout.adapters.secrets import child_environment, header_value, masked
from rollout.errors import KubeconfigError
from rollout.model.tool_output import last_line

# Seconds for a credential program; cloud providers' take one to ten.
LOGIN_LIMIT = 30.0
# How early to renew, in seconds: a minute, or a fifth of a short lifetime.
_LONGEST_MARGIN = 60.0
_SHARE_OF_LIFETIME = 0.2
_HINT = "Check the token, or the file or program that it comes from."
_OIDC_HINT = (
    "Any kubectl command renews the token. To let rollout renew it, log in with kubelogin (kubectl"
    " oidc-login) as the user's `exec` program."
)
_SEPARATOR = re.compile(r"[\s=]+")
_OPTION = re.compile(r"--?[a-z-]+")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a user logs in with."""

    # Returns the header's value, empty without one; raises `KubeconfigError`.
    authorization: Callable[[], str]
    # As PEM, from a program. The session loads the kubeconfig's own.
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    # By `time.time`.
    renew_at: float = math.inf


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _Status


class _Claims(msgspec.Struct, frozen=True):
    exp: float


def log_in(login: Login, *, may_ask: bool) -> Credentials:
    """Return the user's credentials, or raise `KubeconfigError`. A program may ask a person."""
    user = login.user
    has_certificate = bool(user.client_certificate_data or user.client_certificate)
    if user.token_file:
        file = Path(user.token_file)
        return Credentials(lambda: _bearer(_read_token(file), login.user_origin))
    if user.token:
        token = user.token
    elif user.username:
        password = base64.b64encode(f"{user.username}:{user.password or ''}".encode()).decode()
        return Credentials(lambda: f"Basic {password}")
    elif user.auth_provider:
        token = _id_token(user.auth_provider.config or {}, login.user_origin)
    elif user.exec and not has_certificate:
        return _ask_program(login, user.exec, may_ask=may_ask)
    else:
        return Credentials(lambda: "")
    return Credentials(lambda: _bearer(token, login.user_origin))


def _bearer(token: str, origin: str) -> str:
    try:
        return f"Bearer {header_value(token)}"
    except ValueError as error:
        message = f"the credentials of {origin} cannot be sent: they have {error}"
        raise KubeconfigError(message, hint=_HINT) from None


def _read_token(file: Path) -> str:
    """Return the token that a file has now: a kubelet replaces it before it expires."""
    hint = _HINT
    try:
        if token := read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS).decode().strip():
            return token
        why = "has no token"
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        hint = hint_of(error, _HINT)
    except ValueError:
        why = "is not text"
    raise KubeconfigError(f"token file {file} {why}", hint=hint)


def _id_token(config: Mapping[str, str], origin: str) -> str:
    """Return a token of OpenID Connect that has not expired.

    It is not renewed: the provider may replace the refresh token, which only the kubeconfig keeps.
    """
    token = config.get("id-token", "")
    try:
        _, payload, _ = token.split(".")
        padded = payload + "=" * (-len(payload) % 4)
        claims = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims)
    except (ValueError, msgspec.MsgspecError):
        message = f"{origin} logs in through oidc, but has no valid id-token"
        raise KubeconfigError(message, hint=_OIDC_HINT) from None
    if claims.exp <= time.time():
        raise KubeconfigError(f"the id-token of {origin} has expired", hint=_OIDC_HINT)
    return token


def _ask_program(login: Login, program: Program, *, may_ask: bool) -> Credentials:
    def fail(why: str) -> NoReturn:
        raise KubeconfigError(
            f"{program.command} gave no credentials: {why}",
            hint=program.install_hint or f"Run it manually, or see {login.user_origin}.",
        ) from None

    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    is_interactive = may_ask and has_terminal and program.interactive_mode != "Never"
    try:
        done = _run(program, login, is_interactive=is_interactive)
    except OSError as error:
        fail(f"{error.strerror}: {error.filename}")
    except ValueError:
        fail("its arguments or variables have a null character")
    except subprocess.TimeoutExpired:
        fail(f"no response within {LOGIN_LIMIT:.0f}s")
    if done.returncode:
        words = last_line(_without_inputs((done.stderr or b"").decode(errors="replace"), program))
        fail(f"it exited with {done.returncode}{f': {words}' if words else ''}")
    try:
        answer = msgspec.json.decode(done.stdout, type=_ExecCredential)
    except (msgspec.MsgspecError, UnicodeError) as error:
        fail(f"its output is not an ExecCredential: {error}")
    if (answer.api_version, answer.kind) != (program.api_version, "ExecCredential"):
        fail(f"its output is not an ExecCredential of {program.api_version}")
    status = answer.status
    token = status.token or ""
    certificate = status.client_certificate_data or ""
    key = status.client_key_data or ""
    if bool(certificate) != bool(key):
        fail("its output has only one of clientCertificateData and clientKeyData")
    if not (token or certificate):
        fail("its output has neither a token nor a certificate")
    return Credentials(
        lambda: _bearer(token, login.user_origin) if token else "",
        certificate.encode(),
        key.encode(),
        _renewal_time(status.expiration_timestamp, time.time()),
    )


def _run(
    program: Program, login: Login, *, is_interactive: bool
) -> "subprocess.CompletedProcess[bytes]":
    spec: dict[str, object] = {"interactive": is_interactive}
    if program.provide_cluster_info:
        spec["cluster"] = _cluster_information(login)
    task = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}
    words: Sequence[str] = (program.command, *(program.args or ()))
    environment = {
        **child_environment(),
        **{item.name: item.value or "" for item in program.env or ()},
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(task).decode(),
    }
    if is_interactive:
        # Without a deadline, because a person answers.
        return subprocess.run(  # noqa: S603 - the user's own kubeconfig names it
            words, env=environment, stdout=subprocess.PIPE, check=False
        )
    return run_program(words, seconds=LOGIN_LIMIT, environment=environment)


def _without_inputs(text: str, program: Program) -> str:
    """Mask what the program was given: it may repeat secrets."""
    given = [*(program.args or ()), *(item.value or "" for item in program.env or ())]
    parts = {part for value in given for part in (value, *_SEPARATOR.split(value))}
    secrets = sorted((part for part in parts if not _OPTION.fullmatch(part)), key=len, reverse=True)
    return masked(text, secrets)


def _cluster_information(login: Login) -> dict[str, object]:
    cluster = login.cluster
    data = cluster.certificate_authority_data
    if cluster.certificate_authority and not data:
        file = Path(cluster.certificate_authority)
        with naming_certificate(f"certificate authority of {login.cluster_origin}"):
            content = read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS)
        data = base64.b64encode(content).decode()
    information: dict[str, object] = msgspec.to_builtins(
        replace(
            cluster, certificate_authority=None, certificate_authority_data=data, extensions=None
        )
    )
    for item in cluster.extensions or ():
        if item.get("name") == _EXEC_EXTENSION:
            information["config"] = item.get("extension")
    return information


@contextmanager
def naming_certificate(name: str) -> Iterator[None]:
    """Raise `KubeconfigError` if a certificate or key cannot be read."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = str(error)
        if isinstance(error, OSError) and error.filename:
            why = f"{error.filename}: {error.strerror}"
        raise KubeconfigError(
            f"the {name} cannot be used: {why}",
            hint=hint_of(error, "It must be PEM, and a key without a passphrase."),
        ) from error


def _renewal_time(expiry: datetime | None, fetched_at: float) -> float:
    """Return when to renew credentials; infinity if they have no expiry, or have expired."""
    lifetime = expiry.timestamp() - fetched_at if expiry else 0.0
    if lifetime <= 0:
        return math.inf
    return fetched_at + lifetime - min(_LONGEST_MARGIN, lifetime * _SHARE_OF_LIFETIME)
