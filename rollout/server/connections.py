"""Where is listened, and who is connected: so many in all, and so many of one address.

They are counted from the moment that they are accepted: a handshake of TLS, a head and a body take a file as well, and
the server needs files to reach the API server. Whoever has not sent a whole ask is silent: it is closed after a while
(aiohttp itself waits for a head without an end), and at once where it is the longest silent one, and there are as many
as there may be when one more comes.
"""

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from rollout.errors import InputError

# Seconds for which a connection may say nothing, or less than a request.
IDLE_SECONDS: Final = 15.0
_MOST: Final = 1024
# Of the files that this process may open, the part that is left for everything but connections of hosts.
_OWN_PART: Final = 2
# Of all that there may be, the part that one address may have: many hosts may share one, behind a load balancer.
PART_OF_ONE: Final = 2
# Seconds for the handshake of TLS; asyncio would wait for a minute.
_HANDSHAKE: Final = 10.0
_CHECK_SECONDS: Final = 10.0
_NO_FILES_SECONDS: Final = 0.5
_BACKLOG: Final = 256
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to serve; with a certificate, HTTPS."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    def tls(self) -> ssl.SSLContext | None:
        """Return what it is served with; `InputError` where the files cannot be used."""
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise InputError(
                f"cannot serve with --tls-cert {self.certificate}, --tls-key {self.key}: {error}"
            ) from error
        return context

    def sockets(self) -> Sequence[socket.socket]:
        """Bound, one for each address that the host has; `InputError` where none can be."""
        bound, problem = [], OSError("it has no address")
        try:
            names = socket.getaddrinfo(self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            names, problem = [], error
        for family, address in dict.fromkeys((family, address[:2]) for family, *_, address in names):
            try:
                bound.append(socket.create_server(address, family=family, backlog=_BACKLOG))
            except OSError as error:
                # as of IPv6 where a machine has none of it
                problem = error
        for listening in bound:
            listening.setblocking(False)
        if not bound:
            raise InputError(f"cannot listen on {self.host}:{self.port}: {problem.strerror or problem}") from problem
        return bound

    async def follow(self, served: ssl.SSLContext) -> None:
        """Have new connections get what is in the files, as Kubernetes replaces those of a Secret, until cancelled."""
        seen = self._stamp()
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            if (stamp := self._stamp()) == seen or self.certificate is None:
                continue
            seen = stamp
            try:
                # a certificate without its key would spoil the one that is served with
                self.tls()
                served.load_cert_chain(self.certificate, self.key)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the new one, the old one is served with
                _LOGGER.warning("warning: the old certificate stays in use: %s", error)

    def _stamp(self) -> Sequence[int]:
        """Return what changes when a file is replaced; 0 for one that cannot be seen now."""
        return [_changed(file) for file in (self.certificate, self.key) if file is not None]


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


@dataclass(eq=False, slots=True)
class _Connection:
    """One that was accepted; `since` is from when on it is silent, in seconds of the loop's clock."""

    address: str
    since: float
    opening: asyncio.Task[object]
    is_asking: bool = False


class Connections:
    """Those that are open; in the server's event loop alone. `most` is how many there may be."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_one = max(1, most // PART_OF_ONE)
        # the longest silent first
        self._open: dict[web.RequestHandler, _Connection] = {}

    async def accept(
        self, listening: socket.socket, server: Callable[[], web.RequestHandler], tls: ssl.SSLContext | None
    ) -> None:
        """Accept connections until this is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, (address, *_) = await loop.sock_accept(listening)
            except OSError as error:
                _LOGGER.warning("warning: no connection can be accepted: %s", error)
                await asyncio.sleep(_NO_FILES_SECONDS)
                continue
            if self.has_room(address):
                handler = server()
                opening = loop.create_task(_opened(accepted, handler, tls))
                self._open[handler] = _Connection(address, loop.time(), opening)
            else:
                accepted.close()
            # whoever connects again and again keeps nobody else from being answered
            await asyncio.sleep(0)

    def has_room(self, address: str) -> bool:
        """Whether one more of this address may come; the longest silent one makes room for it."""
        self._forget()
        crowd = [handler for handler, known in self._open.items() if known.address == address]
        if len(crowd) < self._most_of_one:
            if len(self._open) < self._most:
                return True
            crowd = list(self._open)
        silent = next((handler for handler in crowd if not self._open[handler].is_asking), None)
        if silent is not None:
            self._close(silent)
        return silent is not None

    def _close(self, handler: web.RequestHandler) -> None:
        self._open.pop(handler).opening.cancel()
        handler.force_close()

    def _forget(self) -> None:
        """Those that are gone."""
        for handler, known in list(self._open.items()):
            if known.opening.done() and handler.transport is None:
                del self._open[handler]

    @contextmanager
    def asking(self, request: web.BaseRequest) -> Iterator[None]:
        """While this lasts, its connection is of use; and from its end on it may be silent for a while again."""
        handler = request.protocol
        if known := self._open.get(handler):
            known.is_asking = True
        try:
            yield
        finally:
            if known := self._open.pop(handler, None):
                known.is_asking, known.since = False, asyncio.get_running_loop().time()
                self._open[handler] = known

    async def watch(self) -> None:
        """Close what is silent for too long, until this is cancelled."""
        while True:
            await asyncio.sleep(IDLE_SECONDS / 3)
            self._forget()
            now = asyncio.get_running_loop().time()
            for handler, known in list(self._open.items()):
                if not known.is_asking and now - known.since > IDLE_SECONDS:
                    self._close(handler)


async def _opened(accepted: socket.socket, handler: web.RequestHandler, tls: ssl.SSLContext | None) -> None:
    """Have a connection served. Whoever hangs up, or speaks no TLS, is nobody's concern."""
    timeout = _HANDSHAKE if tls else None
    with suppress(OSError, asyncio.CancelledError):
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: handler, accepted, ssl=tls, ssl_handshake_timeout=timeout
        )


def most_connections() -> int:
    """How many there may be at once: half of the files that this process may open, once it may open all it can."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return _MOST
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return min(_MOST, most // _OWN_PART)
