"""Tables that fit their terminal, at any width.

Where a table is too wide, the padding of its headings goes first; then its note, the column that explains a row, moves
to a line of its own below it; then columns go, in the order that they state. For notes of a word the first of these
columns goes at once, and they stay in their rows. Nothing is ever cut off.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill

from tabulate import tabulate

from rollout.model.text import NOTHING

# tabulate's: between columns, and beside a heading
_GAP, _HEADING_PADDING = 2, 2
_LEAST_LIST, _LEAST_NOTE = 20, 32
# Of a note beside its row: a longer one has the whole width below it.
_MOST_LINES = 8
# Longer than the longest word of a reason.
_WORD = 17
_INDENT = "    "
# What a command to copy begins with.
_PROGRAMS = ("aws ", "az ", "gcloud ", "journalctl ", "kubectl ", "openstack ", "rollout ")
# A sentence that does not end with its command.
_GOES_ON = re.compile(r"[;,.] ")
# Commands within a sentence: in quotes, or up to the next mark of a sentence.
_WHOLE = re.compile(rf"`[^`]+`|(?<=: )(?:{'|'.join(_PROGRAMS)})(?:(?![;,.)](?: |$)).)+")
_NO_BREAK = "\N{NO-BREAK SPACE}"

Row = Sequence[str]


def wrapped(text: str, width: int | None, hang: int = 2) -> str:
    """Lines of text within `width` columns; what goes on below is indented, by `hang` at least.

    No command is broken: one at the end of a sentence stands on a line of its own, one in quotes stays in one piece.
    """
    return "\n".join(_wrapped_line(line, width, hang) for line in text.splitlines()) if width else text


def is_command(text: str) -> bool:
    """Whether it is to be copied: then it stands alone on its line, and is never broken."""
    return text.startswith(_PROGRAMS)


def _wrapped_line(line: str, width: int, hang: int) -> str:
    if len(line) <= width:
        return line
    words = line.lstrip(" ")
    begin = line[: len(line) - len(words)]
    lead, _, command = words.rpartition(": ")
    if lead and is_command(command) and not _GOES_ON.search(command):
        return f"{_wrapped_line(f'{begin}{_closed(lead, command)}:', width, hang)}\n{_INDENT}{command.rstrip('.)')}"
    return _filled(words, width, begin, " " * max(hang, len(begin) + 2))


def _filled(words: str, width: int, begin: str = "", further: str = "") -> str:
    """Lines that begin so, with no command broken."""
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


def _closed(lead: str, command: str) -> str:
    """What stands before a command, without the bracket that would be closed behind it."""
    before, bracket, after = lead.rpartition(" (")
    return f"{before}. {after}" if bracket and command.endswith(")") else lead


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    `leaves` is its turn among those that go where the room is short, from 1; with 0 it stays. What `wraps` is broken
    between words; a `note`, which is the last column, may go below its row instead.
    """

    title: str
    leaves: int = 0
    right: bool = False
    wraps: bool = False
    note: bool = False


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which columns stand side by side, by their places, and whether the headings are padded and the note is below."""

    kept: tuple[int, ...]
    padded: bool = False
    below: bool = False


def table_text(columns: Sequence[Column], rows: Sequence[Row], width: int | None = None) -> str:
    """The table within `width` columns (None: no limit), and last which columns had to go."""
    longest = _longest(rows, -1, "") if columns[-1].note else 0
    for layout in _layouts(columns, of_words=0 < longest <= _WORD):
        widths = _widths(columns, rows, layout, width)
        if widths is not None:
            break
    else:
        widths = [_longest(rows, place, columns[place].title) for place in layout.kept]
    text = _drawn(columns, rows, layout, widths, width)
    gone = [column.title for place, column in enumerate(columns) if place not in layout.kept and not column.note]
    return f"{text}\n({', '.join(gone)}: -o wide)" if gone else text


def _layouts(columns: Sequence[Column], *, of_words: bool) -> Iterator[_Layout]:
    """From the widest to the narrowest; `of_words` are the notes where none is longer."""
    places = tuple(range(len(columns)))
    yield _Layout(places, padded=True)
    yield _Layout(places)
    has_note = columns[-1].note
    kept = tuple(place for place in places if not columns[place].note)
    leaving = sorted((place for place in kept if columns[place].leaves), key=lambda place: columns[place].leaves)
    if of_words and leaving:
        yield _Layout(tuple(place for place in places if place != leaving[0]))
    if has_note:
        yield _Layout(kept, below=True)
    for number in range(1, len(leaving) + 1):
        gone = leaving[:number]
        yield _Layout(tuple(place for place in kept if place not in gone), below=has_note)


def _widths(columns: Sequence[Column], rows: Sequence[Row], layout: _Layout, width: int | None) -> list[int] | None:
    """The columns' widths in this layout; None where they do not fit."""
    padding = _HEADING_PADDING if layout.padded else 0
    natural = [_longest(rows, place, columns[place].title, padding) for place in layout.kept]
    gaps = _GAP * (len(natural) - 1)
    if width is None or sum(natural) + gaps <= width:
        return natural
    least = [_least(columns[place], rows, place, most) for place, most in zip(layout.kept, natural, strict=True)]
    spare = width - gaps - sum(least)
    if spare < 0:
        return None
    widths = _shared(least, natural, spare)
    is_beside = columns[layout.kept[-1]].note
    return None if is_beside and natural[-1] > widths[-1] * _MOST_LINES else widths


def _least(column: Column, rows: Sequence[Row], place: int, natural: int) -> int:
    """What a column needs: all of it, or room for its longest word and for lines that can be read."""
    if not (column.wraps or column.note):
        return natural
    longest_word = max((len(word) for row in rows for word in re.split(r"[ \n]", _whole(row[place]))), default=0)
    return min(natural, max(_LEAST_NOTE if column.note else _LEAST_LIST, longest_word))


def _shared(least: Sequence[int], natural: Sequence[int], spare: int) -> list[int]:
    """What is left over goes in equal parts to the columns that want more; no column gets more than it needs."""
    widths = list(least)
    while spare and (wanting := [place for place, most in enumerate(natural) if widths[place] < most]):
        part = max(1, spare // len(wanting))
        for place in wanting[:spare]:
            more = min(part, natural[place] - widths[place], spare)
            widths[place] += more
            spare -= more
    return widths


def _longest(rows: Sequence[Row], place: int, title: str, padding: int = 0) -> int:
    return max(len(title) + padding, *(len(line) for row in rows for line in row[place].splitlines() or ("",)), 0)


def _drawn(
    columns: Sequence[Column], rows: Sequence[Row], layout: _Layout, widths: Sequence[int], width: int | None
) -> str:
    titles = [columns[place].title for place in layout.kept]
    lines = [
        ["\n".join(_broken(row[place], limit)) for place, limit in zip(layout.kept, widths, strict=True)]
        for row in rows
    ]
    table = tabulate(
        lines if layout.padded else [titles, *lines],
        headers=titles if layout.padded else (),
        tablefmt="plain",
        disable_numparse=True,
        colalign=["right" if columns[place].right else "left" for place in layout.kept] if rows else None,
    )
    return _with_notes(table, lines, [row[-1] for row in rows], width) if layout.below else table


def _broken(text: str, limit: int) -> Iterator[str]:
    for line in text.splitlines():
        yield from [line] if len(line) <= limit else _filled(line, limit).splitlines()


def _with_notes(table: str, cells: Sequence[Row], notes: Sequence[str], width: int | None) -> str:
    """Each row's note below it."""
    heading, *rest = table.splitlines()
    lines, at = [heading], 0
    for row, note in zip(cells, notes, strict=True):
        height = max(1, *(len(cell.splitlines()) for cell in row))
        lines += rest[at : at + height]
        for line in note.splitlines() if note != NOTHING else ():
            lines.append(_filled(line, width or 80, _INDENT, _INDENT))
        at += height
    return "\n".join(lines)
