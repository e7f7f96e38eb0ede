"""The decision about a key that a host shows: known, new, changed, revoked.

paramiko checks no certificates of hosts. Where an authority alone speaks for a host, its key is unknown under every
checking: OpenSSH itself, through Ansible, is the way.
"""

import base64
import os
import threading
from pathlib import Path

from rollout.adapters.local_files import open_output
from rollout.adapters.ssh.known_hosts_file import Entry, HostKey, Index
from rollout.errors import HostKeyError, InputError
from rollout.model.host import DEFAULT_SSH_PORT, Host, HostKeyChecking, HostKeyFiles
from rollout.model.text import shell_word

USUAL_FILES = HostKeyFiles(
    ("~/.ssh/known_hosts", "~/.ssh/known_hosts2"), ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
)
_SOME_FILE = "FILE"


class KnownHosts:
    """The keys of one or more files, and the decision about a key that a host shows.

    New keys go to the operator's first file; where there is none, to no file. Safe to use from many threads. Errors do
    not name the host: the caller does.
    """

    def __init__(self, files: HostKeyFiles | None, checking: HostKeyChecking) -> None:
        """Read the files, or those that OpenSSH reads; `InputError` where none that is named can be read."""
        self.checking = checking
        counting = files or USUAL_FILES
        own, system = ([Path(file).expanduser() for file in named] for named in (counting.own, counting.system))
        self._file = own[0] if own else None
        self._lock = threading.Lock()
        self._index = Index()
        # Each hashed line costs a digest, and each connection asks twice.
        self._found: dict[str, tuple[Entry, ...]] = {}
        are_wanted = files is not None and checking is HostKeyChecking.STRICT
        strictly = are_wanted and not any(file.exists() for file in (*own, *system))
        for file in (*own, *system):
            self._index.read(file, must_exist=strictly and file in own)

    def keys(self, host: Host) -> tuple[HostKey, ...]:
        """Every key on file for this address and port."""
        return tuple(entry.key for entry in self._entries(name_on_file(host)))

    def algorithms(self, host: Host) -> tuple[str, ...]:
        """Types of key to ask the host for first: those that are on file."""
        entries = next(filter(None, map(self._entries, _names(host))), ())
        return tuple(dict.fromkeys(entry.key.type for entry in entries))

    def is_revoked(self, key: HostKey) -> bool:
        """Whether nobody may show this key any more."""
        return key.blob in self._index.revoked

    def verify(self, host: Host, key: HostKey) -> None:
        """Accept the key or raise `HostKeyError`; writes a new one to the file under accept-new."""
        with self._lock:
            if revoked := self._index.revoked.get(key.blob):
                raise _revoked(revoked)
            self._decide(host, key)

    def _decide(self, host: Host, key: HostKey) -> None:
        names = _names(host)
        known, elsewhere = self._entries(names[0]), self._entries(names[-1])
        # As `check_host_key` of OpenSSH's sshconnect.c: the address alone counts where its port is not on file.
        if any(entry.key == key for entry in known or elsewhere):
            # From now on they are those of the port: it may not show another key in this run.
            self._found[names[0]] = known or elsewhere
            return
        if known:
            raise _changed(key, known, self._file)
        if authorities := tuple(entry for name in names for entry in self._index.authorities.find(name)):
            raise _of_authority(host, key, authorities[0])
        if self.checking is HostKeyChecking.STRICT:
            raise _unknown(host, key, self._file, elsewhere)
        if self._file is not None:
            _append(self._file, host, key)
        self._found[names[0]] = (Entry(key),)

    def _entries(self, name: str) -> tuple[Entry, ...]:
        if name not in self._found:
            self._found[name] = self._index.hosts.find(name)
        return self._found[name]


def _append(path: Path, host: Host, key: HostKey) -> None:
    line = f"{name_on_file(host)} {key.type} {base64.b64encode(key.blob).decode()}\n"
    try:
        with os.fdopen(open_output(path, os.O_RDWR | os.O_APPEND, make_folders=True), "a+b") as file:
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
    return (name_on_file(host),) if host.known_as else tuple(dict.fromkeys((name_on_file(host), host.address.lower())))


def _unknown(host: Host, shown: HostKey, file: Path | None, elsewhere: tuple[Entry, ...]) -> HostKeyError:
    """`elsewhere` are the keys that are on file for its address without the port."""
    other = f"; on file without its port is {_described(elsewhere)}" if elsewhere else ""
    place = _place(file)
    scan = f"ssh-keyscan -p {host.port} {host.address} >> {place}"
    return HostKeyError(
        f"its host key is unknown: {shown.type} {shown.fingerprint}{other}",
        hint=f"Compare and record the keys of all hosts: rollout known-hosts --out {place}; if that is its"
        f" fingerprint, this one alone: {scan}"
        + (" (or --host-key-checking accept-new)" if file else f"; then --known-hosts {_SOME_FILE}"),
    )


def _of_authority(host: Host, shown: HostKey, authority: Entry) -> HostKeyError:
    return HostKeyError(
        f"its host key is unknown: {shown.type} {shown.fingerprint}; what speaks for it is an authority"
        f" ({authority.place}), and rollout's own SSH follows none",
        hint="Have OpenSSH itself connect, which does: --executor ansible. Or record its key:"
        f" ssh-keyscan -p {host.port} {host.address}",
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
