"""OpenSSH's known_hosts files, and whether to accept a host's key.

paramiko's reader takes quadratic time, and ignores patterns and markers, so it would accept a
revoked key. It checks no certificates, so a host that only an authority vouches for is unknown.
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
from rollout.model.host import (
    DEFAULT_SSH_PORT,
    Host,
    HostKeyChecking,
    HostKeyFiles,
    normalize_known_host,
)
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
# Names, type and key.
_FEWEST_WORDS = 3


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public key. `place` is the file and line it was read from, if any."""

    type: str
    blob: bytes
    place: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.type} {self.fingerprint}"

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"


@dataclass(frozen=True, slots=True)
class Names:
    """Keys by host name."""

    _plain: defaultdict[str, list[HostKey]] = field(default_factory=lambda: defaultdict(list))
    _others: list[tuple[Callable[[str], bool], HostKey]] = field(default_factory=list)

    def add(self, names: str, key: HostKey) -> None:
        """Add a key under the first field of its line: names, patterns or a hash."""
        if names.startswith(_HASHED):
            self._others.append((_hashed(names), key))
        elif any(mark in names for mark in "*?!"):
            self._others.append((partial(_matches, names), key))
        else:
            for name in names.split(","):
                self._plain[normalize_known_host(name)].append(key)

    def find(self, name: str) -> tuple[HostKey, ...]:
        """Return every key of this lower-case name."""
        # A hash or a pattern matches either spelling of an address.
        spellings = {name, normalize_known_host(name)}
        others = (key for is_named, key in self._others if any(map(is_named, spellings)))
        return (*self._plain.get(normalize_known_host(name), ()), *others)


class KnownHosts:
    """The keys of some files, and the decision about a host's key. For many threads.

    New keys go to the operator's first file. The caller adds the host to errors.
    """

    def __init__(self, files: HostKeyFiles | None, checking: HostKeyChecking) -> None:
        """`files` None means OpenSSH's own. `InputError` if none of the files exists."""
        self.checking = checking
        sources = files or USUAL_FILES
        own = [Path(file).expanduser() for file in sources.own]
        system = [Path(file).expanduser() for file in sources.system]
        self._file = own[0] if own else None
        self._lock = threading.Lock()
        self._hosts = Names()
        self._authorities = Names()
        self._revoked: dict[bytes, HostKey] = {}
        # Each hashed line costs a digest, and each connection looks its host up twice.
        self._found: dict[str, tuple[HostKey, ...]] = {}
        is_strict = checking is HostKeyChecking.STRICT
        if own and files and is_strict and not any(file.exists() for file in (*own, *system)):
            raise InputError(
                f"known hosts file {own[0]}: no such file",
                hint=f"Name another with --known-hosts, or create it: {self._record_command}",
            )
        for file in (*own, *system):
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
        """Return the keys on file for this address and port."""
        return self._keys(name_on_file(host))

    def algorithms(self, host: Host) -> tuple[str, ...]:
        """Return the types of the keys on file, to ask for these first."""
        for name in _names(host):
            keys = self._keys(name)
            if keys:
                return tuple(dict.fromkeys(key.type for key in keys))
        return ()

    def is_revoked(self, key: HostKey) -> bool:
        """Whether a file names the key as `@revoked`."""
        return key.blob in self._revoked

    def verify(self, host: Host, key: HostKey) -> None:
        """Accept the key or raise `HostKeyError`; accept-new writes a new key."""
        with self._lock:
            self._decide(host, key)

    def _decide(self, host: Host, key: HostKey) -> None:
        revoked = self._revoked.get(key.blob)
        if revoked:
            hint = f"{revoked.place} names it as @revoked: give the host a new key."
            summary = "its host key is revoked"
            raise HostKeyError(f"{summary}: {key}", hint=hint, summary=summary)
        names = _names(host)
        known = self._keys(names[0])
        without_port = self._keys(names[-1])
        # As in OpenSSH's `check_host_key` (sshconnect.c), the address alone counts only if the
        # address with its port is not on file.
        accepted = known or without_port
        if key in accepted:
            # The port must not present another key later in this run.
            self._found[names[0]] = accepted
            return
        if known:
            raise self._changed(key, known)
        for name in names:
            authorities = self._authorities.find(name)
            if authorities:
                raise self._certified(key, authorities[0])
        if self.checking is HostKeyChecking.STRICT:
            raise self._unknown(key, without_port)
        if self._file is not None:
            _append(self._file, host, key)
        self._found[names[0]] = (key,)

    def _changed(self, key: HostKey, known: tuple[HostKey, ...]) -> HostKeyError:
        same_type = tuple(other for other in known if other.type == key.type)
        summary = "its host key has changed"
        return HostKeyError(
            f"{summary}: it shows {key}, on file is {_listed(same_type or known)}",
            summary=summary,
            hint=(
                "The connection may be intercepted. If the host was reinstalled, put what its"
                " console printed at boot, or `ssh-keygen -l` there, into FILE. The key is"
                f" recorded if they agree: {self._record_command} --fingerprints FILE"
            ),
        )

    def _certified(self, key: HostKey, authority: HostKey) -> HostKeyError:
        return HostKeyError(
            f"{_UNKNOWN}: {key}; a certificate authority ({authority.place}) vouches for the host,"
            " but rollout's own SSH does not check certificates",
            summary=_UNKNOWN,
            hint=(
                "Let OpenSSH connect: --executor ansible. Or record the host's key:"
                f" {self._record_command}"
            ),
        )

    def _unknown(self, key: HostKey, without_port: tuple[HostKey, ...]) -> HostKeyError:
        note = f"; on file without its port is {_listed(without_port)}" if without_port else ""
        option = f"then --known-hosts {_SOME_FILE}"
        if self._file:
            option = "or --host-key-checking accept-new"
        return HostKeyError(
            f"{_UNKNOWN}: {key}{note}",
            summary=_UNKNOWN,
            hint=f"Compare and record the keys of all hosts: {self._record_command}; {option}",
        )

    def _keys(self, name: str) -> tuple[HostKey, ...]:
        if name not in self._found:
            self._found[name] = self._hosts.find(name)
        return self._found[name]

    @property
    def _record_command(self) -> str:
        file = shell_word(str(self._file)) if self._file else _SOME_FILE
        return f"rollout known-hosts --out {file}"


def _append(path: Path, host: Host, key: HostKey) -> None:
    line = f"{name_on_file(host)} {key.type} {base64.b64encode(key.blob).decode()}\n"
    try:
        with os.fdopen(open_output(path, os.O_RDWR | os.O_APPEND), "a+b") as file:
            file.seek(0)
            before = file.read()
            if before and not before.endswith(b"\n"):
                file.write(b"\n")
            file.write(line.encode())
    except OSError as error:
        raise HostKeyError(
            f"its new host key cannot be written to {path}: {error.strerror}",
            hint="Name a writable file with --known-hosts.",
        ) from error


def read_known_hosts(files: HostKeyFiles, checking: HostKeyChecking) -> KnownHosts:
    """Read a host's files, or raise `HostKeyError`."""
    try:
        return KnownHosts(files, checking)
    except InputError as error:
        raise HostKeyError(error.message, hint=error.hint) from error


def name_on_file(host: Host) -> str:
    """Return the host's alias, or its address and port."""
    if host.known_as:
        return host.known_as.lower()
    address = host.address.lower()
    return address if host.port == DEFAULT_SSH_PORT else f"[{address}]:{host.port}"


def _names(host: Host) -> tuple[str, ...]:
    """Return the name on file, then the address without its port."""
    name = name_on_file(host)
    if host.known_as:
        return (name,)
    return tuple(dict.fromkeys((name, host.address.lower())))


def _listed(keys: tuple[HostKey, ...]) -> str:
    return ", ".join(f"{key} ({key.place or 'shown earlier in this run'})" for key in keys)


def _matches(patterns: str, name: str) -> bool:
    """Whether a pattern matches, and no `!` pattern."""
    matching = [
        pattern
        for pattern in patterns.lower().split(",")
        if _glob(pattern.removeprefix("!")).fullmatch(name)
    ]
    return bool(matching) and not any(pattern.startswith("!") for pattern in matching)


@lru_cache(maxsize=4096)
def _glob(pattern: str) -> re.Pattern[str]:
    wildcards = {"*": ".*", "?": "."}
    parts = re.split(r"([*?])", pattern)
    return re.compile("".join(wildcards.get(part) or re.escape(part) for part in parts), re.DOTALL)


def vouches(text: str, *, by_authority: bool) -> bool:
    """Whether known_hosts text has a key for any host.

    The key of an authority counts only with `by_authority`.
    """
    markers = ("", _AUTHORITY) if by_authority else ("",)
    for line in text.split("\n"):
        marker, _, key = line_fields(line)
        if key is not None and marker in markers:
            return True
    return False


def text_of(file: Path) -> str:
    """Return text to be written back unchanged; empty without a file.

    Raises `InputError`.
    """
    try:
        return read_input(file, trust=Trust.OWNER).decode("ascii", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


def line_fields(line: str) -> tuple[str, str, HostKey | None]:
    """Return marker, names and key; no key if the line is empty, a comment or damaged."""
    words = line.split()
    marker = words.pop(0) if line.lstrip().startswith("@") else ""
    if len(words) < _FEWEST_WORDS or (not marker and words[0].startswith("#")):
        return marker, "", None
    try:
        # The type is written as JSON, which has no surrogates.
        key_type = words[1].encode("ascii", errors="replace").decode()
        return marker, words[0], HostKey(key_type, base64.b64decode(words[2], validate=True))
    except ValueError:
        return marker, words[0], None


def _hashed(names: str) -> Callable[[str], bool]:
    """Return a test for the hashed name, which fails for a damaged line."""
    try:
        parts = names.removeprefix(_HASHED).split("|")
        salt, digest = (base64.b64decode(part, validate=True) for part in parts)
    except ValueError:
        return lambda _: False
    return lambda name: hmac.digest(salt, name.encode(), "sha1") == digest
