"""Kubernetes Events on Nodes, written beside the work: nothing waits for them, and nothing fails by them.

One thread writes one Event after another. While the API server is away they wait, for a while; a server that refuses
them is asked no further, and that is told once. An Event that is told again is brought up to date and counted.
"""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

import msgspec

from rollout.errors import ApiConflictError, ApiError, ApiNotFoundError, RolloutError
from rollout.execution.base.deadline import is_passing
from rollout.gather.cluster.wire import decoder_of
from rollout.ports import Clock, ClusterApi

# Events of objects without a namespace stand in this one.
EVENTS = "/api/v1/namespaces/default/events"
COMPONENT = "node-rollout"
_LONGEST_MESSAGE = 1024
_LONGEST_NAME = 253
_MOST_WAITING = 2000
_PATIENCE = 900.0
_FIRST_PAUSE, _LONGEST_PAUSE, _LAST_PAUSE = 0.5, 10.0, 0.2


@dataclass(frozen=True, slots=True)
class NodeNote:
    """What is told of a Node. Notes of one `run` (its writer's if empty) and `about` are one Event."""

    node: str
    node_uid: str
    about: str
    reason: str
    message: str
    at: datetime
    since: datetime
    warning: bool = False
    run: str = ""


class _Written(msgspec.Struct):
    count: int | None = None


class EventWriter:
    """Writes the Events of one run. Enter it to begin; what is not written yet has `closing_seconds` at the end.

    `refused` hears, once, why Events cannot be written.
    """

    def __init__(
        self,
        api: ClusterApi,
        run: str,
        clock: Clock,
        *,
        closing_seconds: float = 0.0,
        refused: Callable[[RolloutError], None] | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._closing_seconds = closing_seconds
        self._run = run
        self._refused = refused
        self._waiting: queue.Queue[NodeNote | None] = queue.Queue(_MOST_WAITING)
        self._counts: dict[str, int] = {}
        self._leaving = threading.Event()
        self._last_moment = float("inf")
        # a thread that no exit waits for: it may be in a request that nobody answers
        self._writer = threading.Thread(target=self._write_all, name="events", daemon=True)

    def __enter__(self) -> Self:
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._last_moment = self._clock.monotonic() + self._closing_seconds
        self._leaving.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._writer.join(self._closing_seconds)

    def tell(self, note: NodeNote) -> None:
        """Have it written in the background; dropped where far too many wait already."""
        with suppress(queue.Full):
            self._waiting.put_nowait(note)

    def _write_all(self) -> None:
        while (note := self._waiting.get()) is not None:
            try:
                self._write_patiently(note)
            except RolloutError as error:
                if self._refused is not None:
                    self._refused(error)
                return

    def _write_patiently(self, note: NodeNote) -> None:
        """Try until the server takes it; given up after a while, or at the last moment. `ApiError` where refused."""
        end, pause = self._clock.monotonic() + _PATIENCE, _FIRST_PAUSE
        while True:
            try:
                self._write(note)
            except ApiError as error:
                if not is_passing(error):
                    raise
            else:
                return
            if self._clock.wait(self._leaving, pause):
                self._clock.sleep(_LAST_PAUSE)
            if self._clock.monotonic() > min(end, self._last_moment):
                return
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _write(self, note: NodeNote) -> None:
        name = self._name(note)
        if name not in self._counts:
            with suppress(ApiConflictError):
                self._api.create(EVENTS, {**self._identity(name, note), **_first(note)})
                self._counts[name] = 1
                return
            # An earlier process of this run has told it, or a lost answer of this one. An empty patch reads it: to get
            # Events would take one right more.
            self._counts[name] = _count(self._api.patch(f"{EVENTS}/{name}", {}))
        try:
            self._api.patch(f"{EVENTS}/{name}", {**_news(note), "count": self._counts[name] + 1})
            self._counts[name] += 1
        except ApiNotFoundError:
            # the server has let it expire
            del self._counts[name]
            self._api.create(EVENTS, {**self._identity(name, note), **_first(note)})

    def _name(self, note: NodeNote) -> str:
        """Return a name that is unique by its digest alone; a name that is too long for it to fit behind is cut."""
        digest = sha256(f"{note.run or self._run}/{note.about}".encode()).hexdigest()[:16]
        return f"{note.node[: _LONGEST_NAME - len(digest) - 1].rstrip('.-')}.{digest}"

    def _identity(self, name: str, note: NodeNote) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": note.node, "uid": note.node_uid},
            "reason": note.reason,
            "type": "Warning" if note.warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": note.run or self._run,
        }


def _first(note: NodeNote) -> dict[str, Any]:
    return {**_news(note), "firstTimestamp": _written(note.since), "count": 1}


def _news(note: NodeNote) -> dict[str, Any]:
    return {"message": note.message[:_LONGEST_MESSAGE], "lastTimestamp": _written(note.at)}


def _count(body: bytes) -> int:
    try:
        return decoder_of(_Written).decode(body).count or 1
    except msgspec.MsgspecError:
        return 1


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
