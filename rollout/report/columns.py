"""Tables that fit their terminal, at any width.

Where a table is too wide, its note, the column that explains a row, is broken first, then its
lists; then the note moves to lines of its own below its row; then columns go, in the order that
they state. Nothing is ever cut off.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import fill
from typing import NamedTuple

from rollout.model.text import NOTHING

_GAP = "  "
_LEAST_LIST = 20
_LEAST_NOTE = 32
_INDENT = "    "
# What a command to copy begins with.
_PROGRAMS = ("aws ", "az ", "gcloud ", "journalctl ", "kubectl ", "openstack ", "rollout ")
# A sentence that does not end with its command.
_GOES_ON = re.compile(r"[;,.] ")
# Commands within a sentence: in quotes, or up to the next mark of a sentence.
_WHOLE = re.compile(rf"`[^`]+`|(?<=: )(?:{'|'.join(_PROGRAMS)})(?:(?![;,.)](?: |$)).)+")
_NO_BREAK = "\N{NO-BREAK SPACE}"

Row = Sequence[str]


def wrap(text: str, width: int | None, hang: int = 2) -> str:
    """Break text into lines within `width` columns; what goes on below is indented, by `hang` at least.

    No command is broken: one that is indented stays as it is, one at the end of a sentence stands
    on a line of its own, one in quotes stays in one piece.
    """
    return "\n".join(_wrap_line(line, width, hang) for line in text.splitlines()) if width else text


def is_command(text: str) -> bool:
    """Whether it is to be copied: then it stands alone on its line, and is never broken."""
    return text.startswith(_PROGRAMS)


def _wrap_line(line: str, width: int, hang: int) -> str:
    words = line.lstrip(" ")
    begin = line[: len(line) - len(words)]
    if len(line) <= width or (begin and is_command(words)):
        return line
    lead, _, command = words.rpartition(": ")
    if lead and is_command(command) and not _GOES_ON.search(command):
        sentence = _wrap_line(f"{begin}{_without_open_bracket(lead, command)}:", width, hang)
        return f"{sentence}\n{_INDENT}{command.rstrip('.)')}"
    return _fill_lines(words, width, begin, " " * max(hang, len(begin) + 2))


def _fill_lines(words: str, width: int, begin: str = "", further: str = "") -> str:
    """Lines that begin so, with no command broken."""
    if len(begin) + len(words) <= width:
        return begin + words
    whole = _whole(words)
    lines = fill(
        whole,
        width,
        initial_indent=begin,
        subsequent_indent=further,
        break_on_hyphens=False,
        break_long_words=whole == words,
    )
    return lines.replace(_NO_BREAK, " ") if whole != words else lines


def _whole(text: str) -> str:
    return _WHOLE.sub(lambda command: command[0].replace(" ", _NO_BREAK), text)


def _without_open_bracket(lead: str, command: str) -> str:
    """Return what stands before a command, without the bracket that would be closed behind it."""
    before, bracket, after = lead.rpartition(" (")
    return f"{before}. {after}" if bracket and command.endswith(")") else lead


class Column(NamedTuple):
    """A column of a table.

    `leaves` is its turn among those that go where the room is short, from 1; with 0 it stays. What
    `wraps` is broken between words; a `note`, which is the last column, may go below its row
    instead.
    """

    title: str
    leaves: int = 0
    right: bool = False
    wraps: bool = False
    note: bool = False


def table_text(
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int | None = None,
    *,
    elsewhere: str = "-o wide",
) -> str:
    """Lay the table out within `width` columns (None: no limit), and last name the columns that had to go.

    A column in which nothing stands is left out. `elsewhere` says what shows those that had to go.
    """
    places = [place for place in range(len(columns)) if not rows or any(row[place] for row in rows)]
    columns = [columns[place] for place in places]
    rows = [[row[place] for place in places] for row in rows]
    shown, widths = _layout(columns, rows, width)
    lines = list(_lines(columns, shown, widths, [column.title for column in columns]))
    for row in rows:
        lines += _lines(columns, shown, widths, row)
        if len(columns) - 1 not in shown and columns[-1].note and row[-1] != NOTHING:
            lines += (
                _fill_lines(line, width or 80, _INDENT, _INDENT) for line in row[-1].splitlines()
            )
    gone = [
        column.title
        for place, column in enumerate(columns)
        if place not in shown and not column.note
    ]
    return "\n".join([*lines, *([f"({', '.join(gone)}: {elsewhere})"] if gone else [])])


def _layout(
    columns: Sequence[Column], rows: Sequence[Row], width: int | None
) -> tuple[Sequence[int], Sequence[int]]:
    """Which columns stand side by side, by their places, and how wide each is: the widest layout that fits."""
    shown = range(len(columns))
    layouts = [list(shown), [place for place in shown if not columns[place].note]]
    for turn in range(1, 10):
        layouts.append([place for place in layouts[-1] if columns[place].leaves != turn])
    widths = list[int]()
    for layout in layouts:
        widths = _widths(columns, rows, layout, width)
        if _excess(widths, width) <= 0:
            break
    return layout, widths


def _excess(widths: Sequence[int], width: int | None) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1) - width if width else 0


def _widths(
    columns: Sequence[Column], rows: Sequence[Row], shown: Sequence[int], width: int | None
) -> list[int]:
    """How wide each column is: what is too much for all is taken from the last one that can be broken."""
    texts = [[columns[place].title, *(row[place] for row in rows)] for place in shown]
    widths = [max(len(line) for text in column for line in text.split("\n")) for column in texts]
    for at, place in reversed(list(enumerate(shown))):
        excess = _excess(widths, width)
        if excess > 0 and (columns[place].wraps or columns[place].note):
            words = (word for text in texts[at] for word in _whole(text).split())
            least = max(_LEAST_NOTE if columns[place].note else _LEAST_LIST, *map(len, words))
            widths[at] = min(widths[at], max(least, widths[at] - excess))
    return widths


def _lines(
    columns: Sequence[Column], shown: Sequence[int], widths: Sequence[int], row: Row
) -> Iterator[str]:
    broken = [
        [part for line in row[place].splitlines() for part in _fill_lines(line, width).splitlines()]
        for place, width in zip(shown, widths, strict=True)
    ]
    forms = [
        f"{'>' if columns[place].right else '<'}{width}"
        for place, width in zip(shown, widths, strict=True)
    ]
    for line in zip_longest(*broken, fillvalue=""):
        yield _GAP.join(f"{part:{form}}" for part, form in zip(line, forms, strict=True)).rstrip()
