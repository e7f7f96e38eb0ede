"""Scans the keys of hosts, and writes confirmed ones to a known_hosts file.

A scan proves nothing. A fingerprint from the host's console confirms a key.
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
from rollout.model.host import Host, HostKeyChecking, HostKeyFiles, normalize_known_host

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")

# By Node. Fingerprints under the empty name confirm the key of any host.
Fingerprints = Mapping[str, frozenset[str]]


class KeyState(StrEnum):
    """How a host's key compares with the file."""

    KNOWN = "known"
    NEW = "new"
    CHANGED = "changed"
    REVOKED = "revoked"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class ScannedHost:
    """A Node's host with its key or an `error`. `before` are its keys on file."""

    node: str
    host: Host
    standing: KeyState
    key: HostKey | None = None
    confirmed_by: str = ""
    before: tuple[HostKey, ...] = ()
    error: str = ""

    @property
    def is_confirmed(self) -> bool:
        """Whether a fingerprint confirms a key that is not on file."""
        return self.standing in (KeyState.NEW, KeyState.CHANGED) and bool(self.confirmed_by)


def scan(
    hosts: Mapping[str, Host],
    file: Path | None,
    fingerprints: Fingerprints,
    *,
    timeout: float,
    concurrency: int,
) -> tuple[ScannedHost, ...]:
    """Return each host with its key, or raise `InputError`."""
    known = KnownHosts(HostKeyFiles((str(file),) if file else ()), HostKeyChecking.ACCEPT_NEW)

    def ask(host: Host) -> HostKey:
        with connected(host, time.monotonic() + timeout) as connection:
            return connection.handshake(known.algorithms(host))

    answers = dict(side_by_side(hosts, ask, concurrency=concurrency))
    return tuple(
        _compare(node, host, answers[node], known=known, fingerprints=fingerprints)
        for node, host in hosts.items()
    )


def _compare(
    node: str,
    host: Host,
    answer: HostKey | SshError,
    *,
    known: KnownHosts,
    fingerprints: Fingerprints,
) -> ScannedHost:
    before = known.keys(host)
    if isinstance(answer, SshError):
        return ScannedHost(node, host, KeyState.UNREACHABLE, before=before, error=answer.message)
    if known.is_revoked(answer):
        return ScannedHost(node, host, KeyState.REVOKED, answer, before=before)
    standing = KeyState.NEW
    if before:
        standing = KeyState.KNOWN if answer in before else KeyState.CHANGED
    confirming = fingerprints.get(node, frozenset()) | fingerprints.get("", frozenset())
    return ScannedHost(
        node=node,
        host=host,
        standing=standing,
        key=answer,
        confirmed_by="fingerprint" if answer.fingerprint in confirming else "",
        before=before,
    )


def with_keys(before: str, confirmed: Sequence[ScannedHost]) -> str:
    """Return the file's text with these keys instead of changed ones."""
    lines = before.splitlines()
    for entry in confirmed:
        if entry.standing is KeyState.CHANGED:
            remaining = [_without_old_key(line, entry) for line in lines]
            lines = [line for line in remaining if line is not None]
    for entry in confirmed:
        if entry.key:
            blob = base64.b64encode(entry.key.blob).decode()
            lines.append(f"{name_on_file(entry.host)} {entry.key.type} {blob}")
    return "".join(f"{line}\n" for line in lines)


def _without_old_key(line: str, entry: ScannedHost) -> str | None:
    """Return None if nothing is left. Lines with markers stay."""
    marker, names, key = line_fields(line)
    if key is None or key not in entry.before or marker:
        return line
    own = normalize_known_host(name_on_file(entry.host))
    others = [name for name in names.split(",") if normalize_known_host(name) != own]
    if not others or names.startswith("|1|"):
        return None
    return line.replace(names, ",".join(others), 1)


def read_fingerprints(place: Path, nodes: Iterable[str]) -> Fingerprints:
    """Read a file, or a folder's files, named after Nodes.

    `InputError` if there is no fingerprint at all.
    """
    texts: dict[str, str] = {}
    if place.is_dir():
        for node in nodes:
            files = [place / node, *sorted(place.glob(f"{node}.*"))]
            texts[node] = "\n".join(text_of(file) for file in files if file.is_file())
    else:
        texts[""] = text_of(place)
    fingerprints = {node: frozenset(_FINGERPRINT.findall(text)) for node, text in texts.items()}
    if not any(fingerprints.values()):
        raise InputError(
            f"{place} holds no fingerprint of a key",
            hint="Write SHA256:…, as hosts print it on their console and `ssh-keygen -l` does.",
        )
    return fingerprints
