"""Whoever reaches the port and means no good: bounded in all they can take, and never granted anything."""

import gzip
import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from rollout.server.connections import IDLE_SECONDS
from tests.server.conftest import Client, Serving, slots_of, workers
from tests.waiting import wait_until

HEAD = b"POST /v1/pre-reboot HTTP/1.1\r\nHost: x\r\nfleet-lock-protocol: true\r\n"
LAST = HEAD + b"Connection: close\r\n"
# Of one address.
MOST = 512


def address(server: Serving) -> tuple[str, int]:
    host, port = server.url.split("//")[1].split("/")[0].rsplit(":", 1)
    return host, int(port)


def said_to(server: Serving, sent: bytes, seconds: float = 30) -> bytes:
    """All that comes back until the server hangs up."""
    with socket.create_connection(address(server), timeout=seconds) as connection:
        parts = []
        try:
            connection.sendall(sent)
            while part := connection.recv(65536):
                parts.append(part)
        except ConnectionError:
            pass
        return b"".join(parts)


def memory_of(server: Serving) -> float:
    """MB at its peak."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def asking(node_id: str, tail: bytes = b"") -> bytes:
    body = json.dumps({"client_params": {"id": node_id, "group": "default"}}).encode() + tail
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"client_params":{"id":"%s\\u0000","group":"default"}}', "invalid_client_identity"),
        ('{"client_params":{"id":"%s","group":"gr\u00fcppe"}}', "invalid_client_identity"),
        ('{"client_params":{"id":"%s","group":"default\\n"}}', "invalid_client_identity"),
        ('{"client_params":{"id":"%s\u0660","group":"default"}}', "invalid_client_identity"),
        ('{"client_params":{"id":"%s","id":"0","group":"default"}}', "unknown_id"),
        ('{"client_params":{"id":"%s","group":"default"},"client_params":{"id":"0","group":"default"}}', "unknown_id"),
        ('{"client_params":{"id":"%s","group":"default"}} {}', "decode_error"),
        ('{"client_params":[{"id":"%s","group":"default"}]}', "decode_error"),
        ('{"client_params":{"id":["%s"],"group":"default"}}', "decode_error"),
    ],
)
def test_who_asks_is_read_in_one_way_only(body: str, kind: str, server: Serving, lab: Lab) -> None:
    answer = server.send("pre-reboot", (body % Client(lab, workers(lab)[0]).id).encode())
    assert answer.kind == kind
    assert slots_of(lab) == []


def test_a_small_body_that_unfolds_to_a_large_one_is_not_unfolded(server: Serving) -> None:
    before, bomb = memory_of(server), gzip.compress(b" " * 200_000_000, 9)
    for sent in (bomb, bomb[:4000]):
        head = LAST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(sent)
        assert b" 200 " not in said_to(server, head + sent).partition(b"\r\n")[0]
    packed = gzip.compress(asking("0" * 32).partition(b"\r\n\r\n")[2])
    answer = server.send("pre-reboot", packed, Content_Encoding="gzip")
    assert answer.kind == "decode_error"
    assert memory_of(server) - before < 50


@contextmanager
def more_files(number: int) -> Iterator[None]:
    """Let this process open so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, number)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_silent_connections_make_room_for_those_that_ask(server: Serving) -> None:
    """The longest silent ones go as soon as there are too many, well before their time is up."""
    began, extra = time.monotonic(), 300
    with ExitStack() as stack, more_files(4 * MOST):
        silent = [stack.enter_context(socket.create_connection(address(server), 30)) for _ in range(MOST + extra)]
        assert server.get("/healthz") == (200, "ok\n")
        assert server.ask("pre-reboot", "0" * 32).kind == "unknown_id"
        wait_until(lambda: sum(map(is_closed, silent)) >= extra)
        if time.monotonic() - began < IDLE_SECONDS:
            assert sum(map(is_closed, silent[-MOST + 50 :])) == 0
        wait_until(lambda: all(map(is_closed, silent)))
    assert not server.has_said("out of system resource")
