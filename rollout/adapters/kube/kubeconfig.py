"""Which kubeconfig, which context, and whether it can work: an operator is told the file, the name, and what there is.

Source: the types of client-go's `clientcmd/api/v1`; of entries of one name the first counts, as for kubectl.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from rollout.adapters.secrets import without_userinfo
from rollout.errors import KubeconfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_DEFAULT = "~/.kube/config"
_SHOWN = 20
_CHOOSE = "Name one with --kubeconfig or KUBECONFIG."
_QUICK = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# What is written from a kubeconfig's own folder.
_PATHS = ("certificate_authority", "client_certificate", "client_key", "token_file")
T = TypeVar("T", bound=msgspec.Struct)


class Variable(msgspec.Struct, frozen=True):
    """A variable of a program's environment."""

    name: str
    value: str


class Program(msgspec.Struct, frozen=True, rename="camel"):
    """A program that gives credentials."""

    command: str = ""
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] | None = None
    api_version: str = ""
    install_hint: str | None = None
    interactive_mode: str | None = None
    provide_cluster_info: bool = False


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """How to log in; paths are absolute once it is chosen."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    exec: Program | None = None
    auth_provider: object = None


class Cluster(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """Where the API server is, and how it proves itself; paths are absolute once it is chosen."""

    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None


class Context(msgspec.Struct, frozen=True, rename="kebab"):
    """A context entry."""

    cluster: str | None = None
    user: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """One of any section under its name; the section says which of the others it has."""

    name: str
    cluster: Cluster | None = None
    context: Context | None = None
    user: User | None = None


class KubeconfigFile(msgspec.Struct, frozen=True, rename="kebab"):
    """One file."""

    clusters: tuple[Entry, ...] | None = None
    contexts: tuple[Entry, ...] | None = None
    users: tuple[Entry, ...] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True)
class Login:
    """What was chosen: `origin` names the files, or the pod's account, for messages."""

    origin: str
    context: str
    cluster: Cluster
    user_name: str
    user: User


@dataclass(slots=True)
class _Merged:
    """The files as one: of entries of one name the first counts, as for kubectl."""

    origin: str
    current: str | None = None
    contexts: dict[str, Context] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Read a further file."""
        file, folder = _read(path), path.absolute().parent
        self.current = self.current or file.current_context
        for entry in file.contexts or ():
            self.contexts.setdefault(entry.name, entry.context or Context())
        for entry in file.clusters or ():
            self.clusters.setdefault(entry.name, _placed(entry.cluster or Cluster(), folder))
        for entry in file.users or ():
            self.users.setdefault(entry.name, _placed(entry.user or User(), folder))

    def choose(self, name: str | None) -> Login:
        """Return the context of this name, or the current one, with its cluster and user."""
        name = name or self.current
        if name is None:
            raise self._incomplete(f"{self.origin} has no current context")
        if name not in self.contexts:
            raise self._incomplete(f"{self.origin} has no context {name!r}")
        cluster, user = self.contexts[name].cluster, self.contexts[name].user
        if not cluster:
            raise self._incomplete(f"context {name!r} of {self.origin} names no cluster")
        for kind, named, entries in (("cluster", cluster, self.clusters), ("user", user, self.users)):
            if named and named not in entries:
                raise self._incomplete(f"context {name!r} names {kind} {named!r}, which {self.origin} does not define")
        if problem := _problem(self.clusters[cluster].server or ""):
            raise KubeconfigError(
                f"cluster {cluster!r} of {self.origin} has {problem}",
                hint="Write it as `server: https://HOST:PORT`, or choose another context.",
            )
        login = Login(self.origin, name, self.clusters[cluster], user or "", self.users[user] if user else User())
        _check_user(login)
        return login

    def _incomplete(self, message: str) -> KubeconfigError:
        names = list(self.contexts)
        if not names:
            return KubeconfigError(message, hint=f"It has no context at all. {_CHOOSE}")
        shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        return KubeconfigError(message, hint=f"Name one with --context: {shown}.")


def _read_all(kubeconfig: Path | None, environ: Mapping[str, str]) -> _Merged:
    paths = _paths(kubeconfig, environ)
    merged = _Merged(", ".join(map(str, paths)))
    for path in paths:
        merged.add(path)
    return merged


def find_login(kubeconfig: Path | None, context: str | None, environ: Mapping[str, str]) -> Login:
    """Choose and check; `KubeconfigError` says what is missing and what there is."""
    if kubeconfig is None and in_cluster(environ):
        return _service_account(context, environ)
    return _read_all(kubeconfig, environ).choose(context)


def contexts(kubeconfig: Path | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all contexts; `KubeconfigError` where a file cannot be read."""
    return tuple(_read_all(kubeconfig, environ).contexts)


def in_cluster(environ: Mapping[str, str]) -> bool:
    """Whether this runs in a pod without any kubeconfig."""
    if environ.get("KUBECONFIG") or Path(_DEFAULT).expanduser().exists():
        return False
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT.exists()


def _service_account(context: str | None, environ: Mapping[str, str]) -> Login:
    if context:
        raise KubeconfigError(
            f"there is no context {context!r}: the pod's service account is used",
            hint="Drop --context, or name a --kubeconfig.",
        )
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    cluster = Cluster(server=server, certificate_authority=str(SERVICE_ACCOUNT.parent / "ca.crt"))
    return Login("the pod's service account", "", cluster, "", User(token_file=str(SERVICE_ACCOUNT)))


def _placed(entry: T, folder: Path) -> T:
    """Return an entry with absolute paths; a program without a slash is looked for on PATH, as by kubectl."""
    paths = {name: str(folder / path) for name in _PATHS if (path := getattr(entry, name, None))}
    program: Program | None = getattr(entry, "exec", None)
    if program and "/" in program.command:
        program = msgspec.structs.replace(program, command=str(folder / program.command))
        return msgspec.structs.replace(entry, exec=program, **paths)
    return msgspec.structs.replace(entry, **paths)


def _problem(server: str) -> str:
    """Say what is wrong with a server's address, without its secrets; nothing of one that is right."""
    if not server:
        return "no server address"
    with suppress(ValueError):
        parts = urlsplit(server)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return "a user and password in its server address: they belong to the user" if "@" in parts.netloc else ""
    return f"the server address {without_userinfo(server)!r}, which is not a URL"


def _paths(kubeconfig: Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    if kubeconfig is not None:
        return (_existing(kubeconfig.expanduser()),)
    listed = tuple(Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part)
    if not listed:
        return (_existing(Path(_DEFAULT).expanduser()),)
    # As kubectl does, files of the list that do not exist are passed over, but not all of them.
    return tuple(path for path in listed if path.exists()) or (_existing(listed[0]),)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise KubeconfigError(f"there is no kubeconfig {path}", hint=f"{_CHOOSE} Without a cluster: rollout demo")
    return path


def _read(path: Path) -> KubeconfigFile:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_QUICK)  # noqa: S506 - the safe one
    except OSError as error:
        raise KubeconfigError(f"kubeconfig {path} cannot be read: {error.strerror}", hint=_CHOOSE) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"kubeconfig {path} is not YAML: {_place(error)}", hint=_CHOOSE) from error
    if content is None:
        raise KubeconfigError(f"kubeconfig {path} is empty", hint=_CHOOSE)
    try:
        return msgspec.convert(content, KubeconfigFile)
    except msgspec.ValidationError as error:
        raise KubeconfigError(
            f"kubeconfig {path} is not a kubeconfig: {error}",
            hint="Check it with: kubectl config view",
        ) from error


def _place(error: Exception) -> str:
    """Say where and what, without the line itself, which may hold a token."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem or 'it cannot be read'}"
    return type(error).__name__ if isinstance(error, UnicodeDecodeError) else " ".join(str(error).split())


def _check_user(login: Login) -> None:
    user, program = login.user, login.user.exec
    if user.token or user.token_file:
        return
    if program and shutil.which(program.command) is None:
        raise KubeconfigError(
            f"{login.origin} logs in with the program {program.command!r}, which is not there",
            hint=program.install_hint or "Install it, or put its folder on PATH.",
        )
    has_other = program or user.client_certificate or user.client_certificate_data
    if not has_other and (user.auth_provider or user.username):
        raise KubeconfigError(
            f"user {login.user_name!r} of {login.origin} logs in by auth-provider or password, which is not supported",
            hint="Log in by a token, a certificate, or a program (`exec`: kubelogin, gke-gcloud-auth-plugin).",
        )
