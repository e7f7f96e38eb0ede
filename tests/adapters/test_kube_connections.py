"""Servers that cannot be reached, break off, or are not who they should be."""

import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rollout.adapters.kube.api import Timeouts, connect
from rollout.errors import (
    ApiError,
    ApiUnavailableError,
)
from rollout.lab.credentials import new_authority, server_context, write_kubeconfig
from tests.adapters.kube_client import QUICK, client
from tests.scripted_api import Exchange, Kubeconfig, scripted


@pytest.mark.parametrize(
    ("misbehave", "text"),
    [
        (Exchange.wait, "did not answer GET /x in time"),
        (Exchange.reset, "broke during GET /x"),
    ],
)
def test_no_answer_is_unavailable(tmp_path: Path, misbehave: Callable[[Exchange], None], text: str) -> None:
    with scripted(misbehave) as server, pytest.raises(ApiUnavailableError, match=text):
        client(tmp_path, server.url).get("/x")


def test_a_body_that_breaks_off_is_unavailable(tmp_path: Path) -> None:
    def script(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("Content-Length", "1000")
        exchange.end_headers()
        exchange.wfile.write(b"{")
        exchange.close_connection = True

    with scripted(script) as server, pytest.raises(ApiUnavailableError, match="broke during GET /x"):
        client(tmp_path, server.url).get("/x")


@pytest.mark.sample
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(("status", "text"), [(200, "did not answer GET /x in time"), (503, "503 to GET /x")])
def test_a_body_that_trickles_for_ever_ends_all_the_same(
    tmp_path: Path, status: int, text: str, *, chunked: bool
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.send_response(status)
        exchange.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "1000000")))
        exchange.end_headers()
        while not exchange.server.over.wait(0.05):
            exchange.wfile.write(b"1\r\n \r\n" if chunked else b" ")
            exchange.wfile.flush()

    with scripted(script) as server, pytest.raises(ApiUnavailableError, match=text):
        client(tmp_path, server.url, Timeouts(connect=2, read=0.1)).get("/x")


def test_a_refused_connection_is_unavailable_and_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ApiUnavailableError, match="Connection refused") as caught:
            client(tmp_path, url).get("/x")
    assert "server address" in caught.value.hint
    assert "urllib3" not in caught.value.message


def test_tls_works_with_the_kubeconfigs_authority_and_fails_with_another(tmp_path: Path) -> None:
    authority, other = new_authority(datetime.now(UTC)), new_authority(datetime.now(UTC))
    context = server_context(authority, tmp_path)
    with scripted(lambda exchange: exchange.json({}), context) as server:
        for trusted in (authority, other):
            write_kubeconfig(
                tmp_path / trusted.certificate[40:50].hex(), server=server.url, authority=trusted, token="t"
            )
        good = connect(tmp_path / authority.certificate[40:50].hex(), None, timeouts=QUICK)
        bad = connect(tmp_path / other.certificate[40:50].hex(), None, timeouts=QUICK)
        assert good.get("/x") == b"{}"
        with pytest.raises(ApiError, match="cannot be verified") as caught:
            bad.get("/x")
    assert not isinstance(caught.value, ApiUnavailableError)
    assert "certificate-authority" in caught.value.hint


@pytest.mark.parametrize("days", [-400, 400])
def test_a_certificate_that_a_clock_finds_too_old_or_too_new_leads_to_the_clock(tmp_path: Path, days: int) -> None:
    authority = new_authority(datetime.now(UTC) + timedelta(days=days))
    with scripted(lambda exchange: exchange.json({}), server_context(authority, tmp_path)) as server:
        write_kubeconfig(tmp_path / "kubeconfig", server=server.url, authority=authority, token="t")
        with pytest.raises(ApiError, match="cannot be verified") as caught:
            connect(tmp_path / "kubeconfig", None, timeouts=QUICK).get("/x")
    assert "this machine's clock" in caught.value.hint


def test_insecure_skip_tls_verify_is_honoured_silently(tmp_path: Path) -> None:
    context = server_context(new_authority(datetime.now(UTC)), tmp_path)
    with scripted(lambda exchange: exchange.json({}), context) as server:
        config = Kubeconfig(server.url, cluster={"insecure-skip-tls-verify": True})
        assert connect(config.write(tmp_path / "kubeconfig"), None).get("/x") == b"{}"
