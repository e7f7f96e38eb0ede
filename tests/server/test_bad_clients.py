"""One client that means no good, or an API server that hangs: all others are answered, and the server can be ended."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from tests.server.conftest import Client, Serve, Serving, holder_of, workers
from tests.server.test_strangers import address
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
