"""The API server alone, in a thread of its own, with credentials: for everything that needs an API but no world.

Pods that nobody runs stay Pending, budgets keep the status they are given.
"""

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from rollout.lab.api.server import ApiServer
from rollout.lab.api.store import ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.credentials import new_authority, server_context, write_kubeconfig

Result = TypeVar("Result")


class StandaloneApi:
    """A running server; `kubeconfig` is the file that leads to it."""

    def __init__(
        self, server: ApiServer, loop: asyncio.AbstractEventLoop, *, kubeconfig: Path, token: str
    ) -> None:
        self.server = server
        self.kubeconfig = kubeconfig
        self.token = token
        self.loop = loop

    @property
    def store(self) -> ObjectStore:
        """The store; touch it only inside `call`."""
        return self.server.store

    def call(self, function: Callable[[], Result]) -> Result:
        """Run a function in the server's loop, from another thread, and give back what it returns."""

        async def run() -> Result:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result()

    def outage(self, seconds: float | None) -> None:
        """Take the server away for simulated seconds and wait until it is back; None: until
        `come_back`.
        """
        asyncio.run_coroutine_threadsafe(self.server.outage(seconds), self.loop).result()

    def come_back(self) -> None:
        """End an outage that has no end of its own."""
        self.call(self.server.come_back)


@contextmanager
def standalone_api(
    directory: Path, *, speed: float = 1.0, history: int = 50_000, ahead: float = 0.0
) -> Iterator[StandaloneApi]:
    """Serve an empty cluster on a free loopback port for as long as the context lasts."""
    clock = LabClock(speed, ahead=ahead)
    authority = new_authority(datetime.now(UTC))
    token = secrets.token_urlsafe(32)
    context = server_context(authority, directory)
    store = ObjectStore(now=clock.now, history=history)
    server = ApiServer(store, clock, token=token, ssl_context=context)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="lab API", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        kubeconfig = directory / "kubeconfig"
        write_kubeconfig(kubeconfig, server=server.url, authority=authority, token=token)
        yield StandaloneApi(server, loop, kubeconfig=kubeconfig, token=token)
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_the_rest(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_the_rest() -> None:
    """End what nobody waits for, such as a handshake with a client that has left."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.sleep(0)  # what they have broken off is closed in the loop's next turn
