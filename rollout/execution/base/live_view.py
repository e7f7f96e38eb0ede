"""A live view of a few objects: one list, then one watch, in a thread of its own.

Outages are ridden out: the view keeps what it knew, takes a watch up where it broke, and lists afresh only where the
server answers that this cannot be. An object is gone when the server said so, or when a fresh list lacks it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from rollout.errors import ApiError, ApiGoneError
from rollout.execution.base.deadline import Deadline, is_passing
from rollout.execution.base.patience import PatientApi
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import WatchEvent, WatchEventType, decode_watch_line, read_list
from rollout.gather.cluster.snapshot import NODES, PODS, on_node, pod_projection
from rollout.model.cluster import Node, Pod
from rollout.ports import ClusterApi, Query


class Identified(Protocol):
    """An object with an identity."""

    @property
    def uid(self) -> str:
        """Its UID."""
        ...


W = TypeVar("W")
T = TypeVar("T", bound=Identified)

_WATCH_SECONDS = 600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 15.0
# Whoever waits for what is seen here has a deadline: a server that is back is to be found soon. One that is not there
# costs nothing to look for; one that answers is asked more rarely.
_LONGEST_AWAY, _LONGEST_ANSWERED = 2.0, 10.0
# A watch that ends sooner was no watch: the next one is put off as after a failure.
_SHORTEST_WATCH = 1.0


@dataclass(frozen=True, slots=True)
class Source(Generic[W, T]):
    """What to look at: where, as which shape on the wire, and as which values."""

    path: str
    query: Query
    shape: type[W]
    project: Callable[[W], T]


class LiveView(Generic[T]):
    """The objects of a source as they are now. Enter it to begin, leave it to end.

    Outages are told by the cluster's own notice; `changed` hears, from the view's own thread, that `items` has changed.
    """

    def __init__(
        self,
        cluster: PatientApi,
        source: Source[Any, T],
        deadline: Deadline,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._source: Source[Any, T] = source
        self._deadline = deadline
        self._on_change = changed
        self._objects: dict[str, T] = {}
        self._version = ""
        self._stale = False
        self._listed_at = float("-inf")
        self._changed = threading.Condition()
        self._generation = 0
        self._seen = 0
        self._ended = threading.Event()
        self._stream: AbstractContextManager[Iterator[bytes]] | None = None
        self._thread = threading.Thread(target=self._follow, name="live-view", daemon=True)

    def __enter__(self) -> Self:
        self._cluster.ask(self._list, self._deadline)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._cut()

    def resync(self) -> None:
        """List afresh: for readers that have reason to doubt a watch that says nothing."""
        self._stale = True
        self._cut()

    def _cut(self) -> None:
        with self._changed:
            stream = self._stream
        if stream is not None:
            stream.__exit__(None, None, None)

    def items(self) -> tuple[T, ...]:
        """Return what is there now, as far as the server has told."""
        with self._changed:
            self._seen = self._generation
            return tuple(self._objects.values())

    @property
    def news(self) -> int:
        """A number that grows with all that is heard of the server."""
        with self._changed:
            return self._generation

    @property
    def age(self) -> float:
        """Real seconds since the last list was asked for: what is seen here is no older, whatever a watch does."""
        return time.monotonic() - self._listed_at

    def wait(self, seconds: float) -> bool:
        """Return when something changed since `items` was last read, or after `seconds`; whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._generation != self._seen, timeout=seconds)

    def _list(self, api: ClusterApi) -> None:
        began = time.monotonic()
        source = self._source
        listing = read_list(api, source.path, source.shape, source.project, source.query)
        with self._changed:
            self._listed_at = began
            self._objects = {item.uid: item for item in listing.items}
            self._version = listing.resource_version
            self._stale = False
            self._tell()

    def _tell(self) -> None:
        self._generation += 1
        self._changed.notify_all()
        if self._on_change is not None:
            self._on_change()

    def _follow(self) -> None:
        pause = _FIRST_PAUSE
        while not self._ended.is_set() and not self._deadline.expired:
            longest = self._attempt()
            if longest is None:
                pause = _FIRST_PAUSE
            elif longest:
                self._cluster.clock.wait(self._ended, pause)
                pause = min(longest, pause * 2)

    def _attempt(self) -> float | None:
        """List where what is known is not to be relied on, else watch.

        The longest pause, in seconds, that what happened asks for; none where all is well with the watch.
        """
        began, listing = time.monotonic(), self._stale
        try:
            if listing:
                self._list(self._cluster.api)
                return 0.0
            self._watch()
        except ApiGoneError:
            self._stale = True
        except ApiError as error:
            self._stale |= bool(error.status) or not self._version
            if not error.status and not listing and _lasted(began):
                return None
            self._cluster.notice(error)
            return _slowest(error)
        return None if _lasted(began) else _LONGEST_PAUSE

    def _watch(self) -> None:
        query = {**self._source.query, "resourceVersion": self._version}
        stream = self._cluster.api.watch(self._source.path, query, seconds=_WATCH_SECONDS)
        with self._changed:
            self._stream = stream
        if self._ended.is_set():
            return
        with stream as lines:
            with self._changed:
                self._tell()
            for line in lines:
                if self._ended.is_set():
                    return
                self._apply(decode_watch_line(line, self._source.shape, self._source.project, self._source.path))

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.error is not None:
            raise event.error
        with self._changed:
            self._version = event.resource_version or self._version
            if event.object is None:
                return
            if event.type is WatchEventType.DELETED:
                self._objects.pop(event.object.uid, None)
            else:
                self._objects[event.object.uid] = event.object
            self._tell()


def _lasted(began: float) -> bool:
    return time.monotonic() - began >= _SHORTEST_WATCH


def _slowest(error: ApiError) -> float:
    if error.status == 0:
        return _LONGEST_AWAY
    return _LONGEST_ANSWERED if is_passing(error) else _LONGEST_PAUSE


def watch_node_pods(
    cluster: PatientApi, node: str, deadline: Deadline, changed: Callable[[], None] | None = None
) -> LiveView[Pod]:
    """Return the pods bound to a node."""
    return LiveView(cluster, Source(PODS, on_node(node), wire.WirePod, pod_projection()), deadline, changed)


def watch_nodes(cluster: PatientApi, deadline: Deadline, query: Query | None = None) -> LiveView[Node]:
    """Return all Nodes, or those that a query selects."""
    return LiveView(cluster, Source(NODES, query or {}, wire.WireNode, decode.node), deadline)


def watch_node(cluster: PatientApi, node: str, deadline: Deadline) -> LiveView[Node]:
    """One Node, or nothing once it is deleted."""
    return watch_nodes(cluster, deadline, {"fieldSelector": f"metadata.name={node}"})
