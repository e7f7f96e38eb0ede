"""The decision about a key that a host shows: known, certified, new, changed, revoked."""

import base64
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cryptography.hazmat.primitives.serialization import SSHCertificate

from rollout.adapters.ssh.host_certificates import ALGORITHMS, authority_of, refusal
from rollout.adapters.ssh.known_hosts_file import Entry, HostKey, Index
from rollout.errors import HostKeyError, InputError
from rollout.model.host import DEFAULT_SSH_PORT, Host

USER_FILE = Path("~/.ssh/known_hosts")
SYSTEM_FILE = Path("/etc/ssh/ssh_known_hosts")


class HostKeyChecking(StrEnum):
    """What becomes of a host whose key is not on file; one with another key on file is refused by the first two.

    A host that shows two different keys in one run is refused by all of them.
    """

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a host has proved to have: a key, and perhaps a certificate for it."""

    key: HostKey
    certificate: SSHCertificate | None = None


class KnownHosts:
    """The keys of one or more files, and the decision about a key that a host shows.

    New keys go to the first file. Safe to use from many threads. Errors do not name the host: the caller does.
    """

    def __init__(self, files: Sequence[Path], checking: HostKeyChecking) -> None:
        """Read the files, or OpenSSH's two where none is named; `InputError` where named ones cannot be read."""
        self.checking = checking
        self._file = (files[0] if files else USER_FILE).expanduser()
        self._lock = threading.Lock()
        self._index = Index()
        # Each hashed line costs a digest, and each connection asks twice.
        self._found: dict[str, tuple[Entry, ...]] = {}
        if checking is not HostKeyChecking.OFF:
            named = [file.expanduser() for file in files]
            strictly = checking is HostKeyChecking.STRICT and not any(file.exists() for file in named)
            for file in named or (self._file, SYSTEM_FILE):
                self._index.read(file, must_exist=bool(named) and strictly)

    def keys(self, host: Host) -> tuple[HostKey, ...]:
        """Every key on file for this address and port."""
        return tuple(entry.key for entry in self._entries(_name(host)))

    def algorithms(self, host: Host) -> tuple[str, ...]:
        """Types of key and certificate to ask the host for first: those that can be decided on."""
        name = _name(host)
        certified = ALGORITHMS if self._index.authorities.find(name) else ()
        return (*certified, *dict.fromkeys(entry.key.type for entry in self._entries(name)))

    def verify(self, host: Host, shown: Shown) -> None:
        """Accept the key or raise `HostKeyError`; writes a new one to the file under accept-new."""
        with self._lock:
            if self.checking is not HostKeyChecking.OFF:
                self._check_revoked(shown)
                why_not = self._uncertified(host, shown)
                if why_not is None:
                    return
            else:
                why_not = ""
            self._decide(host, shown.key, why_not)

    def _decide(self, host: Host, key: HostKey, uncertified: str) -> None:
        known = self._entries(_name(host))
        if any(entry.key == key for entry in known):
            return
        if known:
            raise _changed(host, key, known, self._file)
        if self.checking is HostKeyChecking.STRICT:
            raise _unknown(host, key, self._file, uncertified)
        if self.checking is HostKeyChecking.ACCEPT_NEW:
            self._append(host, key)
        self._found[_name(host)] = (Entry(key),)

    def _entries(self, name: str) -> tuple[Entry, ...]:
        if name not in self._found:
            self._found[name] = self._index.hosts.find(name)
        return self._found[name]

    def _check_revoked(self, shown: Shown) -> None:
        signer = {authority_of(shown.certificate)} if shown.certificate else set()
        for blob in {shown.key.blob} | signer:
            if blob in self._index.revoked:
                raise _revoked(self._index.revoked[blob])

    def _uncertified(self, host: Host, shown: Shown) -> str | None:
        """None where a certificate speaks for the host; else why none does. Its key may be on file all the same."""
        if shown.certificate is None:
            return ""
        signer = authority_of(shown.certificate)
        if not any(entry.key.blob == signer for entry in self._index.authorities.find(_name(host))):
            return "no @cert-authority line for it has the key that signed its certificate"
        return refusal(shown.certificate, (host.known_as or host.address).lower()) or None

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


def read_known_hosts(files: Sequence[str], checking: HostKeyChecking) -> KnownHosts:
    """Those that a host's own configuration names; `HostKeyError` where they cannot be read."""
    try:
        return KnownHosts([Path(file) for file in files], checking)
    except InputError as error:
        raise HostKeyError(error.message, hint=error.hint) from error


def _name(host: Host) -> str:
    if host.known_as:
        return host.known_as.lower()
    address = host.address.lower()
    return address if host.port == DEFAULT_SSH_PORT else f"[{address}]:{host.port}"


def _ends_line(file: Path) -> bool:
    data = file.read_bytes()
    return not data or data.endswith(b"\n")


def _unknown(host: Host, shown: HostKey, file: Path, uncertified: str) -> HostKeyError:
    why = f" (its certificate does not help: {uncertified})" if uncertified else ""
    return HostKeyError(
        f"its host key is unknown: {shown.type} {shown.fingerprint}{why}",
        hint=f"If that is its fingerprint: ssh-keyscan -p {host.port} {host.address} >> {file}"
        " (or --host-key-checking accept-new)",
    )


def _changed(host: Host, shown: HostKey, known: tuple[Entry, ...], file: Path) -> HostKeyError:
    same_type = [entry for entry in known if entry.key.type == shown.type]
    expected = ", ".join(
        f"{entry.key.type} {entry.key.fingerprint} ({entry.place or 'shown earlier in this run'})"
        for entry in same_type or known
    )
    return HostKeyError(
        f"its host key has changed: it shows {shown.type} {shown.fingerprint}, on file is {expected}",
        hint="Somebody may be listening in. If the host was reinstalled:"
        f" ssh-keygen -R '{_name(host)}' -f {file} && ssh-keyscan -p {host.port} {host.address} >> {file}",
    )


def _revoked(entry: Entry) -> HostKeyError:
    return HostKeyError(
        f"its host key is revoked: {entry.key.type} {entry.key.fingerprint}",
        hint=f"{entry.place} names it as @revoked: give the host a new key.",
    )
