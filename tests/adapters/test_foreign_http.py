"""Servers that drip or never end: whoever asks them is done at the deadline, and no thread of theirs stays behind."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rollout.adapters.metrics import Pushgateway, PushgatewayError
from rollout.adapters.notify import DeliveryError, destinations
from rollout.adapters.prometheus import PrometheusAlerts
from rollout.errors import GateError
from rollout.model.notification import Note
from tests.adapters.strangers import Say, Stranger

LONGEST = 13.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n"
# What the buffers of a connection hold besides.
BUFFERED = 12_000_000
Serve = Callable[[Say], Stranger]


@pytest.fixture
def serve() -> Iterator[Serve]:
    strangers: list[Stranger] = []

    def start(say: Say) -> Stranger:
        strangers.append(Stranger(say))
        return strangers[-1]

    yield start
    for stranger in strangers:
        stranger.close()


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
    PrometheusAlerts(url, pattern="", match_only=False).active()


def push(url: str) -> None:
    Pushgateway(url, "here").ask()


def notify(url: str) -> None:
    (webhook,) = destinations([url])
    webhook.send(Note(event="held", title="1", body=""))


@pytest.mark.parametrize(
    ("ask", "say", "scheme"),
    [
        (ask_prometheus, drip_head, "http"),
        (ask_prometheus, drip_body, "http"),
        (push, drip_body, "http"),
        (notify, drip_head, "http"),
        # bytes of a handshake that never becomes one
        (notify, lambda stranger, line: stranger.send_for_ever(line, b"\x16\x03\x03\x40\x00" + b"x", 0.2), "https"),
    ],
)
def test_who_drips_is_waited_for_no_longer_than_who_is_silent(
    ask: Callable[[str], None], say: Say, scheme: str, serve: Serve
) -> None:
    stranger, ended = serve(say), threading.Event()

    def run() -> None:
        with pytest.raises((GateError, PushgatewayError, DeliveryError)):
            ask(f"{scheme}://127.0.0.1:{stranger.host.port}")
        ended.set()

    before = threading.active_count()
    threading.Thread(target=run, daemon=True).start()
    assert ended.wait(LONGEST)
    until = time.monotonic() + 1
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_an_answer_without_an_end_is_read_to_a_bound_and_no_further(serve: Serve) -> None:
    stranger = serve(pour)
    with pytest.raises(GateError, match="answers with more than 16 MB"):
        ask_prometheus(f"http://127.0.0.1:{stranger.host.port}")
    assert stranger.sent < 16_000_000 + BUFFERED
