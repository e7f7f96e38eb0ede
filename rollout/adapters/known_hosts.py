"""Host keys on file, in OpenSSH's format.

paramiko's own reader compares each new line with all before it, hashes every entry for each look-up, keeps
one key a type and host, and knows neither patterns nor `@revoked`: at hundreds of hosts it costs more than the
connections, and it would accept a revoked key. This one reads the file once into an index.
"""

import base64
import binascii
import hashlib
import hmac
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from rollout.errors import HostKeyError, InputError
from rollout.model.host import DEFAULT_SSH_PORT, Host

_HASHED = "|1|"
_REVOKED = "@revoked"
_USER_FILE = Path("~/.ssh/known_hosts")
_SYSTEM_FILE = Path("/etc/ssh/ssh_known_hosts")


class HostKeyChecking(StrEnum):
    """What becomes of a host whose key is not on file; one with another key on file is refused by the first two."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public key: its type as known_hosts writes it (`ssh-ed25519`), and the bytes of the key."""

    type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"


@dataclass(frozen=True, slots=True)
class _HashedName:
    salt: bytes
    digest: bytes

    def matches(self, name: str) -> bool:
        return hmac.digest(self.salt, name.encode(), "sha1") == self.digest


class KnownHosts:
    """The keys of one or more files, and the decision about a key that a host shows.

    New keys go to the first file. Safe to use from many threads. Errors do not name the host: the caller does.
    """

    def __init__(self, file: Path | None, checking: HostKeyChecking) -> None:
        """Read the file, or OpenSSH's two where it is None; `InputError` where a named one cannot be read."""
        self.checking = checking
        self._file = (file or _USER_FILE).expanduser()
        self._lock = threading.Lock()
        self._plain: defaultdict[str, list[HostKey]] = defaultdict(list)
        self._hashed: list[tuple[_HashedName, HostKey]] = []
        self._patterns: list[tuple[str, HostKey]] = []
        self._revoked: set[bytes] = set()
        # Each hashed line costs a digest, and each connection asks twice.
        self._found: dict[str, tuple[HostKey, ...]] = {}
        if checking is not HostKeyChecking.OFF:
            self._read(self._file, must_exist=file is not None and checking is HostKeyChecking.STRICT)
            if file is None:
                self._read(_SYSTEM_FILE, must_exist=False)

    def keys(self, host: Host) -> tuple[HostKey, ...]:
        """Every key on file for this address and port."""
        name = _name(host)
        if name not in self._found:
            self._found[name] = self._search(name)
        return self._found[name]

    def _search(self, name: str) -> tuple[HostKey, ...]:
        found = list(self._plain.get(name, ()))
        found += [key for hashed, key in self._hashed if hashed.matches(name)]
        found += [key for pattern, key in self._patterns if _matches(pattern, name)]
        return tuple(found)

    def verify(self, host: Host, shown: HostKey) -> None:
        """Accept the key or raise `HostKeyError`; writes a new one to the file under accept-new."""
        if self.checking is HostKeyChecking.OFF:
            return
        with self._lock:
            known = self.keys(host)
            if shown.blob in self._revoked:
                raise _revoked(shown, self._file)
            if shown in known:
                return
            if known:
                raise _changed(host, shown, known, self._file)
            if self.checking is HostKeyChecking.STRICT:
                raise _unknown(host, shown, self._file)
            self._append(host, shown)

    def _append(self, host: Host, key: HostKey) -> None:
        line = f"{_name(host)} {key.type} {base64.b64encode(key.blob).decode()}\n"
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._file.open("a+b") as file:
                file.write((b"" if _ends_line(self._file) else b"\n") + line.encode())
        except OSError as error:
            raise HostKeyError(
                f"its new host key cannot be written to {self._file}: {error.strerror}",
                hint="Name a writable file with --known-hosts.",
            ) from error
        self._found[_name(host)] = (key,)

    def _read(self, file: Path, *, must_exist: bool) -> None:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError as error:
            if not must_exist:
                return
            raise InputError(
                f"known hosts file {file}: no such file",
                hint="Name another with --known-hosts, or collect keys with ssh-keyscan.",
            ) from error
        except OSError as error:
            raise InputError(f"known hosts file {file}: {error.strerror}") from error
        for names, key in _entries(text.splitlines()):
            self._index(names, key)

    def _index(self, names: str, key: HostKey | None) -> None:
        if key is None:
            return
        if names == _REVOKED:
            self._revoked.add(key.blob)
        elif names.startswith(_HASHED):
            hashed = _hashed(names)
            if hashed:
                self._hashed.append((hashed, key))
        elif any(mark in names for mark in "*?!"):
            self._patterns.append((names, key))
        else:
            for name in names.split(","):
                self._plain[name.lower()].append(key)


def _entries(lines: Iterable[str]) -> Iterator[tuple[str, HostKey | None]]:
    """Names and key of each line; the name of a revoked key is `@revoked`: it is refused from every host.

    Lines of certificate authorities are skipped: hosts are told by their own keys here.
    """
    for line in lines:
        fields = line.split()
        if not fields or fields[0].startswith("#") or fields[0] == "@cert-authority":
            continue
        if fields[0] == _REVOKED:
            yield _REVOKED, _key(fields[2:])
        else:
            yield fields[0], _key(fields[1:])


def _key(fields: list[str]) -> HostKey | None:
    """The key of `type base64 …`; None where a line is damaged: it speaks for no host, as in OpenSSH."""
    try:
        return HostKey(fields[0], base64.b64decode(fields[1], validate=True))
    except (IndexError, binascii.Error):
        return None


def _hashed(name: str) -> _HashedName | None:
    try:
        salt, digest = name.removeprefix(_HASHED).split("|")
        return _HashedName(base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True))
    except (ValueError, binascii.Error):
        return None


def _matches(patterns: str, name: str) -> bool:
    """Whether OpenSSH's pattern list names it: any match counts, unless a `!` pattern matches."""
    wanted = [pattern.lower() for pattern in patterns.split(",")]
    # Brackets are literal in known_hosts ([host]:port), and a class in fnmatch.
    literal = [pattern.replace("[", "[[]") for pattern in wanted]
    if any(fnmatchcase(name, pattern[1:]) for pattern in literal if pattern.startswith("!")):
        return False
    return any(fnmatchcase(name, pattern) for pattern in literal if not pattern.startswith("!"))


def _name(host: Host) -> str:
    if host.known_as:
        return host.known_as.lower()
    address = host.address.lower()
    return address if host.port == DEFAULT_SSH_PORT else f"[{address}]:{host.port}"


def _ends_line(file: Path) -> bool:
    data = file.read_bytes()
    return not data or data.endswith(b"\n")


def _unknown(host: Host, shown: HostKey, file: Path) -> HostKeyError:
    return HostKeyError(
        f"its host key is unknown: {shown.type} {shown.fingerprint}",
        hint=f"If that is its fingerprint: ssh-keyscan -p {host.port} {host.address} >> {file}"
        " (or --host-key-checking accept-new)",
    )


def _changed(host: Host, shown: HostKey, known: tuple[HostKey, ...], file: Path) -> HostKeyError:
    same_type = [key for key in known if key.type == shown.type]
    expected = ", ".join(f"{key.type} {key.fingerprint}" for key in same_type or known)
    return HostKeyError(
        f"its host key has changed: it shows {shown.type} {shown.fingerprint}, on file is {expected}",
        hint="Somebody may be listening in. If the host was reinstalled:"
        f" ssh-keygen -R '{_name(host)}' -f {file} && ssh-keyscan -p {host.port} {host.address} >> {file}",
    )


def _revoked(shown: HostKey, file: Path) -> HostKeyError:
    return HostKeyError(
        f"its host key is revoked: {shown.type} {shown.fingerprint}",
        hint=f"{file} names it as @revoked: give the host a new key.",
    )
