"""Reads known_hosts files, and decides whether to accept a key.

paramiko's reader takes quadratic time, and ignores patterns and markers. Certificates are not
checked: a host that only an authority vouches for is unknown.
"""

import base64
import hashlib
import hmac
import os
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import hint_of
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
# A command with `--fingerprints FILE` follows.
INTERCEPTED_HINT = (
    "The connection may be intercepted. If the host was reinstalled, copy its key's fingerprint"
    " from its console, or from `ssh-keygen -l` on the host, to FILE. To record the key if it"
    " matches, run"
)
_UNKNOWN = "its host key is unknown"
_FILE_PLACEHOLDER = "FILE"
HASH_PREFIX = "|1|"
_REVOKED = "@revoked"
_AUTHORITY = "@cert-authority"
_FEWEST_WORDS = 3
_REGEX_OF_WILDCARD = {"*": ".*", "?": "."}


@dataclass(frozen=True, slots=True)
class HostKey:
    """A host's public key."""

    type: str
    blob: bytes
    # File and line; empty if the host sent it.
    place: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.type} {self.fingerprint}"

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"


@dataclass(frozen=True, slots=True)
class _KeysByName:
    # By normalized name.
    _plain: defaultdict[str, list[HostKey]] = field(default_factory=lambda: defaultdict(list))
    # For patterns and hashes.
    _matchers: list[tuple[Callable[[str], bool], HostKey]] = field(default_factory=list)

    def add(self, names: str, key: HostKey) -> None:
        if names.startswith(HASH_PREFIX):
            self._matchers.append((_hash_matcher(names), key))
        elif any(mark in names for mark in "*?!"):
            self._matchers.append((_pattern_matcher(names), key))
        else:
            for name in names.split(","):
                self._plain[normalize_known_host(name)].append(key)

    def find(self, name: str) -> tuple[HostKey, ...]:
        """Return all keys of a lower-case name."""
        # Hashes and patterns may have either spelling.
        normalized = normalize_known_host(name)
        keys = list(self._plain.get(normalized, ()))
        for matches, key in self._matchers:
            if matches(name) or (normalized != name and matches(normalized)):
                keys.append(key)
        return tuple(keys)


class KnownHosts:
    """Decides about hosts' keys, for many threads.

    New keys are appended to the operator's first file. Errors do not name the host.
    """

    def __init__(self, files: HostKeyFiles | None, checking: HostKeyChecking) -> None:
        """`files` None means OpenSSH's own.

        `InputError` if checking is strict, but none of the operator's files exists.
        """
        self.checking = checking
        sources = USUAL_FILES if files is None else files
        own = [Path(file).expanduser() for file in sources.own]
        system = [Path(file).expanduser() for file in sources.system]
        self._file = own[0] if own else None
        self._lock = threading.Lock()
        self._hosts = _KeysByName()
        self._authorities = _KeysByName()
        self._revoked: dict[bytes, HostKey] = {}
        # Cached, with keys accepted in this run: each hashed line costs a digest.
        self._keys_by_name: dict[str, tuple[HostKey, ...]] = {}
        names_own_files = files is not None and bool(own)
        # With accept-new, the first key creates it.
        needs_file = names_own_files and checking is HostKeyChecking.STRICT
        if needs_file and not any(file.exists() for file in (*own, *system)):
            raise InputError(
                f"known_hosts file {own[0]}: no such file",
                hint=f"Specify another with --known-hosts, or create it: {self._record_command}",
            )
        for file in (*own, *system):
            self._add_keys_of(file)

    def _add_keys_of(self, file: Path) -> None:
        for number, line in enumerate(read_known_hosts_text(file).split("\n"), 1):
            marker, names, key = parse_known_hosts_line(line)
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
        """Return the keys on file for address and port."""
        return self._keys(name_on_file(host))

    def key_types(self, host: Host) -> tuple[str, ...]:
        """Return the types on file, to ask for first."""
        for name in _names_to_try(host):
            keys = self._keys(name)
            if keys:
                return tuple(dict.fromkeys(key.type for key in keys))
        return ()

    def is_revoked(self, key: HostKey) -> bool:
        """Whether the key is `@revoked`."""
        return key.blob in self._revoked

    def verify(self, host: Host, key: HostKey) -> None:
        """Accept or raise `HostKeyError`; accept-new writes a new key."""
        with self._lock:
            self._accept_or_raise(host, key)

    def _accept_or_raise(self, host: Host, key: HostKey) -> None:
        revoked = self._revoked.get(key.blob)
        if revoked:
            raise _revoked_error(key, revoked)
        name = name_on_file(host)
        known = self._keys(name)
        known_without_port = self._keys(_name_without_port(host))
        # As in OpenSSH's `check_host_key` (sshconnect.c), the address alone counts only without an
        # entry for its port.
        acceptable = known or known_without_port
        if key in acceptable:
            # In this run, another key counts as changed.
            self._keys_by_name[name] = acceptable
            return
        if known:
            raise self._changed_error(key, known)
        for certified_name in _names_to_try(host):
            authorities = self._authorities.find(certified_name)
            if authorities:
                raise self._certified_error(key, authorities[0])
        if self.checking is HostKeyChecking.STRICT:
            raise self._unknown_error(key, known_without_port)
        if self._file is not None:
            _append_key(self._file, host, key)
        self._keys_by_name[name] = (key,)

    def _changed_error(self, key: HostKey, known: tuple[HostKey, ...]) -> HostKeyError:
        known_of_type = tuple(known_key for known_key in known if known_key.type == key.type)
        described = _describe_keys(known_of_type or known)
        summary = "its host key has changed"
        return HostKeyError(
            f"{summary}: the host presents {key}, but known_hosts has {described}",
            summary=summary,
            hint=f"{INTERCEPTED_HINT}: {self._record_command} --fingerprints FILE",
        )

    def _certified_error(self, key: HostKey, authority: HostKey) -> HostKeyError:
        return HostKeyError(
            f"{_UNKNOWN}: {key}; a certificate authority ({authority.place}) vouches for the host,"
            " but rollout's own SSH does not check certificates",
            summary=_UNKNOWN,
            hint=(
                "Use OpenSSH with --executor ansible, or record the host's key:"
                f" {self._record_command}"
            ),
        )

    def _unknown_error(self, key: HostKey, known_without_port: tuple[HostKey, ...]) -> HostKeyError:
        message = f"{_UNKNOWN}: {key}"
        if known_without_port:
            message += f"; known_hosts has {_describe_keys(known_without_port)} without its port"
        further_step = f"then --known-hosts {_FILE_PLACEHOLDER}"
        if self._file:
            further_step = "or --host-key-checking accept-new"
        return HostKeyError(
            message,
            summary=_UNKNOWN,
            hint=(
                f"Compare and record the keys of all hosts: {self._record_command}; {further_step}"
            ),
        )

    def _keys(self, name: str) -> tuple[HostKey, ...]:
        if name not in self._keys_by_name:
            self._keys_by_name[name] = self._hosts.find(name)
        return self._keys_by_name[name]

    @property
    def _record_command(self) -> str:
        file = shell_word(str(self._file)) if self._file else _FILE_PLACEHOLDER
        return f"rollout known-hosts --out {file}"


def _revoked_error(key: HostKey, revoked: HostKey) -> HostKeyError:
    summary = "its host key is revoked"
    hint = f"{revoked.place} marks it as @revoked. Give the host a new key."
    return HostKeyError(f"{summary}: {key}", hint=hint, summary=summary)


def _append_key(path: Path, host: Host, key: HostKey) -> None:
    line = f"{name_on_file(host)} {key.type} {base64.b64encode(key.blob).decode()}\n"
    try:
        with os.fdopen(open_output(path, os.O_RDWR | os.O_APPEND), "a+b") as file:
            file.seek(0)
            content = file.read()
            ends_within_line = content and not content.endswith(b"\n")
            if ends_within_line:
                file.write(b"\n")
            file.write(line.encode())
    except OSError as error:
        raise HostKeyError(
            f"its new host key cannot be written to {path}: {error.strerror}",
            hint="Specify a writable file with --known-hosts.",
        ) from error


def read_known_hosts(files: HostKeyFiles, checking: HostKeyChecking) -> KnownHosts:
    """Read files, or raise `HostKeyError`."""
    try:
        return KnownHosts(files, checking)
    except InputError as error:
        raise HostKeyError(error.message, hint=error.hint) from error


def name_on_file(host: Host) -> str:
    """Return the alias, or address and port."""
    if host.known_as:
        return host.known_as.lower()
    address = host.address.lower()
    return address if host.port == DEFAULT_SSH_PORT else f"[{address}]:{host.port}"


def _names_to_try(host: Host) -> tuple[str, ...]:
    return tuple(dict.fromkeys((name_on_file(host), _name_without_port(host))))


def _name_without_port(host: Host) -> str:
    return host.known_as.lower() or host.address.lower()


def _describe_keys(keys: tuple[HostKey, ...]) -> str:
    return ", ".join(f"{key} ({key.place or 'presented earlier in this run'})" for key in keys)


def _pattern_matcher(patterns: str) -> Callable[[str], bool]:
    all_patterns = patterns.lower().split(",")
    included = [pattern for pattern in all_patterns if not pattern.startswith("!")]
    excluded = [pattern.removeprefix("!") for pattern in all_patterns if pattern.startswith("!")]

    def matches(name: str) -> bool:
        return _matches_any(included, name) and not _matches_any(excluded, name)

    return matches


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return any(_compile_wildcards(pattern).fullmatch(name) for pattern in patterns)


@lru_cache(maxsize=4096)
def _compile_wildcards(pattern: str) -> re.Pattern[str]:
    regex = ""
    for character in pattern:
        regex += _REGEX_OF_WILDCARD.get(character) or re.escape(character)
    return re.compile(regex, re.DOTALL)


def has_host_key(text: str, *, by_authority: bool) -> bool:
    """Whether the text has a host's key; `by_authority`: or an authority's."""
    markers = ("", _AUTHORITY) if by_authority else ("",)
    for line in text.split("\n"):
        marker, _, key = parse_known_hosts_line(line)
        if key is not None and marker in markers:
            return True
    return False


def read_known_hosts_text(file: Path) -> str:
    """Return the text, or empty; `surrogateescape` restores its bytes.

    Raises `InputError`.
    """
    try:
        return read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS).decode(
            "ascii", errors="surrogateescape"
        )
    except FileNotFoundError:
        return ""
    except OSError as error:
        message = f"cannot read {file}: {error.strerror}"
        raise InputError(message, hint=hint_of(error)) from error


class KnownHostsLine(NamedTuple):
    """The fields of a known_hosts line."""

    # Such as `@revoked`, or empty.
    marker: str
    # Or patterns, or a hash.
    names: str
    # None for an empty or damaged line, or comment.
    key: HostKey | None

    def is_for(self, name: str) -> bool:
        """Whether it has a key for this lower-case name."""
        if self.key is None:
            return False
        keys = _KeysByName()
        keys.add(self.names, self.key)
        return bool(keys.find(name))


def parse_known_hosts_line(line: str) -> KnownHostsLine:
    """Parse `@revoked * ssh-ed25519 AAAA… comment`."""
    words = line.split()
    has_marker = line.lstrip().startswith("@")
    marker = words.pop(0) if has_marker else ""
    is_comment = line.lstrip().startswith("#")
    if is_comment or len(words) < _FEWEST_WORDS:
        return KnownHostsLine(marker, names="", key=None)
    names, key_type, encoded_key, *_ = words
    try:
        # JSON has no surrogates.
        key_type = key_type.encode("ascii", errors="replace").decode()
        key = HostKey(key_type, base64.b64decode(encoded_key, validate=True))
    except ValueError:
        return KnownHostsLine(marker, names, key=None)
    return KnownHostsLine(marker, names, key)


def _hash_matcher(hashed_name: str) -> Callable[[str], bool]:
    """Match the name behind `|1|SALT|HMAC`. A damaged hash has none."""
    try:
        parts = hashed_name.removeprefix(HASH_PREFIX).split("|")
        salt, digest = (base64.b64decode(part, validate=True) for part in parts)
    except ValueError:
        return lambda _: False
    return lambda name: hmac.digest(salt, name.encode(), "sha1") == digest
