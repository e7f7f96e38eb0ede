import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rollout.adapters.kube.api import KubeApi, Timeouts, connect
from rollout.errors import ApiGoneError, ApiUnavailableError
from rollout.lab.credentials import Authority, new_authority, server_context
from tests.scripted_api import Exchange, Kubeconfig, ScriptedServer, scripted


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority(datetime.now(UTC))


@pytest.fixture(params=["http", "https"])
def tls(request: pytest.FixtureRequest, authority: Authority, tmp_path: Path) -> ssl.SSLContext | None:
    return server_context(authority, tmp_path) if request.param == "https" else None


def client(tmp_path: Path, server: ScriptedServer) -> KubeApi:
    config = Kubeconfig(server.url, cluster={"insecure-skip-tls-verify": True})
    return connect(config.write(tmp_path / "kubeconfig"), None, timeouts=Timeouts(connect=2, read=1))


def endless(exchange: Exchange) -> None:
    exchange.stream()
    exchange.line({"n": 1})
    exchange.wait()


def test_lines_come_whole_and_as_they_happen_whatever_the_chunks(tmp_path: Path, tls: ssl.SSLContext | None) -> None:
    proceed = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.stream()
        exchange.piece(b'{"n":1}\n{"n":')
        proceed.wait(60)
        exchange.piece(b"2}\n\n")
        exchange.piece(b'{"n":3}\n')
        exchange.piece(b"x" * 200_000 + b"\n")
        exchange.wfile.write(b"0\r\n\r\n")

    with scripted(script, tls) as server, client(tmp_path, server).watch("/w", {}, seconds=5) as lines:
        assert next(lines) == b'{"n":1}'
        proceed.set()
        assert list(lines) == [b'{"n":2}', b'{"n":3}', b"x" * 200_000]


def test_the_request_asks_for_bookmarks_and_an_end_and_no_compression(tmp_path: Path) -> None:
    with scripted(endless) as server:
        query = {"resourceVersion": "7", "fieldSelector": "metadata.name=n"}
        with client(tmp_path, server).watch("/w", query, seconds=90) as lines:
            next(lines)
        assert server.exchanges[0].query == {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "90",
        }
        assert server.exchanges[0].headers["Accept-Encoding"] == "identity"


def test_another_thread_ends_a_blocked_watch_at_once(tmp_path: Path, tls: ssl.SSLContext | None) -> None:
    with scripted(endless, tls) as server:
        for _ in range(20):
            stream = client(tmp_path, server).watch("/w", {}, seconds=600)
            outcome: list[object] = []
            entered = threading.Event()
            reader = threading.Thread(target=_collect, args=(stream, outcome, entered))
            reader.start()
            assert entered.wait(60)
            time.sleep(0.005)
            began = time.monotonic()
            stream.__exit__(None, None, None)
            reader.join(60)
            assert not reader.is_alive()
            assert time.monotonic() - began < 20
            assert outcome == [b'{"n": 1}', "end"]


def _collect(stream: AbstractContextManager[Iterator[bytes]], outcome: list[object], entered: threading.Event) -> None:
    try:
        with stream as lines:
            for line in lines:
                outcome.append(line)
                entered.set()
        outcome.append("end")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test looks at
        outcome.append(error)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_lost_connection_is_an_error_and_no_end(tmp_path: Path, tls: ssl.SSLContext | None, *, orderly: bool) -> None:
    def script(exchange: Exchange) -> None:
        exchange.stream()
        exchange.line({"n": 1})
        exchange.close_connection = True
        if not orderly:
            time.sleep(0.05)
            exchange.reset()

    with scripted(script, tls) as server, client(tmp_path, server).watch("/w", {}, seconds=60) as lines:
        assert next(lines) == b'{"n": 1}'
        with pytest.raises(ApiUnavailableError, match="broke"):
            next(lines)


def test_a_version_too_old_is_gone_before_the_first_line(tmp_path: Path) -> None:
    body = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}
    with scripted(lambda exchange: exchange.json(body, 410)) as server:
        watch = client(tmp_path, server).watch("/w", {"resourceVersion": "1"}, seconds=60)
        with pytest.raises(ApiGoneError, match="too old"), watch:
            pass
