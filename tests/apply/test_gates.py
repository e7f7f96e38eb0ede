"""What may hold a rollout up, through the real program, judged by the cluster."""

import json
import os
import pty
import select
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollout.adapters.kube.api import connect
from rollout.gather.cluster.snapshot import read_node, read_nodes
from rollout.lab.api.resources import DAEMONSETS, DEPLOYMENTS, PODS
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from rollout.ports import ClusterApi
from tests.apply.conftest import Rollout, Started
from tests.conftest import StartLab
from tests.ended import assert_well_said, start_on_terminal
from tests.scripted_api import Exchange, scripted

QUICK = (
    *("apply", "--yes", "-o", "json", "--control-plane", "exclude"),
    *("--max-unavailable", "2", "--set", "waves.health-checks=1"),
)
ONE = (*QUICK, "--node", "worker-1")
BEFORE = "checks.example/before"
AFTER = "checks.example/after"


@pytest.fixture(scope="module")
def untouched(shared_lab: StartLab) -> Iterator[Lab]:
    """One lab for all rollouts that are held up before anything happens: each of them is to leave
    it as it was.
    """
    lab = shared_lab(nodes=7)
    yield lab
    assert_untouched(lab, *lab.scoreboard().reboots)


def api_of(lab: Lab) -> ClusterApi:
    return connect(Path(lab.environment["KUBECONFIG"]), None)


def assert_untouched(lab: Lab, *nodes: str) -> None:
    score = lab.scoreboard()
    for node in nodes:
        assert score.reboots[node] == 0
        assert node not in score.annotations_left
    assert score.cordons_left == ()
    assert not any(
        name.endswith("-reboot") for node in read_nodes(api_of(lab)) for name in node.labels
    )


def test_a_node_that_fails_its_checks_is_given_back_before_its_drain_and_stays_cordoned_after_its_reboot(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 7)
    checks = ("--set", "gates.hook-prefix=checks.example/", "--set", "gates.hook-timeout=2s")
    before = rollout(lab, *ONE, *checks, "--set", f"gates.before-reboot-annotations={BEFORE}").ends(
        4
    )
    (failed,) = before.summary["failed"]
    assert failed["phase"] == "cordoned"
    assert BEFORE in failed["message"]
    assert lab.scoreboard().evictions == 0
    assert_untouched(lab, "worker-1")
    worker_2 = (*QUICK, "--node", "worker-2")
    rollout(lab, *worker_2, *checks, "--set", f"gates.after-reboot-annotations={AFTER}").ends(4)
    node = read_node(api_of(lab), "worker-2")
    assert node.unschedulable
    assert not any(name.startswith("checks.example/") for name in node.labels)
    assert lab.scoreboard().reboots["worker-2"] == 1


GATE = """
import json, os, sys
told = {name: os.environ[name] for name in os.environ if name.startswith("ROLLOUT_") and name in sys.argv[3:]}
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(told) + "\\n")
if sys.argv[2] == os.environ.get("ROLLOUT_GATE_NODE", os.environ["ROLLOUT_GATE_STAGE"]):
    print("the standby is behind")
    sys.exit(7)
"""
TOLD = (
    "ROLLOUT_GATE_STAGE",
    "ROLLOUT_GATE_WAVE",
    "ROLLOUT_GATE_NODE",
    "ROLLOUT_GATE_STAGED_VERSION",
)


def gate(tmp_path: Path, refuses: str) -> tuple[str, Path]:
    script = tmp_path / "a gate.py"
    told = tmp_path / "told"
    script.write_text(GATE)
    return shlex.join([sys.executable, str(script), str(told), refuses, *TOLD]), told


def test_the_gate_command_decides_node_by_node(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 7)
    command, told = gate(tmp_path, "worker-2")
    ended = rollout(
        lab, *QUICK, "--node", "worker-1", "--node", "worker-2", "--set", f"gates.command={command}"
    ).ends(4)
    assert ended.summary["succeeded"] == ["worker-1"]
    assert_untouched(lab, "worker-2")
    assert "exited with 7: the standby is behind" in ended.stdout
    asked = [json.loads(line) for line in told.read_text().splitlines()]
    assert [environment["ROLLOUT_GATE_STAGE"] for environment in asked[:2]] == ["rollout", "wave"]
    of_nodes = [environment for environment in asked if environment["ROLLOUT_GATE_STAGE"] == "node"]
    assert {environment["ROLLOUT_GATE_NODE"] for environment in of_nodes} == {
        "worker-1",
        "worker-2",
    }
    assert {environment.get("ROLLOUT_GATE_STAGED_VERSION") for environment in of_nodes} == {
        "4152.2.0"
    }


def test_a_gate_command_stops_all_and_one_that_hangs_is_ended_with_all_it_started(
    untouched: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    command = shlex.join(["sh", "-c", f"sleep 300 & echo $! > {shlex.quote(str(pid))}; wait"])
    ended = rollout(
        untouched, *ONE, "--set", f"gates.command={command}", "--set", "gates.timeout=1s"
    ).ends(6)
    assert "did not finish within" in ended.stderr
    # one that says no to the rollout, or to its first wave, stops all
    for refuses, code in (("rollout", 6), ("wave", 4)):
        no, _told = gate(tmp_path, refuses)
        rollout(untouched, *QUICK, "--set", f"gates.command={no}").ends(code)
    process = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not process.exists() or process.read_text().split()[2] == "Z"


def test_a_pod_that_must_not_be_disturbed_keeps_its_node_from_being_begun(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 7)
    pod = {
        "metadata": {"name": "backup", "namespace": "default", "labels": {"job": "backup"}},
        "spec": {"nodeName": "worker-1", "containers": [{"name": "main", "image": "backup:1"}]},
    }
    lab.call(lambda: lab.store.create(PODS, pod))
    blocking = (
        *("--set", "gates.blocking-pod-selector=job in (backup)", "--set", "gates.timeout=2s"),
        "--force",
    )
    ended = rollout(lab, *QUICK, *blocking, "--node", "worker-1", "--node", "worker-2").ends(4)
    assert ended.summary["succeeded"] == ["worker-2"]
    assert ended.summary["not_started"] == ["worker-1"]
    assert_untouched(lab, "worker-1")
    assert "default/backup" in ended.stdout


@contextmanager
def prometheus(answers: list[tuple[int, object]]) -> Iterator[str]:
    """A Prometheus that gives one answer after another, the last for ever."""

    def answer(exchange: Exchange) -> None:
        assert exchange.path == "/api/v1/query?query=ALERTS"
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        exchange.answer(status, json.dumps(body).encode())

    with scripted(answer) as server:
        yield server.url


def alerts(*names: str) -> dict[str, object]:
    found = [
        {
            "metric": {"__name__": "ALERTS", "alertname": name, "alertstate": "firing"},
            "value": [1.5, "1"],
        }
        for name in names
    ]
    return {"status": "success", "data": {"resultType": "vector", "result": found}}


def deployment(name: str, **annotations: str) -> Json:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "operator:1"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {
        "metadata": {"name": name, "namespace": "kube-system", "annotations": annotations},
        "spec": spec,
    }


def test_another_reboot_coordinator_is_not_run_beside(started: Started, rollout: Rollout) -> None:
    lab = started("default", 7)
    lock = json.dumps(
        {"nodeID": "worker-3", "metadata": {}, "created": "2026-01-01T00:00:00Z", "TTL": 0}
    )
    operator = deployment("flatcar-linux-update-operator")
    daemon_set = deployment("kured", **{"weave.works/kured-node-lock": lock})
    lab.call(
        lambda: (lab.store.create(DEPLOYMENTS, operator), lab.store.create(DAEMONSETS, daemon_set))
    )
    planned = json.loads(rollout(lab, "plan", "-o", "json").stdout)
    assert [found["kind"] for found in planned["blockers"]] == ["rival", "rival"]
    for flags in ((), ("--allow", "fluo"), ("--allow", "blocked")):
        ended = rollout(lab, *ONE, *flags).ends(6)
        assert (
            "daemonset kube-system/kured  reboots nodes by itself and holds its lock for worker-3"
            in ended.stderr
        )
    assert_untouched(lab, "worker-1")
    ended = rollout(lab, *ONE, "--allow", "fluo", "--allow", "kured").ends(0)


def test_each_wave_is_asked_for_at_the_terminal(started: Started, tmp_path: Path) -> None:
    lab = started("default", 4)
    leader, follower = pty.openpty()
    arguments = [
        *QUICK[:2],
        *("--control-plane", "exclude", "--max-unavailable", "1", "--interactive"),
    ]
    process = start_on_terminal(tmp_path, {"TERM": "xterm", **lab.environment}, arguments, follower)
    os.close(follower)
    said = answer_waves(leader, ["yes", "no"])
    assert process.wait(100) == 4
    os.close(leader)
    assert_well_said(said)
    assert said.count("Start it?") == 2
    assert sum(lab.scoreboard().reboots.values()) == 1
    assert lab.scoreboard().cordons_left == ()


def answer_waves(leader: int, answers: list[str]) -> str:
    said = ""
    deadline = time.monotonic() + 80
    while time.monotonic() < deadline:
        if not select.select([leader], [], [], 1.0)[0]:
            continue
        try:
            said += os.read(leader, 65536).decode(errors="replace")
        except OSError:  # the program has ended
            return said
        if answers and said.count("Start it?") > 2 - len(answers):
            os.write(leader, f"{answers.pop(0)}\n".encode())
    return said


def test_alerts_that_end_let_it_go_on(started: Started, rollout: Rollout) -> None:
    lab = started("default", 7)
    with prometheus([(200, alerts("DiskFull")), (200, alerts())]) as url:
        ended = rollout(lab, *ONE, "--set", f"alerts.prometheus-url={url}")
    assert ended.code == 0, ended.stderr
    assert "DiskFull" in ended.stdout
