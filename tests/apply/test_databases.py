"""Databases whose operator moves the primary off a cordoned node: every node is rebooted, and the
database has a primary all along.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from rollout.lab.objects import is_ready, labels_of, name_of, node_name
from rollout.lab.scenario import Scenario, ScenarioWorkload, WorkloadKind, load_scenario
from tests.apply.conftest import ONE_LOOK, Rollout
from tests.conftest import StartLab
from tests.ended import Ended
from tests.state import is_cordoned, marks_of, rebooted

SCENARIO = Path(__file__).with_name("databases.yaml")
WORKERS = {"worker-1", "worker-2", "worker-3"}
UNSEEN_SECONDS = 0.3
ROLE = "cnpg.io/instanceRole"
APPLY = ("apply", "--yes", "-o", "json", *ONE_LOOK)
OPERATE = ("operate", "--once", "-o", "json", *ONE_LOOK)
StartDatabase = Callable[[str], Lab]


def database_workload(name: str, switchover: str, instances: int = 3) -> ScenarioWorkload:
    return ScenarioWorkload(
        kind=WorkloadKind.DATABASE,
        name=name,
        namespace="db",
        replicas=instances,
        spread="kubernetes.io/hostname",
        lab={"switchover-seconds": switchover},
    )


def scenario(switchover: str, instances: int = 3, nodes: int = 3) -> Scenario:
    """`switchover` is how many seconds the operator takes, or `never`."""
    database = database_workload("shop", switchover, instances)
    base = load_scenario(str(SCENARIO))
    groups = (msgspec.structs.replace(base.nodes[0], count=nodes),)
    base = msgspec.structs.replace(base, nodes=groups)
    return msgspec.structs.replace(base, workloads=(*base.workloads, database))


@pytest.fixture
def database(start_lab: StartLab) -> StartDatabase:
    def start(switchover: str, instances: int = 3) -> Lab:
        return start_lab(scenario(switchover, instances))

    return start


def primaries(lab: Lab) -> list[Json]:
    pods = lab.store.items(PODS, "db")
    return [pod for pod in pods if labels_of(pod).get(ROLE) == "primary"]


def node_of_primary(lab: Lab) -> str:
    (primary,) = lab.call(lambda: primaries(lab))
    return node_name(primary)


@dataclass
class Watch:
    """What was seen at the changes of a cluster.

    `gaps` are the changes at which no primary was Ready. `cordoned` are the most nodes that were
    cordoned at once, and `emptying` the most of them that had known instances of the database. Not
    known is an instance that lands just before the cordon, after the last look at the pods.
    """

    gaps: list[str] = field(default_factory=list)
    cordoned: int = 0
    emptying: int = 0
    landed: dict[str, float] = field(default_factory=dict)
    cordoned_at: dict[str, float] = field(default_factory=dict)

    def see(self, cordoned: set[str], instances: Sequence[Json]) -> None:
        now = time.monotonic()
        self.cordoned = max(self.cordoned, len(cordoned))
        self.cordoned_at = {name: self.cordoned_at.get(name, now) for name in cordoned}
        emptying = set[str]()
        for pod in instances:
            node = node_name(pod)
            landed = self.landed.setdefault(f"{pod['metadata']['uid']} on {node}", now)
            if node in cordoned and landed < self.cordoned_at[node] - UNSEEN_SECONDS:
                emptying.add(node)
        self.emptying = max(self.emptying, len(emptying))


@contextmanager
def watched(lab: Lab) -> Iterator[Watch]:
    watch = Watch()

    def look(change: Change) -> None:
        if not any(is_ready(pod) for pod in primaries(lab)):
            watch.gaps.append(f"{change.resource.plural} {name_of(change.obj)}")
        nodes = [node for node in lab.store.items(NODES) if node["spec"].get("unschedulable")]
        watch.see({name_of(node) for node in nodes}, lab.store.items(PODS, "db"))

    watch.see(set(), lab.call(lambda: lab.store.items(PODS, "db")))
    lab.call(lambda: lab.store.subscribe(look))
    yield watch
    lab.call(lambda: lab.store.unsubscribe(look))


def managed_warnings(ended: Ended) -> list[str]:
    warnings = json.loads(ended.stdout)["warnings"]
    return [entry["object"] for entry in warnings if entry["kind"] == "budget-managed"]


def test_a_plan_warns_of_the_primary_and_blocks_nothing(
    database: StartDatabase, rollout: Rollout
) -> None:
    lab = database("5")
    planned = rollout(lab, "plan", "-o", "json").ends(0)
    assert json.loads(planned.stdout)["blockers"] == []
    assert managed_warnings(planned) == ["pdb/db/shop-primary"]
    shown = " ".join(rollout(lab, "plan").ends(0).stdout.split())
    assert "allows evictions again once the controller of Cluster db/shop moves its pod" in shown


def test_a_dry_run_does_not_object_to_a_budget_that_opens_during_the_drain(
    database: StartDatabase, rollout: Rollout
) -> None:
    lab = database("5")
    ended = rollout(lab, "apply", "--dry-run", "-o", "json").ends(0)
    tried = [line for line in ended.lines if line["type"] == "dry_run"]
    assert {line["node"] for line in tried} == WORKERS
    assert [line["objections"] for line in tried] == [[], [], []]


@pytest.mark.parametrize(("command", "switchover"), [(APPLY, "60"), (OPERATE, "5")])
def test_every_node_is_rebooted_one_at_a_time_with_a_ready_primary_all_along(
    command: tuple[str, ...], switchover: str, database: StartDatabase, rollout: Rollout
) -> None:
    lab = database(switchover)
    with watched(lab) as watch:
        rollout(lab, *command, "--max-unavailable", "3").ends(0)
    assert watch.gaps == []
    assert rebooted(lab) == WORKERS
    assert watch.cordoned == 1
    score = lab.scoreboard()
    assert score.budgets_broken == ()
    assert score.cordons_left == ()
    assert score.rebooted_undrained == ()


def test_a_primary_that_never_moves_fails_its_node_alone(
    database: StartDatabase, rollout: Rollout
) -> None:
    lab = database("never")
    node = node_of_primary(lab)
    ended = rollout(lab, *APPLY, "--drain-timeout", "5s", "--max-failures", "2").ends(4)
    assert rebooted(lab) == WORKERS - {node}
    assert not is_cordoned(lab, node)
    assert "phase" not in marks_of(lab, node)
    (failure,) = [
        line for line in ended.lines if line["type"] == "node_finished" and line["node"] == node
    ]
    assert failure["outcome"] == "drain-failed"
    assert "blocked by db/shop-primary" in failure["message"]
    assert "the controller of Cluster db/shop did not move the pod" in failure["message"]
    assert "kubectl describe cluster.postgresql.cnpg.io -n db shop" in failure["hint"]
    blocked = [line for line in ended.lines if line["type"] == "blocked"]
    assert {line["controller"] for line in blocked if line["pod"] == "db/shop-1"} == {
        "Cluster db/shop"
    }


@pytest.mark.sample
@pytest.mark.parametrize("strategy", ["waves", "rolling"])
def test_instances_that_moved_during_the_rollout_keep_their_nodes_apart(
    strategy: str, start_lab: StartLab, rollout: Rollout
) -> None:
    """Without the soft taint, instances move to nodes that still wait for their reboot."""
    lab = start_lab(scenario("5", nodes=7))
    taint = ("--set", "drain.prefer-no-schedule-taint=false")
    with watched(lab) as watch:
        rollout(lab, *APPLY, "--max-unavailable", "4", "--strategy", strategy, *taint).ends(0)
    assert watch.emptying == 1
    assert watch.gaps == []
    assert len(rebooted(lab)) == 7
