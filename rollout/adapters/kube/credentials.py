"""What a user of a kubeconfig logs in with: a token, a password, a certificate, or a program that gives them.

Source: `client.authentication.k8s.io` of the Kubernetes reference. A program that hangs is ended: every request waits
for it, and in the middle of a night it would take the lock with it. A person at a terminal may be asked, but at the
beginning only.
"""

import base64
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from rollout.adapters.kube.kubeconfig import Cluster, Login, Program
from rollout.adapters.programs import run_program
from rollout.adapters.secrets import child_environment, header_value
from rollout.errors import KubeconfigError

# Seconds that a program has for its answer; those of cloud providers take one to ten.
LOGIN_LIMIT = 30.0
_HINT = "Check the token, or the file or program that it comes from."
_NEVER = "Never"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What logs in: the header's value, asked for at each request, and a certificate with its key, as PEM.

    They are good until a moment of `time.time`.
    """

    authorization: Callable[[], str]
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)
    good_until: float = math.inf

    def header(self) -> str:
        """Return the header's value, empty for none; `KubeconfigError` where it cannot be sent."""
        try:
            value = self.authorization()
            return header_value(value) if value else ""
        except OSError as error:
            message = f"the credentials cannot be read: {error}"
            raise KubeconfigError(message, hint=_HINT) from error
        except ValueError as error:
            raise KubeconfigError(
                f"the credentials of the kubeconfig cannot be sent: they have {error}", hint=_HINT
            ) from None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def credentials_of(login: Login, *, may_ask: bool) -> Credentials:
    """Log in; `KubeconfigError`. `OSError` and `ValueError` are those of files and texts that hold certificates."""
    user = login.user
    if user.exec and not (user.token or user.token_file):
        return _by_program(login, user.exec, may_ask=may_ask)
    value = f"Bearer {user.token}" if user.token else ""
    return Credentials(
        partial(_token_in, Path(user.token_file)) if user.token_file and not value else lambda: value,
        content(user.client_certificate_data, user.client_certificate),
        content(user.client_key_data, user.client_key),
    )


def content(data: str | None, file: str | None) -> bytes:
    """Return what stands in a kubeconfig, else in the file that it names; nothing where neither is."""
    if data:
        return base64.b64decode(data)
    return Path(file).read_bytes() if file else b""


def _token_in(file: Path) -> str:
    """Return the header with the token that a file has now: a kubelet writes a new one before the old one expires."""
    if token := file.read_text(encoding="utf-8").strip():
        return f"Bearer {token}"
    raise KubeconfigError(f"the token file {file} is empty", hint=_HINT)


def _by_program(login: Login, program: Program, *, may_ask: bool) -> Credentials:
    def failed(why: str) -> KubeconfigError:
        return KubeconfigError(
            f"{program.command} gave no credentials: {why}",
            hint=f"Run it by hand, or see user {login.user_name!r} in {login.origin}.",
        )

    asks = may_ask and program.interactive_mode != _NEVER and sys.stdin is not None and sys.stdin.isatty()
    try:
        done = _run(program, login.cluster, asks=asks)
    except OSError as error:
        raise failed(error.strerror or str(error)) from error
    except subprocess.TimeoutExpired:
        # not the exception's own words: they have the arguments, which may hold secrets
        raise failed(f"no answer within {LOGIN_LIMIT:.0f}s") from None
    if done.returncode:
        said = " ".join((done.stderr or b"").decode(errors="replace").split())
        raise failed(f"it exited with {done.returncode}{f': {said}' if said else ''}")
    try:
        status = msgspec.json.decode(done.stdout, type=_ExecCredential).status
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise failed(f"its output is no ExecCredential: {error}") from None
    certificate, key = (
        text.encode() if text else b"" for text in (status.client_certificate_data, status.client_key_data)
    )
    if not (status.token or (certificate and key)):
        raise failed("its answer has neither a token nor a certificate with its key")
    expires = status.expiration_timestamp
    value = f"Bearer {status.token}" if status.token else ""
    return Credentials(lambda: value, certificate, key, expires.timestamp() if expires else math.inf)


def _run(program: Program, cluster: Cluster, *, asks: bool) -> "subprocess.CompletedProcess[bytes]":
    words = (program.command, *(program.args or ()))
    about: dict[str, object] = {"interactive": asks}
    if program.provide_cluster_info:
        about["cluster"] = cluster
    question = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": about}
    environment = {
        **child_environment(),
        **{variable.name: variable.value for variable in program.env or ()},
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(question).decode(),
    }
    if asks:
        return subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=False)  # noqa: S603 - theirs
    return run_program(words, seconds=LOGIN_LIMIT, environment=environment)
