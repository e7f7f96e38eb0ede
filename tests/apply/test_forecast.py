"""What the plan foresees is what happens: the same cluster, planned, then applied without heeding the plan."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import PODS
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.apply.conftest import Rollout
from tests.ended import Ended

pytestmark = pytest.mark.exhaustive

QUICK = (
    *("--max-unavailable", "3", "--control-plane", "exclude", "--drain-timeout", "5s"),
    *("--reboot-timeout", "20s", "--ready-timeout", "20s", "--settle-timeout", "20s"),
)
# Real seconds within which each blocker is certain: half a minute of the lab's time, and a busy machine's planning.
LONG = 60
DESPITE = ("--yes", "-o", "json", "--allow", "blocked", "--max-failures", "99")


@contextmanager
def lab_of(scenario: str, nodes: int, directory: Path) -> Iterator[Lab]:
    with Lab.start(scale(load_scenario(scenario), nodes), directory=directory / "lab", speed=30) as lab:
        yield lab


def blocked(plan: Mapping[str, Any]) -> dict[str, set[str]]:
    """The kinds of blockers by node."""
    found: dict[str, set[str]] = {}
    for blocker in plan["blockers"]:
        found.setdefault(blocker["node"], set()).add(blocker["kind"])
    return found


def planned(rollout: Rollout, lab: Lab, *flags: str) -> dict[str, Any]:
    ended = rollout(lab, "plan", "-o", "json", *QUICK, *flags)
    document: dict[str, Any] = json.loads(ended.stdout)
    assert ended.code == (ExitCode.BLOCKED if document["blockers"] else ExitCode.OK), ended.stderr
    return document


def failed(ended: Ended) -> set[str]:
    """The nodes that failed, all of them while draining."""
    assert {entry["phase"] for entry in ended.summary["failed"]} <= {"draining"}
    return {entry["node"] for entry in ended.summary["failed"]}


def wait_until_long_unready(rollout: Rollout, lab: Lab, kind: str, *flags: str) -> dict[str, Any]:
    """Plans until a kind of blocker shows that needs a while to be certain."""
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        plan = planned(rollout, lab, *flags)
        if any(kind in kinds for kinds in blocked(plan).values()):
            return plan
    pytest.fail(f"{kind} was not foreseen within {LONG} s")


def test_each_kind_of_blocker_is_foreseen_and_comes_true(tmp_path: Path, rollout: Rollout) -> None:
    with lab_of("forecast", 12, tmp_path) as lab:
        plan = wait_until_long_unready(rollout, lab, "budget-unhealthy")
        assert blocked(plan) == {
            "worker-1": {"budget-never"},
            "worker-2": {"two-budgets"},
            "worker-3": {"unmanaged-pod"},
            "worker-4": {"budget-unhealthy"},
            "worker-5": {"fits-nowhere"},
            "worker-8": {"daemonset-gone"},
            "worker-9": {"budget-never"},
        }
        refused = rollout(lab, "apply", "--yes", *QUICK)
        assert refused.code == 6
        assert "--allow blocked" in refused.stderr

        ended = rollout(lab, "apply", *DESPITE, *QUICK)

        assert ended.code == 4
        assert failed(ended) == set(blocked(plan))
        assert set(ended.summary["succeeded"]) == {"worker-6", "worker-7"}
        assert lab.scoreboard().cordons_left == ()
        assert lab.scoreboard().budgets_broken == ()


def one_that_ended(lab: Lab, namespace: str, app: str) -> None:
    """A pod as a kubelet leaves it that has evicted it: failed, still there, and still picked by its app's budget."""
    metadata = {"name": f"{app}-evicted", "namespace": namespace, "labels": {"app": app}}
    spec = {"nodeName": "worker-1", "containers": [{"name": app, "image": "registry.example/app:1"}]}
    lab.store.create(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Failed", "reason": "Evicted"}})


def test_what_the_disruption_controller_counts_is_foreseen_and_comes_true(tmp_path: Path, rollout: Rollout) -> None:
    with lab_of(str(Path(__file__).with_name("budget-counts.yaml")), 8, tmp_path) as lab:
        nodes = ("--force", *(f"--node=worker-{number}" for number in (1, 2, 3)))
        lab.call(lambda: one_that_ended(lab, "shop", "ledger"))
        plan = wait_until_long_unready(rollout, lab, "budget-never", *nodes)
        messages = {entry["object"]: entry["message"] for entry in plan["blockers"]}
        assert {entry["node"]: entry["object"] for entry in plan["blockers"]} == {
            "worker-1": "pdb/shop/ledger",
            "worker-2": "pdb/shop/by-hand",
        }
        assert "minAvailable 1 of 2 pods, 1 of which ended," in messages["pdb/shop/ledger"]
        assert "scale of its pods' controllers" in messages["pdb/shop/by-hand"]
        ended = rollout(lab, "apply", *DESPITE, *QUICK, *nodes)
        assert failed(ended) == {"worker-1", "worker-2"}
        assert ended.summary["succeeded"] == ["worker-3"]
        assert lab.scoreboard().budgets_broken == ()


def test_what_a_blocker_says_would_clear_it_does(tmp_path: Path, rollout: Rollout) -> None:
    flags = ("--force", "--disable-eviction")
    with lab_of("forecast", 12, tmp_path) as lab:
        assert blocked(planned(rollout, lab, *flags)) == {}
        ended = rollout(lab, "apply", "--yes", "-o", "json", *QUICK, *flags)
        assert ended.code == 0, ended.stderr
        assert len(ended.summary["succeeded"]) == 9


AT_HOME = {"worker-1", "worker-2", "worker-4", "worker-6", *(f"worker-{number}" for number in range(8, 14))}
WIDE = ("--max-unavailable", "8")


def test_each_reason_to_fit_nowhere_is_foreseen_and_comes_true(tmp_path: Path, rollout: Rollout) -> None:
    with lab_of("places", 14, tmp_path) as lab:
        plan = planned(rollout, lab, *WIDE)
        assert blocked(plan) == {node: {"fits-nowhere"} for node in AT_HOME}
        for node, reason in REASONS.items():
            assert any(reason in entry["message"] for entry in plan["blockers"] if entry["node"] == node), reason

        ended = rollout(lab, "apply", *DESPITE, *QUICK, *WIDE)

        assert failed(ended) == AT_HOME
        assert ended.summary["succeeded"] == ["worker-3"]
        assert lab.scoreboard().budgets_broken == ()


REASONS = {
    "worker-1": "node selector, affinity and tolerations",
    "worker-2": "node selector, affinity and tolerations",
    "worker-4": "its anti-affinity leaves",
    "worker-6": "another pod's anti-affinity leaves",
    "worker-8": "its topology spread leaves",
    "worker-10": "room for its requests (3 CPU, 0Mi memory)",
    "worker-12": "its pod affinity leaves",
    "worker-13": "its volume zonal attaches",
}


def test_with_one_more_node_for_each_of_them_nothing_is_foreseen_and_nothing_fails(
    tmp_path: Path, rollout: Rollout
) -> None:
    with lab_of("places-spare", 21, tmp_path) as lab:
        patient = ("--drain-timeout", "20s")
        assert blocked(planned(rollout, lab, *WIDE, *patient)) == {}
        ended = rollout(lab, "apply", *DESPITE, *QUICK, *WIDE, *patient)
        assert ended.code == 0, ended.summary
        assert len(ended.summary["succeeded"]) == 18
        # what worker-13 has attached is detached before its host goes down
        told = [line["detail"] for line in ended.lines if line["type"] == "step" and line["node"] == "worker-13"]
        assert "waiting for 1 volumes to detach" in told


@pytest.mark.sample
@pytest.mark.parametrize("scenario", ["default", "mixed"])
def test_no_alarm_where_all_goes_well(scenario: str, tmp_path: Path, rollout: Rollout) -> None:
    with lab_of(scenario, 11, tmp_path) as lab:
        assert blocked(planned(rollout, lab)) == {}
        ended = rollout(lab, "apply", *DESPITE, *QUICK[:4], "--drain-timeout", "60s", "--reboot-timeout", "60s")
        assert failed(ended) == set()


def on_worker(lab: Lab, name: str) -> str:
    """The node of the first pod whose name begins so."""
    pods = lab.call(lambda: list(lab.store.items(PODS)))
    return next(str(pod["spec"]["nodeName"]) for pod in pods if pod["metadata"]["name"].startswith(name))


def test_local_storage_that_must_be_kept_is_foreseen_and_comes_true(tmp_path: Path, rollout: Rollout) -> None:
    flags = ("--no-delete-emptydir-data",)
    with lab_of("default", 8, tmp_path) as lab:
        plan = planned(rollout, lab, *flags)
        foreseen = blocked(plan)
        assert foreseen
        assert set.union(*foreseen.values()) == {"local-storage"}
        ended = rollout(lab, "apply", *DESPITE, *QUICK, *flags)
        assert failed(ended) == set(foreseen)


@pytest.mark.sample
def test_a_pod_that_does_not_end_is_foreseen_and_comes_true(tmp_path: Path, rollout: Rollout) -> None:
    with lab_of("drain-hangs", 8, tmp_path) as lab:
        node = on_worker(lab, "stubborn")
        assert blocked(planned(rollout, lab)) == {}
        delete_stubborn(lab, tmp_path)
        plan = wait_until_long_unready(rollout, lab, "stuck-terminating")
        assert blocked(plan)[node] == {"stuck-terminating"}
        ended = rollout(lab, "apply", *DESPITE, *QUICK, "--node", node)
        assert failed(ended) == {node}


def delete_stubborn(lab: Lab, home: Path) -> None:
    """Delete the pod as an operator would, with a second of grace."""
    kubectl = str(Path(sys.executable).parent / "kubectl")
    environment = {**os.environ, **lab.environment, "HOME": str(home)}
    command = [kubectl, "delete", "pod", "-n", "shop", "-l", "app=stubborn", "--grace-period=1", "--wait=false"]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def test_after_a_run_the_next_one_is_estimated_by_it(tmp_path: Path, rollout: Rollout) -> None:
    flags = ("--control-plane", "exclude", "--allow", "idle", "--node", "worker-1", "--node", "worker-2")
    with Lab.start(scale(load_scenario("default"), 8), directory=tmp_path / "lab", speed=16) as lab:
        assert "assumed" in " ".join(planned_by(rollout, lab, flags)["estimate"]["basis"])
        assert rollout(lab, "apply", "--yes", "-o", "json", *flags).code == 0

        estimate = planned_by(rollout, lab, flags)["estimate"]
        # whatever else this machine does makes a rollout longer, and none shorter
        quickest = min(seconds_of(rollout(lab, "apply", "--yes", "-o", "json", *flags)) for _ in range(3))

        assert all("in the local journals" in told for told in estimate["basis"]), estimate
        assert 0.5 < estimate["seconds"] / quickest < 2, (estimate, quickest)


def seconds_of(ended: Ended) -> float:
    """From its first wave to its end."""
    lines = ended.lines
    began = next(entry["at"] for entry in lines if entry["type"] == "wave_started")
    return (datetime.fromisoformat(lines[-1]["at"]) - datetime.fromisoformat(began)).total_seconds()


def planned_by(rollout: Rollout, lab: Lab, flags: tuple[str, ...]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(rollout(lab, "plan", "-o", "json", *flags).stdout)
    return document
