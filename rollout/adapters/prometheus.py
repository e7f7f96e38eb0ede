"""Reads the series ALERTS, as kured does."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
import urllib3

from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange, parse_url
from rollout.adapters.secrets import header_value, masked, without_userinfo
from rollout.errors import GateError, UsageError
from rollout.gather.cluster.wire import decoder_of
from rollout.model.json_text import DECODE_ERRORS

TOKEN_VARIABLE = "ROLLOUT_PROMETHEUS_TOKEN"  # noqa: S105 - the name of a variable
# Thousands of alerts are megabytes.
_BOUNDS = Bounds(seconds=10.0, largest=16_000_000)
_SERIES_LABELS = frozenset({"__name__", "alertstate"})

T = TypeVar("T")


class _Service(NamedTuple):
    name: str
    example: str
    login_hint: str


PROMETHEUS = _Service(
    name="Prometheus",
    example="http://prometheus.monitoring:9090",
    login_hint=(
        "They would be saved with the plan. Set a token with the environment variable"
        f" {TOKEN_VARIABLE}."
    ),
)
ALERTMANAGER = _Service(
    name="Alertmanager",
    example="http://alertmanager.monitoring:9093",
    login_hint="rollout does not log in to Alertmanager. Specify a URL that needs no login.",
)


class _Sample(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    # A time, and a number as text.
    value: tuple[float, str] = (0.0, "0")

    @property
    def name(self) -> str:
        return self.metric.get("alertname", "")

    @property
    def is_firing(self) -> bool:
        """Whether it fires for kured; `ValueError` for no number."""
        _, value = self.value
        is_alert = bool(self.name) and float(value) != 0
        return is_alert and self.metric.get("alertstate") == "firing"

    @property
    def labels(self) -> frozenset[tuple[str, str]]:
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
    # Thanos: not all sources have answered.
    warnings: tuple[str, ...] = ()


class _AlertStatus(msgspec.Struct, frozen=True, rename="camel"):
    silenced_by: tuple[str, ...] = ()


class _KnownAlert(msgspec.Struct, frozen=True):
    """Labels include Prometheus' external ones."""

    labels: dict[str, str] = {}
    status: _AlertStatus = _AlertStatus()


class PrometheusAlerts:
    """Reads the firing alerts."""

    def __init__(
        self, url: str, *, matchers: Sequence[str] = (), token: str = "", alertmanager_url: str = ""
    ) -> None:
        """Alertmanager never gets the token. Without its URL, no alert is silenced."""
        self._url = f"{check_url(url).rstrip('/')}/api/v1/query"
        selector = "{" + ",".join(matchers) + "}" if matchers else ""
        self._parameters = urlencode({"query": f"ALERTS{selector}"})
        self._token = token
        self._known_alerts_url = ""
        if alertmanager_url:
            checked_url = check_url(alertmanager_url, ALERTMANAGER)
            self._known_alerts_url = f"{checked_url.rstrip('/')}/api/v2/alerts"

    def read_active(self) -> tuple[str, ...]:
        """Return sorted names, or raise `GateError`."""
        firing = self._read_firing()
        known: tuple[_KnownAlert, ...] = ()
        if firing and self._known_alerts_url:
            known = self._get_decoded(self._known_alerts_url, {}, tuple[_KnownAlert, ...])
        active = {sample.name for sample in firing if not _is_silenced(sample, known)}
        return tuple(sorted(active))

    def _read_firing(self) -> Sequence[_Sample]:
        try:
            return [sample for sample in self._query_samples() if sample.is_firing]
        except ValueError as error:
            problem = "does not respond like Prometheus: a sample is not a number"
            raise self._gate_error(self._url, problem) from error

    def _query_samples(self) -> Iterable[_Sample]:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        answer = self._get_decoded(f"{self._url}?{self._parameters}", headers, _QueryResponse)
        if answer.status != "success" or answer.data is None or answer.data.result_type != "vector":
            raise self._gate_error(
                self._url, f"returned no alerts: {answer.error or 'the result is not a vector'}"
            )
        if answer.warnings:
            problem = f"returned only some of the alerts: {answer.warnings[0]}"
            raise self._gate_error(self._url, problem)
        return answer.data.result

    def _get_decoded(self, full_url: str, headers: Mapping[str, str], shape: type[T]) -> T:
        url, _, _ = full_url.partition("?")
        try:
            return decoder_of(shape).decode(exchange(full_url, _BOUNDS, headers))
        except ExchangeError as error:
            message = f"{error}: {error.text}" if error.text else str(error)
            raise self._gate_error(url, message) from error
        except DECODE_ERRORS as error:
            program = "Prometheus" if url == self._url else "Alertmanager"
            raise self._gate_error(url, f"does not respond like {program}: {error}") from error

    def _gate_error(self, url: str, problem: str) -> GateError:
        # The server may have sent the token back.
        return GateError(masked(f"{url} {problem}", [self._token]))


def _is_silenced(sample: _Sample, known: Iterable[_KnownAlert]) -> bool:
    # Known alerts also have external labels, so the sample's own have the fewest.
    matching = [alert for alert in known if sample.labels <= alert.labels.items()]
    fewest = min((len(alert.labels) for alert in matching), default=0)
    own = [alert for alert in matching if len(alert.labels) == fewest]
    return bool(own) and all(alert.status.silenced_by for alert in own)


def check_url(url: str, service: _Service = PROMETHEUS) -> str:
    """Return the URL; `UsageError` if invalid, or with credentials."""
    parts = parse_url(url)
    if parts is None or not parts.host:
        raise UsageError(
            f"{without_userinfo(url)!r} is not a URL of {service.name}",
            hint=f"Use a URL such as {service.example}.",
        )
    if parts.auth or parts.query or parts.fragment:
        raise UsageError(
            f"the URL of {service.name} contains credentials or parameters",
            hint=service.login_hint,
        )
    return url


def has_same_origin(url: str, other: str) -> bool:
    """Whether scheme, host and port are equal."""
    are_urls = parse_url(url) is not None and parse_url(other) is not None
    return are_urls and urllib3.connection_from_url(url).is_same_host(other)


def token_for(planned_url: str, configured_url: str, token: str) -> str:
    """Return the token for a plan's URL, or empty.

    `UsageError` if invalid, or if the settings name another address: a plan must not redirect the
    token.
    """
    if not token.strip():
        return ""
    check_url(planned_url)
    if not has_same_origin(planned_url, configured_url):
        raise UsageError(
            f"{TOKEN_VARIABLE} is not sent to {planned_url}: that URL is in the plan,"
            " but not in alerts.prometheus-url",
            hint=f"If that URL is right, add --set alerts.prometheus-url={planned_url}."
            f" Otherwise, unset {TOKEN_VARIABLE}.",
        )
    try:
        return header_value(token)
    except ValueError as error:
        raise UsageError(f"{TOKEN_VARIABLE} is not a valid token: it {error}") from None
