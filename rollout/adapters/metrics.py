"""Serves metrics, probes and pages, or pushes metrics."""

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
)
from prometheus_client.registry import Collector
from urllib3.util import Url

from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange, parse_url
from rollout.adapters.secrets import basic_authorization, masked, without_userinfo
from rollout.adapters.web import Application, Pages, page_application, plain_answer, serve_http
from rollout.errors import RolloutError, UsageError

JOB = "node-rollout"
_BOUNDS = Bounds(seconds=5.0, largest=100_000)


@contextmanager
def serve_metrics(
    address: str, collectors: Iterable[Collector], is_ready: Callable[[], bool], pages: Pages
) -> Iterator[str]:
    """Yield the URL, or raise `InputError`."""
    # Described metrics can be selected: /metrics?name[]=NAME.
    registry = CollectorRegistry(auto_describe=True)
    for collector in collectors:
        registry.register(collector)
    # Registers itself.
    ProcessCollector(registry=registry)
    metrics = make_wsgi_app(registry)
    page_server = page_application(pages, other_paths="/metrics /healthz /readyz")
    with serve_http(address, _application(metrics, is_ready, page_server)) as url:
        yield url


def _application(metrics: Any, is_ready: Callable[[], bool], pages: Application) -> Application:
    def application(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                answer: Iterable[bytes] = metrics(environ, respond)
                return answer
            case "/healthz":
                return plain_answer(respond, "200 OK", "ok")
            case "/readyz" if is_ready():
                return plain_answer(respond, "200 OK", "ok")
            case "/readyz":
                message = "not ready: see the log of the last pass"
                return plain_answer(respond, "503 Service Unavailable", message)
            case _:
                return pages(environ, respond)

    return application


@dataclass(frozen=True, slots=True)
class _FixedCollector(Collector):
    metrics: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        return self.metrics


class PushgatewayError(RolloutError):
    """The Pushgateway did not accept a push."""


class Pushgateway:
    """Pushes a cluster's metrics."""

    def __init__(self, url: str, cluster: str) -> None:
        auth = check_push_url(url).auth or ""
        self.url = without_userinfo(url).rstrip("/")
        # As written and decoded.
        self._secrets: list[str] = []
        for userinfo in (auth, unquote(auth)):
            _, _, password = userinfo.partition(":")
            self._secrets += [userinfo, password]
        self._headers = {"Authorization": basic_authorization(auth)} if auth else {}
        self._cluster = cluster

    def push(self, metrics: Collector, last_success: Sequence[Metric], *, is_whole: bool) -> None:
        """Replace the cluster's metrics if `is_whole`, else the pushed ones."""
        group = {"instance": self._cluster}
        push = push_to_gateway if is_whole else pushadd_to_gateway
        push(self.url, JOB, metrics, group, handler=self._request_sender)
        if last_success:
            # A failed pass does not replace this group.
            success_group = {**group, "last": "success"}
            success = _FixedCollector(last_success)
            push_to_gateway(self.url, JOB, success, success_group, handler=self._request_sender)

    def _request_sender(
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
                answer = f": {error.text}" if error.text else ""
                problem = masked(f"it {error}{answer}", self._secrets)
                raise PushgatewayError(problem) from error

        return send


def check_push_url(url: str) -> Url:
    """Return the parts; `UsageError` if invalid, or with a group."""
    parts = parse_url(url)
    has_group = parts is not None and "/metrics/" in f"{parts.path}/"
    if parts and parts.host and not (parts.query or parts.fragment or has_group):
        return parts
    raise UsageError(
        # Text before the @ may be a password.
        f"{url.rpartition('@')[2]!r} is not the address of a Pushgateway",
        hint="Use a URL such as http://pushgateway.monitoring:9091.",
    )
