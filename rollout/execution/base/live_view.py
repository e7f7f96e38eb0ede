"""A live view of a few objects: one list, then one watch, in a thread of its own.

Outages are ridden out: the view keeps what it knew, takes a watch up where it broke, and lists
afresh only where the server answers that this cannot be. An object is gone when the server said so,
or when a fresh list lacks it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from rollout.errors import ApiError, ApiGoneError
from rollout.execution.base.deadline import Deadline, PatientApi
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.listing import WatchEvent, WatchEventType, decode_watch_line, read_list
from rollout.gather.cluster.snapshot import NODES, PODS, on_node, pod_projection
from rollout.model.cluster import Budget, Node, Pod
from rollout.ports import ClusterApi, Query

T = TypeVar("T", Node, Pod, Budget)

_WATCH_SECONDS = 600.0
# Whoever waits for what is seen here has a deadline: a server that is back is to be found soon.
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
# A watch that ends sooner was no watch: the next one is put off as after a failure.
_SHORTEST_WATCH = 1.0


@dataclass
class LiveView(Generic[T]):
    """The objects of a source as they are now. Enter it to begin, leave it to end.

    Without `waits` it does not wait for the first answer of the server: until then it is empty and
    `news` is 0. Outages are told by the cluster's own notice; `changed` is set whenever `items` has
    changed, for others to clear.
    """

    cluster: PatientApi
    path: str
    query: Query
    shape: type[Any]
    project: Callable[[Any], T]
    deadline: Deadline
    changed: threading.Event = field(default_factory=threading.Event)
    waits: bool = True
    _objects: dict[str, T] = field(default_factory=dict)
    _version: str = ""
    _stale: bool = False
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _generation: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _stream: AbstractContextManager[Iterator[bytes]] | None = None

    def __enter__(self) -> Self:
        if self.waits:
            self.cluster.ask(self._list, self.deadline)
        else:
            self._stale = True
        threading.Thread(target=self._follow, name="live-view", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._disconnect()

    def resync(self) -> None:
        """List afresh: for readers that have reason to doubt a watch that says nothing."""
        self._stale = True
        self._disconnect()

    def _disconnect(self) -> None:
        if self._stream is not None:
            self._stream.__exit__(None, None, None)

    def items(self) -> tuple[T, ...]:
        """Return what is there now, as far as the server has told."""
        with self._turn:
            return tuple(self._objects.values())

    @property
    def news(self) -> int:
        """A number that grows with all that is heard of the server."""
        return self._generation

    def _list(self, api: ClusterApi) -> None:
        listing = read_list(api, self.path, self.shape, self.project, self.query)
        with self._turn:
            self._objects = {item.uid: item for item in listing.items}
            self._version = listing.resource_version
            self._stale = False
            self._tell()

    def _tell(self) -> None:
        self._generation += 1
        self.changed.set()

    def _follow(self) -> None:
        pause = _FIRST_PAUSE
        while not self._ended.is_set() and not self.deadline.expired:
            if self._attempt():
                pause = _FIRST_PAUSE
            else:
                self.cluster.clock.wait(self._ended, pause)
                pause = min(_LONGEST_PAUSE, pause * 2)

    def _attempt(self) -> bool:
        """List where what is known is not to be relied on, then watch; whether that went well, and needs no pause."""
        began = float("inf")
        try:
            if self._stale:
                self._list(self.cluster.api)
            began = time.monotonic()
            self._watch()
        except ApiGoneError:
            self._stale = True
        except ApiError as error:
            self._stale |= bool(error.status) or not self._version
            if error.status or not _has_lasted(began):
                self.cluster.notice(error)
                return False
        return _has_lasted(began)

    def _watch(self) -> None:
        query = {**self.query, "resourceVersion": self._version}
        self._stream = stream = self.cluster.api.watch(self.path, query, seconds=_WATCH_SECONDS)
        if self._ended.is_set():
            return
        with stream as lines:
            with self._turn:
                self._tell()
            for line in lines:
                if self._ended.is_set():
                    return
                self._apply(decode_watch_line(line, self.shape, self.project, self.path))

    def _apply(self, event: WatchEvent[T]) -> None:
        with self._turn:
            self._version = event.resource_version or self._version
            if event.object is None:
                return
            if event.type is WatchEventType.DELETED:
                self._objects.pop(event.object.uid, None)
            else:
                self._objects[event.object.uid] = event.object
            self._tell()


def _has_lasted(began: float) -> bool:
    return time.monotonic() - began >= _SHORTEST_WATCH


def watch_node_pods(
    cluster: PatientApi, node: str, deadline: Deadline, changed: threading.Event
) -> LiveView[Pod]:
    """Return the pods bound to a node."""
    return LiveView(cluster, PODS, on_node(node), wire.WirePod, pod_projection(), deadline, changed)


def watch_nodes(
    cluster: PatientApi, deadline: Deadline, query: Query | None = None, *, waits: bool = True
) -> LiveView[Node]:
    """Return all Nodes, or those that a query selects."""
    return LiveView(
        cluster=cluster,
        path=NODES,
        query=query or {},
        shape=wire.WireNode,
        project=decode.node,
        deadline=deadline,
        waits=waits,
    )


def watch_node(
    cluster: PatientApi, node: str, deadline: Deadline, *, waits: bool = True
) -> LiveView[Node]:
    """One Node, or nothing once it is deleted."""
    return watch_nodes(cluster, deadline, {"fieldSelector": f"metadata.name={node}"}, waits=waits)
