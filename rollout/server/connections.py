"""Connections that send no request, closed: aiohttp itself waits for a request's head without an end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

# Seconds for which a connection may say nothing, or less than a request's head.
IDLE_SECONDS: Final = 15.0


class Connections:
    """When each connection was last of use; in the server's event loop alone."""

    def __init__(self) -> None:
        self._since: dict[object, float] = {}
        self._asking: set[object] = set()

    @contextmanager
    def asking(self, request: web.BaseRequest) -> Iterator[None]:
        """While this lasts, its connection is of use; and from its end on it may be silent for a while again."""
        connection = request.protocol
        self._asking.add(connection)
        try:
            yield
        finally:
            self._asking.discard(connection)
            self._since[connection] = asyncio.get_running_loop().time()

    async def watch(self, server: web.Server) -> None:
        """Close what is silent for too long, until this is cancelled."""
        while True:
            await asyncio.sleep(IDLE_SECONDS / 3)
            now, there = asyncio.get_running_loop().time(), server.connections
            self._since = {connection: self._since.get(connection, now) for connection in there}
            for connection in there:
                if connection not in self._asking and now - self._since[connection] > IDLE_SECONDS:
                    connection.force_close()
