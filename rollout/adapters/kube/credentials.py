"""Obtains a kubeconfig user's credentials.

The programs' protocol is `client.authentication.k8s.io`; the precedence is client-go's.
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
from typing import Annotated

import msgspec
from msgspec.structs import replace

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.adapters.kube.kubeconfig import Login, Program
from rollout.adapters.programs import run_program
from rollout.adapters.secrets import child_environment, header_value, masked
from rollout.errors import KubeconfigError
from rollout.model.text import joined
from rollout.model.tool_output import last_line

# Seconds. Cloud providers' programs take one to ten.
LOGIN_LIMIT = 30.0
# Seconds before the end to renew, or a share of a short lifetime.
_LONGEST_MARGIN = 60.0
_SHARE_OF_LIFETIME = 0.2
_LOGIN_HINT = "Check the token, or the file or program that it comes from."
_PEM_HINT = "Certificates and keys must be in PEM format, and keys must not have a passphrase."
_OIDC_HINT = (
    "Any kubectl command renews the token. To let rollout renew it, log in with kubelogin (kubectl"
    " oidc-login) as the user's `exec` program."
)
_SEPARATOR = re.compile(r"[\s=]+")
_OPTION = re.compile(r"--?[a-z-]+")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a user logs in."""

    # Returns the header's value, or empty; raises `KubeconfigError`.
    authorization: Callable[[], str]
    # From a program, as PEM.
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
    """Return credentials, or raise `KubeconfigError`.

    `may_ask`: a program may ask a person.
    """
    user = login.user
    has_certificate = bool(user.client_certificate_data or user.client_certificate)
    if user.token_file:
        # Read for each request.
        file = Path(user.token_file)
        return Credentials(lambda: _bearer(_read_token(file), login.user_origin))
    if user.token:
        return _fixed_token(user.token, login.user_origin)
    if user.username:
        encoded = base64.b64encode(f"{user.username}:{user.password or ''}".encode()).decode()
        return Credentials(lambda: f"Basic {encoded}")
    if user.auth_provider:
        token = _id_token(user.auth_provider.config or {}, login.user_origin)
        return _fixed_token(token, login.user_origin)
    # As in client-go.
    if user.exec and not has_certificate:
        return _ask_program(login, user.exec, may_ask=may_ask)
    return Credentials(lambda: "")


def _fixed_token(token: str, origin: str) -> Credentials:
    return Credentials(lambda: _bearer(token, origin))


def _bearer(token: str, origin: str) -> str:
    try:
        return f"Bearer {header_value(token)}"
    except ValueError as error:
        message = f"the token of {origin} cannot be sent: it {error}"
        raise KubeconfigError(message, hint=_LOGIN_HINT) from None


def _read_token(file: Path) -> str:
    """Read it now: a kubelet replaces it before it expires."""
    try:
        token = read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS).decode().strip()
    except OSError as error:
        message = f"token file {file} cannot be read: {error.strerror}"
        raise KubeconfigError(message, hint=hint_of(error, _LOGIN_HINT)) from error
    except ValueError:
        # Without the cause, which holds the content.
        raise KubeconfigError(f"token file {file} is not text", hint=_LOGIN_HINT) from None
    if not token:
        raise KubeconfigError(f"token file {file} has no token", hint=_LOGIN_HINT)
    return token


def _id_token(config: Mapping[str, str], origin: str) -> str:
    """Return a token that has not expired.

    It is not renewed: a new refresh token would have to be saved in the kubeconfig.
    """
    token = config.get("id-token", "")
    try:
        _, payload, _ = token.split(".")
        # A JWT lacks the padding.
        padded = payload + "=" * (-len(payload) % 4)
        claims = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims)
    except (ValueError, msgspec.MsgspecError):
        message = f"{origin} uses the auth-provider oidc, but has no valid id-token"
        raise KubeconfigError(message, hint=_OIDC_HINT) from None
    if claims.exp <= time.time():
        raise KubeconfigError(f"the id-token of {origin} has expired", hint=_OIDC_HINT)
    return token


class _NoCredentialsError(Exception):
    """Why a program gave no credentials."""


def _ask_program(login: Login, program: Program, *, may_ask: bool) -> Credentials:
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    allows_questions = program.interactive_mode != "Never"
    is_interactive = may_ask and has_terminal and allows_questions
    try:
        output = _program_output(program, login, is_interactive=is_interactive)
        status = _decode_status(output, program)
    except _NoCredentialsError as error:
        raise KubeconfigError(
            f"{program.command} returned no credentials: {error}",
            hint=program.install_hint or f"Run it manually, or see {login.user_origin}.",
        ) from None
    token = status.token or ""
    certificate = status.client_certificate_data or ""
    key = status.client_key_data or ""
    return Credentials(
        lambda: _bearer(token, login.user_origin) if token else "",
        certificate=certificate.encode(),
        key=key.encode(),
        renew_at=_renewal_time(status.expiration_timestamp, time.time()),
    )


def _program_output(program: Program, login: Login, *, is_interactive: bool) -> bytes:
    try:
        done = _run_credential_program(program, login, is_interactive=is_interactive)
    except OSError as error:
        raise _NoCredentialsError(f"{error.strerror}: {error.filename}") from None
    except ValueError:
        reason = "its arguments or variables have a null character"
        raise _NoCredentialsError(reason) from None
    except subprocess.TimeoutExpired:
        raise _NoCredentialsError(f"it did not finish within {LOGIN_LIMIT:.0f}s") from None
    if done.returncode:
        # Else its stderr is the terminal.
        stderr = (done.stderr or b"").decode(errors="replace")
        message = last_line(_without_inputs(stderr, program))
        raise _NoCredentialsError(joined(": ", f"it exited with {done.returncode}", message))
    return done.stdout


def _decode_status(output: bytes, program: Program) -> _Status:
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _NoCredentialsError(f"its output is not an ExecCredential: {error}") from None
    if (answer.api_version, answer.kind) != (program.api_version, "ExecCredential"):
        raise _NoCredentialsError(f"its output is not an ExecCredential of {program.api_version}")
    status = answer.status
    has_certificate = bool(status.client_certificate_data)
    has_key = bool(status.client_key_data)
    if has_certificate is not has_key:
        reason = "its output has only one of clientCertificateData and clientKeyData"
        raise _NoCredentialsError(reason)
    if not (status.token or has_certificate):
        raise _NoCredentialsError("its output has neither a token nor a certificate")
    return status


def _run_credential_program(
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
        # No deadline, because a person answers.
        return subprocess.run(  # noqa: S603 - the user's own kubeconfig names it
            words, env=environment, stdout=subprocess.PIPE, check=False
        )
    return run_program(words, seconds=LOGIN_LIMIT, environment=environment)


def _without_inputs(text: str, program: Program) -> str:
    inputs = [*(program.args or ()), *(item.value or "" for item in program.env or ())]
    parts = set(inputs)
    for value in inputs:
        parts.update(_SEPARATOR.split(value))
    secrets = [part for part in parts if not _OPTION.fullmatch(part)]
    # A secret may contain a shorter one.
    return masked(text, sorted(secrets, key=len, reverse=True))


def _cluster_information(login: Login) -> dict[str, object]:
    cluster = login.cluster
    # Programs get its content instead of its file.
    authority_data = cluster.certificate_authority_data
    if cluster.certificate_authority and not authority_data:
        file = Path(cluster.certificate_authority)
        with as_kubeconfig_error(f"certificate authority of {login.cluster_origin}"):
            content = read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS)
        authority_data = base64.b64encode(content).decode()
    described_cluster = replace(
        cluster,
        certificate_authority=None,
        certificate_authority_data=authority_data,
        extensions=None,
    )
    information: dict[str, object] = msgspec.to_builtins(described_cluster)
    for item in cluster.extensions or ():
        if item.get("name") == _EXEC_EXTENSION:
            information["config"] = item.get("extension")
    return information


@contextmanager
def as_kubeconfig_error(subject: str) -> Iterator[None]:
    """Raise `KubeconfigError` for an unreadable certificate or key."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.filename:
            reason = f"{error.filename}: {error.strerror}"
        message = f"the {subject} cannot be used: {reason}"
        raise KubeconfigError(message, hint=hint_of(error, _PEM_HINT)) from error


def _renewal_time(expiry: datetime | None, fetched_at: float) -> float:
    """Return when to renew, by `time.time`; infinity if never.

    Also for expired credentials: else each request would run the program.
    """
    if expiry is None:
        return math.inf
    lifetime = expiry.timestamp() - fetched_at
    if lifetime <= 0:
        return math.inf
    margin = min(_LONGEST_MARGIN, lifetime * _SHARE_OF_LIFETIME)
    return fetched_at + lifetime - margin
