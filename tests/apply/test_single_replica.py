"""A single replica that its budget needs, moved by restarts of its Deployment without a gap."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest

from rollout.gather.cluster.decode import RESTARTED_AT
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import DEPLOYMENTS, NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from rollout.lab.objects import (
    annotations_of,
    field_of,
    is_deleting,
    is_ready,
    name_of,
    node_name,
    with_spec,
)
from tests.apply.conftest import ONE_LOOK, Rollout, command
from tests.conftest import StartLab
from tests.state import PREFIX, is_cordoned, rebooted, unlock

SCENARIO = str(Path(__file__).with_name("single.yaml"))
WORKERS = {f"worker-{number}" for number in range(1, 7)}
RESTART = ("--set", "drain.restart=blocked")
APPLY = ("apply", "--yes", "-o", "json", *ONE_LOOK, *RESTART)


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab(SCENARIO)


def ledger_pods(lab: Lab) -> list[Json]:
    return [pod for pod in lab.store.items(PODS, "shop") if name_of(pod).startswith("ledger-")]


def ledger(lab: Lab) -> Json:
    deployment = lab.store.get(DEPLOYMENTS, "ledger", "shop")
    assert deployment is not None
    return deployment


def node_of_ledger(lab: Lab) -> str:
    (pod,) = lab.call(lambda: ledger_pods(lab))
    return node_name(pod)


class Watched:
    """What a watcher of the cluster saw: changes without a Ready replica, and each restart."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.gaps = list[str]()
        self.restarts = set[str]()
        self.nodes = set[str]()
        self.samples = 0

    def look(self, change: Change) -> None:
        self.samples += 1
        if not any(is_ready(pod) for pod in ledger_pods(self._lab)):
            self.gaps.append(f"{change.resource.plural} {name_of(change.obj)}")
        self.nodes |= {node_name(pod) for pod in ledger_pods(self._lab)} - {""}
        if change.resource is DEPLOYMENTS and name_of(change.obj) == "ledger":
            at = (field_of(change.obj, "spec.template.metadata.annotations") or {}).get(
                RESTARTED_AT
            )
            self.restarts |= {at} if at else set()


@contextmanager
def watched(lab: Lab) -> Iterator[Watched]:
    seen = Watched(lab)
    lab.call(lambda: lab.store.subscribe(seen.look))
    yield seen
    lab.call(lambda: lab.store.unsubscribe(seen.look))


def assert_well_ended(lab: Lab) -> None:
    score = lab.scoreboard()
    assert rebooted(lab) == WORKERS
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.budgets_broken == ()
    assert score.rebooted_undrained == ()


def test_without_the_setting_the_plan_is_blocked_and_names_it(lab: Lab, rollout: Rollout) -> None:
    planned = json.loads(rollout(lab, "plan", "-o", "json").ends(6).stdout)
    (blocker,) = planned["blockers"]
    assert blocker["kind"] == "budget-never"
    assert "let rollout restart the Deployment (--set drain.restart=blocked)" in blocker["message"]


@pytest.mark.parametrize("answer", [None, FaultAnswer.FORBIDDEN, FaultAnswer.INVALID])
def test_a_dry_run_tries_the_restart_and_names_what_denies_it(
    answer: FaultAnswer | None, lab: Lab, rollout: Rollout
) -> None:
    if answer:
        lab.inflict(ApiFault(answer=answer, resource="deployments", verb="patch"))
    node = node_of_ledger(lab)
    ended = rollout(lab, "apply", "--dry-run", "-o", "json", "--node", node, *RESTART).ends(0)
    (line,) = [line for line in ended.lines if line["type"] == "dry_run"]
    assert bool(line["objections"]) is bool(answer)
    for objection in line["objections"]:
        assert objection.startswith("shop/ledger-")
        assert "its Deployment cannot be restarted (drain.restart): " in objection
    assert RESTARTED_AT not in json.dumps(lab.call(lambda: ledger(lab)))


def test_six_reboots_never_leave_the_service_without_a_ready_replica(
    lab: Lab, rollout: Rollout
) -> None:
    with watched(lab) as seen:
        ended = rollout(lab, *APPLY, "--max-unavailable", "2").ends(0)
    assert seen.gaps == []
    assert seen.samples > 0
    assert seen.restarts
    assert_well_ended(lab)
    assert [line for line in ended.lines if line["type"] == "node_finished"] != []


def test_passes_of_operate_do_the_same(lab: Lab, rollout: Rollout) -> None:
    node = node_of_ledger(lab)
    with watched(lab) as seen:
        rollout(lab, "operate", "--once", "--node", node, *ONE_LOOK, *RESTART).ends(0)
    assert seen.gaps == []
    assert rebooted(lab) == {node}


def test_a_replacement_that_never_starts_returns_the_node_and_the_others_go_on(
    lab: Lab, rollout: Rollout
) -> None:
    node = node_of_ledger(lab)
    never_ready(lab)
    flags = ("--drain-timeout", "4s", "--max-failures", "2")
    with watched(lab) as seen:
        ended = rollout(lab, *APPLY, *flags).ends(4)
    assert seen.gaps == []
    assert rebooted(lab) == WORKERS - {node}
    assert not is_cordoned(lab, node)
    (failure,) = [
        line for line in ended.lines if line["type"] == "node_finished" and line["node"] == node
    ]
    assert failure["outcome"] == "drain-failed"
    assert "Deployment shop/ledger was restarted" in failure["message"]
    assert "0 of 1 updated replicas are available" in failure["message"]
    assert "kubectl rollout status -n shop deployment/ledger" in failure["hint"]


# Moments at which a process is killed: a phase of the replica's node, or a step of the restart.
PHASES = ("pending", "cordoned", "draining", "drained", "rebooting", "booted", "ready")
STEPS = ("restarted", "started", "replaced", "ending", "ended")
ORDINARY = {"restarted", "replaced"}
MOMENTS = [
    pytest.param(moment, marks=() if moment in ORDINARY else pytest.mark.exhaustive)
    for moment in (*PHASES, *STEPS)
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_whenever_it_is_killed_the_next_goes_on_without_a_gap_and_restarts_nothing_twice(
    moment: str, lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    selected = {node_of_ledger(lab), "worker-1", "worker-2"}
    flags = ("--node", ",".join(sorted(selected)))
    with watched(lab) as seen:
        kill_at(moment, lab, tmp_path, *APPLY, *flags)
        rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(0)
    assert seen.gaps == []
    # The replacement may be on a node that is rebooted later.
    assert len(seen.restarts) == len(seen.nodes) - 1
    status = lab.call(lambda: ledger(lab)["status"])
    assert status["updatedReplicas"] == 1
    assert status["replicas"] == 1
    score = lab.scoreboard()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.budgets_broken == ()
    reboots = {node: number for node, number in score.reboots.items() if number}
    assert reboots == dict.fromkeys(selected, 1)


def kill_at(moment: str, lab: Lab, home: Path, *arguments: str) -> None:
    """Kill a command when the cluster sees this moment of the ledger's first node or restart."""
    node = node_of_ledger(lab)
    (old,) = lab.call(lambda: [name_of(pod) for pod in ledger_pods(lab)])
    started = Queue[subprocess.Popen[str]]()
    reached = list[str]()

    def look(change: Change) -> None:
        if not reached and moment in moments_of(change, node, old):
            started.get().kill()
            reached.append(moment)

    lab.call(lambda: lab.store.subscribe(look))
    process = command(lab, home, *arguments)
    started.put(process)
    process.communicate()
    lab.call(lambda: lab.store.unsubscribe(look))
    assert reached == [moment]


def moments_of(change: Change, node: str, old: str) -> Iterator[str]:
    """Yield the moments that a change is; `old` is the pod on the node."""
    name = name_of(change.obj)
    if change.resource is NODES and name == node:
        yield annotations_of(change.obj).get(f"{PREFIX}phase", "")
    if change.resource is DEPLOYMENTS and name == "ledger":
        annotations = field_of(change.obj, "spec.template.metadata.annotations") or {}
        if RESTARTED_AT in annotations:
            yield "restarted"
    if change.resource is not PODS or not name.startswith("ledger-"):
        return
    if name == old:
        yield "ended" if change.gone else "ending" if is_deleting(change.obj) else ""
    else:
        yield "replaced" if is_ready(change.obj) else "started"


def never_ready(lab: Lab) -> None:
    """The next pods of the Deployment take longer to start than anyone waits."""

    def change() -> None:
        deployment = ledger(lab)
        template = deployment["spec"]["template"]
        slow = {"lab.node-rollout.dev/startup-seconds": "86400"}
        metadata = {**template["metadata"], "annotations": slow}
        lab.store.put(
            DEPLOYMENTS, with_spec(deployment, template={**template, "metadata": metadata})
        )

    lab.call(change)
