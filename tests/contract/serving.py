"""A FleetLock server on played Nodes."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import urllib3

from rollout.lab.hosts.zincati import request_body
from tests.contract.played import Played
from tests.contract.programs import assert_in_service, marks, node, selector, started
from tests.server.serving import HEADERS, free_port
from tests.waiting import wait_until


@contextmanager
def serving(played: Played, home: Path, **variables: str) -> Iterator[Callable[[str, str], int]]:
    """A FleetLock server; given is what asks it as a node's host does, and returns the status of the answer."""
    server = f"127.0.0.1:{free_port()}"
    process = started(played, home, "fleetlock", "--listen", server, *selector(played), **variables)

    def ask(what: str, name: str) -> int:
        time.sleep(0.5)  # it is asked again and again
        body = request_body(played.kubelets[name].machine.machine_id, "default")
        return urllib3.request("POST", f"http://{server}/v1/{what}", body=body, headers=HEADERS, timeout=60).status

    def is_ready() -> bool:
        with suppress(urllib3.exceptions.HTTPError):
            return urllib3.request("GET", f"http://{server}/readyz", retries=False, timeout=60).status == 200
        return False

    try:
        wait_until(is_ready, 60)
        yield ask
    finally:
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr


def assert_a_host_that_asks_is_served(played: Played, home: Path, **variables: str) -> None:
    """One life over HTTP: the grant after the drain, one reboot, and the release after its proof."""
    name, before = min(played.kubelets), played.reboots
    with serving(played, home, **variables) as ask:
        wait_until(lambda: ask("pre-reboot", name) == 200, 90)
        assert node(played, name)["spec"]["unschedulable"]
        assert marks(played, name)["phase"] == "rebooting"
        played.reboot(name)
        wait_until(lambda: ask("steady-state", name) == 200, 90)
    assert played.reboots == {each: count + (each == name) for each, count in before.items()}
    assert_in_service(played, results=False)
