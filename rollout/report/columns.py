"""Tables that fit the terminal's width without cutting off values."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import fill
from typing import NamedTuple

from rollout.model.text import NOTHING

_GAP = "  "
_LAST_STEP = 9
_LEAST_LIST = 20
_LEAST_NOTE = 32
_INDENT = "    "
_PROGRAMS = ("aws ", "az ", "gcloud ", "journalctl ", "kubectl ", "openstack ", "rollout ")
_CONTINUES = re.compile(r"[;,.] ")
# A command is in quotes, or ends at the next punctuation.
_COMMAND = re.compile(rf"`[^`]+`|(?<=: )(?:{'|'.join(_PROGRAMS)})(?:(?![;,.)](?: |$)).)+")
_NO_BREAK = "\N{NO-BREAK SPACE}"

Row = Sequence[str]


def wrap(text: str, width: int | None, hang: int = 2) -> str:
    """Wrap each line at `width` columns; indent continuation lines by at least `hang`.

    Commands are not broken. A command that ends a sentence moves to its own line.
    """
    if not width:
        return text
    return "\n".join(_wrap_line(line, width, hang) for line in text.splitlines())


def is_command(text: str) -> bool:
    return text.startswith(_PROGRAMS)


def _wrap_line(line: str, width: int, hang: int) -> str:
    text = line.lstrip(" ")
    indent = line[: len(line) - len(text)]
    is_command_line = bool(indent) and is_command(text)
    if len(line) <= width or is_command_line:
        return line
    lead, _, command = text.rpartition(": ")
    ends_with_command = is_command(command) and not _CONTINUES.search(command)
    if lead and ends_with_command:
        sentence = f"{indent}{_without_open_bracket(lead, command)}:"
        return f"{_wrap_line(sentence, width, hang)}\n{_INDENT}{command.rstrip('.)')}"
    return _fill_lines(text, width, indent, " " * max(hang, len(indent) + 2))


def _fill_lines(text: str, width: int, first_indent: str = "", indent: str = "") -> str:
    if len(first_indent) + len(text) <= width:
        return first_indent + text
    unbroken = _join_commands(text)
    has_command = unbroken != text
    lines = fill(
        unbroken,
        width,
        initial_indent=first_indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=not has_command,
    )
    return lines.replace(_NO_BREAK, " ") if has_command else lines


def _join_commands(text: str) -> str:
    return _COMMAND.sub(lambda command: command[0].replace(" ", _NO_BREAK), text)


def _without_open_bracket(lead: str, command: str) -> str:
    before, bracket, after = lead.rpartition(" (")
    return f"{before}. {after}" if bracket and command.endswith(")") else lead


class Column(NamedTuple):
    """A column of a table.

    Columns are left out by ascending `drop_order`; 0 keeps a column. A `note` may move below its
    row, and must be the last column.
    """

    title: str
    drop_order: int = 0
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
    """The last line names the columns that do not fit; `elsewhere` says how to see them."""
    table = _Table.without_empty_columns(columns, rows, width)
    places, widths = table.layout()
    titles = [column.title for column in table.columns]
    lines = table.lines(titles, places, widths)
    for row in table.rows:
        lines += table.lines(row, places, widths)
        if not table.is_note_within(places) and row[-1] != NOTHING:
            for line in row[-1].splitlines():
                lines.append(_fill_lines(line, width or 80, _INDENT, _INDENT))
    omitted = [
        column.title
        for place, column in enumerate(table.columns)
        if place not in places and not column.note
    ]
    if omitted:
        lines.append(f"({', '.join(omitted)}: {elsewhere})")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Table:
    """Places are indexes of columns."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    width: int | None

    @classmethod
    def without_empty_columns(
        cls, columns: Sequence[Column], rows: Sequence[Row], width: int | None
    ) -> "_Table":
        used = list[int]()
        for place in range(len(columns)):
            if not rows or any(row[place] for row in rows):
                used.append(place)
        used_cells = list[Row]()
        for row in rows:
            used_cells.append([row[place] for place in used])
        return cls([columns[place] for place in used], used_cells, width)

    def layout(self) -> tuple[Sequence[int], Sequence[int]]:
        places = list(range(len(self.columns)))
        without_note = [place for place in places if not self.columns[place].note]
        layouts = [places, without_note]
        for step in range(1, _LAST_STEP + 1):
            layouts.append(
                [place for place in layouts[-1] if self.columns[place].drop_order != step]
            )
        for layout in layouts[:-1]:
            widths = self._widths(layout)
            if self._excess(widths) <= 0:
                return layout, widths
        return layouts[-1], self._widths(layouts[-1])

    def is_note_within(self, places: Sequence[int]) -> bool:
        """Return True also for a table without a note."""
        return len(self.columns) - 1 in places or not self.columns[-1].note

    def lines(self, row: Row, places: Sequence[int], widths: Sequence[int]) -> list[str]:
        cells = [_wrap(row[place], width) for place, width in zip(places, widths, strict=True)]
        lines = []
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [
                part.rjust(width) if self.columns[place].right else part.ljust(width)
                for part, place, width in zip(parts, places, widths, strict=True)
            ]
            lines.append(_GAP.join(padded).rstrip())
        return lines

    def _excess(self, widths: Sequence[int]) -> int:
        if not self.width:
            return 0
        return sum(widths) + len(_GAP) * (len(widths) - 1) - self.width

    def _widths(self, places: Sequence[int]) -> list[int]:
        widths = [max(map(_line_width, self._texts(place))) for place in places]
        for index in reversed(range(len(places))):
            excess = self._excess(widths)
            column = self.columns[places[index]]
            if excess > 0 and (column.wraps or column.note):
                narrower = max(self._least_width(places[index]), widths[index] - excess)
                widths[index] = min(widths[index], narrower)
        return widths

    def _least_width(self, place: int) -> int:
        least = _LEAST_NOTE if self.columns[place].note else _LEAST_LIST
        for text in self._texts(place):
            words = _join_commands(text).split()
            least = max(least, *map(len, words)) if words else least
        return least

    def _texts(self, place: int) -> list[str]:
        return [self.columns[place].title, *(row[place] for row in self.rows)]


def _line_width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _wrap(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines():
        lines += _fill_lines(line, width).splitlines()
    return lines
