"""The API server with an ear to whether it answers: what is waited for in vain counts for all steps of a run."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TypeVar

from rollout.execution.base.patience import PatientApi, Silence
from rollout.ports import Clock, ClusterApi, Query

T = TypeVar("T")

STEPS = "steps"
# How long an answer is awaited once patience is at its end: a server that is back needs no more.
_HURRIED_SECONDS = 5.0


def patient_api(api: ClusterApi, clock: Clock, outage: Callable[[BaseException], None], seconds: float) -> PatientApi:
    """An API server for the steps of one run, with one patience of so many seconds for all of them."""
    silence = Silence(clock, seconds)
    return PatientApi(HeardApi(api, silence), clock, outage, seconds, silence)


class HeardApi:
    """A `ClusterApi` whose answers, and those that do not come, are counted in a `Silence`."""

    def __init__(self, api: ClusterApi, silence: Silence) -> None:
        self._api = api
        self._silence = silence

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._api.server

    def server_time(self) -> datetime | None:
        """The server's own clock."""
        return self._api.server_time()

    def within(self, seconds: float) -> ClusterApi:
        """The same server, hurried, and unheard."""
        return self._api.within(seconds)

    def get(self, path: str, query: Query | None = None) -> bytes:
        """Body of a GET."""
        return self._heard(lambda api: api.get(path, query))

    def pages(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """Bodies of a list, page by page."""
        with self._silence.heard(STEPS):
            yield from self._now.pages(path, query)

    def create(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Body of the answer to a POST."""
        return self._heard(lambda api: api.create(path, body, query))

    def replace(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Body of the answer to a PUT."""
        return self._heard(lambda api: api.replace(path, body, query))

    def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Body of the answer to a JSON merge patch."""
        return self._heard(lambda api: api.patch(path, body, query))

    def delete(self, path: str, body: object | None = None) -> bytes:
        """Body of the answer to a DELETE."""
        return self._heard(lambda api: api.delete(path, body))

    def watch(self, path: str, query: Query, *, seconds: float) -> AbstractContextManager[Iterator[bytes]]:
        """Lines of a watch; that it is opened is an answer."""
        return _HeardWatch(self._api.watch(path, query, seconds=seconds), self._silence)

    def _heard(self, request: Callable[[ClusterApi], T]) -> T:
        with self._silence.heard(STEPS):
            return request(self._now)

    @property
    def _now(self) -> ClusterApi:
        """The server, hurried once patience is at its end."""
        return self._api if self._silence.remaining else self._api.within(_HURRIED_SECONDS)


class _HeardWatch:
    def __init__(self, stream: AbstractContextManager[Iterator[bytes]], silence: Silence) -> None:
        self._stream = stream
        self._silence = silence

    def __enter__(self) -> Iterator[bytes]:
        with self._silence.heard(STEPS):
            return self._stream.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stream.__exit__(kind, error, trace)
