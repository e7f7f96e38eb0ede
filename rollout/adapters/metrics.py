"""Metrics: served over HTTP to whoever scrapes them, or pushed to Prometheus' Pushgateway.

Served are `/metrics`, and what a kubelet asks of a process that stands: `/healthz` (it answers) and `/readyz` (503
where it is of no use now). Pushed are those of processes that end before anybody can scrape them. A push replaces the
cluster's group. When a pass last went well outlives the next that does not: it has a group of its own, beside it.
"""

import re
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Metric,
    ProcessCollector,
    make_wsgi_app,
    push_to_gateway,
    pushadd_to_gateway,
)
from prometheus_client.registry import Collector

from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange, request_to
from rollout.adapters.prometheus import parsed_url
from rollout.adapters.secrets import header_value, masked, without_userinfo
from rollout.errors import InputError, RolloutError, UsageError

_ADDRESS = re.compile(r"(?:(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]*)):)?(?P<port>\d{1,5})")
_MOST_PORTS = 65_535
_PATIENCE = 10.0

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

JOB = "node-rollout"
_SECONDS = 5.0
_SHOWN = 200
_FAILURES = 300


def parsed_address(text: str) -> tuple[str, int]:
    """Host and port, the host empty for all addresses; `UsageError` for what is none."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MOST_PORTS:
        raise UsageError(
            f"{text!r} is not an address to listen on",
            hint="Write it as :9732 for all addresses, or 127.0.0.1:9732, or [::1]:9732.",
        )
    return match["v6"] or match["host"] or "", int(match["port"])


class _Handler(WSGIRequestHandler):
    """One connection, which is not logged."""

    timeout = _PATIENCE

    def log_message(self, *_words: object) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a connection; whoever says nothing for a while is cut off."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, application: Application) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        # its base would ask the DNS for a name
        self.server_name, self.server_port = "rollout", int(listener.getsockname()[1])
        self.setup_environ()
        self.set_app(application)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up before the answer is nobody's concern."""


def _listener(address: str) -> socket.socket:
    """Listen there; for all addresses on those of IPv6, which take in those of IPv4, where the machine has any."""
    host, port = parsed_address(address)
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        # the library says what it has tried behind the reason
        reason = (error.strerror or str(error)).partition(" (while ")[0]
        raise InputError(f"cannot listen on {address}: {reason}") from error


class MetricsServer:
    """Serves metrics until it is left. Raises `InputError` where the address cannot be listened on."""

    def __init__(self, address: str, metrics: Collector, is_ready: Callable[[], bool]) -> None:
        registry = CollectorRegistry()
        registry.register(metrics)
        ProcessCollector(registry=registry)
        self._server = _Server(_listener(address), _application(make_wsgi_app(registry), is_ready))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics-server", daemon=True)

    @property
    def url(self) -> str:
        """Where it is scraped."""
        host, port = self._server.socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _application(metrics: Any, is_ready: Callable[[], bool]) -> Application:
    def application(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                answer: Iterable[bytes] = metrics(environ, respond)
                return answer
            case "/healthz":
                return _said(respond, "200 OK", "ok")
            case "/readyz" if is_ready():
                return _said(respond, "200 OK", "ok")
            case "/readyz":
                return _said(respond, "503 Service Unavailable", "not ready: see the log of the last pass")
            case "/":
                return _said(respond, "200 OK", "rollout: /metrics /healthz /readyz")
            case _:
                return _said(respond, "404 Not Found", "there are: /metrics /healthz /readyz")

    return application


def _said(respond: Callable[..., Any], status: str, text: str) -> Iterable[bytes]:
    respond(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(text) + 1))])
    return [f"{text}\n".encode()]


@dataclass(frozen=True, slots=True)
class _Collected(Collector):
    metrics: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        return self.metrics


class PushgatewayError(RolloutError):
    """It did not take a push."""


class Pushgateway:
    """One Pushgateway. User and password in its URL are sent as such and never shown: `url` is without."""

    def __init__(self, url: str, cluster: str) -> None:
        parts = parsed_url(checked_push_url(url))
        written = (parts.auth if parts else None) or ""
        auth = unquote(written)
        self.url = without_userinfo(url).rstrip("/")
        self._secrets = [part for form in (written, auth) for part in (form, form.partition(":")[2])]
        self._headers = {"Authorization": header_value(f"Basic {b64encode(auth.encode()).decode()}")} if auth else {}
        self._cluster = cluster

    def push(self, metrics: Collector, last_success: Sequence[Metric], *, is_whole: bool) -> None:
        """Replace the cluster's group, or only what is in `metrics` where they are not `is_whole`."""
        group = {"instance": self._cluster}
        push = push_to_gateway if is_whole else pushadd_to_gateway
        push(self.url, JOB, metrics, group, _SECONDS, self._send)
        if last_success:
            outliving = _Collected(last_success)
            push_to_gateway(self.url, JOB, outliving, {**group, "last": "success"}, _SECONDS, self._send)

    def _send(
        self, url: str, method: str, timeout: float | None, headers: Sequence[tuple[str, str]], data: bytes
    ) -> Callable[[], None]:
        """What the library calls to send; no redirect is followed, for the password goes to this place alone."""

        def send() -> None:
            request = request_to(url, {**dict(headers), **self._headers}, data or None, method)
            try:
                answer = exchange(request, Bounds(timeout or _SECONDS, _SHOWN))
            except ExchangeError as error:
                raise PushgatewayError(f"does not answer: {error}") from error
            if answer.status >= _FAILURES:
                text = answer.body.decode(errors="replace").strip()
                raise PushgatewayError(self._masked(f"it answers {answer.status}: {text}"))

        return send

    def _masked(self, text: str) -> str:
        return masked(text, self._secrets)


def checked_push_url(url: str) -> str:
    """The URL; `UsageError` for one that is none, or that names a group, which is this program's to choose."""
    parts = parsed_url(url)
    if parts is None or not parts.host or parts.query or parts.fragment or "/metrics/" in f"{parts.path}/":
        raise UsageError(
            # what may be a password is not shown, whatever is wrong with the rest
            f"{url.rpartition('@')[2]!r} is not the address of a Pushgateway",
            hint="Write it as http://pushgateway.monitoring:9091.",
        )
    return url
