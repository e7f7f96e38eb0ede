"""Which kubeconfig, which context, and whether it can work: checked before any client library sees it.

The library reports a missing name as a missing key, and silently goes on without a user that does not exist. An
operator is told the file, the name, and what else there is.
"""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from rollout.adapters.secrets import without_userinfo
from rollout.errors import KubeconfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_DEFAULT = "~/.kube/config"
_SHOWN = 20
_CHOOSE = "Name one with --kubeconfig or KUBECONFIG."
_QUICK = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Program(msgspec.Struct, frozen=True, rename="camel"):
    """A program that gives credentials."""

    command: str = ""
    install_hint: str | None = None


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """A user entry, as far as files and programs are named in it."""

    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    token: str | None = None
    exec: Program | None = None


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """A cluster entry."""

    server: str | None = None
    proxy_url: str | None = None


class Context(msgspec.Struct, frozen=True, rename="kebab"):
    """A context entry."""

    cluster: str | None = None
    user: str | None = None


class NamedUser(msgspec.Struct, frozen=True):
    """A user under its name."""

    name: str
    user: User | None = None


class NamedCluster(msgspec.Struct, frozen=True):
    """A cluster under its name."""

    name: str
    cluster: Cluster | None = None


class NamedContext(msgspec.Struct, frozen=True):
    """A context under its name."""

    name: str
    context: Context | None = None


class KubeconfigFile(msgspec.Struct, frozen=True, rename="kebab"):
    """One file."""

    clusters: tuple[NamedCluster, ...] | None = None
    contexts: tuple[NamedContext, ...] | None = None
    users: tuple[NamedUser, ...] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True)
class Login:
    """What was chosen, ready for the library.

    `program` is the command that gives the credentials, empty where none does; `proxy` is the cluster
    entry's own, empty where it names none.
    """

    files: tuple[Path, ...]
    context: str
    user: str
    program: str
    proxy: str

    @property
    def origin(self) -> str:
        """The files, for messages."""
        return ", ".join(str(path) for path in self.files)


E = TypeVar("E", NamedUser, NamedCluster, NamedContext)
_Read = Sequence[tuple[Path, KubeconfigFile]]


def find_login(kubeconfig: Path | None, context: str | None, environ: Mapping[str, str]) -> Login:
    """Choose and check; `KubeconfigError` says what is missing and what there is."""
    read, origin, name, chosen = _chosen(kubeconfig, context, environ)
    cluster, _server = _cluster_of(read, name, chosen, origin)
    program = _check_user(read, name, chosen, origin)
    return Login(tuple(path for path, _ in read), name, chosen.user or "", program, cluster.proxy_url or "")


def find_server(kubeconfig: Path | None, context: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """Find the context and its server's address, as a client calls it; nothing is asked, and no login needed.

    In a pod without any kubeconfig the context is empty. `KubeconfigError` where there is none of both.
    """
    if kubeconfig is None and context is None and in_cluster(environ):
        host, port = (environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        return "", f"https://{f'[{host}]' if ':' in host else host}:{port}"
    read, origin, name, chosen = _chosen(kubeconfig, context, environ)
    _cluster, server = _cluster_of(read, name, chosen, origin)
    return name, without_userinfo(server).rstrip("/")


def _chosen(
    kubeconfig: Path | None, context: str | None, environ: Mapping[str, str]
) -> tuple[_Read, str, str, Context]:
    """Return the files as they were read, their names for messages, and the context that is meant, by its name."""
    files = _files(kubeconfig, environ)
    read = [(path, _read(path)) for path in files]
    origin = ", ".join(str(path) for path in files)
    name = context or _current(read, origin)
    return read, origin, name, _context(read, name, origin)


def in_cluster(environ: Mapping[str, str]) -> bool:
    """Whether this runs in a pod without any kubeconfig."""
    if environ.get("KUBECONFIG") or Path(_DEFAULT).expanduser().exists():
        return False
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT.exists()


def contexts(kubeconfig: Path | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all contexts; `KubeconfigError` where a file cannot be read."""
    read = (_read(path) for path in _files(kubeconfig, environ))
    return tuple(dict.fromkeys(context.name for file in read for context in file.contexts or ()))


def _files(kubeconfig: Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
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
        content = _loaded(path.read_text(encoding="utf-8"))
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


def _loaded(text: str) -> Any:
    """Read the document, by libyaml where it is there; of a fault PyYAML's own words stay."""
    with suppress(yaml.YAMLError):
        return yaml.load(text, Loader=_QUICK)  # noqa: S506 - the safe one
    return yaml.safe_load(text)


def _place(error: Exception) -> str:
    """Where and what, without the line itself, which may hold a token."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem or 'it cannot be read'}"
    return type(error).__name__ if isinstance(error, UnicodeDecodeError) else " ".join(str(error).split())


def _current(read: _Read, origin: str) -> str:
    name = next((file.current_context for _, file in read if file.current_context), None)
    if name is None:
        raise KubeconfigError(f"{origin} has no current context", hint=_choices(read))
    return name


def _choices(read: _Read) -> str:
    names = list(dict.fromkeys(entry.name for _, file in read for entry in file.contexts or ()))
    if not names:
        return f"It has no context at all. {_CHOOSE}"
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"Name one with --context: {shown}."


def _context(read: _Read, name: str, origin: str) -> Context:
    match = _named(((path, file.contexts) for path, file in read), name)
    if match is None:
        raise KubeconfigError(f"{origin} has no context {name!r}", hint=_choices(read))
    return match[1].context or Context()


def _named(entries: Iterable[tuple[Path, tuple[E, ...] | None]], name: str) -> tuple[Path, E] | None:
    """Return the first entry of that name, and the file it stands in."""
    return next(((path, entry) for path, section in entries for entry in section or () if entry.name == name), None)


def _cluster_of(read: _Read, context: str, chosen: Context, origin: str) -> tuple[Cluster, str]:
    """Return the context's cluster, and its address."""
    if not chosen.cluster:
        raise KubeconfigError(f"context {context!r} of {origin} names no cluster", hint=_choices(read))
    match = _named(((path, file.clusters) for path, file in read), chosen.cluster)
    if match is None:
        raise KubeconfigError(
            f"context {context!r} names cluster {chosen.cluster!r}, which {origin} does not define",
            hint=_choices(read),
        )
    path, cluster = match[0], match[1].cluster or Cluster()
    if cluster.server and not cluster.server.startswith(("https://", "http://")):
        raise KubeconfigError(
            f"cluster {chosen.cluster!r} of {path} has the server address {without_userinfo(cluster.server)!r}, "
            "which is not a URL",
            hint="Write it with https:// before it.",
        )
    if not cluster.server:
        raise KubeconfigError(
            f"cluster {chosen.cluster!r} of {path} has no server address",
            hint="Add `server: https://…` to it, or choose another context.",
        )
    return cluster, cluster.server


def _check_user(read: _Read, context: str, chosen: Context, origin: str) -> str:
    """Check the context's user, if it names one; the program it runs, or an empty string."""
    if not chosen.user:
        return ""
    match = _named(((path, file.users) for path, file in read), chosen.user)
    if match is None:
        raise KubeconfigError(
            f"context {context!r} names user {chosen.user!r}, which {origin} does not define",
            hint=_choices(read),
        )
    path, user = match[0], match[1].user or User()
    return _check_program(path, user.exec) if user.exec and not (user.token or user.token_file) else ""


def _check_program(kubeconfig: Path, program: Program) -> str:
    beside = kubeconfig.parent / program.command
    if shutil.which(program.command) is None and not ("/" in program.command and os.access(beside, os.X_OK)):
        raise KubeconfigError(
            f"{kubeconfig} logs in with the program {program.command!r}, which is not there",
            hint=program.install_hint or "Install it, or put its folder on PATH.",
        )
    return program.command
