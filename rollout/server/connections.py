"""Accepts hosts' connections.

At a limit, a new connection closes the one that was silent longest.
"""

import asyncio
import logging
import resource
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web
from msgspec import Struct

from rollout.errors import InputError
from rollout.model.host import normalize_address

IDLE_SECONDS = 15.0
_MOST_CONNECTIONS = 1024
# Of file descriptors; the API server and files need the others.
_SHARE_OF_HOSTS = 0.5
# Hosts behind a load balancer share an address.
SHARE_OF_ADDRESS = 0.5
_HANDSHAKE_SECONDS = 10.0
_RELOAD_SECONDS = 10.0
_BACKLOG = 256
_LOGGER = logging.getLogger(__name__)


class Listening(Struct, frozen=True):
    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    def load_certificate(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            files = f"--tls-cert {self.certificate}, --tls-key {self.key}"
            raise InputError(f"cannot serve with {files}: {error}") from error
        return context

    def check_certificate(self) -> None:
        self.load_certificate()

    async def listen(
        self, protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        timeout = _HANDSHAKE_SECONDS if tls else None
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

    async def keep_reloading(self, served_tls: ssl.SSLContext) -> None:
        """Reload until canceled: Kubernetes replaces the files of a Secret."""
        if self.certificate is None:
            return
        problem = ""
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            earlier_problem = problem
            try:
                # Try it in another context first: a wrong key would break `served_tls`.
                self.check_certificate()
                served_tls.load_cert_chain(self.certificate, self.key)
                problem = ""
            except Exception as error:  # noqa: BLE001 - the old certificate still works
                problem = str(error)
                if problem != earlier_problem:
                    _LOGGER.warning("warning: the old certificate stays in use: %s", error)


class OpenConnections:
    """Hosts' connections. Only for the event loop.

    A connection is busy during a request, and silent otherwise.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_per_address = max(1, int(most * SHARE_OF_ADDRESS))
        # When each connection was accepted or ended its last request, oldest first.
        self._last_active: dict[web.RequestHandler, float] = {}
        self._busy: set[web.RequestHandler] = set()

    def accept(self, server: web.Server) -> web.RequestHandler:
        handler = server()
        self._last_active[handler] = self._now
        # The address is known in the event loop's next cycle.
        asyncio.get_running_loop().call_soon(self._make_room)
        return handler

    def _make_room(self) -> None:
        self._forget_closed()
        open_by_address = Counter(map(_address, self._last_active))
        longest_silent_first = [
            handler for handler in self._last_active if handler not in self._busy
        ]
        for handler in longest_silent_first:
            address = _address(handler)
            are_too_many = len(self._last_active) > self._most
            are_too_many_of_address = open_by_address[address] >= self._most_per_address
            if are_too_many or are_too_many_of_address:
                open_by_address[address] -= 1
                self._close(handler)

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _close(self, handler: web.RequestHandler) -> None:
        del self._last_active[handler]
        handler.force_close()

    def _forget_closed(self) -> None:
        for handler, last_active in list(self._last_active.items()):
            # A connection in its TLS handshake has no transport yet.
            is_handshake_over = self._now - last_active > _HANDSHAKE_SECONDS
            if handler.transport is None and is_handshake_over:
                del self._last_active[handler]

    @contextmanager
    def kept_open(self, request: web.BaseRequest) -> Iterator[None]:
        handler = request.protocol
        self._busy.add(handler)
        try:
            yield
        finally:
            self._busy.discard(handler)
            is_open = self._last_active.pop(handler, None) is not None
            if is_open:
                self._last_active[handler] = self._now

    async def close_silent(self) -> None:
        while True:
            await asyncio.sleep(IDLE_SECONDS / 3)
            self._forget_closed()
            for handler, last_active in list(self._last_active.items()):
                is_silent = self._now - last_active > IDLE_SECONDS
                if is_silent and handler not in self._busy:
                    self._close(handler)


def _address(handler: web.RequestHandler) -> str:
    if handler.transport is None:
        return ""
    peer = handler.transport.get_extra_info("peername")
    return normalize_address(str(peer[0])) if peer else ""


def raise_file_limit() -> None:
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def most_host_connections() -> int:
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(_MOST_CONNECTIONS, int(hard_limit * _SHARE_OF_HOSTS))
