"""Prometheus' Pushgateway: where metrics of processes go that end before anybody can scrape them.

A push replaces the cluster's group. When a pass last went well outlives the next that does not: it has a group of its
own, beside it.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from prometheus_client import Metric, push_to_gateway, pushadd_to_gateway
from prometheus_client.registry import Collector

from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange, request_to
from rollout.adapters.prometheus import parsed_url
from rollout.adapters.secrets import header_value, masked, without_userinfo
from rollout.errors import RolloutError, UsageError

JOB = "node-rollout"
_SECONDS = 5.0
_SHOWN = 200
_FAILURES = 300


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

    def ask(self) -> None:
        """Whether it answers and is ready; nothing is pushed."""
        self._send(f"{self.url}/-/ready", "GET", _SECONDS, (), b"")()

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
