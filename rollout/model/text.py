"""Short texts, safe to show: foreign ones could move the cursor."""

import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TypeVar

# A terminal obeys these: controls, directions, line separators.
UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

Key = TypeVar("Key")
Value = TypeVar("Value")
_SPACES = str.maketrans({"\n": " ", "\r": " ", "\t": " "})
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|\x1b."
)
_SENTENCE_LIMIT = 160
_NAME_LIMIT = 120
NOTHING = "-"
# Importing `Source.UPDATE_ENGINE` takes too long.
_UPDATE_ENGINE = "update-engine"


def is_unsafe(character: str) -> bool:
    """Whether a terminal obeys the character."""
    return unicodedata.category(character) in UNSAFE_CATEGORIES


def printable(text: str) -> str:
    """Return one line, with controls escaped."""
    line = text.translate(_SPACES)
    if line.isascii() and line.isprintable():
        return line
    return "".join(_visible(character) for character in line)


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii") if is_unsafe(character) else character


def shell_word(text: str) -> str:
    """Quote a word; invisible characters need bash's `$'…'`."""
    is_visible = text == printable(text)
    if is_visible:
        return shlex.quote(text)
    quoted = "".join(_in_dollar_quotes(character) for character in text)
    return f"$'{quoted}'"


def _in_dollar_quotes(character: str) -> str:
    if is_unsafe(character):
        return "".join(f"\\x{octet:02x}" for octet in character.encode("utf-8", "surrogateescape"))
    return f"\\{character}" if character in "\\'" else character


def excerpt(text: str, limit: int = _SENTENCE_LIMIT) -> str:
    """Return one safe line of at most `limit` characters."""
    # Do not search megabytes.
    plain = _ESCAPE_SEQUENCE.sub("", text[: limit * 8])
    spaced = "".join(character if character.isprintable() else " " for character in plain)
    line = " ".join(spaced.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def name_excerpt(name: str) -> str:
    """Return a short, printable name."""
    line = printable(name[: _NAME_LIMIT + 1])
    return line if len(line) <= _NAME_LIMIT else line[: _NAME_LIMIT - 1] + "…"


def shortened(names: Sequence[str], most: int = 5, separator: str = ", ") -> str:
    """Return `a, b and 3 more`."""
    first = separator.join(printable(name) for name in names[:most])
    return joined(" ", first, _count_rest(names, most))


def listed(sentences: Sequence[str], most: int) -> str:
    """Return `a; b; and 3 more`."""
    return joined("; ", *sentences[:most], _count_rest(sentences, most))


def joined(separator: str, *parts: str) -> str:
    """Join parts that are not empty."""
    return separator.join(filter(None, parts))


def _count_rest(parts: Sequence[str], most: int) -> str:
    return f"and {len(parts) - most} more" if len(parts) > most else ""


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return values by key, in order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def or_dash(text: str) -> str:
    """Return printable text, or a dash."""
    return printable(text) or NOTHING


def version_change(running: str, staged: str, detected_by: Sequence[str] = ()) -> str:
    """Return `3975.2.0 → 4081.2.1` or `22.04 (reboot-required)`."""
    current = printable(running) or "?"
    # update_engine always has versions: a missing one is unknown.
    if detected_by and not staged and _UPDATE_ENGINE not in detected_by:
        return f"{current} ({', '.join(detected_by)})"
    return f"{current} → {printable(staged) or '?'}"


def counted(number: int, noun: str) -> str:
    """Return `1 node` or `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# ssh splits unquoted paths here.
_SEPARATORS = frozenset(" \t\"'\\")


def ssh_path(path: str, *, tokens: bool = True) -> str:
    """Return a path for ssh; `tokens`: it expands `%h`."""
    escaped = escape_quotes(path, tokens=tokens)
    return f'"{escaped}"' if _SEPARATORS.intersection(path) else escaped


def escape_quotes(path: str, *, tokens: bool = True) -> str:
    """Escape what ssh reads in quotes."""
    plain = path.replace("%", "%%") if tokens else path
    return plain.replace("\\", "\\\\").replace('"', '\\"')


_LONGEST_RUN = 63
_LONGEST_OBJECT = 253
_RUN = re.compile(r"[0-9a-z]+(?:-[0-9a-z]+)*")
_VERSION = re.compile(r"[0-9A-Za-z][-+.:_~0-9A-Za-z]{0,127}")
_VERSION_NUMBER = re.compile(r"\d{1,18}")
_NUMBER = re.compile(r"(\d+)")
_OBJECT = re.compile(r"[0-9a-z](?:[-.0-9a-z]*[0-9a-z])?")


def capitalize(text: str) -> str:
    """Start with a capital."""
    return text[:1].upper() + text[1:]


def version_numbers(version: str) -> list[int]:
    """Return numbers that compare similar versions."""
    return [int(number) for number in _VERSION_NUMBER.findall(version)]


def is_version(text: str) -> bool:
    """Whether it may be a version, safe in a command."""
    return _VERSION.fullmatch(text) is not None


def is_run_id(text: str) -> bool:
    """Whether it may be a run ID, never a path."""
    return len(text) <= _LONGEST_RUN and _RUN.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Whether the API server accepts the name."""
    return len(text) <= _LONGEST_OBJECT and ".." not in text and _OBJECT.fullmatch(text) is not None


NaturalKey = tuple[tuple[int, int, str], ...]


def natural_key(name: str) -> NaturalKey:
    """Sort worker-2 before worker-10."""
    # Numbers come before words.
    return tuple(
        (0, int(part), part) if part.isdigit() else (1, 0, part)
        for part in _NUMBER.split(name)
        if part
    )
