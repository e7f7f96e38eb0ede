"""Which connection goes where there are too many: the longest silent one, and none that is being answered."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rollout.server.connections import Connections, most_connections


@dataclass(eq=False)
class Connection:
    server: "Server"
    number: int

    def force_close(self) -> None:
        self.server.closed.append(self.number)
        self.server.connections.remove(self)


@dataclass
class Server:
    """Makes connections, and knows those that are open, as aiohttp's does."""

    connections: list[Connection] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    made: int = 0

    def __call__(self) -> Connection:
        self.connections.append(Connection(self, self.made))
        self.made += 1
        return self.connections[-1]


def test_the_longest_silent_connection_makes_room() -> None:
    async def live() -> Server:
        server, connections = Server(), Connections(3)
        accepted: Any = connections.accepting(server)  # type: ignore[arg-type]
        first = accepted()
        for _ in range(2):
            accepted()
        assert server.closed == []
        with connections.asking(SimpleNamespace(protocol=first)):  # type: ignore[arg-type]
            accepted()
            accepted()
            assert server.closed == [1, 2], "the first is being answered"
        accepted()
        assert server.closed == [1, 2, 3], "the first was of use a moment ago"
        assert len(server.connections) == 3
        return server

    asyncio.run(live())


def test_files_are_left_for_the_api_server() -> None:
    assert 1 <= most_connections() <= 1024
