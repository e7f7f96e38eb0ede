"""Where is listened, and who is connected: so many in all, and so many of one address.

They are counted from the moment that they are accepted, for the server needs files to reach the API
server as well. Whoever has not sent a whole ask is silent: it is closed after a while (aiohttp
itself waits for a head without an end), and at once where it is the longest silent one, and there
are as many as there may be when one more comes.
"""

import asyncio
import logging
import resource
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from rollout.errors import InputError
from rollout.model.addresses import normalize_address

# Seconds for which a connection may say nothing, or less than a request.
IDLE_SECONDS = 15.0
_MOST = 1024
# Of the files that this process may open, the part that is left for everything but connections of
# hosts.
_OWN_PART = 2
# Of all that there may be, the part that one address may have: many hosts may share one, behind a
# load balancer.
PART_OF_ONE = 2
# Seconds for the handshake of TLS; asyncio would wait for a minute.
_HANDSHAKE = 10.0
_RELOAD_SECONDS = 10.0
_BACKLOG = 256
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
            files = f"--tls-cert {self.certificate}, --tls-key {self.key}"
            raise InputError(f"cannot serve with {files}: {error}") from error
        return context

    async def serving(
        self, protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> asyncio.Server:
        """Serve each connection by a protocol of its own; `InputError` where nothing can be listened on."""
        loop = asyncio.get_running_loop()
        timeout = _HANDSHAKE if tls else None
        try:
            return await loop.create_server(
                protocol,
                self.host or None,
                self.port,
                ssl=tls,
                ssl_handshake_timeout=timeout,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise InputError(
                f"cannot listen on {self.host}:{self.port}: {error.strerror or error}"
            ) from error

    async def follow(self, served: ssl.SSLContext) -> None:
        """Have new connections get what is in the files, as Kubernetes replaces those of a Secret, until cancelled."""
        told = ""
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            try:
                # a certificate without its key would spoil the one that is served with
                if self.tls() and self.certificate:
                    served.load_cert_chain(self.certificate, self.key)
                told = ""
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the new one, the old one is served with
                if told != (told := str(error)):
                    _LOGGER.warning("warning: the old certificate stays in use: %s", error)


class OpenConnections:
    """Those that are open; in the server's event loop alone. `most` is how many there may be."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_one = max(1, most // PART_OF_ONE)
        # since when they are silent, in seconds of the loop's clock: the longest silent first
        self._open: dict[web.RequestHandler, float] = {}
        self._asking: set[web.RequestHandler] = set()

    def opened(self, server: web.Server) -> web.RequestHandler:
        """Return what serves one more; where there are too many, in all or of one address, the longest silent go."""
        handler = server()
        self._open[handler] = self._now
        # many are accepted at once: in its turn, which is the loop's next, the addresses of those
        # before it are known
        asyncio.get_running_loop().call_soon(self._make_room)
        return handler

    def _make_room(self) -> None:
        self._forget()
        crowds = Counter(map(_address, self._open))
        for handler in [handler for handler in self._open if handler not in self._asking]:
            address = _address(handler)
            if len(self._open) > self._most or crowds[address] >= self._most_of_one:
                crowds[address] -= 1
                self._close(handler)

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _close(self, handler: web.RequestHandler) -> None:
        del self._open[handler]
        handler.force_close()

    def _forget(self) -> None:
        """Those that are gone; one in its handshake has no transport yet."""
        for handler, since in list(self._open.items()):
            if handler.transport is None and self._now - since > _HANDSHAKE:
                del self._open[handler]

    @contextmanager
    def asking(self, request: web.BaseRequest) -> Iterator[None]:
        """While this lasts, its connection is of use; and from its end on it may be silent for a while again."""
        handler = request.protocol
        self._asking.add(handler)
        try:
            yield
        finally:
            self._asking.discard(handler)
            if self._open.pop(handler, None) is not None:
                self._open[handler] = self._now

    async def watch(self) -> None:
        """Close what is silent for too long, until this is cancelled."""
        while True:
            await asyncio.sleep(IDLE_SECONDS / 3)
            self._forget()
            for handler, since in list(self._open.items()):
                if handler not in self._asking and self._now - since > IDLE_SECONDS:
                    self._close(handler)


def _address(handler: web.RequestHandler) -> str:
    """Return who is connected; empty before that is known."""
    peer = handler.transport.get_extra_info("peername") if handler.transport else None
    return normalize_address(str(peer[0])) if peer else ""


def most_connections() -> int:
    """How many there may be at once: half of the files that this process may open, once it may open all it can."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return _MOST
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return min(_MOST, most // _OWN_PART)
