"""A cluster in memory: a `ClusterApi`, and the server behind it, without a socket, a thread or a process.

What it answers is computed by the lab's own endpoints, so that preconditions, budgets, pages and
versions are the same here and there; only the wire between is missing, and `test_fake_cluster.py`
holds the two to each other. Faults that are the wire's own (a server that hangs, is away, answers
with something else) are for a server with a wire.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import msgspec
from typing_extensions import override

from rollout.adapters.kube.answers import check_answer
from rollout.errors import ApiUnavailableError
from rollout.gather.cluster.failure import error_of_answer
from rollout.lab.api.endpoints import EndpointResponse
from rollout.lab.api.faults import ApiFault, FaultAnswer, stand_in
from rollout.lab.api.reads import Watch
from rollout.lab.api.representation import encode_body
from rollout.lab.api.requests import Call, RequestRecord, parse_target
from rollout.lab.api.server import ApiServer
from rollout.lab.api.statuses import StatusError
from rollout.lab.api.store import Change, Json, ObjectStore
from rollout.lab.clock import LabClock
from rollout.ports import Query
from tests.standalone_api import StandaloneApi

Result = TypeVar("Result")
MERGE = "application/merge-patch+json"
SUCCESS = range(200, 300)


class FakeServer(StandaloneApi):
    """The server's side: one that never listens, and what it knows."""

    def __init__(self, *, history: int = 50_000) -> None:
        clock = LabClock()
        server = ApiServer(ObjectStore(now=clock.now, history=history), clock, token="")
        super().__init__(server, cast("Any", None), kubeconfig=Path("/no/kubeconfig"), token="")
        self.turn = (
            threading.Condition()
        )  # one request, or one `call`, at a time; told of every change
        self.store.subscribe(self._announce)

    @override
    def call(self, function: Callable[[], Result]) -> Result:
        with self.turn:
            return function()

    @override
    def outage(self, seconds: float | None) -> None:
        raise NotImplementedError("there is no wire to be cut: mark the test `wire`")

    def later(self, seconds: float, function: Callable[..., object], *arguments: object) -> None:
        """Do it in a while, in real seconds, where `call` does it."""
        timer = threading.Timer(seconds, lambda: self.call(lambda: function(*arguments)))
        timer.daemon = True
        timer.start()

    def answer(self, method: str, call: Call) -> EndpointResponse | Watch:
        """Compute an answer, or strike with a fault; note down the request."""
        fault = self.call(lambda: self.server.faults.strike(call.target))
        if fault is not None and fault.answer is FaultAnswer.SLOW:
            time.sleep(fault.delay)
        answer = self.call(lambda: self._struck(fault, call))
        status = 200 if isinstance(answer, Watch) else answer.status if answer else 0
        self.call(lambda: self._note(method, call, status))
        if answer is None:
            raise ApiUnavailableError("the connection broke")
        return answer

    def _struck(self, fault: ApiFault | None, call: Call) -> EndpointResponse | Watch | None:
        """None where no response arrives."""
        if fault is None or fault.answer is FaultAnswer.SLOW:
            return self._computed(call)
        given = stand_in(fault)
        if given is not None:
            return given
        match fault.answer:
            case FaultAnswer.LOSE_ANSWER:
                self._computed(call)
                return None
            case FaultAnswer.DROP:
                return None
            case other:
                raise NotImplementedError(f"{other} is the wire's: mark the test `wire`")

    def _computed(self, call: Call) -> EndpointResponse | Watch:
        try:
            self.server.access.check("lab-admin", call.target)
            return self.server._endpoints.answer(call)
        except StatusError as refusal:
            return EndpointResponse(
                refusal.code, encode_body(refusal.body()), headers=refusal.headers
            )

    def _note(self, method: str, call: Call, status: int) -> None:
        body = call.payload.decode(errors="replace")
        record = RequestRecord(
            time.monotonic(), method, call.target, dict(call.query), status, body=body
        )
        self.server.requests.append(record)

    def _announce(self, _change: Change) -> None:
        with self.turn:
            self.turn.notify_all()


class FakeCluster:
    """A `ClusterApi` on it."""

    def __init__(self, behind: FakeServer) -> None:
        self._behind = behind

    @property
    def server(self) -> str:
        return "https://cluster.in.memory"

    def server_time(self) -> datetime | None:
        return self._behind.store.now()

    def within(self, seconds: float) -> "FakeCluster":
        return self

    def get(self, path: str, query: Query | None = None) -> bytes:
        return self._body("GET", path, query)

    def pages(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        asked = {"limit": "500", **(query or {})}
        token = ""
        while True:
            body = self._body("GET", path, {**asked, "continue": token} if token else asked)
            token = check_answer(body, "GET", path)
            yield body
            if not token:
                return

    def create(self, path: str, body: object, query: Query | None = None) -> bytes:
        return self._body("POST", path, query, body)

    def replace(self, path: str, body: object, query: Query | None = None) -> bytes:
        return self._body("PUT", path, query, body)

    def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
        return self._body("PATCH", path, query, body, MERGE)

    def delete(self, path: str, body: object | None = None) -> bytes:
        return self._body("DELETE", path, None, body)

    def watch(
        self, path: str, query: Query, *, seconds: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        timeout = str(max(1, round(seconds)))
        asked = {"allowWatchBookmarks": "true", **query, "watch": "true", "timeoutSeconds": timeout}
        return Lines(self._behind, lambda: self._asked("GET", path, asked))

    def _body(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object = None,
        kind: str = "application/json",
    ) -> bytes:
        answer = self._asked(method, path, query or {}, body, kind)
        assert isinstance(answer, EndpointResponse)
        return answer.payload

    def _asked(
        self,
        method: str,
        path: str,
        query: Query,
        body: object = None,
        kind: str = "application/json",
    ) -> EndpointResponse | Watch:
        payload = b"" if body is None else msgspec.json.encode(body)
        call = Call(
            parse_target(method, path, query),
            query,
            "application/json",
            kind if payload else "",
            payload,
        )
        answer = self._behind.answer(method, call)
        if isinstance(answer, EndpointResponse) and answer.status not in SUCCESS:
            wait = answer.headers.get("Retry-After", "")
            raise error_of_answer(
                answer.status, answer.payload, request=f"{method} {path}", retry_after=wait
            )
        return answer


class Lines:
    """A watch's lines until its time is over, or it is left, by whichever thread."""

    def __init__(self, behind: FakeServer, ask: Callable[[], EndpointResponse | Watch]) -> None:
        self._behind = behind
        self._ask = ask
        self._left = False
        self._events = list[Json]()

    def __enter__(self) -> Self:
        watch = self._ask()
        assert isinstance(watch, Watch)
        self._watch = watch
        store = self._behind.store
        with self._behind.turn:
            self._events += watch.initial_events(store)
            store.subscribe(self._observe)
        self._end = time.monotonic() + watch.timeout
        self._next_bookmark = watch.next_bookmark(time.monotonic(), self._end)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._behind.turn:
            self._left = True
            with suppress(ValueError):
                self._behind.store.unsubscribe(self._observe)
            self._behind.turn.notify_all()

    def _observe(self, change: Change) -> None:
        if change.resource is self._watch.target.resource:
            self._events += self._watch.events([change])

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        with self._behind.turn:
            while not self._left:
                if self._events:
                    return self._line(self._events.pop(0))
                now = time.monotonic()
                if now >= self._end:
                    self._left = True
                elif now >= self._next_bookmark:
                    self._next_bookmark = self._watch.next_bookmark(now, self._end)
                    return self._line(self._watch.bookmark(self._behind.store))
                else:
                    self._behind.turn.wait(min(self._next_bookmark, self._end) - now)
        raise StopIteration

    def _line(self, event: Json) -> bytes:
        if event["type"] == "ERROR":
            self._left = True  # nothing comes behind it
        return encode_body(event).rstrip(b"\n")
