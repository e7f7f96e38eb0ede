"""Protocols that adapters implement. All implementations are safe to use from many threads."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from rollout.errors import SshError
from rollout.model.host import Host
from rollout.model.progress import StepEvent

Query = Mapping[str, str]


class ClusterApi(Protocol):
    """A Kubernetes API server, as raw JSON by path, such as `/api/v1/nodes`.

    Methods raise only `ApiError` and its subclasses, and return the answer's body: complete JSON of
    the requested kind.
    """

    @property
    def server(self) -> str:
        """Return the address of the API server."""

    def server_time(self) -> datetime | None:
        """Return the API server's clock in UTC, never fast and at most seconds slow.

        None before the first answer. Compare the API server's timestamps only with this clock.
        """

    def within(self, seconds: float) -> "ClusterApi":
        """Return this API server with a timeout for each answer."""

    def get(self, path: str, query: Query | None = None) -> bytes:
        """Return the body of a GET."""

    def pages(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """Yield the pages of a list with `limit` objects each (default 500; 0: all).

        After `ApiGoneError`, an expired continue token, the earlier pages must not be used.
        """

    def create(self, path: str, body: object, query: Query | None = None) -> bytes:
        """POST `body`."""

    def replace(self, path: str, body: object, query: Query | None = None) -> bytes:
        """PUT `body`."""

    def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Send a JSON merge patch."""

    def delete(self, path: str, body: object | None = None) -> bytes:
        """DELETE with `body` as DeleteOptions."""

    def watch(
        self, path: str, query: Query, *, seconds: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Open a watch that lasts `seconds` and iterate over its lines."""


class CommandResult(Struct, frozen=True):
    """`exit_status` is None if the connection broke first."""

    exit_status: int | None
    stdout: str
    stderr: str


class HostShell(Protocol):
    """Runs fixed commands on one host. Raises `SshError` or a subclass.

    `cli/wiring` chooses `ParamikoShell` or `AnsibleExecutor`, and adds `LoggedShell` for -vv.
    """

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Connect, run `command` and disconnect within `timeout` seconds."""

    def run_if(
        self,
        host: Host,
        question: str,
        accepts: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        """Run `command` if the result of `question` is accepted; else return None.

        That result must have the host's boot ID: `command` runs only in the same boot.
        """


class HostExecutor(HostShell, Protocol):
    """Runs commands on many hosts."""

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, CommandResult | SshError]]:
        """Yield each host's result as it arrives, from at most `concurrency` at once.

        After the generator is closed no more hosts are asked.
        """

    def attending(self, hosts: Iterable[Host]) -> AbstractContextManager[None]:
        """Prepare for many commands to these hosts, or do nothing."""


class Event(Protocol):
    """Something to wait for, such as a `threading.Event` or news from a watch."""

    def wait(self, seconds: float, /) -> bool:
        """Wait at most `seconds`; return whether it has happened."""


class Clock(Protocol):
    """Time. All waits use it, so that tests can skip them."""

    def now(self) -> datetime:
        """Return the wall time in UTC; never compare it with another machine's."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""

    def wait(self, event: "Event", seconds: float) -> bool:
        """Wait at most `seconds` for the event; return whether it has happened."""


class Observer(Protocol):
    """Receives all events. It must be quick and never raise."""

    def notify(self, event: StepEvent) -> None:
        """Receive one event."""
