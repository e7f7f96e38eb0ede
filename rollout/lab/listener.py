"""asyncio's servers do not close a connection that is still in its handshake."""

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
    """Reserve a free port without listening; None except on Linux.

    Otherwise another program could get the port during an outage. Only Linux lets another socket
    listen on the port.
    """
    if not sys.platform.startswith("linux"):
        return None
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((LOOPBACK, 0))
    return reserved


class Listener:
    """After its handshake, a connection belongs to whoever ran it."""

    def __init__(self, handshake: Callable[[socket.socket], Awaitable[object]]) -> None:
        self._handshake = handshake
        self._listening: socket.socket | None = None
        self._handshakes = dict[asyncio.Future[object], socket.socket]()

    @property
    def listening(self) -> bool:
        return self._listening is not None

    def listen(self, listening: socket.socket) -> None:
        self.stop_accepting()
        self._listening = listening
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def stop_accepting(self) -> None:
        """Refuse new connections. Handshakes continue."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def break_off(self) -> None:
        """Refuse new connections, and close those in their handshakes."""
        self.stop_accepting()
        for connection in self._handshakes.values():
            # This makes the handshake fail. A task canceled before its first step would not close
            # it.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    async def wait_for_handshakes(self) -> None:
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):
            while True:
                connection, _ = listening.accept()
                connection.setblocking(False)
                handshake = asyncio.ensure_future(self._handshake(connection))
                self._handshakes[handshake] = connection
                handshake.add_done_callback(self._forget)

    def _forget(self, handshake: "asyncio.Future[object]") -> None:
        del self._handshakes[handshake]
        if not handshake.cancelled():
            # asyncio would log a failed handshake whose error is not read.
            handshake.exception()


_BACKLOG: Final = 1024
_TRIES: Final = 20
_FIRST_NETWORK = 64
_LAST_NETWORK = 254


def bind_hosts(count: int) -> list[socket.socket]:
    """Use a common port if possible; raises OSError.

    The network is random, so that several labs rarely choose the same.
    """
    rng = random.SystemRandom()
    for _ in range(_TRIES):
        number = rng.randint(_FIRST_NETWORK, _LAST_NETWORK)
        with suppress(OSError):
            return _bind_network(ipaddress.IPv4Address(f"127.{number}.0.0"), count)
    return [open_socket(LOOPBACK, 0) for _ in range(count)]


def bind_ipv6_hosts(count: int) -> list[socket.socket]:
    return [open_socket(_LOOPBACK_IPV6, 0) for _ in range(count)]


def open_socket(address: str, port: int) -> socket.socket:
    """The address may just have been closed."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=_BACKLOG)


def _bind_network(network: ipaddress.IPv4Address, count: int) -> list[socket.socket]:
    port = 0
    sockets = list[socket.socket]()
    with ExitStack() as on_error:
        for index in range(1, count + 1):
            bound = on_error.enter_context(open_socket(str(network + index), port))
            port = bound.getsockname()[1]
            sockets.append(bound)
        on_error.pop_all()
    return sockets
