"""Alerts over a real wire: which of them count, and every answer that is none."""

import json
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from rollout.adapters.foreign_http import Bounds
from rollout.adapters.metrics import Pushgateway, PushgatewayError
from rollout.adapters.notify import DeliveryError, destinations
from rollout.adapters.prometheus import (
    ALERTMANAGER,
    TOKEN_VARIABLE,
    PrometheusAlerts,
    check_url,
    has_same_origin,
    token_for,
)
from rollout.errors import GateError, UsageError
from rollout.model.gates import is_matcher
from rollout.model.notification import Note
from rollout.report.metrics import Metrics
from tests.adapters.openssh import MakeStranger, Say, Stranger
from tests.scripted_api import Exchange, scripted

PASSWORD = "correct-horse-battery"
SERIES = [
    ("DiskFull", "firing", "1"),
    ("DiskFull", "firing", "1"),
    ("Lag", "pending", "1"),
    ("Old", "firing", "0"),
]


ANSWER = {
    "status": "success",
    "data": {
        "resultType": "vector",
        "result": [
            {"metric": {"alertname": name, "alertstate": state}, "value": [1.0, value]}
            for name, state, value in SERIES
        ],
    },
}


Serve = Callable[[int, bytes], str]


asked: list[str | None] = []
queries: list[str] = []


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(status: int, body: bytes) -> str:
            def answer(exchange: Exchange) -> None:
                asked.append(exchange.headers.get("Authorization"))
                is_silences = exchange.path == "/prefix/api/v2/alerts"
                if not is_silences:
                    queries.append(exchange.query["query"])
                is_alerts = exchange.path.startswith("/prefix/api/v1/query?query=ALERTS")
                exchange.answer(status if is_alerts or is_silences else 404, body)

            return f"{stack.enter_context(scripted(answer)).url}/prefix/"

        yield start


def test_what_alertmanager_has_silenced_does_not_count(serve: Serve) -> None:
    """It knows an alert with the labels that Prometheus adds; one of the same name with others is
    not silenced.
    """
    known = [
        {"alertname": "DiskFull", "node": "a"},
        {"alertname": "DiskFull", "node": "b"},
        {"alertname": "Lag"},
    ]
    series = [{"__name__": "ALERTS", "alertstate": "firing", **labels} for labels in known]
    samples = [{"metric": labels, "value": [1.0, "1"]} for labels in series]
    firing = {"status": "success", "data": {"resultType": "vector", "result": samples}}
    prometheus = serve(200, json.dumps(firing).encode())

    def counting(*silenced: dict[str, str]) -> tuple[str, ...]:
        alerts = [
            {
                "labels": {**labels, "cluster": "prod"},
                "status": {"silencedBy": ["s-1"] if labels in silenced else []},
            }
            for labels in known
        ]
        url = serve(200, json.dumps(alerts).encode())
        source = PrometheusAlerts(prometheus, token="s3cret", alertmanager_url=url)
        asked.clear()
        active = source.read_active()
        assert asked == ["Bearer s3cret", None]
        return active

    assert counting() == ("DiskFull", "Lag")
    assert counting(known[0], known[2]) == ("DiskFull",)
    assert counting(*known) == ()
    away = PrometheusAlerts(prometheus, alertmanager_url=serve(503, b"away"))
    with pytest.raises(GateError, match="/api/v2/alerts responds with status 503: away"):
        away.read_active()
    other = PrometheusAlerts(prometheus, alertmanager_url=serve(200, b"{}"))
    with pytest.raises(GateError, match="does not respond like Alertmanager"):
        other.read_active()
    # with no alert there is nothing to be silenced
    assert (
        PrometheusAlerts(
            serve(
                200,
                json.dumps(
                    {"status": "success", "data": {"resultType": "vector", "result": []}}
                ).encode(),
            ),
            alertmanager_url=serve(503, b""),
        ).read_active()
        == ()
    )


def test_an_alert_counts_although_a_silenced_one_has_its_labels_and_more(serve: Serve) -> None:
    whole = {"alertname": "DiskFull"}
    of_a = {"alertname": "DiskFull", "node": "a"}
    samples = [{"metric": {"alertstate": "firing", **whole}, "value": [1.0, "1"]}]
    firing = {"status": "success", "data": {"resultType": "vector", "result": samples}}
    alerts = [
        {"labels": {**of_a, "cluster": "prod"}, "status": {"silencedBy": ["s-1"]}},
        {"labels": {**whole, "cluster": "prod"}, "status": {"silencedBy": []}},
    ]
    source = PrometheusAlerts(
        serve(200, json.dumps(firing).encode()),
        alertmanager_url=serve(200, json.dumps(alerts).encode()),
    )
    assert source.read_active() == ("DiskFull",)


def test_alerts_that_fire_count(serve: Serve) -> None:
    assert PrometheusAlerts(serve(200, json.dumps(ANSWER).encode())).read_active() == ("DiskFull",)


def test_prometheus_itself_matches_labels(serve: Serve) -> None:
    url = serve(200, json.dumps(ANSWER).encode())
    matchers = ('severity=~"critical|page"', 'team!="d,b"')
    PrometheusAlerts(url, matchers=matchers).read_active()
    assert queries[-1] == 'ALERTS{severity=~"critical|page",team!="d,b"}'
    PrometheusAlerts(url).read_active()
    assert queries[-1] == "ALERTS"
    for strange in (
        "severity",
        'a="b"} or vector(1) or x{a="b"',
        'a="b",c="d"',
        'a==~"b"',
        "a='b'",
        '1a="b"',
        'a="b',
    ):
        assert not is_matcher(strange)
    assert is_matcher(r'a="b\"c"')


def test_a_token_that_is_sent_back_is_not_shown(serve: Serve) -> None:
    url = serve(403, b"no access for Bearer s3cr3t-s3cr3t")
    source = PrometheusAlerts(url, token="s3cr3t-s3cr3t")
    with pytest.raises(GateError, match="no access for Bearer") as caught:
        source.read_active()
    assert "s3cr3t" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "own", "same"),
    [
        ("http://a:9090/x", "http://a:9090/y", True),
        ("http://A/", "http://a:80", True),
        ("https://a", "https://a:443/", True),
        ("http://a", "https://a", False),
        ("http://a:9090", "http://a:9091", False),
        ("http://a.evil", "http://a", False),
        ("http://a", "", False),
        ("http://a", "http://:80", False),
        ("", "", False),
        ("http://a\\@evil", "http://a", False),
        ("http://[::1]:9090", "http://[::1]:9090/prefix", True),
    ],
)
def test_a_token_goes_only_where_our_own_settings_point(url: str, own: str, *, same: bool) -> None:
    assert has_same_origin(url, own) is same
    if same:
        assert token_for(url, own, " secret\n") == "secret"
    else:
        assert token_for(url, own, "\n") == ""
        with pytest.raises(UsageError):
            token_for(url, own, "secret")


@pytest.mark.parametrize("token", ["s3cr3t\nX-Other: 1", "s3cr3t\x00", "s3cr\u20act"])
def test_a_token_that_no_header_can_carry_is_refused_unshown(token: str) -> None:
    with pytest.raises(UsageError, match=TOKEN_VARIABLE) as caught:
        token_for("http://a", "http://a", token)
    assert "s3cr" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"boom"),
        (302, b""),
        (200, b"<html>"),
        (200, b'{"status": "error", "error": "bad query"}'),
        (200, b'{"status": "success", "data": {"resultType": "matrix", "result": []}}'),
        (
            200,
            (
                b'{"status": "success", "data": {"resultType": "vector", "result": []},'
                b' "warnings": ["the sidecar of this cluster is away"]}'
            ),
        ),
        (200, b"{}"),
        (200, b"[" * 100_000),
        (200, b'{"status": "success", "data": ' + b"[" * 100_000),
        (200, b"\xff"),
        (200, json.dumps(ANSWER).replace('"1"', '"soon"').encode()),
    ],
)
def test_what_is_no_answer_is_an_error_and_never_no_alerts(
    status: int, body: bytes, serve: Serve
) -> None:
    source = PrometheusAlerts(serve(status, body))
    with pytest.raises(GateError):
        source.read_active()


def test_nobody_there_is_an_error() -> None:
    source = PrometheusAlerts("http://127.0.0.1:1")
    with pytest.raises(GateError, match="cannot be reached"):
        source.read_active()


@pytest.mark.parametrize(
    "url",
    [
        "prometheus:9090",
        "ftp://a",
        "http://",
        "http://a:port",
        "http://[a",
        "http://a b",
        "http://a\\b",
        *(
            "http://user:word@a",
            "ftp://user:word@a",
            "http://user:wo/rd@a",
            "http://a?key=word",
            "http://a#word",
        ),
    ],
)
def test_urls_that_cannot_or_must_not_be_used(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_url(url)
    assert "word" not in caught.value.message
    with pytest.raises(UsageError, match="Alertmanager") as caught:
        check_url(url, ALERTMANAGER)
    assert TOKEN_VARIABLE not in (caught.value.hint or "")


@dataclass
class Gateway:
    """A Pushgateway: where it is, what was pushed to, and as whom."""

    url: str
    groups: list[str] = field(default_factory=list)
    logins: set[str | None] = field(default_factory=set)


@contextmanager
def gateway(status: int = 200, *, location: str = "") -> Iterator[Gateway]:
    def answer(exchange: Exchange) -> None:
        kept.logins.add(exchange.headers.get("Authorization"))
        kept.groups.append(exchange.path)
        exchange.answer(
            status, f"no, not with {PASSWORD}".encode() if status != 200 else b"", Location=location
        )

    with scripted(answer) as server:
        kept = Gateway(server.url)
        yield kept


@pytest.mark.parametrize(
    ("written", "sent"),
    [("ops:plain", "ops:plain"), ("ops:p%40ss%2Fword", "ops:p@ss/word"), ("ops:p@ss", "ops:p@ss")],
)
def test_a_login_is_sent_as_it_was_meant(written: str, sent: str) -> None:
    with gateway() as pushed:
        push(pushed.url.replace("://", f"://{written}@"))
    (login,) = pushed.logins
    assert b64decode((login or "").removeprefix("Basic ")).decode() == sent


def test_a_cluster_has_a_group_and_its_last_success_one_that_outlives_it() -> None:
    with gateway() as pushed:
        success = GaugeMetricFamily("node_rollout_last_success_timestamp_seconds", "when", value=1)
        Pushgateway(pushed.url, "eu/berlin").push(Metrics("eu/berlin"), [success], is_whole=True)
    group = "/metrics/job/node-rollout/instance@base64/ZXUvYmVybGlu"
    assert pushed.groups == [group, f"{group}/last/success"]


def test_an_answer_that_repeats_the_password_is_told_without_it() -> None:
    with gateway(400) as pushed, pytest.raises(PushgatewayError) as caught:
        push(pushed.url.replace("://", f"://ops:{PASSWORD}@"))
    assert caught.value.message == "it responds with status 400: no, not with ***"


def test_a_redirect_takes_the_login_nowhere() -> None:
    with gateway() as elsewhere, gateway(307, location=elsewhere.url) as pushed:
        with pytest.raises(PushgatewayError, match="it responds with status 307"):
            push(pushed.url.replace("://", f"://ops:{PASSWORD}@"))
        assert elsewhere.logins == set()


def push(url: str) -> None:
    metrics = Metrics("here")
    Pushgateway(url, "here").push(metrics, metrics.last_success(), is_whole=True)


# Servers that drip or never end: whoever asks them is done at the deadline, and no thread of theirs
# stays behind.


LONGEST = 5.0
SHORT = Bounds(1.0, largest=16_000_000)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n"


# What the buffers of a connection hold besides.
BUFFERED = 12_000_000


def drip_head(stranger: Stranger, connection: socket.socket) -> None:
    connection.sendall(HEAD + b"X-More: ")
    stranger.send_for_ever(connection, b"x", 0.2)


def drip_body(stranger: Stranger, connection: socket.socket) -> None:
    connection.sendall(HEAD + b"\r\n")
    stranger.send_for_ever(connection, b" ", 0.2)


def pour(stranger: Stranger, connection: socket.socket) -> None:
    connection.sendall(HEAD + b"\r\n")
    stranger.send_for_ever(connection, b" " * 65536)


def ask_prometheus(url: str) -> None:
    PrometheusAlerts(url).read_active()


def push_slowly(url: str) -> None:
    Pushgateway(url, "here").push(CollectorRegistry(), [], is_whole=True)


def notify(url: str) -> None:
    (webhook,) = destinations([url])
    webhook.send(Note(event="held", title="1", body=""))


@pytest.mark.parametrize(
    ("ask", "say", "scheme"),
    [
        (ask_prometheus, drip_head, "http"),
        (ask_prometheus, drip_body, "http"),
        (push_slowly, drip_body, "http"),
        (notify, drip_head, "http"),
        # bytes of a handshake that never becomes one
        (
            notify,
            lambda stranger, line: stranger.send_for_ever(
                line, b"\x16\x03\x03\x40\x00" + b"x", 0.2
            ),
            "https",
        ),
    ],
)
def test_who_drips_is_waited_for_no_longer_than_who_is_silent(
    ask: Callable[[str], None],
    say: Say,
    scheme: str,
    stranger: MakeStranger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a second here, for five or ten by whom it is installed."""
    for place, bound in (
        ("prometheus._BOUNDS", SHORT),
        ("notify._BOUNDS", SHORT),
        ("metrics._BOUNDS", SHORT),
    ):
        monkeypatch.setattr(f"rollout.adapters.{place}", bound)
    slow = stranger(say)
    ended = threading.Event()

    def run() -> None:
        with pytest.raises((GateError, PushgatewayError, DeliveryError)):
            ask(f"{scheme}://127.0.0.1:{slow.host.port}")
        ended.set()

    before = threading.active_count()
    threading.Thread(target=run, daemon=True).start()
    assert ended.wait(LONGEST)
    until = time.monotonic() + 1
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_an_answer_without_an_end_is_read_to_a_bound_and_no_further(stranger: MakeStranger) -> None:
    slow = stranger(pour)
    with pytest.raises(GateError, match="responds with more than 16 MB"):
        ask_prometheus(f"http://127.0.0.1:{slow.host.port}")
    assert slow.sent < 16_000_000 + BUFFERED
