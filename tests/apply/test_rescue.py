"""Hosts that do not come back, and reboot.rescue: the documented client of Redfish, on BMCs of the lab."""

import base64
import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rollout.lab.hosts.faults import HEALTHY, HostFaults, RebootFault
from rollout.lab.lab import Lab
from tests.apply.conftest import ONE_LOOK, Rollout, Scrape, Started, killed_at
from tests.state import PREFIX, annotations, inflict
from tests.waiting import Inbox

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
CLIENT = EXAMPLES / "redfish-power-cycle.py"
PASSWORD = "correct-horse-battery"
APPLY = ("apply", "--yes", "-o", "json", "--max-unavailable", "3", "--max-failures", "9", *ONE_LOOK)
SYSTEM = "/redfish/v1/Systems/1"


class Bmcs(ThreadingHTTPServer):
    """The BMCs of a lab's hosts, at their addresses: one is broken, one never answers a reset."""

    daemon_threads = True

    def __init__(self, lab: Lab) -> None:
        super().__init__(("", 0), Bmc)
        self.lab = lab
        self.resets = list[str]()
        self.ended = threading.Event()


class Bmc(BaseHTTPRequestHandler):
    """As DMTF's DSP0266 has it."""

    server: Bmcs

    @property
    def node(self) -> str:
        address = self.request.getsockname()[0]
        machines = self.server.lab.machines
        return next(name for name, machine in machines.items() if machine.address == address)

    def answer(self, status: int, document: object) -> None:
        login = base64.b64encode(f"operator:{PASSWORD}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {login}":
            self.send_error(401)
            return
        body = json.dumps(document).encode() if document else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/redfish/v1/Systems":
            self.answer(200, {"Members": [{"@odata.id": SYSTEM}]})
            return
        reset = {
            "target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": ["On", "ForceRestart"],
        }
        machine = self.server.lab.machines[self.node]
        power = "On" if machine.running else "Off"
        self.answer(200, {"PowerState": power, "Actions": {"#ComputerSystem.Reset": reset}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.resets.append(f"{self.node} {body['ResetType']}")
        if self.node == "worker-2":
            self.answer(500, {"error": {"message": "the chassis is on fire"}})
            return
        if self.node == "worker-3":
            self.server.ended.wait()
            return
        lab = self.server.lab
        machine = lab.machines[self.node]
        lab.call(lambda: machine.inflict(HEALTHY))
        lab.call(machine.power_on)
        self.answer(204, None)


@contextmanager
def bmcs_of(lab: Lab) -> Iterator[Bmcs]:
    with Bmcs(lab) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.ended.set()
        server.shutdown()


def redfish(lab: Lab, bmcs: Bmcs, home: Path) -> tuple[str, ...]:
    """The settings that power-cycle hosts, as the page has them."""
    netrc = home / "netrc"
    addresses = [machine.address for machine in lab.machines.values()]
    netrc.write_text(
        "".join(f"machine {address} login operator password {PASSWORD}\n" for address in addresses)
    )
    netrc.chmod(0o600)
    url = f"http://{{address}}:{bmcs.server_port}"
    command = shlex.join(["env", f"NETRC={netrc}", sys.executable, str(CLIENT), url])
    return ("--set", f"reboot.rescue={command}", "--set", "reboot.rescue-timeout=2s")


def test_hosts_that_do_not_come_back_are_power_cycled_once(
    started: Started, rollout: Rollout, inbox: Inbox, tmp_path: Path
) -> None:
    """Three hosts at once: a rescue that works, one that is refused, and one that hangs."""
    lab = started("default", 12)
    nodes = ("worker-1", "worker-2", "worker-3")
    for name in nodes:
        inflict(lab, HostFaults(reboot=RebootFault.NEVER_RETURNS), name)
    selected = [word for name in nodes for word in ("--node", name)]
    with bmcs_of(lab) as bmcs:
        rescue = redfish(lab, bmcs, tmp_path)
        told = ("--set", f"notify.url={inbox.url}", "--set", "notify.on=rescued")
        ended = rollout(lab, *APPLY, *selected, "--reboot-timeout", "2s", *rescue, *told).ends(4)
        assert ended.outcomes == {
            "worker-1": "succeeded",
            "worker-2": "not-back",
            "worker-3": "not-back",
        }
        assert sorted(bmcs.resets) == [f"{name} On" for name in nodes]
        assert sorted(note["node"] for note in inbox.notes) == sorted(nodes)
        lines = {line["node"]: line for line in ended.lines if line["type"] == "rescued"}
        assert lines["worker-1"]["problem"] == ""
        assert lines["worker-1"]["output"] == ["worker-1: the BMC accepted On; the power was Off"]
        assert (
            "the request to the BMC failed: HTTP Error 500" in ended.failures["worker-2"]["message"]
        )
        assert (
            "did not finish within reboot.rescue-timeout 2s"
            in ended.failures["worker-3"]["message"]
        )
        for name in ("worker-2", "worker-3"):
            boot_id = annotations(lab, name)[f"{PREFIX}boot-id-before"]
            assert annotations(lab, name)[f"{PREFIX}rescued"] == boot_id
        page_file = tmp_path / "run.html"
        rollout(lab, "report", ended.plan["plan_id"], "--out", str(page_file)).ends(0)
        page = page_file.read_text()
        assert "worker-1: reboot.rescue succeeded: worker-1: the BMC accepted On" in page
        assert "the request to the BMC failed: HTTP Error 500" in page
        assert PASSWORD not in ended.stdout + ended.stderr + page

        again = rollout(lab, "resume", "--yes", "-o", "json", "--retry-failed", *rescue).ends(4)
        assert (
            "it may already have been started for this reboot"
            in again.failures["worker-2"]["message"]
        )
        assert len(bmcs.resets) == 3


def test_unattended_passes_power_cycle_each_host_once(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """One is killed after its reset: the next one goes on with the node, and resets another host."""
    lab = started("default", 4)
    for name in ("worker-1", "cp-1"):
        inflict(lab, HostFaults(reboot=RebootFault.NEVER_RETURNS), name)
    file = tmp_path / "rollout.prom"
    with bmcs_of(lab) as bmcs:
        settings = (
            *redfish(lab, bmcs, tmp_path),
            *("--set", f"metrics.textfile={file}", "--set", "lock.duration=1s"),
            *("--reboot-timeout", "2s", "--max-unavailable", "2", *ONE_LOOK),
        )
        operate = ("operate", "--once", "-o", "json", *settings)
        killed_at(lab, tmp_path, "booted", *operate, "--node", "worker-1")
        assert bmcs.resets == ["worker-1 On"]
        ended = rollout(lab, *operate).ends(0)
        assert bmcs.resets == ["worker-1 On", "cp-1 On"]
    assert [line["node"] for line in ended.lines if line["type"] == "rescued"] == ["cp-1"]
    assert Scrape(file.read_text()).value("node_rollout_rescues_total") == 1
    assert set(lab.scoreboard().reboots.values()) == {1}
    assert lab.scoreboard().clean


def test_the_example_of_ipmi_turns_on_a_host_that_is_off(tmp_path: Path) -> None:
    ipmitool = tmp_path / "ipmitool"
    ipmitool.write_text('#!/bin/sh\necho "$*"\ntest "$9 ${10} ${11}" = "chassis power on"\n')
    ipmitool.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin", "ROLLOUT_RESCUE_NODE": "worker-1"}
    ended = subprocess.run(
        [EXAMPLES / "ipmi-power-cycle.sh"],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0
    cycle, on = ended.stdout.splitlines()
    assert cycle.startswith("-I lanplus -H worker-1-bmc.example.com -U rollout -f ")
    assert (cycle.split()[-1], on.split()[-1]) == ("cycle", "on")
