"""A defect of the program, wherever it strikes: no grant, no word of it to the host, and the server goes on.

What fails is the real program's own function, from one moment to the next and back again, as a file says.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

import pytest

from rollout.lab.lab import Lab
from tests.ended import HeardProcess
from tests.server.conftest import CALM, Client, Said, Serving, is_cordoned, marks_of, slots_of, workers
from tests.server.serving import left_on
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

Start = Callable[[str, int], Lab]
SECRET = "what-no-host-may-read"
HTTP, SERVER, METRICS = "rollout.server.http:", "rollout.server.", "rollout.report.metrics.fleetlock:FleetLockMetrics."
OF_AN_ASK = (
    f"{HTTP}check_request",
    f"{HTTP}_Front._body",
    f"{SERVER}admission:Admission.take",
    # within the compare and swap of the slots
    f"{SERVER}admission:taken",
    # by these, a slot has been taken
    f"{HTTP}Answer.at",
    f"{SERVER}service:AskLog.note",
    f"{METRICS}count",
)
OF_A_GRANT = (
    f"{SERVER}holders:Grants.answer",
    f"{SERVER}holders:mark_granted",
    f"{SERVER}holders:look_again",
    # in the thread beside
    f"{SERVER}state:Leadership.check",
    f"{SERVER}worker:Worker.detail",
)
STEPS = ("_begin", "_empty", "_await_boot", "_prove_ready", "_finish")
OTHERS = {"/readyz": f"{SERVER}state:SlotBook.why_unread", "/metrics": f"{METRICS}collect"}
RELEASE = f"{SERVER}holders:Releases.answer"
PLACES = (*OF_AN_ASK, *OF_A_GRANT, RELEASE, *(f"{SERVER}steps:{step}" for step in STEPS), *OTHERS.values())
BROKEN = f"""
import sys
from importlib import import_module
from pathlib import Path

switch = Path(sys.argv.pop(1))

def breakable(place):
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner = import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    whole = getattr(owner, name)

    def broken(*arguments, **words):
        if switch.read_text() == place:
            raise RuntimeError("{SECRET} in " + place)
        return whole(*arguments, **words)

    setattr(owner, name, broken)

for place in {PLACES}:
    breakable(place)
from rollout.cli.entry import main
main()
"""


@dataclass
class Faulty:
    """A server of which one function may be made to fail."""

    serving: Serving
    switch: Path

    def fail(self, place: str) -> None:
        self.switch.write_text(place)

    def mend(self) -> None:
        self.switch.write_text("")


Begin = Callable[[Lab], Faulty]


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Begin]:
    running: list[Serving] = []

    def begin(lab: Lab) -> Faulty:
        switch = tmp_path / "switch"
        switch.write_text("")
        words = ("-c", BROKEN, str(switch), "fleetlock", "--listen", "127.0.0.1:0", *CALM)
        process = HeardProcess(
            [sys.executable, *words],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **lab.environment},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(Serving(process))
        return Faulty(running[-1], switch)

    yield begin
    for serving in running:
        serving.end(SIGKILL)


def assert_internal(answer: Said) -> None:
    assert (answer.status, answer.kind) == (500, "internal_error"), answer
    assert answer.value == "internal error, see the server's log"
    assert SECRET not in str(answer)


def assert_told(server: Serving, place: str) -> None:
    """In the log, in one line, and by no traceback."""
    wait_until(lambda: server.has_said(f"internal error, please report it: RuntimeError('{SECRET} in {place}')"))
    assert not [line for line in server.said if "Traceback" in line or '  File "' in line]


def await_end(server: Serving, client: Client) -> None:
    """The same server takes the same host through, as if nothing had been."""
    assert server.get("/healthz") == (200, "ok\n")
    assert client.await_grant(server).kind == "granted"
    assert left_on(client.lab, client.node) == []
    client.reboot()
    client.await_release(server)
    assert not is_cordoned(client.lab, client.node)
    wait_until(lambda: not slots_of(client.lab))
    assert client.lab.scoreboard().rebooted_undrained == ()


@pytest.mark.sample
@pytest.mark.timeout(240)
def test_a_defect_while_an_answer_is_made_is_a_no_and_the_server_goes_on(started: Start, faulty: Begin) -> None:
    lab = started("default", 4)
    one = faulty(lab)
    server, client = one.serving, Client(lab, workers(lab)[0])
    for place in OF_AN_ASK:
        one.fail(place)
        assert_internal(client.ask(server))
        assert_told(server, place)
        one.mend()
        assert not slots_of(lab) or place in OF_AN_ASK[4:]
    for path, place in OTHERS.items():
        one.fail(place)
        status, body = server.get(path)
        assert (status, "internal_error" in body, SECRET in body) == (500, True, False)
        assert_told(server, place)
        one.mend()
        assert server.get(path)[0] == 200

    client.await_grant(server)
    for place in (*OF_A_GRANT, RELEASE):
        one.fail(place)
        assert_internal(client.report(server) if place == RELEASE else client.ask(server))
        assert_told(server, place)
        one.mend()
        assert [slot["node"] for slot in slots_of(lab)] == [client.node]
        assert is_cordoned(lab, client.node)
    await_end(server, client)


@pytest.mark.timeout(240)
def test_a_defect_in_a_step_stops_its_node_where_it_stands(started: Start, faulty: Begin) -> None:
    """Nothing is granted or given back by it; once it is mended, as by another version, the node goes on."""
    lab = started("default", 5)
    one = faulty(lab)
    server, client = one.serving, Client(lab, workers(lab)[0])
    for step in STEPS:
        place = f"{SERVER}steps:{step}"
        one.fail(place)
        if step == "_await_boot":
            client.await_grant(server)
            client.reboot()
        else:
            client.ask(server)
        assert_told(server, place)
        denied = client.ask(server) if step in ("_begin", "_empty") else client.report(server)
        assert (denied.status, SECRET in denied.value) == (423, False)
        assert [slot["node"] for slot in slots_of(lab)] == [client.node]
        assert is_cordoned(lab, client.node) is (step != "_begin")
        assert "last-result" not in marks_of(lab, client.node)
    one.mend()
    client.await_release(server)
    assert not is_cordoned(lab, client.node)
    assert lab.scoreboard().rebooted_undrained == ()
