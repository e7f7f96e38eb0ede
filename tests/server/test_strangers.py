"""Clients that mean no good: what they can use is limited, and they are granted nothing."""

import http.client
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from rollout.server.connections import IDLE_SECONDS
from tests.apply.conftest import Started
from tests.server.conftest import Client, Serve, Serving, slots_of, workers
from tests.state import holder_of
from tests.waiting import wait_until

# Of one address.
MOST = 512
# Another address of this machine than the one that the bad client has.
OTHER = "127.0.0.2"
HEAD = b"POST /v1/pre-reboot HTTP/1.1\r\nHost: x\r\nfleet-lock-protocol: true\r\n"


def address(server: Serving) -> tuple[str, int]:
    host, port = server.url.split("//")[1].split("/")[0].rsplit(":", 1)
    return host, int(port)


def request_of(node_id: str, tail: bytes = b"") -> bytes:
    body = json.dumps({"client_params": {"id": node_id, "group": "default"}}).encode() + tail
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"client_params":{"id":"%s\\u0000","group":"default"}}', "invalid_client_identity"),
        ('{"client_params":{"id":"%s","group":"gr\u00fcppe"}}', "invalid_client_identity"),
        ('{"client_params":{"id":"%s","group":"default\\n"}}', "invalid_client_identity"),
        ('{"client_params":{"id":"%s","id":"0","group":"default"}}', "unknown_id"),
        (
            '{"client_params":{"id":"%s","group":"default"},"client_params":{"id":"0","group":"default"}}',
            "unknown_id",
        ),
        ('{"client_params":{"id":"%s","group":"default"}} {}', "decode_error"),
        ('{"client_params":{"id":["%s"],"group":"default"}}', "decode_error"),
    ],
)
def test_a_request_is_read_in_one_way_only(body: str, kind: str, server: Serving, lab: Lab) -> None:
    answer = server.send("pre-reboot", (body % Client(lab, workers(lab)[0]).id).encode())
    assert answer.kind == kind
    assert slots_of(lab) == []


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
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_silent_connections_make_room_for_requests(server: Serving, lab: Lab) -> None:
    """The longest silent ones of an address go as soon as there are too many of it, well before their time is up.

    None goes that is older and of another address, nor one that is being answered.
    """
    began = time.monotonic()
    extra = 300
    with ExitStack() as stack, more_files(4 * MOST):
        other = stack.enter_context(socket.create_connection(address(server), 30, (OTHER, 0)))
        reporting = stack.enter_context(socket.create_connection(address(server), 60))
        hang = ApiFault(answer=FaultAnswer.HANG, delay=60, verb="get")
        lab.inflict(hang)
        stack.callback(lab.call, lab.faults.clear)
        reporting.sendall(
            HEAD.replace(b"pre-reboot", b"steady-state")
            + request_of(Client(lab, workers(lab)[0]).id)
        )
        wait_until(lambda: lab.struck(hang))
        silent = [
            stack.enter_context(socket.create_connection(address(server), 30))
            for _ in range(MOST + extra)
        ]
        assert server.get("/healthz") == (200, "ok\n")
        wait_until(lambda: sum(map(is_closed, silent)) >= extra)
        if time.monotonic() - began < IDLE_SECONDS:
            assert sum(map(is_closed, silent[-MOST + 50 :])) == 0
            assert not is_closed(other)
        lab.call(lab.faults.clear)
        assert reporting.recv(1000).startswith(b"HTTP/1.1 ")
        assert server.request("pre-reboot", "0" * 32).kind == "unknown_id"
    assert not server.has_said("out of system resource")


@pytest.mark.exhaustive
def test_a_silent_connection_is_closed_though_nobody_needs_its_room(server: Serving) -> None:
    with socket.create_connection(address(server), 30) as silent:
        wait_until(lambda: is_closed(silent))


def of_another(
    server: Serving, method: str, path: str, host_id: str = "", seconds: float = 5
) -> tuple[int, bytes]:
    """What a client of another address is answered within so many seconds."""
    connection = http.client.HTTPConnection(
        *address(server), timeout=seconds, source_address=(OTHER, 0)
    )
    body = json.dumps({"client_params": {"id": host_id, "group": "default"}}) if host_id else None
    try:
        connection.request(method, path, body, {"fleet-lock-protocol": "true"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.exhaustive
def test_one_client_keeps_neither_others_nor_probes_out(started: Started, serve: Serve) -> None:
    """Each of its reports waits for a proof that does not come."""
    lab = started("drain-hangs", 6)
    server = serve(lab, "--slots", "2")
    bad, good = [Client(lab, name) for name in workers(lab)[:2]]
    bad.await_grant(server)
    over = threading.Event()

    def report() -> None:
        while not over.is_set():
            bad.report(server)

    with ThreadPoolExecutor(128) as pool:
        for _ in range(128):
            pool.submit(report)
        try:
            for _ in range(20):
                for path in ("/readyz", "/healthz", "/metrics"):
                    assert of_another(server, "GET", path)[0] == 200
                status, body = of_another(server, "POST", "/v1/steady-state", good.id)
                assert (status, b"not_held" in body) == (200, True), body
        finally:
            over.set()


@pytest.mark.exhaustive
def test_a_server_ends_within_ten_seconds_even_while_the_api_server_hangs(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 5)
    server = serve(lab, "--slots", "2")
    clients = [Client(lab, name) for name in workers(lab)[:2]]
    clients[0].await_grant(server)
    assert holder_of(lab)
    lab.inflict(ApiFault(answer=FaultAnswer.HANG))
    threads = [
        threading.Thread(target=_request_until_refused, args=(client, server), daemon=True)
        for client in clients
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: server.get("/readyz")[0] == 503)
    began = time.monotonic()
    assert server.end() == 0
    assert time.monotonic() - began < 10
    lab.call(lab.faults.clear)


def _request_until_refused(client: Client, server: Serving) -> None:
    """Repeat a request until the server is gone."""
    try:
        while True:
            client.request_reboot(server)
    except OSError:
        return


def said_to(server: Serving, sent: bytes, seconds: float = 30) -> bytes:
    """What comes back: a line at least, or nothing where the server hangs up."""
    said = b""
    with (
        socket.create_connection(address(server), timeout=seconds) as connection,
        suppress(ConnectionError),
    ):
        connection.sendall(sent)
        while b"\n" not in said and (part := connection.recv(65536)):
            said += part
    return said


LAST = HEAD + b"Connection: close\r\n"


ODD = {
    "a long header": LAST + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "a long path": (
        b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    ),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xfe" * 400,
    "a NUL in the path": b"POST /v1/pre-reboot\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "chunks without end": (
        LAST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"400\r\n" + b"a" * 1024 + b"\r\n") * 50
    ),
    "a chunk that is none": LAST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "two lengths": LAST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a huge length": LAST + b"Content-Length: 99999999999\r\n\r\n" + b" " * 5000,
    "a header twice": (
        LAST.replace(b"true", b"false")
        + b"fleet-lock-protocol: true\r\nContent-Length: 2\r\n\r\n{}"
    ),
    "an encoding": LAST + b"Content-Encoding: gzip\r\nContent-Length: 6\r\n\r\nno zip",
}


@pytest.mark.parametrize("name", ODD)
def test_a_body_that_is_no_request_is_never_granted(name: str, server: Serving, lab: Lab) -> None:
    said = said_to(server, ODD[name])
    assert b" 200 " not in said.partition(b"\r\n")[0]
    assert slots_of(lab) == []
    assert server.get("/healthz") == (200, "ok\n")
