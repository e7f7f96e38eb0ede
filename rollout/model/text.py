"""How foreign text, names and numbers are shown, quoted, sorted and grouped, and how long lists are cut short.

Node names are checked by the API server, but messages, versions and addresses are whatever a host
or a webhook wrote: printed as they are, they could move the cursor, rename the window or hide what
stands before them. Names that end up in file names, request paths and Events have to look as such
names do.
"""

import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TypeVar

UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Of characters that a terminal obeys instead of showing them: controls, directions, separators of lines."""

Key = TypeVar("Key")
Value = TypeVar("Value")
_SPACES = str.maketrans({"\n": " ", "\r": " ", "\t": " "})
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*["
    r" -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b."
)
_SENTENCE_LIMIT = 160
NOTHING = "-"
# of what may ask for a reboot the one that knows versions: see `detection`, which is too much to
# import for a text
_WITH_VERSIONS = "update-engine"


def is_unsafe(character: str) -> bool:
    """Whether a terminal obeys it instead of showing it."""
    return unicodedata.category(character) in UNSAFE_CATEGORIES


def printable(text: str) -> str:
    """One line that is safe to print: control and direction characters become visible escapes."""
    line = text.translate(_SPACES)
    if line.isascii() and line.isprintable():
        return line
    return "".join(_visible(character) for character in line)


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii") if is_unsafe(character) else character


def shell_word(text: str) -> str:
    """Return a name as a shell takes it, for a command that is to be copied: quoted where it must be.

    What no terminal shows stands as in bash's `$'…'`, octet by octet.
    """
    if text == printable(text):
        return shlex.quote(text)
    return f"$'{''.join(map(_in_dollar_quotes, text))}'"


def _in_dollar_quotes(character: str) -> str:
    if is_unsafe(character):
        return "".join(f"\\x{octet:02x}" for octet in character.encode("utf-8", "surrogateescape"))
    return f"\\{character}" if character in "\\'" else character


def excerpt(text: str, limit: int = _SENTENCE_LIMIT) -> str:
    """Return what a host or a tool said, as part of a message: one line of at most `limit` characters.

    It may be cut off, binary, or full of terminal escapes: these are left out, and so is whatever
    has no shape: more than `printable` makes visible, for here nobody wants to see each octet of
    junk.
    """
    # What is cut here could not be shown anyway; it keeps a megabyte of junk from being searched.
    shown = _ESCAPE_SEQUENCE.sub("", text[: limit * 8])
    shown = " ".join(
        "".join(character if character.isprintable() else " " for character in shown).split()
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def shortened(names: Sequence[str], most: int = 5, separator: str = ", ") -> str:
    """Names in a row, the rest of a long list as a number: `a, b and 3 more`."""
    shown = separator.join(map(printable, names[:most]))
    return joined(" ", shown, _rest(names, most))


def listed(sentences: Sequence[str], most: int) -> str:
    """Sentences in a row, the rest of a long list as a number: `a; b; and 3 more`."""
    return joined("; ", *sentences[:most], _rest(sentences, most))


def joined(separator: str, *parts: str) -> str:
    """Those of the parts that say something, in a row."""
    return separator.join(filter(None, parts))


def _rest(parts: Sequence[str], most: int) -> str:
    return f"and {len(parts) - most} more" if len(parts) > most else ""


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, all in the order in which they came."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def or_nothing(text: str) -> str:
    """Return the text made safe, or a dash where there is none."""
    return printable(text) or NOTHING


def version_step(running: str, staged: str, detected_by: Sequence[str] = ()) -> str:
    """`3975.2.0 → 4081.2.1`; a question mark stands for a version that nobody knows.

    Where what asks for the reboot has no versions, it stands there itself: `22.04
    (reboot-required)`.
    """
    if detected_by and not staged and _WITH_VERSIONS not in detected_by:
        return f"{printable(running) or '?'} ({', '.join(detected_by)})"
    return f"{printable(running) or '?'} → {printable(staged) or '?'}"


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_SPLIT_AT = frozenset(" \t\"'\\")


def ssh_path(path: str, *, tokens: bool = True) -> str:
    """Return a path as an option takes it: quoted where need be. `tokens` is whether the option knows `%h` and such."""
    written = escape_quotes(path, tokens=tokens)
    return f'"{written}"' if _SPLIT_AT.intersection(path) else written


def escape_quotes(path: str, *, tokens: bool = True) -> str:
    """Return the same as it stands between quotes."""
    plain = path.replace("%", "%%") if tokens else path
    return plain.replace("\\", "\\\\").replace('"', '\\"')


_LONGEST_RUN = 63
_LONGEST_OBJECT = 253
_RUN = re.compile(r"[0-9a-z]+(?:-[0-9a-z]+)*")
_VERSION = re.compile(r"[0-9A-Za-z][-+.:_~0-9A-Za-z]{0,127}")
_NUMBER = re.compile(r"(\d+)")
_OBJECT = re.compile(r"[0-9a-z](?:[-.0-9a-z]*[0-9a-z])?")


def is_version(text: str) -> bool:
    """Whether it can be the version of an operating system, and be part of a command that is shown."""
    return _VERSION.fullmatch(text) is not None


def is_run_id(text: str) -> bool:
    """Whether it can be the id of a rollout: lower-case letters, digits and single dashes, and never a path."""
    return len(text) <= _LONGEST_RUN and _RUN.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Whether the API server would take it for the name of a Node, a workload or a namespace: a DNS subdomain."""
    return len(text) <= _LONGEST_OBJECT and ".." not in text and _OBJECT.fullmatch(text) is not None


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key in the order that people expect, runs of digits as numbers: worker-2 before worker-10."""
    return tuple(
        (0, int(part), part) if part.isdigit() else (1, 0, part)
        for part in _NUMBER.split(name)
        if part
    )
