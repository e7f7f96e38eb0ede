"""Whoever reaches the port and means no good: bounded in all they can take, and never granted anything."""

import asyncio
import http.client
import json
import resource
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from rollout.server.connections import IDLE_SECONDS, PART_OF_ONE, Connections
from tests.apply.conftest import Started
from tests.server.conftest import Client, Serve, Serving, slots_of, workers
from tests.state import holder_of
from tests.waiting import wait_until

# Of one address.
MOST = 512


def address(server: Serving) -> tuple[str, int]:
    host, port = server.url.split("//")[1].split("/")[0].rsplit(":", 1)
    return host, int(port)


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
    assert not server.has_said("out of system resource")


@pytest.mark.exhaustive
def test_a_silent_connection_is_closed_though_nobody_needs_its_room(server: Serving) -> None:
    with socket.create_connection(address(server), 30) as silent:
        wait_until(lambda: is_closed(silent))


# Another address of this machine than the one that the bad client has.
OTHER = "127.0.0.2"


def of_another(server: Serving, method: str, path: str, asked_as: str = "", seconds: float = 5) -> tuple[int, bytes]:
    """What a client of another address is answered within so many seconds."""
    to, source = address(server), (OTHER, 0)
    if server.context is None:
        connection = http.client.HTTPConnection(*to, timeout=seconds, source_address=source)
    else:
        connection = http.client.HTTPSConnection(*to, timeout=seconds, source_address=source, context=server.context)
    body = json.dumps({"client_params": {"id": asked_as, "group": "default"}}) if asked_as else None
    try:
        connection.request(method, path, body, {"fleet-lock-protocol": "true"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.exhaustive
@pytest.mark.sample
@pytest.mark.timeout(240)
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
            end = time.monotonic() + 8
            while time.monotonic() < end:
                for path in ("/readyz", "/healthz", "/metrics"):
                    assert of_another(server, "GET", path)[0] == 200
                status, body = of_another(server, "POST", "/v1/steady-state", good.id)
                assert (status, b"not_held" in body) == (200, True), body
        finally:
            over.set()


@pytest.mark.exhaustive
@pytest.mark.timeout(240)
def test_a_server_ends_within_ten_seconds_even_while_the_api_server_hangs(started: Started, serve: Serve) -> None:
    lab = started("default", 5)
    server, clients = serve(lab, "--slots", "2"), [Client(lab, name) for name in workers(lab)[:2]]
    clients[0].await_grant(server)
    assert holder_of(lab)
    lab.inflict(ApiFault(answer=FaultAnswer.HANG))
    asks = [threading.Thread(target=_asked, args=(client, server), daemon=True) for client in clients]
    for ask in asks:
        ask.start()
    wait_until(lambda: server.get("/readyz")[0] == 503)
    began = time.monotonic()
    assert server.end() == 0
    assert time.monotonic() - began < 10
    lab.behave()


def _asked(client: Client, server: Serving) -> None:
    """Again and again, until the server is gone."""
    try:
        while True:
            client.ask(server)
    except OSError:
        return


# Which connection goes where there are too many: the longest silent one, and none that is being answered.


LIMIT = 6


OF_ONE = LIMIT // PART_OF_ONE


@dataclass(eq=False)
class Handler(asyncio.Protocol):
    """As aiohttp's: of one connection, and without a transport once that is closed."""

    transport: Any = None
    was_closed: bool = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def force_close(self) -> None:
        self.was_closed = True
        if self.transport:
            self.transport.close()


@dataclass
class Port:
    """What listens, and the handlers of all that it has accepted, in order."""

    number: int
    connections: Connections
    handlers: list[Handler]
    clients: ExitStack

    async def connect(self, address: str) -> Handler:
        known, to = len(self.handlers), ("127.0.0.1", self.number)
        self.clients.enter_context(socket.create_connection(to, source_address=(address, 0)))
        while len(self.handlers) == known or self.handlers[-1].transport is None:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
        return self.handlers[-1]


@asynccontextmanager
async def listening() -> AsyncIterator[Port]:
    handlers: list[Handler] = []

    def accepted() -> Any:
        handlers.append(Handler())
        return handlers[-1]

    with socket.create_server(("127.0.0.1", 0)) as bound, ExitStack() as clients:
        bound.setblocking(False)
        connections = Connections(LIMIT)
        task = asyncio.create_task(connections.accept(bound, accepted, None))
        yield Port(bound.getsockname()[1], connections, handlers, clients)
        task.cancel()
        for handler in handlers:
            handler.force_close()
        while any(handler.transport for handler in handlers):  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)


def test_the_longest_silent_connection_of_an_address_makes_room_for_its_next() -> None:
    async def live() -> None:
        async with listening() as port:
            other = await port.connect("127.0.0.9")
            first, second, *_ = [await port.connect("127.0.0.1") for _ in range(OF_ONE)]
            assert not any(handler.was_closed for handler in port.handlers)
            request: Any = SimpleNamespace(protocol=first)
            with port.connections.asking(request):
                await port.connect("127.0.0.1")
                assert (first.was_closed, second.was_closed) == (False, True), "the first is being answered"
            assert not other.was_closed, "it is older, and of another address"

    asyncio.run(live())


def test_where_there_are_too_many_in_all_the_longest_silent_goes() -> None:
    async def live() -> None:
        async with listening() as port:
            first = await port.connect("127.0.0.9")
            for number in range(LIMIT):
                await port.connect(f"127.0.0.{number % 3 + 1}")
            assert [handler.was_closed for handler in port.handlers] == [True, *([False] * LIMIT)]
            assert first.was_closed

    asyncio.run(live())


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


HEAD = b"POST /v1/pre-reboot HTTP/1.1\r\nHost: x\r\nfleet-lock-protocol: true\r\n"


LAST = HEAD + b"Connection: close\r\n"


ODD = {
    "headers without end": LAST + b"".join(b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(5000)) + b"\r\n",
    "a long header": LAST + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "a long path": b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xfe" * 400,
    "a NUL in the path": b"POST /v1/pre-reboot\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "chunks without end": LAST + b"Transfer-Encoding: chunked\r\n\r\n" + (b"400\r\n" + b"a" * 1024 + b"\r\n") * 50,
    "a chunk that is none": LAST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "two lengths": LAST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative length": LAST + b"Content-Length: -5\r\n\r\n",
    "a huge length": LAST + b"Content-Length: 99999999999\r\n\r\n" + b" " * 5000,
    "an expectation": LAST + b"Expect: something\r\nContent-Length: 2\r\n\r\n{}",
    "a header twice": LAST.replace(b"true", b"false") + b"fleet-lock-protocol: true\r\nContent-Length: 2\r\n\r\n{}",
    "an encoding": LAST + b"Content-Encoding: gzip\r\nContent-Length: 6\r\n\r\nno zip",
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_ask_gets_no_yes(name: str, server: Serving, lab: Lab) -> None:
    said = said_to(server, ODD[name])
    assert b" 200 " not in said.partition(b"\r\n")[0]
    assert slots_of(lab) == []
    assert server.get("/healthz") == (200, "ok\n")
