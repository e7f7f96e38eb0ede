"""One client that means no good, or an API server that hangs: all others are answered, and the server can be ended."""

import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from signal import SIGKILL

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from tests.ended import HeardProcess
from tests.server.certificates import new_certificate
from tests.server.conftest import CALM, Client, Serve, Serving, holder_of, slots_of, workers
from tests.server.test_strangers import HEAD, address, asking
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

Start = Callable[[str, int], Lab]
# Another address of this machine than the one that the bad client has.
OTHER = "127.0.0.2"
FILES = 300


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


@pytest.mark.sample
@pytest.mark.timeout(240)
def test_one_client_keeps_neither_others_nor_probes_out(started: Start, serve: Serve) -> None:
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


@pytest.fixture
def short_of_files(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """Servers that may open few files."""
    running: list[Serving] = []

    def begin(lab: Lab, *arguments: str, context: ssl.SSLContext | None = None) -> Serving:
        program = (sys.executable, "-c", "from rollout.cli.entry import main; main()")
        words = (*program, "fleetlock", "--listen", "127.0.0.1:0", *CALM, *arguments)
        process = HeardProcess(
            ["/bin/sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", *words],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **lab.environment},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(Serving(process, context=context))
        return running[-1]

    yield begin
    for serving in running:
        serving.end(SIGKILL)


@pytest.mark.parametrize("kind", ["bodies", "handshakes"])
def test_unsent_bodies_and_handshakes_use_up_no_files(
    kind: str, started: Start, short_of_files: Callable[..., Serving], tmp_path: Path
) -> None:
    lab = started("default", 4)
    if kind == "handshakes":
        certificate, key = new_certificate(tmp_path)
        context = ssl.create_default_context(cafile=str(certificate))
        tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
        server, sent = short_of_files(lab, *tls, context=context), b"\x16\x03\x01"
    else:
        server, sent = short_of_files(lab), HEAD + asking("0" * 32)[:-1]
    client = Client(lab, workers(lab)[0])
    with ExitStack() as stack:
        for _ in range(400):
            connection = stack.enter_context(socket.create_connection(address(server), 30))
            connection.sendall(sent)
        for path in ("/readyz", "/metrics"):
            assert of_another(server, "GET", path)[0] == 200
        assert b"waiting_for_drain" in of_another(server, "POST", "/v1/pre-reboot", client.id)[1]
    assert not server.has_said("no connection can be accepted")
    assert not server.has_said("Too many open files")


@pytest.mark.timeout(240)
def test_a_server_ends_within_ten_seconds_even_while_the_api_server_hangs(started: Start, serve: Serve) -> None:
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


def test_three_slots_alone_are_three(started: Start, serve: Serve) -> None:
    lab = started("default", 8)
    server = serve(lab, "--slots", "3")
    kinds = [Client(lab, name).ask(server).kind for name in workers(lab)[:4]]
    assert kinds == [*["waiting_for_drain"] * 3, "failed_lock_semaphore_full"]
    wait_until(lambda: len(slots_of(lab)) == 3)
