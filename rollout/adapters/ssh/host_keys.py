"""The keys that hosts show, for a known_hosts file: scanned, held against what confirms them, written down.

A scan trusts nobody: a key that it sees is the host's only if something else says so. That is a
file that has it already, or the fingerprint, which a host prints on its console.
"""

import base64
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rollout.adapters.ssh.connection import connected
from rollout.adapters.ssh.known_hosts import HostKey, KnownHosts, line_fields, name_on_file, text_of
from rollout.errors import InputError, SshError
from rollout.gather.hosts.polling import side_by_side
from rollout.model.addresses import normalize_known_host
from rollout.model.host import Host, HostKeyChecking, HostKeyFiles

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


# By Node; those under the empty name confirm any.
Fingerprints = Mapping[str, frozenset[str]]


class KeyState(StrEnum):
    """How a host's key stands to the file."""

    KNOWN = "known"
    NEW = "new"
    CHANGED = "changed"
    REVOKED = "revoked"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class ScannedHost:
    """A Node's host, and the key that it showed: None where it did not answer, for the reason in `error`.

    `before` are the keys that the file has for it.
    """

    node: str
    host: Host
    standing: KeyState
    key: HostKey | None = None
    confirmed_by: str = ""
    before: tuple[HostKey, ...] = ()
    error: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether it is written without anybody's word: it is new or changed, and confirmed."""
        return self.standing in (KeyState.NEW, KeyState.CHANGED) and bool(self.confirmed_by)


def scan(
    hosts: Mapping[str, Host],
    file: Path | None,
    fingerprints: Fingerprints,
    *,
    timeout: float,
    concurrency: int,
) -> tuple[ScannedHost, ...]:
    """Ask each host, by Node, for its key; in that order. `InputError` where the file cannot be read."""
    known = KnownHosts(HostKeyFiles((str(file),) if file else ()), HostKeyChecking.ACCEPT_NEW)
    answers = dict(
        side_by_side(hosts, lambda host: _shown(host, known, timeout), concurrency=concurrency)
    )
    return tuple(
        _judged(node, host, answers[node], known, fingerprints) for node, host in hosts.items()
    )


def _shown(host: Host, known: KnownHosts, timeout: float) -> HostKey:
    """Return what the host shows, asked first for what the file can decide on."""
    with connected(host, time.monotonic() + timeout) as connection:
        return connection.handshake(known.algorithms(host))


def _judged(
    node: str, host: Host, shown: HostKey | SshError, known: KnownHosts, fingerprints: Fingerprints
) -> ScannedHost:
    before = known.keys(host)
    if isinstance(shown, SshError):
        return ScannedHost(node, host, KeyState.UNREACHABLE, before=before, error=shown.message)
    if known.is_revoked(shown):
        return ScannedHost(node, host, KeyState.REVOKED, shown, before=before)
    standing = KeyState.KNOWN if shown in before else KeyState.CHANGED if before else KeyState.NEW
    listed = fingerprints.get(node, frozenset()) | fingerprints.get("", frozenset())
    confirmed_by = "fingerprint" if shown.fingerprint in listed else ""
    return ScannedHost(node, host, standing, shown, confirmed_by, before)


def written(before: str, taken: Sequence[ScannedHost]) -> str:
    """Write the taken keys in: in place of a host's other ones, or at the end."""
    lines = before.splitlines()
    for entry in taken:
        if entry.standing is KeyState.CHANGED:
            lines = [line for line in (_without(line, entry) for line in lines) if line is not None]
    lines += [
        f"{name_on_file(entry.host)} {entry.key.type} {base64.b64encode(entry.key.blob).decode()}"
        for entry in taken
        if entry.key
    ]
    return "".join(f"{line}\n" for line in lines)


def _without(line: str, entry: ScannedHost) -> str | None:
    """Return a line of the file without this host's old key; None where nothing is left of it. Marked ones stay."""
    marker, names, key = line_fields(line)
    if key is None or key not in entry.before or marker:
        return line
    own = name_on_file(entry.host)
    others = [
        name for name in names.split(",") if normalize_known_host(name) != normalize_known_host(own)
    ]
    return (
        line.replace(names, ",".join(others), 1) if others and not names.startswith("|1|") else None
    )


def read_fingerprints(place: Path, nodes: Iterable[str]) -> Fingerprints:
    """Read the fingerprints in a file, or in a folder's files named after Nodes; `InputError` where there is none."""
    if place.is_dir():
        files = {node: [place / node, *sorted(place.glob(f"{node}.*"))] for node in nodes}
        listed = {
            node: "\n".join(text_of(file) for file in named if file.is_file())
            for node, named in files.items()
        }
    else:
        listed = {"": text_of(place)}
    fingerprints = {node: frozenset(_FINGERPRINT.findall(text)) for node, text in listed.items()}
    if not any(fingerprints.values()):
        raise InputError(
            f"{place} holds no fingerprint of a key",
            hint=(
                "A fingerprint is written SHA256:…, as hosts print it on their console and"
                " `ssh-keygen -l` does."
            ),
        )
    return fingerprints
