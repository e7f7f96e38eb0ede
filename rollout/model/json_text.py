"""JSON for terminals, files and annotations, with terminal controls escaped."""

import json
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from rollout.model.text import is_unsafe

# Deep nesting is a RecursionError.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_BEYOND_ASCII = re.compile("[^\x00-\x7e]")
_Hook = Callable[[object], object] | None
T = TypeVar("T")


def json_line(value: object, enc_hook: _Hook = None) -> bytes:
    """Return the value in one line, without a line break or a character that is unsafe to show."""
    line = msgspec.json.encode(value, enc_hook=enc_hook)
    # msgspec has escaped all control characters of ASCII but DEL.
    is_safe = line.isascii() and b"\x7f" not in line
    if is_safe:
        return line
    # In JSON, characters beyond ASCII occur only in strings.
    return _BEYOND_ASCII.sub(_escape, line.decode()).encode()


def json_document(value: object, enc_hook: _Hook = None) -> bytes:
    """Return the value indented, with a final line break."""
    return msgspec.json.format(json_line(value, enc_hook), indent=2) + b"\n"


def read_json(text: str, kind: type[T]) -> T | None:
    """Return the value of this kind in the text, or None."""
    try:
        return msgspec.json.decode(text, type=kind)
    except DECODE_ERRORS:
        return None


def _escape(match: re.Match[str]) -> str:
    """Return the matched character, as a JSON escape if it is unsafe to show."""
    character = match[0]
    if not is_unsafe(character):
        return character
    if character == "\x7f":
        # `json.dumps` does not escape DEL.
        return "\\u007f"
    return json.dumps(character).strip('"')
