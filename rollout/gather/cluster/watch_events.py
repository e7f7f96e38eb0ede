"""Lines of a watch as values."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar, cast

import msgspec

from rollout.errors import ApiError
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.failure import Status, status_failure
from rollout.model.cluster import Node, Pod

T = TypeVar("T", Node, Pod)


class WatchEventType(StrEnum):
    """What a line tells."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One line of a watch.

    `object` is None for a bookmark, which only moves `resource_version` on, and for an error. `error` is set
    for an ERROR only; an `ApiGoneError` there means: list afresh.
    """

    type: WatchEventType
    object: T | None
    resource_version: str
    error: ApiError | None = None


class _Line(msgspec.Struct, frozen=True, gc=False):
    type: WatchEventType
    object: msgspec.Raw


_DECODERS: dict[type[Any], Callable[[bytes, str], Any]] = {
    Node: lambda body, origin: decode.one(body, wire.WireNode, decode.node, origin),
    Pod: lambda body, origin: decode.one(body, wire.WirePod, partial(decode.pod, shared=decode.Shared()), origin),
}


def decode_watch_line(line: bytes, kind: type[T]) -> WatchEvent[T]:
    """Read one line of a watch over Nodes or pods; `ApiError` where it is garbled."""
    origin = f"a watch of {kind.__name__.lower()}s"
    read = decode.decode(line, _Line, origin)
    body = bytes(read.object)
    if read.type is WatchEventType.ERROR:
        error = status_failure(decode.decode(body, Status, origin))
        return WatchEvent(read.type, None, "", error)
    version = decode.decode(body, wire.Named, origin).metadata.resource_version or ""
    if read.type is WatchEventType.BOOKMARK:
        return WatchEvent(read.type, None, version)
    return WatchEvent(read.type, cast("T", _DECODERS[kind](body, origin)), version)
