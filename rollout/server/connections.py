"""The listening socket, and limits on connections: in total, and per address.

Connections count from when they are accepted, because the server needs file descriptors for the API
server, too. A connection that has not sent a whole request is closed after a while. At the limit, a
new connection closes the one that is silent for longest.
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

# Seconds for which a connection may be silent.
IDLE_SECONDS = 15.0
_MOST = 1024
# One in so many file descriptors is left for everything but connections of hosts.
_OWN_PART = 2
# One address may have one in so many connections: hosts behind a load balancer share an address.
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
        """Return the TLS context, None without a certificate. Raises `InputError`."""
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            files = f"--tls-cert {self.certificate}, --tls-key {self.key}"
            raise InputError(f"cannot serve with {files}: {error}") from error
        return context

    async def listen(
        self, protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        timeout = _HANDSHAKE if tls else None
        try:
            return await loop.create_server(
                protocol,
                host=self.host or None,
                port=self.port,
                ssl=tls,
                ssl_handshake_timeout=timeout,
                backlog=_BACKLOG,
            )
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"cannot listen on {self.host}:{self.port}: {why}") from error

    async def keep_reloading(self, served: ssl.SSLContext) -> None:
        """Reload the certificate until canceled: Kubernetes replaces the files of a Secret."""
        problem = ""
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            earlier_problem = problem
            try:
                # Loading a certificate that does not fit its key would break the current one.
                if self.tls() and self.certificate:
                    served.load_cert_chain(self.certificate, self.key)
                problem = ""
            except Exception as error:  # noqa: BLE001 - the old certificate still works
                problem = str(error)
                if problem != earlier_problem:
                    _LOGGER.warning("warning: the old certificate stays in use: %s", error)


class OpenConnections:
    """The open connections, at most `most`. Used only in the server's event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_one = max(1, most // PART_OF_ONE)
        # The loop's time since when each is silent, the longest silent first.
        self._open: dict[web.RequestHandler, float] = {}
        self._busy: set[web.RequestHandler] = set()

    def accept(self, server: web.Server) -> web.RequestHandler:
        handler = server()
        self._open[handler] = self._now
        # Many are accepted at once: the addresses of the earlier ones are known in the next cycle.
        asyncio.get_running_loop().call_soon(self._make_room)
        return handler

    def _make_room(self) -> None:
        self._forget_closed()
        by_address = Counter(map(_address, self._open))
        for handler in [handler for handler in self._open if handler not in self._busy]:
            address = _address(handler)
            if len(self._open) > self._most or by_address[address] >= self._most_of_one:
                by_address[address] -= 1
                self._close(handler)

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _close(self, handler: web.RequestHandler) -> None:
        del self._open[handler]
        handler.force_close()

    def _forget_closed(self) -> None:
        for handler, since in list(self._open.items()):
            # A connection has no transport during its TLS handshake, either.
            if handler.transport is None and self._now - since > _HANDSHAKE:
                del self._open[handler]

    @contextmanager
    def busy(self, request: web.BaseRequest) -> Iterator[None]:
        handler = request.protocol
        self._busy.add(handler)
        try:
            yield
        finally:
            self._busy.discard(handler)
            # From now on it is silent, for the shortest time of all.
            if self._open.pop(handler, None) is not None:
                self._open[handler] = self._now

    async def close_silent(self) -> None:
        while True:
            await asyncio.sleep(IDLE_SECONDS / 3)
            self._forget_closed()
            for handler, since in list(self._open.items()):
                if handler not in self._busy and self._now - since > IDLE_SECONDS:
                    self._close(handler)


def _address(handler: web.RequestHandler) -> str:
    peer = handler.transport.get_extra_info("peername") if handler.transport else None
    return normalize_address(str(peer[0])) if peer else ""


def raise_connection_limit() -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return _MOST
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return min(_MOST, most // _OWN_PART)
