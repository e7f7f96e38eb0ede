"""Reads Prometheus' alerts as kured does, from the series ALERTS."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
import urllib3

from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange, parse_url
from rollout.adapters.secrets import header_value, masked, without_userinfo
from rollout.errors import GateError, UsageError
from rollout.gather.cluster.wire import decoder_of
from rollout.model.json_text import NOT_READ

TOKEN_VARIABLE = "ROLLOUT_PROMETHEUS_TOKEN"  # noqa: S105 - the name of a variable
# Thousands of alerts are megabytes.
_BOUNDS = Bounds(seconds=10.0, largest=16_000_000)
_SERIES_LABELS = frozenset({"__name__", "alertstate"})
_SILENCED_ONLY = "active=false&silenced=true&inhibited=false&unprocessed=false"

T = TypeVar("T")


class _Sample(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    # A time, and a number as text.
    value: tuple[float, str] = (0.0, "0")

    @property
    def name(self) -> str:
        return self.metric.get("alertname", "")

    @property
    def is_firing(self) -> bool:
        _, value = self.value
        is_set = bool(self.name) and float(value) != 0
        return is_set and self.metric.get("alertstate") == "firing"

    @property
    def labels(self) -> frozenset[tuple[str, str]]:
        """The labels, without those that the series adds."""
        return frozenset(
            (name, value) for name, value in self.metric.items() if name not in _SERIES_LABELS
        )


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: tuple[_Sample, ...]


class _QueryResponse(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""
    # Thanos has these if it could not ask all its sources.
    warnings: tuple[str, ...] = ()


class _SilencedAlert(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class PrometheusAlerts:
    """Reads the firing alerts that match, without silenced ones."""

    def __init__(
        self, url: str, *, matchers: Sequence[str] = (), token: str = "", alertmanager: str = ""
    ) -> None:
        """Without `alertmanager`, its URL, none is silenced; it never gets the token."""
        self._url = f"{check_url(url).rstrip('/')}/api/v1/query"
        selector = "{" + ",".join(matchers) + "}" if matchers else ""
        self._parameters = urlencode({"query": f"ALERTS{selector}"})
        self._token = token
        self._silenced_alerts_url = ""
        if alertmanager:
            self._silenced_alerts_url = f"{check_url(alertmanager).rstrip('/')}/api/v2/alerts"

    def read_active(self) -> tuple[str, ...]:
        """Return the alerts' sorted names, or raise `GateError`."""
        firing = self._read_firing()
        # Labels of silenced alerts.
        silenced: list[frozenset[tuple[str, str]]] = []
        if firing and self._silenced_alerts_url:
            alerts = self._get(
                self._silenced_alerts_url, _SILENCED_ONLY, {}, tuple[_SilencedAlert, ...]
            )
            silenced = [frozenset(alert.labels.items()) for alert in alerts]
        names: set[str] = set()
        for sample in firing:
            if not any(sample.labels <= labels for labels in silenced):
                names.add(sample.name)
        return tuple(sorted(names))

    def _read_firing(self) -> Sequence[_Sample]:
        try:
            return [sample for sample in self._query() if sample.is_firing]
        except ValueError as error:
            problem = "does not respond like Prometheus: a sample is not a number"
            raise self._gate_error(self._url, problem) from error

    def _query(self) -> Iterable[_Sample]:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        answer = self._get(self._url, self._parameters, headers, _QueryResponse)
        if answer.status != "success" or answer.data is None or answer.data.result_type != "vector":
            raise self._gate_error(self._url, f"has no response: {answer.error or 'not a vector'}")
        if answer.warnings:
            raise self._gate_error(
                self._url, f"has only a part of the alerts: {answer.warnings[0]}"
            )
        return answer.data.result

    def _get(self, url: str, parameters: str, headers: Mapping[str, str], shape: type[T]) -> T:
        try:
            return decoder_of(shape).decode(exchange(f"{url}?{parameters}", _BOUNDS, headers))
        except ExchangeError as error:
            message = f"{error}: {error.text}" if error.text else str(error)
            raise self._gate_error(url, message) from error
        except NOT_READ as error:
            program = "Prometheus" if url == self._url else "Alertmanager"
            raise self._gate_error(url, f"does not respond like {program}: {error}") from error

    def _gate_error(self, url: str, problem: str) -> GateError:
        # The server may have sent the token back.
        return GateError(masked(f"{url} {problem}", [self._token]))


def check_url(url: str) -> str:
    """Return the URL; `UsageError` if invalid, or with credentials or parameters."""
    parts = parse_url(url)
    if parts is None or not parts.host:
        raise UsageError(
            f"{without_userinfo(url)!r} is not a Prometheus URL",
            hint="Write it as http://prometheus.monitoring:9090.",
        )
    if parts.auth or parts.query or parts.fragment:
        raise UsageError(
            "the URL of Prometheus has credentials or parameters in it, and would be saved with the"
            " plan",
            hint=f"Put a token into the environment variable {TOKEN_VARIABLE}.",
        )
    return url


def has_same_origin(url: str, other: str) -> bool:
    """Whether both URLs have the same scheme, host and port."""
    are_urls = parse_url(url) is not None and parse_url(other) is not None
    return are_urls and urllib3.connection_from_url(url).is_same_host(other)


def token_for(url: str, own_url: str, token: str) -> str:
    """Return the token for a plan's URL, or empty.

    `own_url` is this process's. `UsageError` if the plan names another server, which must not get
    the token, or if it cannot be sent.
    """
    if not token.strip():
        return ""
    check_url(url)
    if not has_same_origin(url, own_url):
        raise UsageError(
            f"{TOKEN_VARIABLE} is not sent to {url}: the plan names it, alerts.prometheus-url"
            " does not",
            hint=f"If it is the right one: --set alerts.prometheus-url={url}. Else unset"
            f" {TOKEN_VARIABLE}.",
        )
    try:
        return header_value(token)
    except ValueError as error:
        raise UsageError(f"{TOKEN_VARIABLE} is not a token: it has {error}") from None
