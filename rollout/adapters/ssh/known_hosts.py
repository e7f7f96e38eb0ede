"""OpenSSH's known_hosts files, and the decision about a key that a host shows: known, new, changed, revoked.

paramiko's own reader compares each new line with all before it, hashes every entry for each
look-up, keeps one key a type and host, and knows neither patterns nor markers: at hundreds of hosts
it costs more than the connections, and it would accept a revoked key. This one reads each file
once.

paramiko checks no certificates of hosts. Where an authority alone speaks for a host, its key is
unknown under every checking: OpenSSH itself, through Ansible, is the way.
"""

import base64
import hashlib
import hmac
import os
import re
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.local_files import open_output
from rollout.errors import HostKeyError, InputError
from rollout.model.addresses import normalize_known_host
from rollout.model.host import DEFAULT_SSH_PORT, Host, HostKeyChecking, HostKeyFiles
from rollout.model.text import shell_word

USUAL_FILES = HostKeyFiles(
    ("~/.ssh/known_hosts", "~/.ssh/known_hosts2"),
    ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"),
)
_UNKNOWN = "its host key is unknown"
_SOME_FILE = "FILE"
_HASHED = "|1|"
_REVOKED = "@revoked"
_AUTHORITY = "@cert-authority"


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public key: its type as known_hosts writes it (`ssh-ed25519`), and the bytes of the key.

    `place` is the line that it stands in, empty where no file has it: the same key may stand in
    many.
    """

    type: str
    blob: bytes
    place: str = field(default="", compare=False)

    def __str__(self) -> str:
        """For messages."""
        return f"{self.type} {self.fingerprint}"

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"


@dataclass(frozen=True, slots=True)
class Names:
    """Keys by the names of hosts."""

    _plain: defaultdict[str, list[HostKey]] = field(default_factory=lambda: defaultdict(list))
    _others: list[tuple[Callable[[str], bool], HostKey]] = field(default_factory=list)

    def add(self, names: str, key: HostKey) -> None:
        """Put it under the first field of its line."""
        if names.startswith(_HASHED):
            self._others.append((_hashed(names), key))
        elif any(mark in names for mark in "*?!"):
            self._others.append((partial(_matches, names), key))
        else:
            for name in names.split(","):
                self._plain[normalize_known_host(name)].append(key)

    def find(self, name: str) -> tuple[HostKey, ...]:
        """Every key of this name, in lower case."""
        # A hash or pattern matches one spelling only: the host's own, or the usual one.
        spellings = {name, normalize_known_host(name)}
        others = (key for is_named, key in self._others if any(map(is_named, spellings)))
        return (*self._plain.get(normalize_known_host(name), ()), *others)


class KnownHosts:
    """The keys of one or more files, and the decision about a key that a host shows.

    New keys go to the operator's first file; where there is none, to no file. Safe to use from many
    threads. Errors do not name the host: the caller does.
    """

    def __init__(self, files: HostKeyFiles | None, checking: HostKeyChecking) -> None:
        """Read the files, or those that OpenSSH reads; `InputError` where none that is named can be read."""
        self.checking = checking
        counting = files or USUAL_FILES
        own, system = (
            [Path(file).expanduser() for file in named] for named in (counting.own, counting.system)
        )
        self._file = own[0] if own else None
        self._lock = threading.Lock()
        self._hosts, self._authorities = Names(), Names()
        self._revoked: dict[bytes, HostKey] = {}
        # Each hashed line costs a digest, and each connection asks twice.
        self._found: dict[str, tuple[HostKey, ...]] = {}
        every = (*own, *system)
        if (
            own
            and files
            and checking is HostKeyChecking.STRICT
            and not any(file.exists() for file in every)
        ):
            raise InputError(
                f"known hosts file {own[0]}: no such file",
                hint=f"Name another with --known-hosts, or make it: {self._recording}",
            )
        for file in every:
            self._read(file)

    def _read(self, file: Path) -> None:
        for number, line in enumerate(text_of(file).split("\n"), 1):
            marker, names, key = line_fields(line)
            if key is None:
                continue
            key = replace(key, place=f"{file}:{number}")
            if marker == _REVOKED:
                self._revoked[key.blob] = key
            elif marker == _AUTHORITY:
                self._authorities.add(names, key)
            elif not marker:
                self._hosts.add(names, key)

    def keys(self, host: Host) -> tuple[HostKey, ...]:
        """Every key on file for this address and port."""
        return self._keys(name_on_file(host))

    def algorithms(self, host: Host) -> tuple[str, ...]:
        """Types of key to ask the host for first: those that are on file."""
        keys = next(filter(None, map(self._keys, _names(host))), ())
        return tuple(dict.fromkeys(key.type for key in keys))

    def is_revoked(self, key: HostKey) -> bool:
        """Whether nobody may show this key any more."""
        return key.blob in self._revoked

    def verify(self, host: Host, key: HostKey) -> None:
        """Accept the key or raise `HostKeyError`; writes a new one to the file under accept-new."""
        with self._lock:
            self._decide(host, key)

    def _decide(self, host: Host, key: HostKey) -> None:
        if revoked := self._revoked.get(key.blob):
            hint = f"{revoked.place} names it as @revoked: give the host a new key."
            summary = "its host key is revoked"
            raise HostKeyError(f"{summary}: {key}", hint=hint, summary=summary)
        names = _names(host)
        known = self._keys(names[0])
        elsewhere = self._keys(names[-1])
        # As `check_host_key` of OpenSSH's sshconnect.c: the address alone counts where its port is
        # not on file.
        if key in (known or elsewhere):
            # From now on they are those of the port: it may not show another key in this run.
            self._found[names[0]] = known or elsewhere
            return
        if known:
            same_type = tuple(other for other in known if other.type == key.type)
            summary = "its host key has changed"
            raise HostKeyError(
                f"{summary}: it shows {key}, on file is {_described(same_type or known)}",
                summary=summary,
                hint=(
                    "The connection may be intercepted. If the host was reinstalled, put what its"
                    " console printed at boot, or `ssh-keygen -l` there, into FILE. The key is"
                    f" recorded if they agree: {self._recording} --fingerprints FILE"
                ),
            )
        if authorities := tuple(other for name in names for other in self._authorities.find(name)):
            raise HostKeyError(
                f"{_UNKNOWN}: {key}; what speaks for it is an authority"
                f" ({authorities[0].place}), and rollout's own SSH follows none",
                hint=(
                    "Have OpenSSH itself connect, which does: --executor ansible. Or record its"
                    f" key: {self._recording}"
                ),
                summary=_UNKNOWN,
            )
        if self.checking is HostKeyChecking.STRICT:
            other_port = (
                f"; on file without its port is {_described(elsewhere)}" if elsewhere else ""
            )
            then = (
                "or --host-key-checking accept-new"
                if self._file
                else f"then --known-hosts {_SOME_FILE}"
            )
            raise HostKeyError(
                f"{_UNKNOWN}: {key}{other_port}",
                summary=_UNKNOWN,
                hint=f"Compare and record the keys of all hosts: {self._recording}; {then}",
            )
        if self._file is not None:
            _append(self._file, host, key)
        self._found[names[0]] = (key,)

    def _keys(self, name: str) -> tuple[HostKey, ...]:
        if name not in self._found:
            self._found[name] = self._hosts.find(name)
        return self._found[name]

    @property
    def _recording(self) -> str:
        """The command that records keys, to be copied."""
        return (
            f"rollout known-hosts --out {shell_word(str(self._file)) if self._file else _SOME_FILE}"
        )


def _append(path: Path, host: Host, key: HostKey) -> None:
    line = f"{name_on_file(host)} {key.type} {base64.b64encode(key.blob).decode()}\n"
    try:
        with os.fdopen(open_output(path, os.O_RDWR | os.O_APPEND), "a+b") as file:
            file.seek(0)
            before = file.read()
            file.write((b"\n" if before and not before.endswith(b"\n") else b"") + line.encode())
    except OSError as error:
        raise HostKeyError(
            f"its new host key cannot be written to {path}: {error.strerror}",
            hint="Name a writable file with --known-hosts.",
        ) from error


def read_known_hosts(files: HostKeyFiles, checking: HostKeyChecking) -> KnownHosts:
    """Those that a host's own configuration names; `HostKeyError` where they cannot be read."""
    try:
        return KnownHosts(files, checking)
    except InputError as error:
        raise HostKeyError(error.message, hint=error.hint) from error


def name_on_file(host: Host) -> str:
    """Return the name that a line for this host has: its alias, or address and port."""
    if host.known_as:
        return host.known_as.lower()
    address = host.address.lower()
    return address if host.port == DEFAULT_SSH_PORT else f"[{address}]:{host.port}"


def _names(host: Host) -> tuple[str, ...]:
    """List the name that counts, and the address without its port, which OpenSSH looks for where that finds none."""
    return (
        (name_on_file(host),)
        if host.known_as
        else tuple(dict.fromkeys((name_on_file(host), host.address.lower())))
    )


def _described(keys: tuple[HostKey, ...]) -> str:
    return ", ".join(f"{key} ({key.place or 'shown earlier in this run'})" for key in keys)


def _matches(patterns: str, name: str) -> bool:
    """Whether OpenSSH's pattern list names it: any match counts, unless a `!` pattern matches.

    `*` and `?` stand for something, everything else for itself, brackets too.
    """
    matching = [
        pattern
        for pattern in patterns.lower().split(",")
        if _glob(pattern.removeprefix("!")).fullmatch(name)
    ]
    return bool(matching) and not any(pattern.startswith("!") for pattern in matching)


@lru_cache(maxsize=4096)
def _glob(pattern: str) -> re.Pattern[str]:
    parts = (
        ".*" if part == "*" else "." if part == "?" else re.escape(part)
        for part in re.split(r"([*?])", pattern)
    )
    return re.compile("".join(parts), re.DOTALL)


def vouches(text: str, *, by_authority: bool) -> bool:
    """Whether known_hosts of this content know any host, by its key or, where those count, by an authority's."""
    markers = ("", _AUTHORITY) if by_authority else ("",)
    return any(
        key is not None and marker in markers
        for marker, _, key in map(line_fields, text.split("\n"))
    )


def text_of(file: Path) -> str:
    """Return the file, to be written back as it stands; empty where there is none, `InputError` where it is closed."""
    try:
        return read_input(file, trust=Trust.OWNER).decode("ascii", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


def line_fields(line: str) -> tuple[str, str, HostKey | None]:
    """Return marker, names and key; no key where a line is empty, a comment or damaged: it speaks for no host."""
    marker, *words = line.split() if line.lstrip().startswith("@") else ("", *line.split())
    if len(words) < len(("names", "type", "key")) or (not marker and words[0].startswith("#")):
        return marker, "", None
    try:
        # a type is told, also in JSON, which has no surrogates
        told = words[1].encode("ascii", errors="replace").decode()
        return marker, words[0], HostKey(told, base64.b64decode(words[2], validate=True))
    except ValueError:
        return marker, words[0], None


def _hashed(names: str) -> Callable[[str], bool]:
    """Return what knows the name that was hashed; of a damaged line, none."""
    try:
        salt, digest = (
            base64.b64decode(part, validate=True) for part in names.removeprefix(_HASHED).split("|")
        )
    except ValueError:
        return lambda _: False
    return lambda name: hmac.digest(salt, name.encode(), "sha1") == digest
