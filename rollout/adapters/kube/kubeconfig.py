"""Chooses and checks a kubeconfig and a context.

The client library checks too little: it goes on without a missing user.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import yaml

from rollout.adapters.input_files import Trust, check_input, read_input
from rollout.adapters.secrets import without_userinfo
from rollout.errors import KubeconfigError
from rollout.model.yaml_text import read_yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_DEFAULT_FILE = "~/.kube/config"
_MOST_NAMES = 20
_CHOOSE_HINT = "Name one with --kubeconfig or KUBECONFIG."

# Known to the client library, which silently ignores others.
_AUTH_PROVIDERS = frozenset({"oidc", "gcp", "azure"})
# Left as they are in a header's name by client-go.
_HEADER_NAME = "!#$&'*+-.^_`|~"


class Program(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A credential program (`exec`), with every field that kubectl knows."""

    command: str = ""
    args: tuple[str, ...] | None = None
    env: tuple[Mapping[str, str], ...] | None = None
    api_version: str | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None


class AuthProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A login method of the client library."""

    name: str = ""
    config: Mapping[str, Any] | None = None


class UserEntry(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """A user with each field that kubectl knows; others are refused."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    auth_provider: AuthProvider | None = None
    exec: Program | None = None
    impersonate: str | None = msgspec.field(name="as", default=None)
    impersonate_uid: str | None = msgspec.field(name="as-uid", default=None)
    impersonate_groups: tuple[str, ...] | None = msgspec.field(name="as-groups", default=None)
    impersonate_extra: Mapping[str, tuple[str, ...]] | None = msgspec.field(
        name="as-user-extra", default=None
    )
    extensions: tuple[Any, ...] | None = None

    def impersonation(self) -> tuple[tuple[str, str], ...]:
        """Return the impersonation headers, as client-go sends them."""
        headers = []
        if self.impersonate:
            headers.append(("Impersonate-User", self.impersonate))
        if self.impersonate_uid:
            headers.append(("Impersonate-Uid", self.impersonate_uid))
        headers.extend(("Impersonate-Group", group) for group in self.impersonate_groups or ())
        for key, values in (self.impersonate_extra or {}).items():
            name = f"Impersonate-Extra-{quote(key, safe=_HEADER_NAME)}"
            headers.extend((name, value) for value in values)
        return tuple(headers)


class ClusterEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """A cluster entry."""

    server: str | None = None
    proxy_url: str | None = None


class ContextEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """A context entry."""

    cluster: str | None = None
    user: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """A named entry of any section, with its field.

    Only the context's user is decoded: others' unknown fields do no harm.
    """

    name: str
    cluster: ClusterEntry | None = None
    context: ContextEntry | None = None
    user: Mapping[str, Any] | None = None


class KubeconfigFile(msgspec.Struct, frozen=True, rename="kebab"):
    """One file, of which several may be merged."""

    clusters: tuple[Entry, ...] | None = None
    contexts: tuple[Entry, ...] | None = None
    users: tuple[Entry, ...] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True)
class Login:
    """The chosen context, with its cluster and user."""

    files: tuple[Path, ...]
    # Names the files in messages.
    origin: str
    context: str
    # Empty: the context has none.
    user: str
    # Prints the credentials, if not None.
    program: Program | None
    proxy: str
    server: str
    impersonation: tuple[tuple[str, str], ...] = ()


class _MergedKubeconfig:
    """Several files as one: as for kubectl, a name's first entry counts."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        self.files = files
        self.current: str | None = None
        self.contexts: dict[str, ContextEntry] = {}
        self.clusters: dict[str, ClusterEntry] = {}
        self.users: dict[str, Mapping[str, Any]] = {}
        # Earlier files' entries replace later ones'.
        for path in reversed(files):
            file = _read_file(path)
            self.current = file.current_context or self.current
            for entry in file.contexts or ():
                self.contexts[entry.name] = entry.context or ContextEntry()
            for entry in file.clusters or ():
                self.clusters[entry.name] = entry.cluster or ClusterEntry()
            for entry in file.users or ():
                self.users[entry.name] = entry.user or {}

    def __str__(self) -> str:
        return ", ".join(map(str, self.files))

    def choose(self, name: str | None) -> Login:
        """Return the login of a context, by default the current one; or `KubeconfigError`."""
        name = name or self.current
        if name is None:
            raise self._choice_error(f"{self} has no current context")
        if name not in self.contexts:
            raise self._choice_error(f"{self} has no context {name!r}")
        cluster = self.contexts[name].cluster
        user = self.contexts[name].user
        if not cluster:
            raise self._choice_error(f"context {name!r} of {self} names no cluster")
        for kind, wanted, known in (
            ("cluster", cluster, self.clusters.keys()),
            ("user", user, self.users.keys()),
        ):
            if wanted and wanted not in known:
                raise self._choice_error(
                    f"context {name!r} names {kind} {wanted!r}, which {self} does not define"
                )
        problem = _why_server_unusable(self.clusters[cluster].server or "")
        if problem:
            raise KubeconfigError(
                f"cluster {cluster!r} of {self} has {problem}",
                hint="Write it as `server: https://HOST:PORT`, or choose another context.",
            )
        login = self._require_valid_user(user) if user else UserEntry()
        if login.token_file:
            _check_token_file(self.files[0].parent / login.token_file)
        return Login(
            files=self.files,
            origin=str(self),
            context=name,
            user=user or "",
            program=None if login.token or login.token_file else login.exec,
            proxy=self.clusters[cluster].proxy_url or "",
            server=self.clusters[cluster].server or "",
            impersonation=login.impersonation(),
        )

    def _require_valid_user(self, name: str) -> UserEntry:
        """Return a user; `KubeconfigError` if the library would ignore a field."""
        try:
            user = msgspec.convert(self.users[name], UserEntry)
        except msgspec.ValidationError as error:
            raise KubeconfigError(
                f"user {name!r} of {self}: {error}",
                hint="An unknown field may select another identity. Remove it, or choose another"
                " context.",
            ) from error
        problem = _why_user_unusable(user)
        if problem:
            message = f"user {name!r} of {self} {problem}"
            raise KubeconfigError(message, hint="Check it with: kubectl config view")
        return user

    def _choice_error(self, message: str) -> KubeconfigError:
        """Return an error whose hint lists the contexts."""
        names = list(self.contexts)
        if not names:
            return KubeconfigError(message, hint=f"It has no context at all. {_CHOOSE_HINT}")
        if len(names) > _MOST_NAMES:
            names = [*names[:_MOST_NAMES], "…"]
        return KubeconfigError(message, hint=f"Name one with --context: {', '.join(names)}.")


def _why_user_unusable(user: UserEntry) -> str:
    """Return what is wrong with a user, as a sentence's end, or empty."""
    if user.impersonation() and not user.impersonate:
        return (
            "has as-uid, as-groups or as-user-extra, but no `as`: they take effect only with a user"
            " to impersonate"
        )
    provider = user.auth_provider.name if user.auth_provider else ""
    if provider and provider not in _AUTH_PROVIDERS:
        return f"logs in through the auth-provider {provider!r}, which rollout does not know"
    needs_terminal = user.exec is not None and user.exec.interactive_mode == "Always"
    if needs_terminal and not (sys.stdin is not None and sys.stdin.isatty()):
        return "logs in through a program with interactiveMode Always, and stdin is not a terminal"
    return ""


def find_login(kubeconfig: Path | None, context: str | None) -> Login:
    """Choose and check a context, or raise `KubeconfigError`."""
    return _MergedKubeconfig(_find_files(kubeconfig)).choose(context)


def in_cluster() -> bool:
    """Whether this runs in a pod without a kubeconfig."""
    if os.environ.get("KUBECONFIG") or Path(_DEFAULT_FILE).expanduser().exists():
        return False
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT.exists()


def _find_files(kubeconfig: Path | None) -> tuple[Path, ...]:
    if kubeconfig is not None:
        return (_require_file(kubeconfig.expanduser()),)
    parts = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    paths = tuple(Path(part).expanduser() for part in parts if part)
    if not paths:
        return (_require_file(Path(_DEFAULT_FILE).expanduser()),)
    # As for kubectl, not all files may be missing.
    existing = tuple(path for path in paths if path.exists())
    return existing or (_require_file(paths[0]),)


def _require_file(path: Path) -> Path:
    if not path.exists():
        hint = f"{_CHOOSE_HINT} Without a cluster: rollout demo"
        raise KubeconfigError(f"there is no kubeconfig {path}", hint=hint)
    return path


def _read_file(path: Path) -> KubeconfigFile:
    try:
        content = read_yaml(read_input(path, trust=Trust.OWNER).decode())
    except OSError as error:
        message = f"kubeconfig {path} cannot be read: {error.strerror}"
        raise KubeconfigError(message, hint=_CHOOSE_HINT) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = f"kubeconfig {path} is not YAML: {_why_not_yaml(error)}"
        raise KubeconfigError(message, hint=_CHOOSE_HINT) from error
    if content is None:
        raise KubeconfigError(f"kubeconfig {path} is empty", hint=_CHOOSE_HINT)
    try:
        return msgspec.convert(content, KubeconfigFile)
    except msgspec.ValidationError as error:
        message = f"kubeconfig {path} is not a kubeconfig: {error}"
        raise KubeconfigError(message, hint="Check it with: kubectl config view") from error


def _check_token_file(path: Path) -> None:
    """Raise `KubeconfigError` for a file that would block; the client reports missing ones."""
    try:
        check_input(path)
    except FileNotFoundError:
        return
    except OSError as error:
        message = f"token file {path} cannot be read: {error.strerror}"
        raise KubeconfigError(message, hint=_CHOOSE_HINT) from error


def _why_not_yaml(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem or 'it cannot be read'}"
    if isinstance(error, UnicodeDecodeError):
        return type(error).__name__
    return " ".join(str(error).split())


def _why_server_unusable(server: str) -> str:
    """Return what a cluster has instead of a valid address, or empty."""
    if not server:
        return "no server address"
    with suppress(ValueError):
        parts = urlsplit(server)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            if "@" in parts.netloc:
                return "a user and password in its server address: they belong to the user"
            return ""
    return f"the server address {without_userinfo(server)!r}, which is not a URL"
