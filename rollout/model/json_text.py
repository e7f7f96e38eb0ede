"""JSON with terminal controls escaped."""

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
    """Return one line that is safe to show."""
    line = msgspec.json.encode(value, enc_hook=enc_hook)
    # msgspec has escaped ASCII's other controls.
    is_safe = line.isascii() and b"\x7f" not in line
    if is_safe:
        return line
    # Only strings have such characters.
    return _BEYOND_ASCII.sub(_escape, line.decode()).encode()


def json_document(value: object, enc_hook: _Hook = None) -> bytes:
    """Return an indented text and a line break."""
    return msgspec.json.format(json_line(value, enc_hook), indent=2) + b"\n"


def read_json(text: str, kind: type[T]) -> T | None:
    """Return the value, or None if invalid."""
    try:
        return msgspec.json.decode(text, type=kind)
    except DECODE_ERRORS:
        return None


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if not is_unsafe(character):
        return character
    if character == "\x7f":
        # `json.dumps` does not escape DEL.
        return "\\u007f"
    return json.dumps(character).strip('"')
