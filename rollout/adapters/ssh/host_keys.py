"""Scans hosts' keys, and puts confirmed ones into known_hosts text.

A scan alone proves nothing; a fingerprint from the host's console does.
"""

import base64
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from rollout.adapters.ssh.connection import connected
from rollout.adapters.ssh.known_hosts import (
    HASH_PREFIX,
    HostKey,
    KnownHosts,
    name_on_file,
    parse_known_hosts_line,
    read_known_hosts_text,
)
from rollout.errors import InputError, SshError
from rollout.gather.hosts.polling import ask_in_threads
from rollout.model.host import (
    Host,
    HostKeyChecking,
    HostKeyFiles,
    KeyState,
    normalize_known_host,
)

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")

# By Node, or "" for any host.
Fingerprints = Mapping[str, frozenset[str]]
_ANY_HOST = ""


class ScannedHost(Struct, frozen=True):
    """The result of scanning a host's key."""

    node: str
    host: Host
    standing: KeyState
    # None if unreachable.
    key: HostKey | None = None
    confirmed_by: str = ""
    # The keys on file.
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
    """Ask hosts for keys; `InputError` for an unreadable file."""
    known = KnownHosts(HostKeyFiles((str(file),) if file else ()), HostKeyChecking.ACCEPT_NEW)

    def ask(host: Host) -> HostKey:
        with connected(host, time.monotonic() + timeout) as connection:
            return connection.handshake(known.key_types(host))

    answers = dict(ask_in_threads(hosts, ask, concurrency=concurrency))
    return tuple(
        _compare_with_file(node, host, answers[node], known=known, fingerprints=fingerprints)
        for node, host in hosts.items()
    )


def _compare_with_file(
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
    if answer in before:
        standing = KeyState.KNOWN
    elif before:
        standing = KeyState.CHANGED
    else:
        standing = KeyState.NEW
    fingerprints_of_node = fingerprints.get(node, frozenset())
    fingerprints_of_any = fingerprints.get(_ANY_HOST, frozenset())
    is_confirmed = answer.fingerprint in fingerprints_of_node | fingerprints_of_any
    return ScannedHost(
        node=node,
        host=host,
        standing=standing,
        key=answer,
        confirmed_by="fingerprint" if is_confirmed else "",
        before=before,
    )


def with_keys(text: str, confirmed: Sequence[ScannedHost]) -> str:
    """Add these keys to a file's text; remove the hosts' old ones."""
    lines = text.splitlines()
    for scanned in confirmed:
        if scanned.standing is KeyState.CHANGED:
            changed_lines = [_without_old_key(line, scanned) for line in lines]
            lines = [line for line in changed_lines if line is not None]
    for scanned in confirmed:
        if scanned.key:
            blob = base64.b64encode(scanned.key.blob).decode()
            lines.append(f"{name_on_file(scanned.host)} {scanned.key.type} {blob}")
    return "".join(f"{line}\n" for line in lines)


def _without_old_key(line: str, scanned: ScannedHost) -> str | None:
    """Remove the host's name from a line with its old key.

    None if no name remains. A line with a marker stays.
    """
    parsed = parse_known_hosts_line(line)
    own_name = name_on_file(scanned.host)
    has_old_key = parsed.key in scanned.before and parsed.is_for(own_name)
    if parsed.marker or not has_old_key:
        return line
    is_for_this_host_only = parsed.names.startswith(HASH_PREFIX)
    if is_for_this_host_only:
        return None
    own_spelling = normalize_known_host(own_name)
    names = parsed.names.split(",")
    remaining_names = [name for name in names if normalize_known_host(name) != own_spelling]
    if not remaining_names:
        return None
    pattern_matches = parsed._replace(names=",".join(remaining_names)).is_for(own_name)
    if pattern_matches:
        # Other hosts may need the pattern.
        remaining_names += [f"!{spelling}" for spelling in dict.fromkeys((own_name, own_spelling))]
    return line.replace(parsed.names, ",".join(remaining_names), 1)


def read_fingerprints(path: Path, nodes: Iterable[str]) -> Fingerprints:
    """Read a file, or a folder's files named after Nodes.

    `InputError` without any fingerprint.
    """
    texts: dict[str, str] = {}
    if path.is_dir():
        for node in nodes:
            files = [path / node, *sorted(path.glob(f"{node}.*"))]
            texts[node] = "\n".join(read_known_hosts_text(file) for file in files if file.is_file())
    else:
        texts[_ANY_HOST] = read_known_hosts_text(path)
    fingerprints = {node: frozenset(_FINGERPRINT.findall(text)) for node, text in texts.items()}
    if not any(fingerprints.values()):
        raise InputError(
            f"{path} contains no key fingerprints",
            hint="Write them as SHA256:…, as hosts and `ssh-keygen -l` print them.",
        )
    return fingerprints
