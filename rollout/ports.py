"""What the stages need from the world, as Protocols that adapters implement.

Only `cli` knows the implementations. All of them are safe to call from many threads at once.
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
    """A Kubernetes API server, as raw JSON by path, such as `/api/v1/nodes`.

    Every method raises `ApiError` or one of its subclasses, never an exception of a client library.
    A returned body is complete JSON of the requested kind; any other body raises
    `ApiUnavailableError`, as a 502 does.
    """

    @property
    def server(self) -> str:
        """Return the address of the API server."""
        ...

    def server_time(self) -> datetime | None:
        """Return the server's clock in UTC, late by seconds at most and never early.

        None until the server has told it. Timestamps that the server wrote are compared with this
        clock, never with the local one.
        """
        ...

    def within(self, seconds: float) -> "ClusterApi":
        """Return the same server with this timeout for each answer."""
        ...

    def get(self, path: str, query: Query | None = None) -> bytes:
        """Return the body of a GET."""
        ...

    def pages(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """Yield the pages of a list with `limit` objects each (default 500; 0: all in one).

        `ApiGoneError` between two pages means that the continue token expired; the pages before it
        must then not be used.
        """
        ...

    def create(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Return the body of the answer to a POST of `body` as JSON."""
        ...

    def replace(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Return the body of the answer to a PUT of `body` as JSON."""
        ...

    def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Return the body of the answer to a JSON merge patch."""
        ...

    def delete(self, path: str, body: object | None = None) -> bytes:
        """Return the body of the answer to a DELETE with `body` as its DeleteOptions."""
        ...

    def watch(
        self, path: str, query: Query, *, seconds: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Open a watch that the server ends after `seconds`, and iterate over its lines.

        Leaving the context ends it at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command printed. `exit_status` is None if the connection ended before it."""

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
        """Run `question`; if `agreed` accepts its result, run `command`, else return None.

        The result of `question` must name the host's boot. `command` only reaches that boot.
        """
        ...


class HostExecutor(HostShell, Protocol):
    """The hosts' side of a rollout, over any transport of commands.

    Callers decide what to ask, when, and what an answer means, so that it is the same for every
    implementation.
    """

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, CommandResult | SshError]]:
        """Run `command` on all hosts, at most `concurrency` at once; yield results as they come.

        Closing the generator ends it: no further host is asked.
        """
        ...

    def attending(self, hosts: Iterable[Host]) -> AbstractContextManager[None]:
        """Keep what repeated commands on these hosts need, such as connections, until the exit.

        Leaving the context also ends commands that are still running on them.
        """
        ...


class Event(Protocol):
    """Something to wait for: an event of threads, a request to stop, or news of a watch."""

    def wait(self, seconds: float, /) -> bool:
        """Wait until it has happened or the seconds have passed; return whether it has."""
        ...


class Clock(Protocol):
    """Time. All waiting goes through it, so that tests can skip it."""

    def now(self) -> datetime:
        """Return the wall time in UTC, for people; never compare it with another machine's."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only grow, for deadlines."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let this many seconds pass."""
        ...

    def wait(self, event: "Event", seconds: float) -> bool:
        """Wait until it has happened or the seconds have passed; return whether it has."""
        ...


class Observer(Protocol):
    """Receives all events. It must be quick, and never raise."""

    def notify(self, event: StepEvent) -> None:
        """Receive one event."""
        ...
