"""Prometheus' alerts as kured reads them: the series ALERTS, filtered by name and state."""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

import msgspec
import urllib3

from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange, request_to
from rollout.adapters.secrets import header_value, masked, without_userinfo
from rollout.errors import GateError, UsageError
from rollout.gather.cluster.wire import decoder_of

TOKEN_VARIABLE = "ROLLOUT_PROMETHEUS_TOKEN"  # noqa: S105 - the name of a variable
# Thousands of alerts are a few megabytes.
_BOUNDS = Bounds(seconds=10.0, largest=16_000_000)
_OK = 200
_SHOWN = 200
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"https?://[!-~]+")


class _Metric(msgspec.Struct, frozen=True):
    alertname: str = ""
    alertstate: str = ""


class _Sample(msgspec.Struct, frozen=True):
    metric: _Metric
    value: tuple[float, str] = (0.0, "0")


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: tuple[_Sample, ...]


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


class PrometheusAlerts:
    """Asks one Prometheus, for alerts with labels that match.

    `pattern` names alerts that do not count; with `match_only`, the only ones that do.

    `token` is sent as it is, see `token_for`; empty for none.
    """

    def __init__(
        self, url: str, *, pattern: str, match_only: bool, matchers: Sequence[str] = (), token: str = ""
    ) -> None:
        self._url = f"{checked_url(url).rstrip('/')}/api/v1/query"
        self._parameters = urlencode({"query": f"ALERTS{{{','.join(matchers)}}}" if matchers else "ALERTS"})
        self._token = token
        self._pattern = checked_pattern(pattern)
        self._match_only = match_only

    def active(self) -> tuple[str, ...]:
        """Names of the alerts that count, each once, in order; `GateError` for any answer that is none."""
        samples = self._query()
        return tuple(sorted({sample.metric.alertname for sample in samples if self._counts(sample)}))

    def _query(self) -> Iterable[_Sample]:
        try:
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            answer = exchange(request_to(f"{self._url}?{self._parameters}", headers), _BOUNDS)
        except ExchangeError as error:
            raise self._failure(f"does not answer: {error}") from error
        if answer.status != _OK:
            raise self._failure(f"answers {answer.status}: {_beginning(answer.body)}")
        if answer.is_cut:
            raise self._failure(f"answers with more than {_BOUNDS.largest // 1_000_000} MB")
        try:
            answer_body = decoder_of(_Answer).decode(answer.body)
        except msgspec.MsgspecError as error:
            raise self._failure(f"does not answer like Prometheus: {error}") from error
        if answer_body.status != "success" or answer_body.data is None or answer_body.data.result_type != "vector":
            raise self._failure(f"has no answer: {answer_body.error or 'not a vector'}")
        return answer_body.data.result

    def _failure(self, what: str) -> GateError:
        return GateError(masked(f"{self._url} {what}", [self._token]))

    def _counts(self, sample: _Sample) -> bool:
        if not sample.metric.alertname or float(sample.value[1]) == 0:
            return False
        if sample.metric.alertstate != "firing":
            return False
        if self._pattern is None:
            return True
        return (self._pattern.search(sample.metric.alertname) is not None) is self._match_only


def checked_url(url: str) -> str:
    """The URL; `UsageError` for one that is none, or that carries a password into the saved plan."""
    parts = parsed_url(url)
    if parts is None or not parts.host:
        raise UsageError(
            f"{without_userinfo(url)!r} is not a Prometheus URL",
            hint="Write it as http://prometheus.monitoring:9090.",
        )
    if parts.auth or parts.query or parts.fragment:
        raise UsageError(
            "the URL of Prometheus has credentials or parameters in it, and would be saved with the plan",
            hint=f"Put a token into the environment variable {TOKEN_VARIABLE}.",
        )
    return url


def parsed_url(url: str) -> urllib3.util.Url | None:
    """The URL as the client reads it that asks there; None for what is none."""
    try:
        return urllib3.util.parse_url(url) if _URL.fullmatch(url) and "\\" not in url else None
    except urllib3.exceptions.LocationParseError:
        return None


def is_same_place(url: str, other: str) -> bool:
    """Whether both lead to the same port of the same host in the same way."""
    places = [
        (parts.scheme, parts.host, parts.port or _PORTS.get(parts.scheme or ""))
        for parts in map(parsed_url, (url, other))
        if parts is not None and parts.host
    ]
    return len(places) == len((url, other)) and places[0] == places[1]


def token_for(url: str, own_url: str, token: str) -> str:
    """What may be sent to `url` as a token, trimmed: empty without one.

    A saved plan and the record on the cluster name a URL; a token goes only where this process's own settings point.
    `UsageError` where they point elsewhere, or where no header can carry the token.
    """
    if not token.strip():
        return ""
    checked_url(url)
    if not is_same_place(url, own_url):
        raise UsageError(
            f"{TOKEN_VARIABLE} is not sent to {url}: the plan names it, alerts.prometheus-url does not",
            hint=f"If it is the right one: --set alerts.prometheus-url={url}. Else unset {TOKEN_VARIABLE}.",
        )
    try:
        return header_value(token)
    except ValueError as error:
        raise UsageError(f"{TOKEN_VARIABLE} is not a token: it has {error}") from None


def checked_pattern(pattern: str) -> "re.Pattern[str] | None":
    """The regular expression, read; None for none."""
    try:
        return re.compile(pattern) if pattern else None
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from error


def _beginning(body: bytes) -> str:
    return body[:_SHOWN].decode(errors="replace").strip()
