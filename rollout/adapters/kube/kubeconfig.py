"""Decodes and checks kubeconfigs, and chooses a context.

Types and refusals are client-go's (`clientcmd/api/v1`). Messages show only names, paths and
servers: other values may be secret.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
from rollout.errors import KubeconfigError
from rollout.model.yaml_text import read_yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_DEFAULT_FILE = "~/.kube/config"
_MOST_NAMES = 20
_CHOOSE_HINT = "Specify a kubeconfig with --kubeconfig or KUBECONFIG."
_VIEW_HINT = "Check it with: kubectl config view"

_OIDC = "oidc"
_PROVIDER_PROBLEMS = {
    "gcp": "which kubectl no longer supports: use the `exec` program gke-gcloud-auth-plugin",
    "azure": "which kubectl no longer supports: use Azure's kubelogin as the `exec` program",
}
# Not encoded by client-go.
_HEADER_NAME = "!#$&'*+-.^_`|~"
_PATH_FIELDS = ("certificate_authority", "client_certificate", "client_key", "token_file")

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class _Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: _Text
    value: str | None = None


class Program(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A credential program (`exec`)."""

    command: _Text
    api_version: _Text
    args: tuple[str, ...] | None = None
    env: tuple[_Variable, ...] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: Literal["Never", "IfAvailable", "Always"] | None = None


class _AuthProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: _Text
    config: Mapping[str, str] | None = None


class UserEntry(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """A user; unknown fields are refused."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    auth_provider: _AuthProvider | None = None
    exec: Program | None = None
    impersonate: str | None = msgspec.field(name="as", default=None)
    impersonate_uid: str | None = msgspec.field(name="as-uid", default=None)
    impersonate_groups: tuple[str, ...] | None = msgspec.field(name="as-groups", default=None)
    impersonate_extra: Mapping[str, tuple[str, ...]] | None = msgspec.field(
        name="as-user-extra", default=None
    )
    extensions: tuple[Any, ...] | None = None

    def impersonation(self) -> tuple[tuple[str, str], ...]:
        """Return the headers that client-go sends."""
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


class _ClusterEntry(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: tuple[Mapping[str, Any], ...] | None = None


class _ContextEntry(msgspec.Struct, frozen=True, rename="kebab"):
    cluster: str | None = None
    user: str | None = None


class _Entry(msgspec.Struct, frozen=True):
    """`user` is decoded later: other users' unknown fields do no harm."""

    name: str
    cluster: _ClusterEntry | None = None
    context: _ContextEntry | None = None
    user: Mapping[str, Any] | None = None


class _KubeconfigFile(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: tuple[_Entry, ...] | None = None
    contexts: tuple[_Entry, ...] | None = None
    users: tuple[_Entry, ...] | None = None
    current_context: str | None = None


class Login(Struct, frozen=True):
    """The chosen context, with absolute paths."""

    # Empty in a pod.
    context: str
    server: str
    cluster: _ClusterEntry
    user: UserEntry
    # For messages: the entry and its file.
    cluster_origin: str
    user_origin: str


class _MergedKubeconfig:
    """Several files as one: a name's first entry counts."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        self.files = files
        self.current: str | None = None
        self.contexts: dict[str, _ContextEntry] = {}
        self.clusters: dict[str, tuple[Path, _ClusterEntry]] = {}
        self.users: dict[str, tuple[Path, Mapping[str, Any]]] = {}
        # From the last, so that earlier files replace later ones.
        for path in reversed(files):
            file = _read_file(path)
            self.current = file.current_context or self.current
            for entry in file.contexts or ():
                self.contexts[entry.name] = entry.context or _ContextEntry()
            for entry in file.clusters or ():
                self.clusters[entry.name] = path, entry.cluster or _ClusterEntry()
            for entry in file.users or ():
                self.users[entry.name] = path, entry.user or {}

    def __str__(self) -> str:
        return ", ".join(map(str, self.files))

    def choose(self, name: str | None) -> Login:
        """Choose a context, by default the current; or `KubeconfigError`."""
        name = name or self.current
        if name is None:
            raise self._choice_error(f"{self} has no current context")
        if name not in self.contexts:
            raise self._choice_error(f"{self} has no context {name!r}")
        cluster_name, user_name = self._cluster_and_user_of(name)
        file, cluster = self.clusters[cluster_name]
        cluster_origin = f"cluster {cluster_name!r} of {file}"
        problem = _why_cluster_unusable(cluster)
        if problem:
            hint = "Correct it, as in `server: https://HOST:PORT`, or choose another context."
            raise KubeconfigError(f"{cluster_origin} has {problem}", hint=hint)
        user, user_origin = self._find_user(user_name)
        return Login(
            context=name,
            # Makes the scheme lower case.
            server=urlsplit(cluster.server or "").geturl().rstrip("/"),
            cluster=_with_absolute_paths(cluster, file),
            user=user,
            cluster_origin=cluster_origin,
            user_origin=user_origin,
        )

    def _find_user(self, name: str | None) -> tuple[UserEntry, str]:
        """Return a user and its origin for messages. No name: anonymous."""
        if not name:
            return UserEntry(), "the kubeconfig"
        file, content = self.users[name]
        origin = f"user {name!r} of {file}"
        return _with_absolute_paths(_decode_user(content, origin), file), origin

    def _cluster_and_user_of(self, context_name: str) -> tuple[str, str | None]:
        """Return names that the files define; the user may be None."""
        context = self.contexts[context_name]
        if not context.cluster:
            raise self._choice_error(f"context {context_name!r} of {self} specifies no cluster")
        for kind, name, defined_names in (
            ("cluster", context.cluster, self.clusters.keys()),
            ("user", context.user, self.users.keys()),
        ):
            if name and name not in defined_names:
                raise self._choice_error(
                    f"context {context_name!r} specifies {kind} {name!r}, which {self} does not"
                    " define"
                )
        return context.cluster, context.user

    def _choice_error(self, message: str) -> KubeconfigError:
        names = list(self.contexts)
        if not names:
            return KubeconfigError(message, hint=f"It has no contexts. {_CHOOSE_HINT}")
        if len(names) > _MOST_NAMES:
            names = [*names[:_MOST_NAMES], "…"]
        return KubeconfigError(
            message, hint=f"Specify a context with --context: {', '.join(names)}."
        )


def _with_absolute_paths(entry: _Struct, file: Path) -> _Struct:
    folder = file.absolute().parent
    changes = dict[str, Any]()
    for field in _PATH_FIELDS:
        path = getattr(entry, field, None)
        if path:
            changes[field] = str(folder / path)
    program: Program | None = getattr(entry, "exec", None)
    # Else it is searched for in PATH.
    if program and os.sep in program.command:
        changes["exec"] = replace(program, command=str(folder / program.command))
    return replace(entry, **changes)


def _decode_user(content: Mapping[str, Any], origin: str) -> UserEntry:
    try:
        user = msgspec.convert(content, UserEntry)
    except msgspec.ValidationError as error:
        raise KubeconfigError(
            f"{origin}: {error}",
            hint="An unknown field might select another identity. Correct the field, or choose"
            " another context.",
        ) from error
    first_problem = next(_problems_of_user(user), "")
    if first_problem:
        raise KubeconfigError(f"{origin} {first_problem}", hint=_VIEW_HINT)
    return user


def _problems_of_user(user: UserEntry) -> Iterator[str]:
    if user.impersonation() and not user.impersonate:
        yield (
            "has as-uid, as-groups or as-user-extra, but no `as`: they take effect only with a user"
            " to impersonate"
        )
    if user.auth_provider and user.auth_provider.name != _OIDC:
        name = user.auth_provider.name
        reason = _PROVIDER_PROBLEMS.get(name, "which rollout does not support")
        yield f"uses the auth-provider {name!r}, {reason}"
    if user.auth_provider and user.exec:
        yield "has an auth-provider and a program (exec): only one is allowed"
    if (user.token or user.token_file) and user.username:
        yield "has a token and a username: only one is allowed"
    has_certificate = bool(user.client_certificate_data or user.client_certificate)
    has_key = bool(user.client_key_data or user.client_key)
    if has_certificate != has_key:
        yield "has only one of client-certificate and client-key"
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    needs_terminal = user.exec is not None and user.exec.interactive_mode == "Always"
    if needs_terminal and not has_terminal:
        yield "uses an `exec` program with interactiveMode Always, but stdin is not a terminal"


def find_login(kubeconfig: Path | None, context: str | None) -> Login:
    """Choose a context, or raise `KubeconfigError`."""
    return _MergedKubeconfig(_find_files(kubeconfig)).choose(context)


def in_cluster() -> bool:
    """Whether this is a pod with a service account, and no kubeconfig."""
    names_kubeconfig = bool(os.environ.get("KUBECONFIG"))
    if names_kubeconfig or Path(_DEFAULT_FILE).expanduser().exists():
        return False
    is_pod = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    return is_pod and SERVICE_ACCOUNT.exists()


def service_account_login(context: str | None) -> Login:
    """Return the pod's own login, or raise `KubeconfigError`."""
    if context:
        raise KubeconfigError(
            f"there is no context {context!r}, because the pod's service account is used",
            hint="Drop --context, or specify a kubeconfig with --kubeconfig.",
        )
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    address = f"[{host}]" if ":" in host else host
    port = os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    origin = "the pod's service account"
    return Login(
        context="",
        server=f"https://{address}:{port}",
        cluster=_ClusterEntry(certificate_authority=str(SERVICE_ACCOUNT.with_name("ca.crt"))),
        user=UserEntry(token_file=str(SERVICE_ACCOUNT)),
        cluster_origin=origin,
        user_origin=origin,
    )


def _find_files(kubeconfig: Path | None) -> tuple[Path, ...]:
    if kubeconfig is not None:
        return (_require_file(kubeconfig.expanduser()),)
    parts = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    paths = tuple(Path(part).expanduser() for part in parts if part)
    if not paths:
        return (_require_file(Path(_DEFAULT_FILE).expanduser()),)
    # Like kubectl.
    existing = tuple(path for path in paths if path.exists())
    if not existing:
        raise _missing_file_error(paths[0])
    return existing


def _require_file(path: Path) -> Path:
    if not path.exists():
        raise _missing_file_error(path)
    return path


def _missing_file_error(path: Path) -> KubeconfigError:
    hint = f"{_CHOOSE_HINT} To try rollout without a cluster, run: rollout demo"
    return KubeconfigError(f"there is no kubeconfig {path}", hint=hint)


def _read_file(path: Path) -> _KubeconfigFile:
    try:
        content = read_yaml(read_input(path, trust=Trust.NOT_WRITABLE_BY_OTHERS).decode())
    except OSError as error:
        message = f"kubeconfig {path} cannot be read: {error.strerror}"
        raise KubeconfigError(message, hint=hint_of(error, _CHOOSE_HINT)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = f"kubeconfig {path} is not valid YAML: {_why_not_yaml(error)}"
        raise KubeconfigError(message, hint=_CHOOSE_HINT) from error
    if content is None:
        raise KubeconfigError(f"kubeconfig {path} is empty", hint=_CHOOSE_HINT)
    try:
        file = msgspec.convert(content, _KubeconfigFile)
    except msgspec.ValidationError as error:
        message = f"kubeconfig {path} is not a kubeconfig: {error}"
        raise KubeconfigError(message, hint=_VIEW_HINT) from error
    _check_names_are_unique(file, path)
    return file


def _check_names_are_unique(file: _KubeconfigFile, path: Path) -> None:
    for section in ("clusters", "contexts", "users"):
        entries = getattr(file, section) or ()
        for name, count in Counter(entry.name for entry in entries).items():
            if count > 1:
                message = f"kubeconfig {path} has more than one entry {name!r} in `{section}`"
                raise KubeconfigError(message, hint="Remove all but one of them.")


def _why_not_yaml(error: Exception) -> str:
    """Do not show the file's text, which may be secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        # What follows a quote is of the file.
        problem, _, _ = (error.problem or "it cannot be read").partition(" '")
        return f"line {error.problem_mark.line + 1}: {problem}"
    if isinstance(error, UnicodeDecodeError):
        return type(error).__name__
    return " ".join(str(error).split())


def _why_cluster_unusable(cluster: _ClusterEntry) -> str:
    """Return the problem as an object of `has`, or empty."""
    server = cluster.server or ""
    if not server:
        return "no server address"
    has_authority = bool(cluster.certificate_authority_data or cluster.certificate_authority)
    if cluster.insecure_skip_tls_verify and has_authority:
        return "insecure-skip-tls-verify and a certificate authority: only one is allowed"
    if "@" in server:
        return "a user and password in its server address: specify them in the user entry"
    if not _is_server_url(server):
        return f"the server address {server!r}, which is not a URL"
    return ""


def _is_server_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # Its port is out of range.
        return False
