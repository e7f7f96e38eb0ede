"""What may hold a rollout up, through the real program, judged by the cluster."""

import json
import os
import pty
import select
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rollout.adapters.kube.api import connect
from rollout.gather.cluster.snapshot import node_path, read_node, read_nodes
from rollout.lab.api.resources import DAEMONSETS, DEPLOYMENTS, PODS
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from rollout.model.marks import FLUO_PREFIX
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
BEFORE, AFTER = "checks.example/before", "checks.example/after"


@pytest.fixture(scope="module")
def untouched(shared_lab: StartLab) -> Iterator[Lab]:
    """One lab for all rollouts that are held up before anything happens: each of them is to leave it as it was."""
    lab = shared_lab(nodes=7, speed=30)
    yield lab
    assert_untouched(lab, *lab.scoreboard().reboots)


def api_of(lab: Lab) -> ClusterApi:
    return connect(Path(lab.environment["KUBECONFIG"]), None)


def window(begins_in: timedelta, lasts: str) -> str:
    return f"{datetime.now(UTC) + begins_in:%H:%M} {lasts}"


def assert_untouched(lab: Lab, *nodes: str) -> None:
    score = lab.scoreboard()
    for node in nodes:
        assert score.reboots[node] == 0
        assert node not in score.annotations_left
    assert score.cordons_left == ()
    assert not any(name.endswith("-reboot") for node in read_nodes(api_of(lab)) for name in node.labels)


def test_a_pool_starts_its_nodes_only_in_its_own_window(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab, own = started("default", 7), tmp_path / "own.toml"
    pool = '[[pool]]\nname = "{}"\nselector = "kubernetes.io/hostname={}"\nwindow = ["{}"]\n'
    open_now, later = window(timedelta(minutes=-1), "1h"), window(timedelta(hours=3), "1h")
    own.write_text(pool.format("now", "worker-1", open_now) + pool.format("later", "worker-2", later))
    both = ("--config", str(own), "--node", "worker-1", "--node", "worker-2")
    assert f"of the pool later: {later}: closed, opens in 2h" in rollout(lab, "plan", *both).stdout
    ended = rollout(lab, *QUICK, *both)
    assert ended.code == 4, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert (summary["succeeded"], summary["not_started"]) == (["worker-1"], ["worker-2"])
    assert "outside the maintenance window; the next opens" in ended.stdout
    assert_untouched(lab, "worker-2")
    # the rollout's own window holds as well
    assert rollout(lab, *QUICK, *both, "--window", later).code == 4
    assert_untouched(lab, "worker-2")


def test_checks_are_asked_before_the_drain_and_before_the_uncordon(started: Started, rollout: Rollout) -> None:
    lab = started("default", 7)
    api = api_of(lab)
    api.patch(node_path("worker-1"), {"metadata": {"annotations": {BEFORE: "true", AFTER: "true"}}})
    seen: list[tuple[str, bool, int, int]] = []
    over = threading.Event()

    def check() -> None:
        """As a DaemonSet's pod would: it runs where the label is, and annotates its node."""
        while not over.wait(0.1):
            node = read_node(api, "worker-1")
            for name, answer in (("before-reboot", BEFORE), ("after-reboot", AFTER)):
                if node.labels.get(FLUO_PREFIX + name) == "true" and node.annotations.get(answer) != "true":
                    score = lab.scoreboard()
                    seen.append((name, node.unschedulable, score.evictions, score.reboots["worker-1"]))
                    over.wait(1.0)
                    api.patch(node_path("worker-1"), {"metadata": {"annotations": {answer: "true"}}})

    thread = threading.Thread(target=check)
    thread.start()
    try:
        ended = rollout(
            lab,
            *ONE,
            "--set",
            f"gates.before-reboot-annotations={BEFORE}",
            "--set",
            f"gates.after-reboot-annotations={AFTER}",
        )
    finally:
        over.set()
        thread.join()
    assert ended.code == 0, ended.stderr
    assert [name for name, *_ in seen] == ["before-reboot", "after-reboot"]
    (_, cordoned, evictions, reboots), (_, still_cordoned, _, reboots_then) = seen
    assert (cordoned, evictions, reboots) == (True, 0, 0)
    assert (still_cordoned, reboots_then) == (True, 1)
    node = read_node(api, "worker-1")
    assert not any(name.startswith(FLUO_PREFIX) for name in node.labels)
    assert not {BEFORE, AFTER} & set(node.annotations)
    assert lab.scoreboard().clean


def test_a_node_that_fails_its_checks_after_the_reboot_stays_cordoned(started: Started, rollout: Rollout) -> None:
    lab = started("default", 7)
    prefix = ("--set", "gates.hook-prefix=checks.example/")
    ended = rollout(
        lab, *ONE, *prefix, "--set", f"gates.after-reboot-annotations={AFTER}", "--set", "gates.hook-timeout=2s"
    )
    assert ended.code == 4
    node = read_node(api_of(lab), "worker-1")
    assert node.unschedulable
    assert not any(name.startswith("checks.example/") for name in node.labels)
    assert lab.scoreboard().reboots["worker-1"] == 1


GATE = """
import json, os, sys
told = {name: os.environ[name] for name in os.environ if name.startswith("ROLLOUT_") and name in sys.argv[3:]}
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(told) + "\\n")
if sys.argv[2] == os.environ.get("ROLLOUT_GATE_NODE", os.environ["ROLLOUT_GATE_STAGE"]):
    print("the standby is behind")
    sys.exit(7)
"""
TOLD = ("ROLLOUT_GATE_STAGE", "ROLLOUT_GATE_WAVE", "ROLLOUT_GATE_NODE", "ROLLOUT_GATE_STAGED_VERSION")


def gate(tmp_path: Path, refuses: str) -> tuple[str, Path]:
    script, told = tmp_path / "a gate.py", tmp_path / "told"
    script.write_text(GATE)
    return shlex.join([sys.executable, str(script), str(told), refuses, *TOLD]), told


def test_the_gate_command_decides_node_by_node(started: Started, rollout: Rollout, tmp_path: Path) -> None:
    lab = started("default", 7)
    command, told = gate(tmp_path, "worker-2")
    ended = rollout(lab, *QUICK, "--node", "worker-1", "--node", "worker-2", "--set", f"gates.command={command}")
    assert ended.code == 4
    assert ended.summary["succeeded"] == ["worker-1"]
    assert_untouched(lab, "worker-2")
    assert "exited with 7: the standby is behind" in ended.stdout
    asked = [json.loads(line) for line in told.read_text().splitlines()]
    assert [environment["ROLLOUT_GATE_STAGE"] for environment in asked[:2]] == ["rollout", "wave"]
    of_nodes = [environment for environment in asked if environment["ROLLOUT_GATE_STAGE"] == "node"]
    assert {environment["ROLLOUT_GATE_NODE"] for environment in of_nodes} == {"worker-1", "worker-2"}
    assert {environment.get("ROLLOUT_GATE_STAGED_VERSION") for environment in of_nodes} == {"4152.2.0"}


def test_a_gate_command_that_hangs_is_ended_with_all_it_started(
    untouched: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    command = shlex.join(["sh", "-c", f"sleep 300 & echo $! > {shlex.quote(str(pid))}; wait"])
    ended = rollout(untouched, *ONE, "--set", f"gates.command={command}", "--set", "gates.timeout=1s")
    assert ended.code == 6
    assert "did not end within" in ended.stderr
    process = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not process.exists() or process.read_text().split()[2] == "Z"


def test_a_pod_that_must_not_be_disturbed_keeps_its_node_from_being_begun(started: Started, rollout: Rollout) -> None:
    lab = started("default", 7)
    pod = {
        "metadata": {"name": "backup", "namespace": "default", "labels": {"job": "backup"}},
        "spec": {"nodeName": "worker-1", "containers": [{"name": "main", "image": "backup:1"}]},
    }
    lab.call(lambda: lab.store.create(PODS, pod))
    blocking = ("--set", "gates.blocking-pod-selector=job in (backup)", "--set", "gates.timeout=2s", "--force")
    ended = rollout(lab, *QUICK, *blocking, "--node", "worker-1", "--node", "worker-2")
    assert ended.code == 4
    assert (ended.summary["succeeded"], ended.summary["not_started"]) == (["worker-2"], ["worker-1"])
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
        {"metric": {"__name__": "ALERTS", "alertname": name, "alertstate": "firing"}, "value": [1.5, "1"]}
        for name in names
    ]
    return {"status": "success", "data": {"resultType": "vector", "result": found}}


@pytest.mark.parametrize("answer", [(200, alerts("DiskFull")), (503, "overloaded"), (200, {"status": "error"})])
def test_no_node_is_begun_while_alerts_fire_or_cannot_be_asked_for(
    answer: tuple[int, object], untouched: Lab, rollout: Rollout
) -> None:
    with prometheus([answer]) as url:
        ended = rollout(untouched, *ONE, "--set", f"alerts.prometheus-url={url}", "--set", "gates.timeout=1s")
    assert ended.code == 4
    assert ended.summary["not_started"] == ["worker-1"]
    assert_untouched(untouched, "worker-1")


def deployment(name: str, **annotations: str) -> Json:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "operator:1"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name, "namespace": "kube-system", "annotations": annotations}, "spec": spec}


def test_another_reboot_coordinator_is_not_run_beside(started: Started, rollout: Rollout) -> None:
    lab = started("default", 7)
    lock = json.dumps({"nodeID": "worker-3", "metadata": {}, "created": "2026-01-01T00:00:00Z", "TTL": 0})
    operator, daemon_set = (
        deployment("flatcar-linux-update-operator"),
        deployment("kured", **{"weave.works/kured-node-lock": lock}),
    )
    lab.call(lambda: (lab.store.create(DEPLOYMENTS, operator), lab.store.create(DAEMONSETS, daemon_set)))
    planned = json.loads(rollout(lab, "plan", "-o", "json").stdout)
    assert [found["kind"] for found in planned["blockers"]] == ["rival", "rival"]
    for flags in ((), ("--allow", "fluo"), ("--allow", "blocked")):
        ended = rollout(lab, *ONE, *flags)
        assert ended.code == 6
        assert "daemonset kube-system/kured  reboots nodes by itself and holds its lock for worker-3" in ended.stderr
    assert_untouched(lab, "worker-1")
    ended = rollout(lab, *ONE, "--allow", "fluo", "--allow", "kured")
    assert ended.code == 0, ended.stderr


def test_each_wave_is_asked_for_at_the_terminal(started: Started, tmp_path: Path) -> None:
    lab = started("default", 7)
    leader, follower = pty.openpty()
    arguments = [*QUICK[:2], "--control-plane", "exclude", "--max-unavailable", "1", "--interactive"]
    process = start_on_terminal(tmp_path, {"TERM": "xterm", **lab.environment}, arguments, follower)
    os.close(follower)
    said = answer_waves(leader, ["y", "n"])
    assert process.wait(100) == 4
    os.close(leader)
    assert_well_said(said)
    assert said.count("Start it?") == 2
    assert sum(lab.scoreboard().reboots.values()) == 1
    assert lab.scoreboard().cordons_left == ()


def answer_waves(leader: int, answers: list[str]) -> str:
    said, deadline = "", time.monotonic() + 80
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


def test_a_node_whose_checks_do_not_pass_is_given_back_untouched(untouched: Lab, rollout: Rollout) -> None:
    ended = rollout(
        untouched, *ONE, "--set", f"gates.before-reboot-annotations={BEFORE}", "--set", "gates.hook-timeout=2s"
    )
    assert ended.code == 4
    assert [entry["phase"] for entry in ended.summary["failed"]] == ["cordoned"]
    assert BEFORE in ended.summary["failed"][0]["message"]
    assert untouched.scoreboard().evictions == 0
    assert_untouched(untouched, "worker-1")


@pytest.mark.parametrize(("refuses", "code"), [("rollout", 6), ("wave", 4)])
def test_the_gate_command_stops_all(refuses: str, code: int, untouched: Lab, rollout: Rollout, tmp_path: Path) -> None:
    command, _told = gate(tmp_path, refuses)
    assert rollout(untouched, *QUICK, "--set", f"gates.command={command}").code == code
    assert_untouched(untouched, "worker-1", "worker-2", "worker-3", "worker-4")


def test_alerts_that_end_let_it_go_on(started: Started, rollout: Rollout) -> None:
    lab = started("default", 7)
    with prometheus([(200, alerts("DiskFull", "Watchdog")), (200, alerts("Watchdog"))]) as url:
        ended = rollout(lab, *ONE, "--set", f"alerts.prometheus-url={url}", "--set", "alerts.filter-regexp=^Watchdog$")
    assert ended.code == 0, ended.stderr
    assert "DiskFull" in ended.stdout
