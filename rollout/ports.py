"""Protocols that adapters implement, safe to use from many threads."""

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
    """A Kubernetes API server, as raw JSON by path (`/api/v1/nodes`).

    Methods return complete JSON of the requested kind, and raise only `ApiError`.
    """

    @property
    def server(self) -> str:
        """Return the API server's address."""

    def server_time(self) -> datetime | None:
        """Return the API server's clock in UTC, never fast, seconds slow at most.

        None before the first answer. Compare its timestamps only with this clock.
        """

    def within(self, seconds: float) -> "ClusterApi":
        """Return this API server with a timeout for each answer."""

    def get(self, path: str, query: Query | None = None) -> bytes:
        """Send a GET."""

    def pages(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """Yield pages of `limit` objects (default 500; 0: all).

        After `ApiGoneError`, discard the earlier pages.
        """

    def create(self, path: str, body: object, query: Query | None = None) -> bytes:
        """POST `body`."""

    def replace(self, path: str, body: object, query: Query | None = None) -> bytes:
        """PUT `body`."""

    def patch(self, path: str, body: object, query: Query | None = None) -> bytes:
        """Send a JSON merge patch."""

    def delete(self, path: str, body: object | None = None) -> bytes:
        """Send DeleteOptions as `body`."""

    def watch(
        self, path: str, query: Query, *, seconds: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Iterate over a watch's lines for `seconds`."""


class CommandResult(Struct, frozen=True):
    """`exit_status` is None if the connection broke first."""

    exit_status: int | None
    stdout: str
    stderr: str


class HostShell(Protocol):
    """Runs commands on one host. Raises `SshError`."""

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Connect, run and disconnect within `timeout` seconds."""

    def run_if(
        self,
        host: Host,
        question: str,
        accepts: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        """Run `command` if the answer to `question` is accepted, else return None.

        The answer must have the boot ID: `command` runs only in that boot.
        """


class HostExecutor(HostShell, Protocol):
    """Runs commands on many hosts."""

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, CommandResult | SshError]]:
        """Yield results as they arrive, from `concurrency` hosts at once.

        Closing the generator asks no more hosts.
        """

    def attending(self, hosts: Iterable[Host]) -> AbstractContextManager[None]:
        """Prepare for many commands, or do nothing."""


class Event(Protocol):
    """Something to wait for."""

    def wait(self, seconds: float, /) -> bool:
        """Wait at most `seconds`; return whether it happened."""


class Clock(Protocol):
    """Time. All waits use it, so that tests can skip them."""

    def now(self) -> datetime:
        """Return the time in UTC; never compare it with another machine's."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def sleep(self, seconds: float) -> None:
        """Sleep for these seconds."""

    def wait(self, event: "Event", seconds: float) -> bool:
        """Wait at most `seconds`; return whether it happened."""


class Observer(Protocol):
    """Observers must be quick and never raise."""

    def notify(self, event: StepEvent) -> None:
        """Receive one event."""
