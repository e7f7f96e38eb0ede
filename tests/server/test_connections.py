"""Which connection goes where there are too many: the longest silent one, and none that is being answered."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from rollout.server.connections import PART_OF_ONE, Connections

MOST = 6
OF_ONE = MOST // PART_OF_ONE


@dataclass(eq=False)
class Handler(asyncio.Protocol):
    """As aiohttp's: of one connection, and without a transport once that is closed."""

    transport: Any = None
    was_closed: bool = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def force_close(self) -> None:
        self.was_closed = True
        if self.transport:
            self.transport.close()


@dataclass
class Port:
    """What listens, and the handlers of all that it has accepted, in order."""

    number: int
    connections: Connections
    handlers: list[Handler]
    clients: ExitStack

    async def connect(self, address: str) -> Handler:
        known, to = len(self.handlers), ("127.0.0.1", self.number)
        self.clients.enter_context(socket.create_connection(to, source_address=(address, 0)))
        while len(self.handlers) == known or self.handlers[-1].transport is None:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
        return self.handlers[-1]


@asynccontextmanager
async def listening() -> AsyncIterator[Port]:
    handlers: list[Handler] = []

    def accepted() -> Any:
        handlers.append(Handler())
        return handlers[-1]

    with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as clients:
        bound.setblocking(False)
        connections = Connections(MOST)
        task = asyncio.create_task(connections.accept(bound, accepted, None))
        yield Port(bound.getsockname()[1], connections, handlers, clients)
        task.cancel()
        for handler in handlers:
            handler.force_close()
        while any(handler.transport for handler in handlers):  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)


def test_the_longest_silent_connection_of_an_address_makes_room_for_its_next() -> None:
    async def live() -> None:
        async with listening() as port:
            other = await port.connect("127.0.0.9")
            first, second, *_ = [await port.connect("127.0.0.1") for _ in range(OF_ONE)]
            assert not any(handler.was_closed for handler in port.handlers)
            request: Any = SimpleNamespace(protocol=first)
            with port.connections.asking(request):
                await port.connect("127.0.0.1")
                assert (first.was_closed, second.was_closed) == (False, True), "the first is being answered"
            assert not other.was_closed, "it is older, and of another address"

    asyncio.run(live())


def test_where_there_are_too_many_in_all_the_longest_silent_goes() -> None:
    async def live() -> None:
        async with listening() as port:
            first = await port.connect("127.0.0.9")
            for number in range(MOST):
                await port.connect(f"127.0.0.{number % 3 + 1}")
            assert [handler.was_closed for handler in port.handlers] == [True, *([False] * MOST)]
            assert first.was_closed

    asyncio.run(live())
