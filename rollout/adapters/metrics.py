"""Serve metrics over HTTP, or push them to a Pushgateway.

The server also has `/healthz` and `/readyz` for a kubelet's probes. Processes that end before they
are scraped push their metrics. A push replaces the cluster's group. The time of the last success
has a group of its own, so that a failed pass does not remove it.
"""

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from prometheus_client import (
    CollectorRegistry,
    Metric,
    ProcessCollector,
    make_wsgi_app,
    push_to_gateway,
    pushadd_to_gateway,
    start_wsgi_server,
)
from prometheus_client.registry import Collector
from urllib3.util import Url

from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange, parse_url
from rollout.adapters.secrets import basic_authorization, masked, without_userinfo
from rollout.errors import InputError, RolloutError, UsageError

_ADDRESS = re.compile(
    r"(?:(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]*)):)?(?P<port>\d{1,5})"
)
_MOST_PORTS = 65_535

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

JOB = "node-rollout"
_BOUNDS = Bounds(seconds=5.0, largest=100_000)


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port; the host is empty for all addresses. `UsageError` if invalid."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MOST_PORTS:
        raise UsageError(
            f"{text!r} is not an address to listen on",
            hint="Write it as :9732 for all addresses, or 127.0.0.1:9732, or [::1]:9732.",
        )
    return match["v6"] or match["host"] or "", int(match["port"])


@contextmanager
def serve(address: str, metrics: Collector, is_ready: Callable[[], bool]) -> Iterator[str]:
    """Serve metrics, and yield their URL; `InputError` if the address cannot be used."""
    # A scrape with ?name[]= needs the names of the metrics.
    registry = CollectorRegistry(auto_describe=True)
    registry.register(metrics)
    ProcessCollector(registry=registry)
    host, port = parse_address(address)
    # With a dual-stack socket, :: includes all IPv4 addresses.
    everywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
    try:
        server, thread = start_wsgi_server(port, host or everywhere, registry)
    except OSError as error:
        raise InputError(f"cannot listen on {address}: {error.strerror or error}") from error
    server.set_app(_application(make_wsgi_app(registry), is_ready))
    # A client that disconnects early must not cause a traceback.
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    host, port = server.socket.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{name}:{port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _application(metrics: Any, is_ready: Callable[[], bool]) -> Application:
    def application(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                answer: Iterable[bytes] = metrics(environ, respond)
                return answer
            case "/healthz":
                return _plain(respond, "200 OK", "ok")
            case "/readyz" if is_ready():
                return _plain(respond, "200 OK", "ok")
            case "/readyz":
                message = "not ready: see the log of the last pass"
                return _plain(respond, "503 Service Unavailable", message)
            case _:
                return _plain(respond, "404 Not Found", "there are: /metrics /healthz /readyz")

    return application


def _plain(respond: Callable[..., Any], status: str, text: str) -> Iterable[bytes]:
    body = f"{text}\n".encode()
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    respond(status, headers)
    return [body]


@dataclass(frozen=True, slots=True)
class _Collected(Collector):
    metrics: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        return self.metrics


class PushgatewayError(RolloutError):
    """The Pushgateway did not accept a push."""


class Pushgateway:
    """One Pushgateway. `url` has no user and password, which are sent as basic authentication."""

    def __init__(self, url: str, cluster: str) -> None:
        auth = check_push_url(url).auth or ""
        self.url = without_userinfo(url).rstrip("/")
        # Encoded and decoded, with and without the user.
        self._secrets: list[str] = []
        for form in (auth, unquote(auth)):
            self._secrets += [form, form.partition(":")[2]]
        self._headers = {"Authorization": basic_authorization(auth)} if auth else {}
        self._cluster = cluster

    def push(self, metrics: Collector, last_success: Sequence[Metric], *, is_whole: bool) -> None:
        """Replace the cluster's group; if not `is_whole`, only the metrics that are given."""
        group = {"instance": self._cluster}
        push = push_to_gateway if is_whole else pushadd_to_gateway
        push(self.url, JOB, metrics, group, handler=self._send)
        if last_success:
            success = _Collected(last_success)
            group["last"] = "success"
            push_to_gateway(self.url, JOB, success, group, handler=self._send)

    def _send(
        self,
        url: str,
        method: str,
        timeout: float | None,  # noqa: ARG002 - the library passes it by this name
        headers: Sequence[tuple[str, str]],
        data: bytes,
    ) -> Callable[[], None]:
        all_headers = {**dict(headers), **self._headers}

        def send() -> None:
            try:
                exchange(url, _BOUNDS, all_headers, body=data or None, method=method)
            except ExchangeError as error:
                text = f": {error.text}" if error.text else ""
                raise PushgatewayError(masked(f"it {error}{text}", self._secrets)) from error

        return send


def check_push_url(url: str) -> Url:
    """Return the parts of the URL; `UsageError` for an invalid one, or one with a group."""
    parts = parse_url(url)
    # A path with /metrics/ names a group, which rollout chooses.
    has_group = parts is not None and "/metrics/" in f"{parts.path}/"
    if parts and parts.host and not (parts.query or parts.fragment or has_group):
        return parts
    raise UsageError(
        # Text before the @ may be a password.
        f"{url.rpartition('@')[2]!r} is not the address of a Pushgateway",
        hint="Write it as http://pushgateway.monitoring:9091.",
    )
