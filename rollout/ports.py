"""What the stages need from the world. Adapters implement these; nothing below `cli` knows which ones.

Every implementation is safe to call from many threads at once.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from rollout.errors import SshError
from rollout.model.host import Host
from rollout.model.progress import StepEvent

Query = Mapping[str, str]


class ClusterApi(Protocol):
    """A Kubernetes API server, as raw JSON over paths such as `/api/v1/nodes`.

    Every method raises `ApiError` or one of its subclasses, never an exception of a client library.
    A body that is given back is whole JSON of the kind that was asked for; any other is
    `ApiUnavailableError`, like an answer 502.
    """

    @property
    def server(self) -> str:
        """Address of the API server."""
        ...

    def server_time(self) -> datetime | None:
        """Return the server's own clock, UTC, never early and late by seconds at most; None before it has told it.

        What the server has stamped is held against this one, never against ours.
        """
        ...

    def within(self, seconds: float) -> "ClusterApi":
        """Return the same server, by the same login; each of its answers is awaited for that long and no longer."""
        ...

    def get(self, path: str, query: Query | None = None) -> bytes:
        """Body of a GET."""
        ...

    def pages(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """Bodies of a list, page by page: `limit` objects each (default 500; 0: all in one).

        `ApiGoneError` between two pages means that the continue token expired; what came before it
        is then not to be used.
        """
        ...

    def create(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Body of the answer to a POST of `body` as JSON."""
        ...

    def replace(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Body of the answer to a PUT."""
        ...

    def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Body of the answer to a JSON merge patch."""
        ...

    def delete(self, path: str, body: object | None = None) -> bytes:
        """Body of the answer to a DELETE with `body` as its DeleteOptions."""
        ...

    def watch(
        self, path: str, query: Query, *, seconds: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Lines of a watch that the server ends after `seconds`; leaving the context ends it at once."""
        ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command printed. `exit_status` is None where the connection ended before the host told it."""

    exit_status: int | None
    stdout: str
    stderr: str


class HostShell(Protocol):
    """Runs constant commands on one host at a time. Raises `SshError` or one of its subclasses."""

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Connect, run `command`, and disconnect, all within `timeout` seconds."""
        ...

    def run_if(
        self,
        host: Host,
        question: str,
        agreed: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        """Run `question` and, where `agreed` says so of its answer, `command`; else None.

        The answer has to name the host's boot. The command reaches the very boot that has answered,
        or nothing.
        """
        ...


class HostExecutor(HostShell, Protocol):
    """The host side of a rollout, over whatever carries commands to hosts.

    What to ask, when, and what an answer means is decided above, in one place for every
    implementation.
    """

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, CommandResult | SshError]]:
        """Run `command` on every host, at most `concurrency` at once: each one's answer or failure, as they come.

        Closing the generator ends it: no further host is asked.
        """
        ...

    def attending(self, hosts: Iterable[Host]) -> AbstractContextManager[None]:
        """Until it is left, these hosts are going to be asked again and again: keep ready what that takes.

        Leaving it ends what was kept, and whatever is still being asked of them.
        """
        ...


class Event(Protocol):
    """What may happen at any moment: an event of threads, a wish to stop, news of a watch."""

    def wait(self, seconds: float, /) -> bool:
        """Return once it has happened, or after so many seconds; whether it has."""
        ...


class Clock(Protocol):
    """Time. Whatever waits does so here: tests let it pass as fast as they like."""

    def now(self) -> datetime:
        """Wall time, in UTC: for people, never for comparing with another machine's."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow: for deadlines."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        ...

    def wait(self, event: "Event", seconds: float) -> bool:
        """Return once it has happened, or after so many seconds; whether it has."""
        ...


class Observer(Protocol):
    """Is told everything that happens; must be quick, and never raise."""

    def notify(self, event: StepEvent) -> None:
        """Take one event."""
        ...
