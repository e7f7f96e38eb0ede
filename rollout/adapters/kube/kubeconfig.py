"""Which kubeconfig, which context, and whether it can work: checked before any client library sees it.

The library reports a missing name as a missing key, and silently goes on without a user that does not exist. An
operator is told the file, the name, and what else there is.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True, slots=True)
class _Files:
    """The files as they were read: of entries of one name the first counts, as for kubectl."""

    read: tuple[tuple[Path, KubeconfigFile], ...]

    def __str__(self) -> str:
        """For messages."""
        return ", ".join(str(path) for path, _ in self.read)

    def choose(self, context: str | None) -> tuple[str, Context]:
        """Return the context that is named, else the current one, by its name."""
        name = context or next((file.current_context for _, file in self.read if file.current_context), None)
        if name is None:
            raise KubeconfigError(f"{self} has no current context", hint=self._choices)
        match = self._find("contexts", name)
        if match is None:
            raise KubeconfigError(f"{self} has no context {name!r}", hint=self._choices)
        return name, match[1].context or Context()

    def cluster(self, context: str, chosen: Context) -> Cluster:
        """Return the context's cluster, which has an address."""
        if not chosen.cluster:
            raise KubeconfigError(f"context {context!r} of {self} names no cluster", hint=self._choices)
        path, entry = self._named_by(context, "cluster", chosen.cluster)
        cluster = entry.cluster or Cluster()
        if problem := _problem(cluster.server or ""):
            raise KubeconfigError(
                f"cluster {chosen.cluster!r} of {path} has {problem}",
                hint="Write it as `server: https://HOST:PORT`, or choose another context.",
            )
        return cluster

    def program(self, context: str, chosen: Context) -> str:
        """Return the program that the context's user logs in with, which is there; empty where none does."""
        if not chosen.user:
            return ""
        path, entry = self._named_by(context, "user", chosen.user)
        user = entry.user or User()
        return _checked_program(path, user.exec) if user.exec and not (user.token or user.token_file) else ""

    def _named_by(self, context: str, kind: str, name: str) -> tuple[Path, Entry]:
        match = self._find(f"{kind}s", name)
        if match is None:
            message = f"context {context!r} names {kind} {name!r}, which {self} does not define"
            raise KubeconfigError(message, hint=self._choices)
        return match

    def _find(self, section: str, name: str) -> tuple[Path, Entry] | None:
        """Return the first entry of that name, and the file it stands in."""
        return next(
            ((path, entry) for path, file in self.read for entry in getattr(file, section) or () if entry.name == name),
            None,
        )

    @property
    def contexts(self) -> tuple[str, ...]:
        """The names of all contexts."""
        return tuple(dict.fromkeys(entry.name for _, file in self.read for entry in file.contexts or ()))

    @property
    def _choices(self) -> str:
        names = self.contexts
        if not names:
            return f"It has no context at all. {_CHOOSE}"
        shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        return f"Name one with --context: {shown}."


def _problem(server: str) -> str:
    """What is wrong with a server's address, without its secrets; empty for one that is right."""
    if not server:
        return "no server address"
    with suppress(ValueError):
        parts = urlsplit(server)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return "a user and password in its server address: they belong to the user" if "@" in parts.netloc else ""
    return f"the server address {without_userinfo(server)!r}, which is not a URL"


def find_login(kubeconfig: Path | None, context: str | None, environ: Mapping[str, str]) -> Login:
    """Choose and check; `KubeconfigError` says what is missing and what there is."""
    files = _read_all(kubeconfig, environ)
    name, chosen = files.choose(context)
    cluster = files.cluster(name, chosen)
    program = files.program(name, chosen)
    return Login(tuple(path for path, _ in files.read), name, chosen.user or "", program, cluster.proxy_url or "")


def contexts(kubeconfig: Path | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all contexts; `KubeconfigError` where a file cannot be read."""
    return _read_all(kubeconfig, environ).contexts


def in_cluster(environ: Mapping[str, str]) -> bool:
    """Whether this runs in a pod without any kubeconfig."""
    if environ.get("KUBECONFIG") or Path(_DEFAULT).expanduser().exists():
        return False
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and SERVICE_ACCOUNT.exists()


def _read_all(kubeconfig: Path | None, environ: Mapping[str, str]) -> _Files:
    return _Files(tuple((path, _read(path)) for path in _paths(kubeconfig, environ)))


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
    """Where and what, without the line itself, which may hold a token."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem or 'it cannot be read'}"
    return type(error).__name__ if isinstance(error, UnicodeDecodeError) else " ".join(str(error).split())


def _checked_program(kubeconfig: Path, program: Program) -> str:
    beside = kubeconfig.parent / program.command
    if shutil.which(program.command) is None and not ("/" in program.command and os.access(beside, os.X_OK)):
        raise KubeconfigError(
            f"{kubeconfig} logs in with the program {program.command!r}, which is not there",
            hint=program.install_hint or "Install it, or put its folder on PATH.",
        )
    return program.command
