"""The listening socket, its port while nobody listens, and the connections that are still greeting.

asyncio's own servers lose sight of a connection between its acceptance and the end of its
handshake: neither closing the server nor ending the loop closes it, and it goes on through an
outage as if there were none.
"""

import asyncio
import ipaddress
import random
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_LOOPBACK_IPV6: Final = "::1"


def reserve_port() -> socket.socket | None:
    """Return a socket that has a free port and refuses connections; None where it would be in the way.

    While nobody listens, any program that asks for a free port might be given this one, and keep
    it. Linux alone lets somebody listen beside it, with `SO_REUSEADDR`.
    """
    if not sys.platform.startswith("linux"):
        return None
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((LOOPBACK, 0))
    return kept


class Listener:
    """Accepts connections; `greet` sees each of them through its handshake, and ends when the client has left.

    Of a connection that has been greeted, whoever greeted it takes care.
    """

    def __init__(self, greet: Callable[[socket.socket], Awaitable[object]]) -> None:
        self._greet = greet
        self._listening: socket.socket | None = None
        self._greeting = dict[asyncio.Future[object], socket.socket]()

    @property
    def listening(self) -> bool:
        """Whether connections are accepted now."""
        return self._listening is not None

    def listen(self, listening: socket.socket) -> None:
        """Accept at this socket, which is this listener's from now on."""
        self.stop_accepting()
        self._listening = listening
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def stop_accepting(self) -> None:
        """Refuse connections from now on; handshakes go on. Twice is fine."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def break_off(self) -> None:
        """Refuse connections from now on, and hang up on those that are still greeting."""
        self.stop_accepting()
        for connection in self._greeting.values():
            # Ending the task instead would leave open whatever has not begun its handshake.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    async def greeted(self) -> None:
        """Wait until nobody is greeting any more."""
        await asyncio.gather(*self._greeting, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):
            while True:
                connection, _ = listening.accept()
                connection.setblocking(False)
                greeting = asyncio.ensure_future(self._greet(connection))
                self._greeting[greeting] = connection
                greeting.add_done_callback(self._forget)

    def _forget(self, greeting: "asyncio.Future[object]") -> None:
        del self._greeting[greeting]
        if not greeting.cancelled():
            greeting.exception()  # a client that fails its handshake has nobody here who wants to hear of it


_BACKLOG: Final = 1024
_TRIES: Final = 20
_FIRST_NETWORK = 64
_LAST_NETWORK = 254


def bind_hosts(count: int) -> list[socket.socket]:
    """One listening socket a host; raises OSError where loopback has no room.

    The networks are drawn at random, so that several labs on one machine rarely meet; where they
    do, the next draw decides.
    """
    draw = random.SystemRandom()
    for _ in range(_TRIES):
        with suppress(OSError):
            network = ipaddress.IPv4Address(
                f"127.{draw.randint(_FIRST_NETWORK, _LAST_NETWORK)}.0.0"
            )
            return _bind_network(network, count)
    return [open_socket(LOOPBACK, 0) for _ in range(count)]


def bind_ipv6_hosts(count: int) -> list[socket.socket]:
    """One listening socket a host, each a port of the only IPv6 loopback address; raises OSError without IPv6."""
    return [open_socket(_LOOPBACK_IPV6, 0) for _ in range(count)]


def open_socket(address: str, port: int) -> socket.socket:
    """Return a listening socket; reopening one that was just closed must work, hence the reuse of addresses."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=_BACKLOG)


def _bind_network(network: ipaddress.IPv4Address, count: int) -> list[socket.socket]:
    """All addresses of one network on the port that the first of them was given."""
    with ExitStack() as opened:
        port = 0
        sockets = list[socket.socket]()
        for index in range(1, count + 1):
            bound = opened.enter_context(open_socket(str(network + index), port))
            port = bound.getsockname()[1]
            sockets.append(bound)
        opened.pop_all()
        return sockets
