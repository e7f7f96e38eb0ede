"""Serves HTTP, and read-only pages. Slow clients cannot block it."""

import io
import ipaddress
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.client import LineTooLong
from socketserver import ThreadingMixIn
from typing import Any, Protocol
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from msgspec import Struct

from rollout.errors import InputError, UsageError

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_ADDRESS = re.compile(
    r"(?:(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]*)):)?(?P<port>\d{1,5})"
)
_MOST_PORTS = 65_535
_MOST_CONNECTIONS = 32
# Leaves room for a kubelet's probes; a browser opens six.
_MOST_OF_CLIENT = 12
_IDLE_SECONDS = 10.0
_CONNECTION_SECONDS = 30.0
# Python alone accepts 100 headers of 64 KB each.
_MOST_HEADER_BYTES = 65_536
_POLL_SECONDS = 0.1
_NOT_REFRESHED = "refresh=off"


class WebPage(Struct, frozen=True):
    """A page to serve."""

    html: str
    # Content-Security-Policy, without frame-ancestors.
    csp: str
    # Seconds until it reloads; 0: never.
    refresh: int = 0


class Pages(Protocol):
    """Makes pages."""

    def __call__(self, path: str, *, refreshes: bool) -> WebPage | None:
        """Return None for an unknown path. `refreshes`: it may reload itself."""


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port, or raise `UsageError`. No host means all."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MOST_PORTS:
        raise UsageError(
            f"{text!r} is not a valid listen address",
            hint="Use an address such as 127.0.0.1:9732 or [::1]:9732, or :9732 for all addresses.",
        )
    return match["v6"] or match["host"] or "", int(match["port"])


class _HttpServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, family: int, socket_address: Any, application: Application) -> None:
        self.address_family = family
        self._connections_by_client = Counter[str]()
        self._lock = threading.Lock()
        super().__init__(socket_address, _Handler)
        self.set_app(application)

    def process_request(self, request: Any, client_address: Any) -> None:
        client = client_address[0]
        with self._lock:
            is_full = (
                self._connections_by_client.total() >= _MOST_CONNECTIONS
                or self._connections_by_client[client] >= _MOST_OF_CLIENT
            )
            if not is_full:
                self._connections_by_client[client] += 1
        if is_full:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # The base class closes the connection.
            self._note_closed(client)
            raise

    def _note_closed(self, client: str) -> None:
        with self._lock:
            self._connections_by_client[client] -= 1
            # Unary plus drops zeros.
            self._connections_by_client = +self._connections_by_client

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        time_limit = threading.Timer(_CONNECTION_SECONDS, _shut_down, (request,))
        time_limit.daemon = True
        try:
            time_limit.start()
            super().process_request_thread(request, client_address)
        finally:
            time_limit.cancel()
            self._note_closed(client_address[0])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback for a client that disconnects early."""


class _BoundedHeaderReader(io.BufferedReader):
    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self._bytes_left = _MOST_HEADER_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        # One more, to notice a longer line.
        most = self._bytes_left + 1
        line = super().readline(most if size is None or size < 0 else min(size, most))
        self._bytes_left -= len(line)
        if self._bytes_left < 0 and len(line) <= _MOST_HEADER_BYTES:
            # The base class answers 431, as for a single long line.
            raise LineTooLong("request")
        return line


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_SECONDS

    def setup(self) -> None:
        super().setup()
        self.rfile = _BoundedHeaderReader(self.rfile.detach())

    def get_stderr(self) -> io.StringIO:
        # wsgiref prints tracebacks there.
        return io.StringIO()

    def log_message(self, *_arguments: object) -> None:
        pass


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serve_http(address: str, application: Application) -> Iterator[str]:
    """Yield the URL. Raises `InputError`."""
    host, port = parse_address(address)
    # With dual stack, :: includes IPv4.
    everywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
    try:
        family, *_, socket_address = socket.getaddrinfo(
            host or everywhere, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = _HttpServer(family, socket_address, application)
    except OSError as error:
        raise InputError(f"cannot listen on {address}: {error.strerror or error}") from error
    thread = threading.Thread(
        target=server.serve_forever, args=(_POLL_SECONDS,), name="http", daemon=True
    )
    thread.start()
    host, port = server.socket.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{name}:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def page_application(pages: Pages, *, other_paths: str = "") -> Application:
    """Serve pages; a 404 answer names `other_paths`."""

    def application(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        body = answer(environ, respond)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else body

    def answer(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if _is_loopback(environ["REMOTE_ADDR"]) and not _is_loopback(_host_of(environ)):
            # DNS rebinding: another site's name may resolve to loopback, to read this page.
            # Connections of kubectl port-forward come from loopback, too.
            return plain_answer(
                respond, "421 Misdirected Request", "open this page at its loopback address"
            )
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            allow = ("Allow", "GET, HEAD")
            return plain_answer(respond, "405 Method Not Allowed", "this page is read-only", allow)
        refreshes = environ.get("QUERY_STRING", "") != _NOT_REFRESHED
        try:
            page = pages(environ["PATH_INFO"], refreshes=refreshes)
        except Exception as error:  # noqa: BLE001 - a page that fails must not end anything else
            kind = type(error).__name__
            return plain_answer(respond, "500 Internal Server Error", f"internal error: {kind}")
        if page is None:
            return plain_answer(
                respond, "404 Not Found", f"available paths: / {other_paths}".rstrip()
            )
        body = page.html.encode()
        respond("200 OK", _page_headers(page, len(body)))
        return [body]

    return application


def _page_headers(page: WebPage, length: int) -> list[tuple[str, str]]:
    headers = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Length", str(length)),
        ("Content-Security-Policy", f"{page.csp}; frame-ancestors 'none'"),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
    ]
    if page.refresh:
        headers.append(("Refresh", str(page.refresh)))
    return headers


def plain_answer(
    respond: Callable[..., Any], status: str, text: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    """Answer with one line of text."""
    body = f"{text}\n".encode()
    length = ("Content-Length", str(len(body)))
    kind = ("Content-Type", "text/plain; charset=utf-8")
    respond(status, [kind, length, ("X-Content-Type-Options", "nosniff"), *headers])
    return [body]


def _host_of(environ: dict[str, Any]) -> str:
    with suppress(ValueError):
        return urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname or ""
    return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # Dual-stack sockets show ::ffff:127.0.0.1.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
