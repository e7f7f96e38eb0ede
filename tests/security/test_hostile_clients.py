"""Clients that are no hosts, on bare connections: they are refused or let go, change nothing, and keep nobody out.

What a request has to be is held in `test_wire`.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.server.serving import (
    HEADERS,
    PRE_REBOOT,
    STEADY_STATE,
    Reply,
    Server,
    cordoned,
    host_id,
    serving,
)

PATHS = (PRE_REBOOT, STEADY_STATE)
GROUPS = (
    "--group",
    "workers=1",
    "--group",
    "controllers=1",
    "--group-selector",
    "workers=!node-role.kubernetes.io/control-plane",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all: what is refused leaves nothing behind."""
    folder: Path = tmp_path_factory.mktemp("protocol")
    with (
        Lab.start(scale(load_scenario("default"), 4), directory=folder / "lab", speed=20) as lab,
        serving(lab, folder, *GROUPS) as server,
    ):
        yield server
        assert cordoned(lab) == set()
        assert not any(lab.scoreboard().reboots.values())
        assert lab.scoreboard().annotations_left == {}


def assert_refused(reply: Reply, status: int, kind: str) -> None:
    assert (reply.status, reply.kind) == (status, kind), reply.body
    assert reply.headers["content-type"].split(";")[0] == "application/json"
    assert set(json.loads(reply.body)) == {"kind", "value"}
    assert reply.value
    assert "\n" not in reply.value
    assert "Traceback" not in reply.value


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"workers"',
        b"\xff\xfe{",
        b"{}",
        b'{"client_params": null}',
        b'{"client_params": {"id": "a"}}',
        b'{"client_params": {"group": "workers"}}',
        b'{"client_params": {"id": 1, "group": "workers"}}',
        b'{"client_params": {"id": ["a"], "group": "workers"}}',
        b"[" * 3000,
        b'{"client_params": {"id": "a", "group": "workers"}} {}',
        b"client_params[id]=a&client_params[group]=workers",
    ],
)
def test_a_body_that_is_not_the_protocols(path: str, body: bytes, server: Server) -> None:
    assert_refused(server.request("POST", path, body, HEADERS), 400, "decode_error")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [5_000, 1_000_000, 20_000_000])
def test_an_oversized_body(path: str, size: int, server: Server) -> None:
    """Refused by what it announces, or as soon as there is too much of it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        raw.sendall(head(path, f"Content-Length: {size}"))
        with suppress(OSError):
            raw.sendall(b" " * size)
        status = read_status(raw)
    assert status in (413, 0), "a connection that is closed on whoever goes on sending is an answer, too"
    assert server.is_ready


@pytest.mark.parametrize("path", PATHS)
def test_an_endless_body_without_a_length(path: str, server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        raw.sendall(head(path, "Transfer-Encoding: chunked"))
        with suppress(OSError):
            for _ in range(200):
                raw.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
        assert read_status(raw) in (413, 0)
    assert server.is_ready


def head(path: str, header: str) -> bytes:
    """A request up to its body."""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nfleet-lock-protocol: true\r\n{header}\r\n\r\n".encode()


def read_status(raw: socket.socket) -> int:
    """Of the answer's first line; 0 where the connection ended without one."""
    try:
        line = raw.makefile("rb").readline()
    except OSError:
        return 0
    return int(line.split()[1]) if line else 0


def test_slow_clients_are_let_go_and_keep_nobody_out(server: Server) -> None:
    """A hundred that announce a body and never send it; a host that asks meanwhile is answered at once."""
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(100)]
    try:
        for raw in slow:
            raw.sendall(head(PRE_REBOOT, "Content-Length: 100") + b"{")
        began = time.monotonic()
        assert server.steady_state("worker-1", "workers").status == 200
        assert time.monotonic() - began < 8
        statuses = {read_status(raw) for raw in slow}
    finally:
        for raw in slow:
            raw.close()
    # 408 for whoever was read, 503 for whoever came too late for that
    assert statuses <= {408, 503, 0}, statuses
    assert server.is_ready


@pytest.mark.parametrize(
    "text", [b"BREW /v1/pre-reboot HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\r\n\r\n{}\r\n\r\n"]
)
def test_what_is_no_http_is_refused(text: bytes, server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        raw.sendall(text)
        assert read_status(raw) in (400, 0)
    assert server.is_ready


def test_connections_that_say_nothing_are_closed_and_keep_nobody_out(server: Server) -> None:
    """Nor do those that begin a request's head and never end it."""
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(200)]
    try:
        for raw in silent[:100]:
            raw.sendall(b"POST /v1/pre-reboot HTTP/1.1\r\nHost: ")
        assert server.steady_state("worker-1", "workers").status == 200
        assert {read_status(raw) for raw in silent} <= {0, 400, 408}
    finally:
        for raw in silent:
            raw.close()


def test_headers_that_never_end_are_let_go(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        raw.sendall(b"POST /v1/pre-reboot HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 100_000)
        assert read_status(raw) in (400, 431, 0)
    assert server.is_ready


def test_fields_that_are_not_known_are_overlooked(server: Server) -> None:
    """A later protocol may have more of them."""
    document = {"client_params": {"id": host_id(server.lab, "worker-1"), "group": "workers", "x": 1}, "y": []}
    assert server.request("POST", STEADY_STATE, json.dumps(document).encode(), HEADERS).status == 200
