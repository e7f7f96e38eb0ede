"""Parses an iCalendar file (RFC 5545, 3.1 and 3.4)."""

import codecs
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from msgspec import Struct, field

_PARAMETER_VALUE = r'(?:"[^"]*"|[^";:,]*)'
_PARAMETER = rf"[A-Za-z0-9-]+={_PARAMETER_VALUE}(?:,{_PARAMETER_VALUE})*"
_LINE = re.compile(
    rf"(?P<name>[A-Za-z0-9-]+)(?P<parameters>(?:;{_PARAMETER})*):(?P<value>.*)", re.DOTALL
)
_PARAMETERS = re.compile(rf";({_PARAMETER})")
_LONGEST_QUOTE = 60
_DEEPEST_NESTING = 10


TOO_LONG = (
    "it takes too long to read: it has too many events or time zones, or a rule that never matches"
)


class OutOfTimeError(BaseException):
    """All CPU time is used. Libraries may catch an `Exception`."""


class CalendarError(ValueError):
    """A calendar is invalid at this line."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")


class ContentLine(Struct, frozen=True):
    """A property, maybe folded over several lines."""

    number: int
    # In capitals, like parameters' names.
    name: str
    parameters: Mapping[str, str]
    value: str
    text: str

    def refuse(self, why: str) -> NoReturn:
        """Raise a `CalendarError` about this line."""
        quoted = self.text
        if len(quoted) > _LONGEST_QUOTE:
            quoted = f"{quoted[:_LONGEST_QUOTE]}…"
        raise CalendarError(self.number, f"{quoted!r}: {why}")


class Block(Struct, frozen=True):
    """A component."""

    name: str
    number: int
    lines: list[ContentLine] = field(default_factory=list)
    blocks: list["Block"] = field(default_factory=list)

    def all(self, name: str) -> Iterator[ContentLine]:
        """Yield the properties of this name."""
        return (line for line in self.lines if line.name == name)

    def one(self, name: str) -> ContentLine | None:
        """Return the property, or None; `CalendarError` for two."""
        lines = list(self.all(name))
        if len(lines) > 1:
            lines[1].refuse(f"this is the second {name} in one {self.name}")
        return lines[0] if lines else None

    def refuse(self, why: str) -> NoReturn:
        """Raise a `CalendarError` about this block."""
        raise CalendarError(self.number, f"{self.name}: {why}")

    @contextmanager
    def blamed_for_timeout(self) -> Iterator[None]:
        """Turn an `OutOfTimeError` into a `CalendarError`."""
        try:
            yield
        except OutOfTimeError:
            self.refuse(TOO_LONG)

    def text(self) -> str:
        """Return iCalendar text."""
        inner = (block.text() for block in self.blocks)
        lines = (f"{line.text}\r\n" for line in self.lines)
        return "".join((f"BEGIN:{self.name}\r\n", *lines, *inner, f"END:{self.name}\r\n"))


def read_calendar_block(content: bytes) -> Block:
    """Return the only VCALENDAR, or raise `CalendarError`."""
    root = Block("", 1)
    open_blocks = [root]
    for number, raw in _unfold_lines(content):
        line = _parse_line(number, raw)
        block = open_blocks[-1]
        if line.name == "BEGIN":
            if len(open_blocks) > _DEEPEST_NESTING:
                line.refuse("it is nested too deeply")
            inner = Block(line.value.strip().upper(), line.number)
            block.blocks.append(inner)
            open_blocks.append(inner)
        elif line.name == "END":
            if block is root or block.name != line.value.strip().upper():
                line.refuse(f"BEGIN and END do not match ({block.name or 'no BEGIN'})")
            open_blocks.pop()
        elif block is root:
            line.refuse("it is outside a VCALENDAR")
        else:
            block.lines.append(line)
    if open_blocks[-1] is not root:
        open_blocks[-1].refuse("it has no END, so the file is not complete")
    return _only_calendar(root.blocks)


def _only_calendar(blocks: list[Block]) -> Block:
    if not blocks:
        raise CalendarError(1, "there is no BEGIN:VCALENDAR")
    if blocks[0].name != "VCALENDAR":
        raise CalendarError(blocks[0].number, f"{blocks[0].name} is outside a VCALENDAR")
    if len(blocks) > 1:
        raise CalendarError(blocks[1].number, "the file has more than one calendar")
    return blocks[0]


def _unfold_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """A fold may split a character."""
    lines: list[tuple[int, list[bytes]]] = []
    for number, raw in enumerate(content.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        line = raw.removesuffix(b"\r")
        if line[:1] in (b" ", b"\t") and lines:
            lines[-1][1].append(line[1:])
        elif line:
            lines.append((number, [line]))
    for number, parts in lines:
        yield number, b"".join(parts)


def _parse_line(number: int, raw: bytes) -> ContentLine:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise CalendarError(number, "it is not valid UTF-8") from error
    match = _LINE.fullmatch(text)
    if match is None:
        invalid = ContentLine(number=number, name="", parameters={}, value="", text=text)
        invalid.refuse("it is not an iCalendar line (NAME:VALUE)")
    parameters = dict[str, str]()
    for written in _PARAMETERS.findall(match["parameters"]):
        name, _, value = written.partition("=")
        if name.upper() in parameters:
            raise CalendarError(number, f"{name} is specified twice")
        parameters[name.upper()] = value.strip('"')
    return ContentLine(
        number=number,
        name=match["name"].upper(),
        parameters=parameters,
        value=match["value"],
        text=text,
    )
