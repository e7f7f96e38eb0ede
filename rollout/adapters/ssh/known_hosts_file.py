"""OpenSSH's known_hosts files as an index, by plain name, hashed name and pattern.

paramiko's own reader compares each new line with all before it, hashes every entry for each look-up, keeps
one key a type and host, and knows neither patterns nor markers: at hundreds of hosts it costs more than the
connections, and it would accept a revoked key. This one reads each file once.
"""

import base64
import hashlib
import hmac
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

from rollout.errors import InputError
from rollout.model.text import shell_word

_HASHED = "|1|"
_REVOKED = "@revoked"
_AUTHORITY = "@cert-authority"


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
class Entry:
    """A key and the line that it stands in; `place` is empty where no file has it."""

    key: HostKey
    place: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """Entries by the names of hosts."""

    _plain: defaultdict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    _others: list[tuple[Callable[[str], bool], Entry]] = field(default_factory=list)

    def add(self, names: str, entry: Entry) -> None:
        """Put it under the first field of its line."""
        if names.startswith(_HASHED):
            self._others.append((_hashed(names), entry))
        elif any(mark in names for mark in "*?!"):
            self._others.append((partial(matches, names), entry))
        else:
            for name in names.split(","):
                self._plain[name.lower()].append(entry)

    def find(self, name: str) -> tuple[Entry, ...]:
        """Every entry of this name, in lower case."""
        others = (entry for is_named, entry in self._others if is_named(name))
        return (*self._plain.get(name, ()), *others)


@dataclass(frozen=True, slots=True)
class Index:
    """All files together: hosts' keys, authorities' keys, and keys that nobody may show any more."""

    hosts: Names = field(default_factory=Names)
    authorities: Names = field(default_factory=Names)
    revoked: dict[bytes, Entry] = field(default_factory=dict)

    def read(self, file: Path, *, must_exist: bool) -> None:
        """Add a file; `InputError` where it cannot be read."""
        for number, line in enumerate(_text(file, must_exist=must_exist).splitlines(), 1):
            marker, names, key = _fields(line)
            if key is None:
                continue
            entry = Entry(key, f"{file}:{number}")
            if marker == _REVOKED:
                self.revoked[key.blob] = entry
            elif marker == _AUTHORITY:
                self.authorities.add(names, entry)
            elif not marker:
                self.hosts.add(names, entry)


def matches(patterns: str, name: str) -> bool:
    """Whether OpenSSH's pattern list names it: any match counts, unless a `!` pattern matches.

    `*` and `?` stand for something, everything else for itself, brackets too.
    """
    matching = [pattern for pattern in patterns.lower().split(",") if _glob(pattern.removeprefix("!")).fullmatch(name)]
    return bool(matching) and not any(pattern.startswith("!") for pattern in matching)


@lru_cache(maxsize=4096)
def _glob(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), re.DOTALL)


def vouches(text: str, *, by_authority: bool) -> bool:
    """Whether known_hosts of this content know any host, by its key or, where those count, by an authority's."""
    markers = ("", _AUTHORITY) if by_authority else ("",)
    return any(key is not None and marker in markers for marker, _, key in map(_fields, text.splitlines()))


def _text(file: Path, *, must_exist: bool) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        if not must_exist:
            return ""
        raise InputError(
            f"known hosts file {file}: no such file",
            hint=f"Name another with --known-hosts, or make it: rollout known-hosts --out {shell_word(str(file))}",
        ) from error
    except OSError as error:
        raise InputError(f"known hosts file {file}: {error.strerror}") from error


def _fields(line: str) -> tuple[str, str, HostKey | None]:
    """Marker, names and key; no key where a line is empty, a comment or damaged: it speaks for no host."""
    words = iter(line.split())
    first = next(words, "#")
    if first.startswith("#"):
        return "", "", None
    marker, names = (first, next(words, "")) if first.startswith("@") else ("", first)
    return marker, names, _key(words)


def parsed_key(line: str) -> HostKey | None:
    """Return the key of a line; None where it speaks for no host."""
    return _fields(line)[2]


def _key(words: Iterator[str]) -> HostKey | None:
    try:
        return HostKey(next(words), base64.b64decode(next(words), validate=True))
    except (StopIteration, ValueError):
        return None


def _hashed(names: str) -> Callable[[str], bool]:
    """Return what knows the name that was hashed; of a damaged line, none."""
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in names.removeprefix(_HASHED).split("|"))
    except ValueError:
        return lambda _: False
    return lambda name: hmac.digest(salt, name.encode(), "sha1") == digest
