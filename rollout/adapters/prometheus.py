"""Prometheus' alerts as kured reads them: the series ALERTS, filtered by name and state."""

import os
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec
import urllib3

from rollout.errors import GateError, UsageError
from rollout.gather.cluster.decoders import decoder_of

TOKEN_VARIABLE = "ROLLOUT_PROMETHEUS_TOKEN"  # noqa: S105 - the name of a variable
_SECONDS = 10.0
_OK = 200
_SHOWN = 200


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
    """Asks one Prometheus. `pattern` names alerts that do not count; with `match_only`, the only ones that do."""

    def __init__(self, url: str, *, pattern: str, match_only: bool, firing_only: bool) -> None:
        self._url = f"{checked_url(url).rstrip('/')}/api/v1/query"
        self._pattern = checked_pattern(pattern)
        self._match_only = match_only
        self._firing_only = firing_only
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(_SECONDS), retries=urllib3.Retry(2, redirect=0, backoff_factor=0.2)
        )

    def active(self) -> tuple[str, ...]:
        """Names of the alerts that count, each once, in order; `GateError` for any answer that is none."""
        samples = self._query()
        return tuple(sorted({sample.metric.alertname for sample in samples if self._counts(sample)}))

    def _query(self) -> Iterable[_Sample]:
        token = os.environ.get(TOKEN_VARIABLE)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            answer = self._pool.request("GET", self._url, fields={"query": "ALERTS"}, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise GateError(f"{self._url} does not answer: {error}") from error
        if answer.status != _OK:
            raise GateError(f"{self._url} answers {answer.status}: {_beginning(answer.data)}")
        try:
            found = decoder_of(_Answer).decode(answer.data)
        except msgspec.MsgspecError as error:
            raise GateError(f"{self._url} does not answer as Prometheus does: {error}") from error
        if found.status != "success" or found.data is None or found.data.result_type != "vector":
            raise GateError(f"{self._url} has no answer: {found.error or 'not a vector'}")
        return found.data.result

    def _counts(self, sample: _Sample) -> bool:
        if not sample.metric.alertname or float(sample.value[1]) == 0:
            return False
        if self._firing_only and sample.metric.alertstate != "firing":
            return False
        if self._pattern is None:
            return True
        return (self._pattern.search(sample.metric.alertname) is not None) is self._match_only


def checked_url(url: str) -> str:
    """The URL; `UsageError` for one that is none, or that carries a password into the saved plan."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is no URL of a Prometheus", hint="Write it as http://prometheus.monitoring:9090.")
    if parts.username or parts.password:
        raise UsageError(
            "the URL of Prometheus has credentials in it, and would be saved with the plan",
            hint=f"Put a token into the environment variable {TOKEN_VARIABLE}.",
        )
    return url


def checked_pattern(pattern: str) -> "re.Pattern[str] | None":
    """The regular expression, read; None for none."""
    try:
        return re.compile(pattern) if pattern else None
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from error


def _beginning(body: bytes) -> str:
    return body[:_SHOWN].decode(errors="replace").strip()
