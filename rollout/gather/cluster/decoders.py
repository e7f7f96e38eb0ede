"""Decoders of typed JSON, each made by one thread alone.

What msgspec needs to know of a struct it finds out when it first meets it, and keeps with the struct, half-finished
until it is done: another thread that decodes the same struct meanwhile crashes the whole process. Several lists are
read side by side as the first thing a command does, and so a decoder is made in turn, and used once it is complete.
"""

import threading
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_TURN = threading.Lock()


def decoder_of(shape: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of a shape; safe to use from many threads at once."""
    with _TURN:
        decoder: msgspec.json.Decoder[T] = _made(shape)  # type: ignore[arg-type]
    return decoder


@cache
def _made(shape: Hashable) -> Any:
    return msgspec.json.Decoder(shape)
