"""Tables that fit the terminal's width without cutting off values."""

import re
from collections.abc import Sequence
from itertools import zip_longest
from textwrap import fill
from typing import NamedTuple

from msgspec import Struct

from rollout.model.text import NOTHING

_GAP = "  "
_HIGHEST_DROP_ORDER = 9
_LEAST_LIST_WIDTH = 20
_LEAST_NOTE_WIDTH = 32
_INDENT = "    "
_PROGRAMS = ("aws ", "az ", "gcloud ", "journalctl ", "kubectl ", "openstack ", "rollout ")
_MORE_TEXT = re.compile(r"[;,.] ")
# In a sentence, a command is in quotes, or ends at the next punctuation.
_COMMAND = re.compile(rf"`[^`]+`|(?<=: )(?:{'|'.join(_PROGRAMS)})(?:(?![;,.)](?: |$)).)+")
_NO_BREAK = "\N{NO-BREAK SPACE}"

Row = Sequence[str]


def wrap(text: str, width: int | None, hang: int = 2) -> str:
    """Wrap at `width` columns, but do not break commands.

    Continuation lines have at least `hang` columns of indent.
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
    split = _split_command(text)
    if split is None:
        return _fill_lines(text, width, indent, " " * max(hang, len(indent) + 2))
    sentence, command = split
    return f"{_wrap_line(indent + sentence, width, hang)}\n{_INDENT}{command}"


def _split_command(text: str) -> tuple[str, str] | None:
    lead, _, command = text.rpartition(": ")
    has_command = bool(lead) and is_command(command)
    if not has_command or _MORE_TEXT.search(command):
        return None
    before, bracket, after = lead.rpartition(" (")
    if bracket and command.endswith(")"):
        lead = f"{before}. {after}"
    return f"{lead}:", command.rstrip(".)")


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


class Column(NamedTuple):
    title: str
    # The lowest is left out first; 0 keeps the column.
    drop_order: int = 0
    right: bool = False
    wraps: bool = False
    # The last column, which may move below its row.
    note: bool = False


def table_text(
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int | None = None,
    *,
    elsewhere: str = "-o wide",
) -> str:
    """Below the table, name columns that do not fit; `elsewhere` shows them."""
    table = _Table.without_empty_columns(columns, rows, width)
    visible_indexes, widths = table.layout()
    titles = [column.title for column in table.columns]
    lines = table.row_lines(titles, visible_indexes, widths)
    for row in table.rows:
        lines += table.row_lines(row, visible_indexes, widths)
        last_cell = row[-1]
        if width and table.has_notes_below(visible_indexes) and last_cell != NOTHING:
            for line in last_cell.splitlines():
                lines.append(_fill_lines(line, width, _INDENT, _INDENT))
    omitted = [
        column.title
        for index, column in enumerate(table.columns)
        if index not in visible_indexes and not column.note
    ]
    if omitted:
        lines.append(f"({', '.join(omitted)}: {elsewhere})")
    return "\n".join(lines)


class _Table(Struct, frozen=True):
    """`indexes` are of visible columns."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    width: int | None

    @classmethod
    def without_empty_columns(
        cls, columns: Sequence[Column], rows: Sequence[Row], width: int | None
    ) -> "_Table":
        used = list[int]()
        for index in range(len(columns)):
            if not rows or any(row[index] for row in rows):
                used.append(index)
        used_cells = list[Row]()
        for row in rows:
            used_cells.append([row[index] for index in used])
        return cls([columns[index] for index in used], used_cells, width)

    def layout(self) -> tuple[Sequence[int], Sequence[int]]:
        """The note first moves below its row, then columns are left out by `drop_order`."""
        indexes = list(range(len(self.columns)))
        without_note = [index for index in indexes if not self.columns[index].note]
        layouts = [indexes, without_note]
        for drop_order in range(1, _HIGHEST_DROP_ORDER + 1):
            layouts.append(
                [index for index in layouts[-1] if self.columns[index].drop_order != drop_order]
            )
        for layout in layouts:
            widths = self._widths(layout)
            if self._excess_width(widths) <= 0:
                return layout, widths
        return layouts[-1], self._widths(layouts[-1])

    def has_notes_below(self, indexes: Sequence[int]) -> bool:
        last = len(self.columns) - 1
        return self.columns[last].note and last not in indexes

    def row_lines(self, row: Row, indexes: Sequence[int], widths: Sequence[int]) -> list[str]:
        cells = [
            _wrap_cell(row[index], width) for index, width in zip(indexes, widths, strict=True)
        ]
        lines = []
        for texts in zip_longest(*cells, fillvalue=""):
            padded = [
                text.rjust(width) if self.columns[index].right else text.ljust(width)
                for text, index, width in zip(texts, indexes, widths, strict=True)
            ]
            lines.append(_GAP.join(padded).rstrip())
        return lines

    def _excess_width(self, widths: Sequence[int]) -> int:
        if not self.width:
            return 0
        return sum(widths) + len(_GAP) * (len(widths) - 1) - self.width

    def _widths(self, indexes: Sequence[int]) -> list[int]:
        widths = [max(map(_line_width, self._texts(index))) for index in indexes]
        for position in reversed(range(len(indexes))):
            index = indexes[position]
            can_wrap = self.columns[index].wraps or self.columns[index].note
            excess = self._excess_width(widths)
            if excess > 0 and can_wrap:
                narrower = max(self._least_width(index), widths[position] - excess)
                widths[position] = min(widths[position], narrower)
        return widths

    def _least_width(self, index: int) -> int:
        least = _LEAST_NOTE_WIDTH if self.columns[index].note else _LEAST_LIST_WIDTH
        for text in self._texts(index):
            for word in text.split():
                least = max(least, len(word))
        return least

    def _texts(self, index: int) -> list[str]:
        return [self.columns[index].title, *(row[index] for row in self.rows)]


def _line_width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _wrap_cell(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines():
        lines += _fill_lines(line, width).splitlines()
    return lines
