"""JSON as it goes to terminals and into files, the one place that writes it; and as marks on Nodes have it.

A terminal obeys more characters than JSON has escaped: those of C1 (U+009B begins a sequence as ESC
[ does), and those that turn the direction of text around. They stand in messages of hosts and
webhooks. As numbered escapes they mean the same to programs, and nothing to terminals.
"""

import json
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from rollout.model.text import is_unsafe

# What decoding raises where a text is no JSON or not of the wanted shape; RecursionError is for
# deep nesting.
NOT_READ = (msgspec.MsgspecError, UnicodeError, RecursionError)
_BEYOND_ASCII = re.compile("[\x7f-\U0010ffff]")
_Hook = Callable[[object], object] | None
T = TypeVar("T")


def json_line(value: object, enc_hook: _Hook = None) -> bytes:
    """One line, without its end. What is beyond ASCII stands within strings only, where it can be escaped."""
    written = msgspec.json.encode(value, enc_hook=enc_hook)
    if written.isascii() and b"\x7f" not in written:
        return written
    return _BEYOND_ASCII.sub(_escape, written.decode()).encode()


def json_document(value: object, enc_hook: _Hook = None) -> bytes:
    """Indented for people, ending in a newline."""
    return msgspec.json.format(json_line(value, enc_hook), indent=2) + b"\n"


def read_json(text: str, kind: type[T]) -> T | None:
    """Return what a mark on a Node says; None where it is no such thing."""
    try:
        return msgspec.json.decode(text, type=kind)
    except NOT_READ:
        return None


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if not is_unsafe(character):
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
