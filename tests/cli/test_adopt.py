"""`rollout adopt` on what every other reboot coordinator leaves: the real program on the lab."""

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollout.errors import ExitCode
from rollout.lab.api.defaulting import with_defaults
from rollout.lab.api.resources import CONFIGMAPS, DAEMONSETS, DEPLOYMENTS, LEASES, NODES, Resource
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostOverride, Scenario, Selection, load_scenario
from tests.conftest import StartLab
from tests.ended import Ended, end_of, start
from tests.waiting import wait_until

Json = dict[str, Any]
Adopt = Callable[..., Ended]
FLUO, CLUO = "flatcar-linux-update.v1.flatcar-linux.net/", "container-linux-update.v1.coreos.com/"
LOCK = "weave.works/kured-node-lock"
THEIRS = (FLUO, CLUO, "weave.works/", "rebootmanager/", "reboot-agent.v1.demo.local/", "node-rollout.dev/")
# Whose cordon nothing proves, or whose marks say that a person made it.
KEPT = {"worker-2", "worker-6", "worker-9"}
PAUSE = FLUO + "reboot-paused"


def node(lab: Lab, name: str) -> Json:
    return next(item for item in lab.call(lambda: list(lab.store.items(NODES))) if item["metadata"]["name"] == name)


def cordoned(lab: Lab) -> set[str]:
    nodes = lab.call(lambda: list(lab.store.items(NODES)))
    return {item["metadata"]["name"] for item in nodes if item["spec"].get("unschedulable")}


def marks(lab: Lab) -> dict[str, set[str]]:
    """Every annotation and label of another system, or of ours, on a node."""
    found = {
        item["metadata"]["name"]: {
            name
            for kind in ("annotations", "labels")
            for name in item["metadata"].get(kind) or {}
            if name.startswith(THEIRS)
        }
        for item in lab.call(lambda: list(lab.store.items(NODES)))
    }
    return {name: names for name, names in found.items() if names}


def objects(lab: Lab, kind: Resource) -> dict[str, Json]:
    return {item["metadata"]["name"]: item for item in lab.call(lambda: list(lab.store.items(kind)))}


def writes(lab: Lab) -> list[str]:
    """What was asked for that changes something, but for the lock of ours and questions about rights."""
    asked = lab.call(lambda: list(lab.requests))
    changing = (record.target for record in asked if record.target.verb not in ("get", "list", "watch"))
    return [
        str(target.path) for target in changing if "node-rollout" not in target.path and "reviews" not in target.path
    ]


def workload(kind: str, name: str, image: str, namespace: str = "reboot-coordinator") -> Json:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec if kind == "DaemonSet" else {**spec, "replicas": 1},
    }


def running(lab: Lab, kind: Resource, name: str, image: str) -> None:
    lab.call(lambda: lab.store.create(kind, with_defaults(kind, workload(kind.kind, name, image))))


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("leftovers")


@pytest.fixture
def adopting(home: Path) -> Adopt:
    return lambda lab, *arguments: end_of(start(home, lab.environment, ("adopt", *arguments)))


@pytest.fixture
def adopt(lab: Lab, adopting: Adopt) -> Adopt:
    return lambda *arguments: adopting(lab, *arguments)


def document(ended: Ended) -> Json:
    document: Json = json.loads(ended.stdout)
    return document


def test_all_is_shown_with_what_becomes_of_each_cordon_and_nothing_is_touched(lab: Lab, adopt: Adopt) -> None:
    before = marks(lab), cordoned(lab)
    ended = adopt("--dry-run", "-o", "json")
    assert ended.code == ExitCode.OK, ended.stderr
    shown = document(ended)
    rows = {(row["node"], row["system"]): row["cordon"] for row in shown["nodes"]}
    assert rows == {
        ("worker-1", "fluo"): "theirs",
        ("worker-2", "cluo"): "kept",
        ("worker-3", "kured"): "theirs",
        ("worker-4", "kured"): "none",
        ("worker-5", "krm"): "theirs",
        ("worker-6", "cro"): "kept",
        ("worker-7", "fleetlock"): "theirs",
        ("worker-8", "rollout"): "theirs",
    }
    locks = {lock["object"]: lock["nodes"] for lock in shown["locks"]}
    assert locks == {
        "daemonset/kube-system/kured": ["worker-3"],
        "lease/default/fleetlock-workers": ["worker-7"],
        "lease/default/fleetlock-default": [],
    }
    assert (shown["done"], shown["running"]) == (False, [])
    assert (marks(lab), cordoned(lab), writes(lab)) == (*before, [])


def test_the_table_names_every_leftover_and_what_releases_locks_that_are_elsewhere(lab: Lab, adopt: Adopt) -> None:
    ended = adopt()
    assert ended.code == ExitCode.DECLINED
    assert "--yes" in ended.stderr
    for words in ("worker-1", "fluo", "agent-made-unschedulable", "kubectl-cordon", "reboot-in-progress"):
        assert words in ended.stdout
    assert "locksmithctl unlock MACHINE_ID" in ended.stdout
    assert "etcdctl del com.coreos.airlock/groups/GROUP/v1/semaphore" in ended.stdout
    assert writes(lab) == []
    one = document(adopt("--dry-run", "-o", "json", "--node", "worker-1"))
    machine = node(lab, "worker-1")["status"]["nodeInfo"]["machineID"]
    assert f"locksmithctl unlock {machine}" in [entry["command"] for entry in one["elsewhere"]]


def test_all_is_cleaned_but_what_may_be_a_persons_and_a_rollout_can_begin(lab: Lab, adopt: Adopt, home: Path) -> None:
    ended = adopt("--yes", "-o", "json")
    assert ended.code == ExitCode.OK, ended.stderr
    done = document(ended)
    assert set(done["uncordoned"]) == {"worker-1", "worker-3", "worker-5", "worker-7", "worker-8"}
    assert set(done["cleaned"]) == {f"worker-{number}" for number in range(1, 9)}
    assert done["left"] == []
    assert cordoned(lab) == KEPT
    assert marks(lab) == {"worker-9": {PAUSE}}
    assert LOCK not in objects(lab, DAEMONSETS)["kured"]["metadata"].get("annotations", {})
    assert not {name for name in objects(lab, LEASES) if name.startswith("fleetlock-")}
    again, touched = adopt("--yes"), writes(lab)
    assert again.code == ExitCode.OK
    assert "Nothing to clean up." in again.stdout
    assert writes(lab) == touched
    names = ("worker-1", "worker-3", "worker-5", "worker-7", "worker-8")
    chosen = (word for name in names for word in ("--node", name))
    applied = end_of(start(home, lab.environment, ("apply", "--yes", "-o", "json", "--max-unavailable", "3", *chosen)))
    assert applied.code == ExitCode.OK, applied.stderr
    assert set(applied.summary["succeeded"]) == set(names)
    assert cordoned(lab) == KEPT


@pytest.mark.parametrize(("answer", "code"), [("no\n", ExitCode.DECLINED), ("yes\n", ExitCode.OK)])
def test_only_yes_at_the_terminal_is_consent(answer: str, code: ExitCode, lab: Lab, home: Path) -> None:
    leader, follower = pty.openpty()
    process = start(home, lab.environment, ("adopt",), follower)
    os.close(follower)
    os.write(leader, answer.encode())
    ended = end_of(process)
    os.close(leader)
    assert ended.code == code
    assert re.search(r"Clean 8 nodes and remove 3 locks of https?://\S+ \(context \S+\)\? Type yes: ", ended.stderr)
    assert (cordoned(lab) == KEPT) is (code == ExitCode.OK)
    assert bool(writes(lab)) is (code == ExitCode.OK)


def test_people_are_told_what_was_done_and_which_cordons_are_left_to_them(adopt: Adopt) -> None:
    ended = adopt("--yes")
    assert ended.code == ExitCode.OK, ended.stderr
    assert "8 nodes cleaned" in ended.stdout
    assert "kubectl uncordon worker-2 worker-6" in ended.stdout
    # who a cordon may be of is told for the last time: the marks are gone
    assert "worker-6 (nothing proves that cro cordoned it)" in ended.stdout


def test_only_the_selected_nodes_and_their_locks_are_touched(lab: Lab, adopt: Adopt) -> None:
    ended = adopt("--yes", "-o", "json", "--node", "worker-3")
    assert ended.code == ExitCode.OK, ended.stderr
    assert document(ended)["released"] == ["daemonset/kube-system/kured"]
    assert set(marks(lab)) == {f"worker-{number}" for number in (1, 2, 4, 5, 6, 8, 9)}
    assert {"fleetlock-workers", "fleetlock-default"} <= set(objects(lab, LEASES))
    assert "worker-7" in cordoned(lab)
    assert "worker-3" not in cordoned(lab)


RUNNING = [
    (DEPLOYMENTS, "flatcar-linux-update-operator", "ghcr.io/flatcar/flatcar-linux-update-operator:v0.10.0", "fluo"),
    (DAEMONSETS, "flatcar-linux-update-agent", "ghcr.io/flatcar/flatcar-linux-update-operator:v0.10.0", "fluo"),
    (DEPLOYMENTS, "container-linux-update-operator", "quay.io/coreos/container-linux-update-operator:v0.7.0", "cluo"),
    (DAEMONSETS, "kured-2", "ghcr.io/kubereboot/kured:1.16.0", "kured"),
    (DEPLOYMENTS, "reboot-manager", "jasonn3/kubernetes_reboot_manager:latest", "krm"),
    (DEPLOYMENTS, "reboot-controller", "jamiehannaford/reboot-controller", "cro"),
    (DEPLOYMENTS, "fleetlock", "quay.io/poseidon/fleetlock:v0.4.0", "fleetlock"),
]


def test_nothing_is_touched_while_the_other_system_runs_unless_it_is_ignored(lab: Lab, adopt: Adopt) -> None:
    for kind, name, image, system in RUNNING:
        running(lab, kind, name, image)
        refused = adopt("--yes", "-o", "json")
        assert refused.code == ExitCode.BLOCKED, name
        assert f"{kind.kind.lower()}/reboot-coordinator/{name}" in refused.stderr
        assert "kubectl -n reboot-coordinator" in refused.stderr
        assert [entry["system"] for entry in document(refused)["running"]] == [system]
        if name != RUNNING[-1][1]:
            lab.call(partial(lab.store.remove, kind, name, "reboot-coordinator"))
    assert writes(lab) == []
    assert adopt("--yes", "--ignore-rival", "kured").code == ExitCode.BLOCKED
    assert adopt("--yes", "--ignore-rival", RUNNING[-1][3]).code == ExitCode.OK
    assert cordoned(lab) == KEPT


@pytest.mark.kubectl
def test_the_commands_that_it_names_stop_what_runs(lab: Lab, adopt: Adopt, tmp_path: Path) -> None:
    """As an operator would paste them, in their order; kured's lock outlives it, and proves its cordon."""
    for kind, name, image, _system in RUNNING:
        running(lab, kind, name, image)
    lab.call(partial(set_running, lab, "kured"))
    refused = adopt("--yes", "-o", "json")
    assert refused.code == ExitCode.BLOCKED
    commands = [entry["command"] for entry in document(refused)["running"]]
    assert len(commands) == len(RUNNING) + 1
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **lab.environment}
    for command in commands:
        subprocess.run(command, shell=True, check=True, env=environment, capture_output=True, timeout=60)  # noqa: S602
    wait_until(lambda: document(adopt("--dry-run", "-o", "json"))["running"] == [])
    assert adopt("--yes").code == ExitCode.OK
    assert cordoned(lab) == KEPT


def set_running(lab: Lab, name: str) -> None:
    """Let a DaemonSet that stands still run everywhere."""
    item = lab.store.get(DAEMONSETS, name, "kube-system")
    assert item is not None
    pod = {name: value for name, value in item["spec"]["template"]["spec"].items() if name != "nodeSelector"}
    template = {**item["spec"]["template"], "spec": pod}
    metadata = {**item["metadata"], "generation": item["metadata"].get("generation", 1) + 1}
    lab.store.put(DAEMONSETS, {**item, "metadata": metadata, "spec": {**item["spec"], "template": template}})


def test_operators_go_before_their_agents(lab: Lab, adopt: Adopt) -> None:
    for kind, name, image, _system in reversed(RUNNING[:2]):
        running(lab, kind, name, image)
    told = adopt("--yes").stderr
    assert told.index("delete deployment flatcar-linux-update-operator") < told.index("delete daemonset flatcar")


def test_an_unfinished_rollout_of_ours_comes_first(lab: Lab, adopt: Adopt) -> None:
    def begin() -> None:
        item = lab.store.get(NODES, "worker-8")
        assert item is not None
        annotations = {**item["metadata"]["annotations"], "node-rollout.dev/phase": "draining"}
        lab.store.put(NODES, {**item, "metadata": {**item["metadata"], "annotations": annotations}})

    lab.call(begin)
    ended = adopt("--yes")
    assert ended.code == ExitCode.BLOCKED
    assert "rollout abort" in ended.stderr
    assert writes(lab) == []


def test_marks_that_are_not_understood_come_first(start_lab: StartLab, adopting: Adopt) -> None:
    newer = {"node-rollout.dev/run": "0123456789abcdef", "node-rollout.dev/newer": "x", FLUO + "reboot-ok": "true"}
    lab = start_lab(with_marks({"worker-1": newer}))
    ended = adopting(lab, "--yes")
    assert ended.code == ExitCode.BLOCKED
    assert "node-rollout.dev/newer is unknown to this version" in ended.stdout
    assert set(newer) <= marks(lab)["worker-1"]


def with_marks(annotations: dict[str, dict[str, str]], **settings: Any) -> Scenario:
    small = scale(load_scenario("idle"), 4)
    hosts = tuple(
        HostOverride(select=Selection(names=(name,)), annotations=names, **settings)
        for name, names in annotations.items()
    )
    return msgspec.structs.replace(small, hosts=(*small.hosts, *hosts))


def test_a_failed_node_of_ours_that_is_not_ready_stays_as_it_is(start_lab: StartLab, adopting: Adopt) -> None:
    ours = {
        "node-rollout.dev/run": "0123456789abcdef",
        "node-rollout.dev/phase": "failed",
        "node-rollout.dev/boot-id-before": "00000000-0000-4000-8000-000000000000",
        "node-rollout.dev/cordoned-by-us": "true",
    }
    lab = start_lab(with_marks({"worker-1": ours}, cordoned=True))
    lab.call(lab.machines["worker-1"].cut_power)
    wait_until(lambda: not is_ready(lab, "worker-1"))
    ended = adopting(lab, "--yes")
    assert ended.code == ExitCode.PARTIAL
    assert "not Ready" in ended.stdout
    assert "None of this can be cleaned now" in ended.stdout
    assert cordoned(lab) == {"worker-1"}


def test_a_node_that_a_rollout_failed_on_and_that_came_back_is_given_back_with_its_record(
    start_lab: StartLab, adopting: Adopt, home: Path
) -> None:
    lab = start_lab("slow-return", nodes=4, speed=60)
    limits = ("--node", "worker-2", "--reboot-timeout", "1s", "--exclude-from-load-balancers", "1s")
    failed = end_of(start(home, lab.environment, ("apply", "--yes", "-o", "json", *limits)))
    assert failed.code == ExitCode.PARTIAL, failed.stderr
    excluded = "node.kubernetes.io/exclude-from-external-load-balancers"
    assert "worker-2" in cordoned(lab)
    assert excluded in node(lab, "worker-2")["metadata"]["labels"]
    wait_until(lambda: lab.scoreboard().reboots["worker-2"] == 1 and is_ready(lab, "worker-2"))
    ended = adopting(lab, "--yes", "-o", "json")
    assert ended.code == ExitCode.OK, ended.stderr
    assert document(ended)["uncordoned"] == ["worker-2"]
    assert marks(lab) == {"worker-2": {"node-rollout.dev/last-result"}}
    assert excluded not in node(lab, "worker-2")["metadata"]["labels"]
    assert "node-rollout" not in objects(lab, CONFIGMAPS)
    again = end_of(start(home, lab.environment, ("resume", "--yes")))
    assert "Nothing" in again.stdout


def is_ready(lab: Lab, name: str) -> bool:
    conditions = node(lab, name)["status"]["conditions"]
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
