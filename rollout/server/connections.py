"""Connections that send no request, closed: aiohttp itself waits for a request's head without an end.

Whoever opens many takes files that the server needs to reach the API server, and keeps everybody else out. So there are
only so many, and where one more comes, the one that has been silent for longest goes.
"""

import asyncio
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

# Seconds for which a connection may say nothing, or less than a request's head.
IDLE_SECONDS: Final = 15.0
_MOST: Final = 1024
# Of the files that this process may open, the part that is left for everything but connections of hosts.
_OWN_PART: Final = 2


class Connections:
    """When each connection was last of use; in the server's event loop alone. `most` is how many there may be."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._server: web.Server | None = None
        # the longest silent first
        self._since: dict[web.RequestHandler, float] = {}
        self._asking: set[web.RequestHandler] = set()

    def accepting(self, server: web.Server) -> Callable[[], asyncio.Protocol]:
        """What makes the protocol of each connection that is accepted."""
        self._server = server

        def accepted() -> asyncio.Protocol:
            if len(server.connections) >= self._most:
                self._close_one()
            return server()

        return accepted

    def _close_one(self) -> None:
        self._look()
        silent = next((connection for connection in self._since if connection not in self._asking), None)
        if silent is not None:
            silent.force_close()

    def _look(self) -> None:
        """Forget connections that are gone; those that are new have been silent from now on."""
        there = dict.fromkeys(self._server.connections if self._server else (), asyncio.get_running_loop().time())
        self._since = {known: at for known, at in self._since.items() if known in there}
        self._since |= {new: now for new, now in there.items() if new not in self._since}

    @contextmanager
    def asking(self, request: web.BaseRequest) -> Iterator[None]:
        """While this lasts, its connection is of use; and from its end on it may be silent for a while again."""
        connection = request.protocol
        self._asking.add(connection)
        try:
            yield
        finally:
            self._asking.discard(connection)
            self._since.pop(connection, None)
            self._since[connection] = asyncio.get_running_loop().time()

    async def watch(self) -> None:
        """Close what is silent for too long, until this is cancelled."""
        while True:
            await asyncio.sleep(IDLE_SECONDS / 3)
            self._look()
            now = asyncio.get_running_loop().time()
            for connection, since in self._since.items():
                if connection not in self._asking and now - since > IDLE_SECONDS:
                    connection.force_close()


def most_connections() -> int:
    """How many there may be at once: half of the files that this process may open, once it may open all it can."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return _MOST
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return min(_MOST, most // _OWN_PART)
