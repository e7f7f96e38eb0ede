"""A rehearsal of one's own cluster: what a plan was made of in a file, and the lab as that cluster."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollout.gather.cluster.decode import RESTARTED_AT
from rollout.lab.api.resources import CONFIGMAPS, DEPLOYMENTS, SECRETS
from rollout.lab.api.store import Json
from rollout.lab.copied import scenario_like
from rollout.lab.lab import Lab
from rollout.lab.objects import field_of
from rollout.lab.scenario import HostOverride, HostSelection, Scenario, load_scenario
from tests.apply.conftest import Rollout
from tests.ended import Ended, end_of, invoked, start

StartLab = Callable[..., Lab]
Start = Callable[[Scenario | str, int], Lab]
PRIVATE = "hunter2"
SINGLE = str(Path(__file__).with_name("single.yaml"))


def private() -> Scenario:
    """A cluster with secrets wherever there may be some, volumes for each pod, a static pod and a
    silent host.
    """
    typical = load_scenario("typical")
    container = {
        "name": "web",
        "image": f"registry.example/{PRIVATE}:1.0",
        "args": [PRIVATE],
        "env": [{"name": "TOKEN", "value": PRIVATE}],
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}},
    }
    noted = {"example.com/note": PRIVATE}
    workloads = [
        msgspec.structs.replace(
            workload,
            annotations=noted,
            marks=noted,
            labels={"reason": "kept"},
            spec={"containers": [container]},
        )
        for workload in typical.workloads
    ]
    hosts = (HostOverride(select=HostSelection(), annotations=noted),)
    return msgspec.structs.replace(typical, workloads=tuple(workloads), hosts=hosts)


def snapshot(lab: Lab, rollout: Rollout, file: Path, *flags: str) -> dict[str, Any]:
    """The plan of this cluster, with what it was made of in a file."""
    ended = rollout(
        lab, "plan", "-o", "json", "--max-unavailable", "2", "--snapshot", str(file), *flags
    ).ends(0)
    assert f"rollout lab up --like {file}" in ended.stderr
    plan: dict[str, Any] = json.loads(ended.stdout)
    return plan


def decisions(plan: dict[str, Any]) -> dict[str, Any]:
    """What a plan says but for what tells clusters and moments apart."""
    nodes = [
        [
            (node["name"], node["evict"], node["leave"], node["staged_version"])
            for node in wave["nodes"]
        ]
        for wave in plan["waves"]
    ]
    because = [wave["because"] for wave in plan["waves"]]
    return {"nodes": nodes, "because": because} | {
        field: plan[field] for field in ("excluded", "blockers", "warnings", "summary", "estimate")
    }


@contextmanager
def rehearsed(home: Path, file: Path, speed: int) -> Iterator[tuple[dict[str, str], list[str]]]:
    """`lab up --like`: the environment that it prints; once it has ended, what it has said."""
    said: list[str] = []
    process = start(
        home,
        {},
        ("lab", "up", "--like", str(file), "--dir", str(home / "lab"), "--speed", str(speed)),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("export KUBECONFIG=")
    exports = (home / "lab" / "env").read_text().splitlines()
    words = (shlex.split(line)[1].partition("=") for line in exports)
    try:
        yield {name: value for name, _, value in words if name != "PATH"}, said
    finally:
        process.terminate()
        said.append(end_of(process).stdout)


def test_the_same_plan_and_rollout_run_on_a_copy(
    started: Start, rollout: Rollout, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    lab = started(private(), 3)
    secret = {"metadata": {"name": "tls", "namespace": "shop"}, "stringData": {"key": PRIVATE}}
    lab.call(lambda: [lab.store.create(kind, secret) for kind in (SECRETS, CONFIGMAPS)])
    plan = snapshot(lab, rollout, file)
    text = file.read_text()
    assert not [
        word for word in (PRIVATE, '"env"', '"image"', "Secret", "example.com/note") if word in text
    ]
    assert [word for word in ('"name":"worker-1"', '"reason":"kept"') if word in text] == [
        '"name":"worker-1"',
        '"reason":"kept"',
    ]
    with rehearsed(tmp_path, file, 240) as (environment, said):
        again = invoked(tmp_path, environment, ("plan", "-o", "json", "--max-unavailable", "2"))
        assert decisions(json.loads(again.stdout)) == decisions(plan)
        done = invoked(
            tmp_path, environment, ("apply", "--yes", "-o", "json", "--max-unavailable", "2")
        )
        assert (done.code, len(done.summary["succeeded"])) == (0, 3), done.stderr
    assert "Clean" in said[0]


def test_the_operators_of_databases_run_in_a_copy(
    start_lab: StartLab, rollout: Rollout, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    plan = snapshot(start_lab("databases", speed=30), rollout, file, "--anonymous")
    kinds = [entry["kind"] for entry in plan["warnings"]]
    assert kinds == ["budget-managed", "budget-managed"]
    copy = start_lab(scenario_like(file), speed=120)
    again = rollout(copy, "plan", "-o", "json", "--max-unavailable", "2").ends(0)
    assert [entry["kind"] for entry in json.loads(again.stdout)["warnings"]] == kinds
    done = rollout(copy, "apply", "--yes", "-o", "json", "--max-unavailable", "2").ends(0)
    assert len(done.summary["succeeded"]) == 5


def test_a_single_replica_is_restarted_in_a_copy_without_names(
    start_lab: StartLab, rollout: Rollout, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    flags = ("--set", "drain.restart=blocked")
    plan = snapshot(start_lab(SINGLE, speed=30), rollout, file, "--anonymous", *flags)
    assert "ledger" not in file.read_text()
    kinds = [entry["kind"] for entry in plan["warnings"]]
    assert kinds == ["budget-restart"]
    copy = start_lab(scenario_like(file), speed=120)
    again = rollout(copy, "plan", "-o", "json", "--max-unavailable", "2", *flags).ends(0)
    planned = json.loads(again.stdout)
    assert [entry["kind"] for entry in planned["warnings"]] == kinds
    assert planned["estimate"]["seconds"] == plan["estimate"]["seconds"]
    done = rollout(copy, "apply", "--yes", "-o", "json", "--max-unavailable", "2", *flags).ends(0)
    assert len(done.summary["succeeded"]) == 6
    (restarted,) = copy.call(
        lambda: [obj for obj in copy.store.items(DEPLOYMENTS) if is_restarted(obj)]
    )
    assert restarted["status"]["updatedReplicas"] == 1


def is_restarted(deployment: Json) -> bool:
    return RESTARTED_AT in (field_of(deployment, "spec.template.metadata.annotations") or {})


def test_a_copy_without_names_has_the_same_plan(
    started: Start, start_lab: StartLab, rollout: Rollout, tmp_path: Path
) -> None:
    file = tmp_path / "hidden.json"
    lab = started("default", 8)
    plan = snapshot(lab, rollout, file, "--anonymous")
    text = file.read_text()
    hidden = ("worker-", "shop", "eu-1a", "coredns", "web", "cilium")
    assert not [word for word in hidden if word in text]
    again = rollout(
        start_lab(scenario_like(file), speed=30), "plan", "-o", "json", "--max-unavailable", "2"
    )
    copied = decisions(json.loads(again.stdout))
    sizes = [[node[1:] for node in wave] for wave in decisions(plan)["nodes"]]
    assert [[node[1:] for node in wave] for wave in copied["nodes"]] == sizes
    assert [entry["reason"] for entry in copied["excluded"]] == [
        entry["reason"] for entry in plan["excluded"]
    ]
    assert copied["estimate"]["seconds"] == plan["estimate"]["seconds"]


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    def ended(*words: str) -> Ended:
        return invoked(tmp_path, {}, words)

    (tmp_path / "other.json").write_text('{"kind": "List"}')
    for name, why in (
        ("other.json", "is not the snapshot of a cluster"),
        ("absent.json", "cannot read the snapshot"),
    ):
        refused = ended("lab", "up", "--like", str(tmp_path / name))
        assert (refused.code, why in refused.stderr, "hint: " in refused.stderr) == (
            1,
            True,
            True,
        ), refused.stderr
    ended("lab", "up", "--like", "a.json", "--nodes", "3").ends(64)
    ended("plan", "--anonymous").ends(64)
    ended("plan", "a.plan", "--anonymous").ends(64)


@pytest.mark.parametrize(
    "flags",
    [("--out", "a.plan"), ("--markdown", "a.md"), ("--detailed-exitcode",), ("--finish-by", "8h")],
)
def test_a_plan_that_only_explains_a_node_writes_nothing_else(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    refused = invoked(tmp_path, {}, ("plan", "--explain", "worker-1", *flags))
    assert "--explain cannot be combined with" in refused.ends(64).stderr
    assert f"Drop {flags[0]}." in refused.stderr
