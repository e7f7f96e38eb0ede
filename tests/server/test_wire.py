"""The protocol on the wire: what is not a request in its form is denied, and bounded."""

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from rollout.server.http import LARGEST_BODY, MOST_REQUESTS
from tests.ended import invoked
from tests.server.conftest import Client, Serving, new_certificate, serving, slots_of, workers
from tests.waiting import wait_until

FLAGS = ("--group", "workers=1")
BODY = b'{"client_params":{"id":"%s","group":"default"}}'


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "decode_error", 400),
        (b'{"client_params":{"id":"a"}}', "decode_error", 400),
        (b'{"client_params":{"id":1,"group":"workers"}}', "decode_error", 400),
        (b'{"client_params":{"id":"\xff","group":"workers"}}', "decode_error", 400),
        (b"[" * 4000, "decode_error", 400),
        (b'{"client_params":{"id":"","group":"workers"}}', "invalid_client_identity", 400),
        (b'{"client_params":{"id":"a","group":""}}', "invalid_client_identity", 400),
        (b'{"client_params":{"id":"a/b","group":"workers"}}', "invalid_client_identity", 400),
        (b'{"client_params":{"id":"a","group":"work ers"}}', "invalid_client_identity", 400),
        (b'{"client_params":{"id":"a","group":"others"}}', "unknown_group", 400),
        (b" " * (LARGEST_BODY + 1), "body_too_large", 413),
    ],
)
def test_a_body_that_is_no_request_is_denied(
    server: Serving, lab: Lab, body: bytes, kind: str, status: int
) -> None:
    for request_name in ("pre-reboot", "steady-state"):
        answer = server.send(request_name, body)
        assert answer.kind == kind
        assert answer.status == status
        assert answer.headers["Content-Type"] == "application/json"
    assert not slots_of(lab)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_only_posts_are_requests(server: Serving, method: str) -> None:
    answer = server.send("pre-reboot", BODY % b"aa", method=method)
    assert answer.kind == "method_not_allowed"
    assert answer.status == 405


@pytest.mark.parametrize("value", ["", "false"])
def test_the_protocols_header_has_to_be_true(server: Serving, lab: Lab, value: str) -> None:
    answer = server.request(
        "pre-reboot", Client(lab, workers(lab)[0]).id, "workers", fleet_lock_protocol=value
    )
    assert answer.kind == "missing_header"
    assert answer.status == 400
    assert not slots_of(lab)


def test_an_unknown_id_is_never_granted_and_its_steady_state_is_no_trouble(
    server: Serving, lab: Lab
) -> None:
    for host_id in ("0" * 32, "c988d2509fdf5cdcbed39037c56406fb"):
        answer = server.request("pre-reboot", host_id, "workers")
        assert answer.kind == "unknown_id"
        assert answer.status == 403
        assert server.request("steady-state", host_id, "workers").kind == "not_held"
    assert not slots_of(lab)


def test_a_slow_body_times_out_and_keeps_nobody_waiting(server: Serving) -> None:
    host, port = server.url.split("//")[1].split("/")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = (
            "POST /v1/pre-reboot HTTP/1.1\r\nHost: x\r\nfleet-lock-protocol:"
            " true\r\nContent-Length: 50\r\n\r\n{"
        )
        connection.sendall(head.encode())
        assert server.request("steady-state", "0" * 32, "workers").status == 200
        answer = connection.recv(1000)
    assert b" 408 " in answer
    assert b"body_timeout" in answer


def test_more_requests_than_there_is_room_for_are_put_off(server: Serving, lab: Lab) -> None:
    """While the cluster does not respond; the process itself still says that it is well."""
    lab.inflict(ApiFault(answer=FaultAnswer.HANG, delay=60))
    host_id = Client(lab, workers(lab)[0]).id
    try:
        with ThreadPoolExecutor(2 * MOST_REQUESTS) as pool:
            requests = [
                pool.submit(server.request, "steady-state", host_id, "workers")
                for _ in range(2 * MOST_REQUESTS)
            ]
            wait_until(
                lambda: any(
                    request.done() and request.result().kind == "server_busy"
                    for request in requests
                )
            )
            assert server.get("/healthz") == (200, "ok\n")
            lab.call(lab.faults.clear)
            assert {request.result().status for request in requests} <= {200, 503}
    finally:
        lab.call(lab.faults.clear)
    wait_until(lambda: server.get("/readyz")[0] == 200)


def test_it_serves_https_with_the_operators_certificate(lab: Lab, tmp_path: Path) -> None:
    certificate, key = new_certificate(tmp_path)
    context = ssl.create_default_context(cafile=str(certificate))
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(lab, tmp_path, *tls, context=context) as server:
        assert server.url.startswith("https://")
        assert server.request("pre-reboot", "0" * 32).kind == "unknown_id"
        assert server.end() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tls-cert", "a.crt"), "--tls-cert and --tls-key belong together"),
        (("--tls-cert", "a.crt", "--tls-key", "a.key"), "cannot serve with --tls-cert a.crt"),
        (("--listen", "nowhere"), "is not a valid listen address"),
        (("--group", "workers"), "does not specify a FleetLock group"),
        (("--group", "workers=0"), "would allow no node to be rebooted"),
        (("--group-selector", "workers=a in"), "is not a label selector"),
        (("--set", "gates.interactive=true"), "a FleetLock server runs unattended"),
        (("--set", "reboot.pre-playbook=a.yml"), "cannot be used with fleetlock"),
        (("--set", "reboot.post-playbook=a.yml"), "cannot be used with fleetlock"),
        (("--skip", "blocked"), "unknown flag: --skip"),
        (("--reboot-timeout", "5m"), "unknown flag: --reboot-timeout"),
    ],
)
def test_flags_that_cannot_be_meant_are_refused(
    lab: Lab, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    ended = invoked(tmp_path, lab.environment, ("fleetlock", "serve", *arguments))
    assert words in " ".join(ended.stderr.split())
    assert ended.code in (1, 64)
