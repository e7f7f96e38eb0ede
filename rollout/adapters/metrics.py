"""Metrics: served over HTTP to whoever scrapes them, or pushed to Prometheus' Pushgateway.

Served are `/metrics`, and what a kubelet asks of a process that stands: `/healthz` (it answers) and
`/readyz` (503 where it is of no use now). Pushed are those of processes that end before anybody can
scrape them. A push replaces the cluster's group. When a pass last went well outlives the next that
does not: it has a group of its own, beside it.
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
    """Host and port, the host empty for all addresses; `UsageError` for what is none."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MOST_PORTS:
        raise UsageError(
            f"{text!r} is not an address to listen on",
            hint="Write it as :9732 for all addresses, or 127.0.0.1:9732, or [::1]:9732.",
        )
    return match["v6"] or match["host"] or "", int(match["port"])


@contextmanager
def serve(address: str, metrics: Collector, is_ready: Callable[[], bool]) -> Iterator[str]:
    """Serve metrics until it is left; yields their URL. `InputError` where the address cannot be listened on."""
    # described: a scrape may name what it wants (?name[]=)
    registry = CollectorRegistry(auto_describe=True)
    registry.register(metrics)
    ProcessCollector(registry=registry)
    host, port = parse_address(address)
    # all addresses are those of IPv6, which take in those of IPv4, where the machine has any
    everywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - as the operator asks
    try:
        server, thread = start_wsgi_server(port, host or everywhere, registry)
    except OSError as error:
        raise InputError(f"cannot listen on {address}: {error.strerror or error}") from error
    server.set_app(_application(make_wsgi_app(registry), is_ready))
    # whoever hangs up before the answer is nobody's concern, and no traceback
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    host, port = server.socket.getsockname()[:2]
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
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
                return _respond(respond, "200 OK", "ok")
            case "/readyz" if is_ready():
                return _respond(respond, "200 OK", "ok")
            case "/readyz":
                return _respond(
                    respond, "503 Service Unavailable", "not ready: see the log of the last pass"
                )
            case _:
                return _respond(respond, "404 Not Found", "there are: /metrics /healthz /readyz")

    return application


def _respond(respond: Callable[..., Any], status: str, text: str) -> Iterable[bytes]:
    respond(
        status,
        [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(text) + 1))],
    )
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
        auth = check_push_url(url).auth or ""
        self.url = without_userinfo(url).rstrip("/")
        self._secrets = [
            part for form in (auth, unquote(auth)) for part in (form, form.partition(":")[2])
        ]
        self._headers = {"Authorization": basic_authorization(auth)} if auth else {}
        self._cluster = cluster

    def push(self, metrics: Collector, last_success: Sequence[Metric], *, is_whole: bool) -> None:
        """Replace the cluster's group, or only what is in `metrics` where they are not `is_whole`."""
        group = {"instance": self._cluster}
        push = push_to_gateway if is_whole else pushadd_to_gateway
        push(self.url, JOB, metrics, group, handler=self._send)
        if last_success:
            outliving = _Collected(last_success)
            push_to_gateway(
                self.url, JOB, outliving, {**group, "last": "success"}, handler=self._send
            )

    def _send(
        self,
        url: str,
        method: str,
        timeout: float | None,  # noqa: ARG002 - by this name the library gives it
        headers: Sequence[tuple[str, str]],
        data: bytes,
    ) -> Callable[[], None]:
        """Return what the library calls to send; no redirect is followed, for the password goes to this place alone."""

        def send() -> None:
            try:
                exchange(
                    url,
                    _BOUNDS,
                    {**dict(headers), **self._headers},
                    body=data or None,
                    method=method,
                )
            except ExchangeError as error:
                said = f": {error.text}" if error.text else ""
                raise PushgatewayError(masked(f"it {error}{said}", self._secrets)) from error

        return send


def check_push_url(url: str) -> Url:
    """Return the parts of the URL; `UsageError` for one that is none, or that names a group, which we choose."""
    parts = parse_url(url)
    if (
        parts is None
        or not parts.host
        or parts.query
        or parts.fragment
        or "/metrics/" in f"{parts.path}/"
    ):
        raise UsageError(
            # what may be a password is not shown, whatever is wrong with the rest
            f"{url.rpartition('@')[2]!r} is not the address of a Pushgateway",
            hint="Write it as http://pushgateway.monitoring:9091.",
        )
    return parts
