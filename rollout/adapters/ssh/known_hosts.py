"""The decision about a key that a host shows: known, certified, new, changed, revoked."""

import base64
import os
import threading
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path

from cryptography.hazmat.primitives.serialization import SSHCertificate

from rollout.adapters.local_files import open_output
from rollout.adapters.ssh.known_hosts_file import ALGORITHMS, Entry, HostKey, Index, authority_of, refusal
from rollout.errors import HostKeyError, InputError
from rollout.model.host import DEFAULT_SSH_PORT, Host, HostKeyFiles
from rollout.model.text import shell_word

USUAL_FILES = HostKeyFiles(
    ("~/.ssh/known_hosts", "~/.ssh/known_hosts2"), ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
)
_SOME_FILE = "FILE"


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

    New keys go to the operator's first file; where there is none, to no file. Safe to use from many threads. Errors do
    not name the host: the caller does.
    """

    def __init__(self, files: HostKeyFiles | None, checking: HostKeyChecking) -> None:
        """Read the files, or those that OpenSSH reads; `InputError` where none that is named can be read."""
        self.checking = checking
        own, system = _paths(files or USUAL_FILES)
        self._file = own[0] if own else None
        self._lock = threading.Lock()
        self._index = Index()
        # Each hashed line costs a digest, and each connection asks twice.
        self._found: dict[str, tuple[Entry, ...]] = {}
        if checking is not HostKeyChecking.OFF:
            are_wanted = files is not None and checking is HostKeyChecking.STRICT
            strictly = are_wanted and not any(file.exists() for file in (*own, *system))
            for file in (*own, *system):
                self._index.read(file, must_exist=strictly and file in own)

    def keys(self, host: Host) -> tuple[HostKey, ...]:
        """Every key on file for this address and port."""
        return tuple(entry.key for entry in self._entries(name_on_file(host)))

    def algorithms(self, host: Host) -> tuple[str, ...]:
        """Types of key and certificate to ask the host for first: those that can be decided on."""
        names = _names(host)
        certified = ALGORITHMS if any(map(self._index.authorities.find, names)) else ()
        entries = next(filter(None, map(self._entries, names)), ())
        return (*certified, *dict.fromkeys(entry.key.type for entry in entries))

    def is_revoked(self, shown: Shown) -> bool:
        """Whether nobody may show this key, or have a certificate of this authority, any more."""
        try:
            self._check_revoked(shown)
        except HostKeyError:
            return True
        return False

    def is_certified(self, host: Host, shown: Shown) -> bool:
        """Whether an authority on file speaks for the host."""
        return shown.certificate is not None and self._uncertified(host, shown) is None

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
        known, elsewhere = (self._entries(name) for name in (name_on_file(host), _names(host)[-1]))
        # As `check_host_key` of OpenSSH's sshconnect.c: the address alone counts where its port is not on file.
        if any(entry.key == key for entry in known or elsewhere):
            # From now on they are those of the port: it may not show another key in this run.
            self._found[name_on_file(host)] = known or elsewhere
            return
        if known:
            raise _changed(key, known, self._file)
        if self.checking is HostKeyChecking.STRICT:
            raise _unknown(host, key, self._file, (uncertified, elsewhere))
        if self.checking is HostKeyChecking.ACCEPT_NEW and self._file is not None:
            _append(self._file, host, key)
        self._found[name_on_file(host)] = (Entry(key),)

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
        authorities = chain.from_iterable(map(self._index.authorities.find, _names(host)))
        if not any(entry.key.blob == signer for entry in authorities):
            return "no @cert-authority line for it has the key that signed its certificate"
        return refusal(shown.certificate, (host.known_as or host.address).lower()) or None


def _paths(files: HostKeyFiles) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    own, system = (tuple(Path(file).expanduser() for file in named) for named in (files.own, files.system))
    return own, system


def _append(path: Path, host: Host, key: HostKey) -> None:
    line = f"{name_on_file(host)} {key.type} {base64.b64encode(key.blob).decode()}\n"
    try:
        with os.fdopen(open_output(path, os.O_RDWR | os.O_APPEND, make_folders=True), "a+b") as file:
            file.seek(0)
            file.write((b"" if _ends_line(file.read()) else b"\n") + line.encode())
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
    return (name_on_file(host),) if host.known_as else tuple(dict.fromkeys((name_on_file(host), host.address.lower())))


def _ends_line(data: bytes) -> bool:
    return not data or data.endswith(b"\n")


def _unknown(host: Host, shown: HostKey, file: Path | None, hopes: tuple[str, tuple[Entry, ...]]) -> HostKeyError:
    """`hopes` are why its certificate does not help, and the keys that are on file for its address without the port."""
    uncertified, elsewhere = hopes
    why = f" (its certificate does not help: {uncertified})" if uncertified else ""
    other = f"; on file without its port is {_described(elsewhere)}" if elsewhere else ""
    place = _place(file)
    scan = f"ssh-keyscan -p {host.port} {host.address} >> {place}"
    return HostKeyError(
        f"its host key is unknown: {shown.type} {shown.fingerprint}{why}{other}",
        hint=f"Compare and record the keys of all hosts: rollout known-hosts --out {place}; if that is its"
        f" fingerprint, this one alone: {scan}"
        + (" (or --host-key-checking accept-new)" if file else f"; then --known-hosts {_SOME_FILE}"),
    )


def _changed(shown: HostKey, known: tuple[Entry, ...], file: Path | None) -> HostKeyError:
    same_type = tuple(entry for entry in known if entry.key.type == shown.type)
    place = _place(file)
    return HostKeyError(
        f"its host key has changed: it shows {shown.type} {shown.fingerprint}, on file is"
        f" {_described(same_type or known)}",
        hint="The connection may be intercepted. If the host was reinstalled, its console confirms the new key:"
        f" rollout known-hosts --out {place} --fingerprints CONSOLES",
    )


def _place(file: Path | None) -> str:
    """Return the file, for a command that is to be copied."""
    return shell_word(str(file)) if file else _SOME_FILE


def _described(entries: tuple[Entry, ...]) -> str:
    return ", ".join(
        f"{entry.key.type} {entry.key.fingerprint} ({entry.place or 'shown earlier in this run'})" for entry in entries
    )


def _revoked(entry: Entry) -> HostKeyError:
    return HostKeyError(
        f"its host key is revoked: {entry.key.type} {entry.key.fingerprint}",
        hint=f"{entry.place} names it as @revoked: give the host a new key.",
    )
