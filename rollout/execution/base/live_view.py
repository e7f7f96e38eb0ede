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
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
# A watch that ends sooner counts as a failure.
_SHORTEST_WATCH = 1.0


@dataclass
class LiveView(Generic[T]):
    """The objects at a path, kept up to date by a thread.

    A new watch continues from the last version, or from another list if that version is too old.
    """

    cluster: PatientApi
    path: str
    query: Query
    # JSON is decoded into this type, which `project` converts.
    shape: type[Any]
    project: Callable[[Any], T]
    # For the first list.
    deadline: Deadline
    # Set at each change; its reader clears it.
    changed: threading.Event = field(default_factory=threading.Event)
    # If False, the view is empty until its thread has listed.
    lists_first: bool = True
    # By UID.
    _objects: dict[str, T] = field(default_factory=dict)
    # Of the last list or event; empty before the first.
    _version: str = ""
    _needs_list: bool = False
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _generation: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _stream: AbstractContextManager[Iterator[bytes]] | None = None

    def __enter__(self) -> Self:
        if self.lists_first:
            self.cluster.ask(self._read_list, self.deadline)
        else:
            self._needs_list = True
        threading.Thread(target=self._keep_watching, name="live-view", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._disconnect()

    def resync(self) -> None:
        """List again: a silent watch may have lost its API server."""
        self._needs_list = True
        self._disconnect()

    def _disconnect(self) -> None:
        if self._stream is not None:
            self._stream.__exit__(None, None, None)

    def items(self) -> tuple[T, ...]:
        with self._mutex:
            return tuple(self._objects.values())

    @property
    def generation(self) -> int:
        """The number of changes; 0 before the first list."""
        return self._generation

    def _read_list(self, api: ClusterApi) -> None:
        listing = read_list(api, self.path, self.shape, project=self.project, query=self.query)
        with self._mutex:
            self._objects = {item.uid: item for item in listing.items}
            self._version = listing.resource_version
            self._needs_list = False
            self._note_change()

    def _note_change(self) -> None:
        self._generation += 1
        self.changed.set()

    def _keep_watching(self) -> None:
        pause = _FIRST_PAUSE
        while not self._ended.is_set():
            has_lasted = self._list_and_watch()
            if has_lasted:
                pause = _FIRST_PAUSE
            else:
                self.cluster.clock.wait(self._ended, pause)
                pause = min(_LONGEST_PAUSE, pause * 2)

    def _list_and_watch(self) -> bool:
        """Return whether the watch lasted."""
        watch_began: float | None = None
        try:
            if self._needs_list:
                self._read_list(self.cluster.api)
            watch_began = time.monotonic()
            self._watch()
        except ApiGoneError:
            # The API server no longer knows the version to continue from.
            self._needs_list = True
        except ApiError as error:
            has_http_status = error.status != 0
            if has_http_status or not self._version:
                self._needs_list = True
            # Long watches usually break off.
            if has_http_status or not _has_lasted(watch_began):
                self.cluster.notice(error)
                return False
        return _has_lasted(watch_began)

    def _watch(self) -> None:
        query = {**self.query, "resourceVersion": self._version}
        stream = self.cluster.api.watch(self.path, query, seconds=_WATCH_SECONDS)
        self._stream = stream
        # Checked after the assignment, because an earlier exit did not disconnect the stream.
        if self._ended.is_set():
            return
        with stream as lines:
            # An open watch counts as a change: it shows that the API server is back.
            with self._mutex:
                self._note_change()
            for line in lines:
                if self._ended.is_set():
                    return
                self._apply_event(decode_watch_line(line, self.shape, self.project, self.path))

    def _apply_event(self, event: WatchEvent[T]) -> None:
        with self._mutex:
            self._version = event.resource_version or self._version
            if event.object is None:
                # A bookmark only has a new version.
                return
            if event.type is WatchEventType.DELETED:
                self._objects.pop(event.object.uid, None)
            else:
                self._objects[event.object.uid] = event.object
            self._note_change()


def _has_lasted(watch_began: float | None) -> bool:
    return watch_began is not None and time.monotonic() - watch_began >= _SHORTEST_WATCH


def watch_node_pods(
    cluster: PatientApi, node: str, deadline: Deadline, changed: threading.Event
) -> LiveView[Pod]:
    return LiveView(
        cluster=cluster,
        path=PODS,
        query=on_node(node),
        shape=wire.WirePod,
        project=pod_projection(),
        deadline=deadline,
        changed=changed,
    )


def watch_nodes(
    cluster: PatientApi, deadline: Deadline, query: Query | None = None, *, lists_first: bool = True
) -> LiveView[Node]:
    return LiveView(
        cluster=cluster,
        path=NODES,
        query=query or {},
        shape=wire.WireNode,
        project=decode.node,
        deadline=deadline,
        lists_first=lists_first,
    )


def watch_node(
    cluster: PatientApi, node: str, deadline: Deadline, *, lists_first: bool = True
) -> LiveView[Node]:
    """The view is empty once the Node is deleted."""
    return watch_nodes(
        cluster, deadline, {"fieldSelector": f"metadata.name={node}"}, lists_first=lists_first
    )
