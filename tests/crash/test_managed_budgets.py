"""kill -9 while a drain waits for the controller of a budget, and another process continues.

The budget belongs to a database, whose operator moves the primary some seconds after the cordon.
Its pods belong to the operator's own kind, or to a StatefulSet that such an object owns.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import msgspec
import pytest

from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import BUDGETS, CLUSTERS, EVENTS, NODES, PODS, STATEFULSETS
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from rollout.lab.objects import (
    annotations_of,
    is_active,
    is_daemon,
    is_deleting,
    is_ready,
    labels_of,
    name_of,
    node_name,
    uid,
    with_metadata,
)
from rollout.lab.scenario import WorkloadKind, load_scenario
from rollout.lab.world.workloads import owner_reference
from tests.apply import test_databases
from tests.crash.conftest import Machine
from tests.crash.test_kill import PHASE, assert_nothing_left
from tests.state import stored
from tests.stateful.operators import held_by, unfinished
from tests.stateful.witness import Witness
from tests.stateful.workload_rules import DatabaseRule
from tests.stateful.workloads import DATABASE

LIMIT = 3
NODES_IN_ALL = 6
SPEED = 60
# More than two seconds of real time, so that the drain waits and says so.
SWITCHOVER = "150"
ROLE = "cnpg.io/instanceRole"
PRIMARY = "primary"
REPLICA = "replica"
KINDS = (WorkloadKind.DATABASE, WorkloadKind.STATEFUL_SET)
STRATEGIES = ("waves", "rolling")
# What the cluster sees of the drain of the primary's node, in this order.
BOUNDARIES = (
    "cordoned",
    "draining",
    "evicting",
    "reported",
    "alone",
    "switched",
    "released",
    "gone",
    "drained",
)


@contextmanager
def database_lab(kind: WorkloadKind, directory: Path) -> Iterator[Lab]:
    scenario = load_scenario(str(test_databases.SCENARIO))
    groups = (msgspec.structs.replace(scenario.nodes[0], count=NODES_IN_ALL),)
    database = test_databases.database_workload(DATABASE, SWITCHOVER)
    database = msgspec.structs.replace(database, kind=kind, labels={ROLE: REPLICA})
    workloads = (*scenario.workloads, database)
    scenario = msgspec.structs.replace(scenario, nodes=groups, workloads=workloads)
    with Lab(scenario, directory=directory, speed=SPEED) as lab:
        if kind is WorkloadKind.STATEFUL_SET:
            lab.call(lambda: own_stateful_set(lab))
        yield lab


def own_stateful_set(lab: Lab) -> None:
    """Create a Cluster that owns the StatefulSet and its budgets; in the lab's loop."""
    store = lab.store
    found = stored(lab, STATEFULSETS, DATABASE, "db")
    first = stored(lab, PODS, f"{DATABASE}-0", "db")
    store.put(PODS, with_metadata(first, labels={**labels_of(first), ROLE: PRIMARY}))
    selector = {"matchLabels": {"app": DATABASE}}
    spec = {
        "template": found["spec"]["template"],
        "instanceNames": [],
        "podSelector": selector,
        "role": {"label": ROLE, "primary": PRIMARY, "replica": REPLICA},
    }
    metadata = {"name": DATABASE, "namespace": "db"}
    cluster = store.create(CLUSTERS, {"metadata": metadata, "spec": spec})
    owners = [owner_reference(cluster, CLUSTERS)]
    store.put(STATEFULSETS, with_metadata(found, ownerReferences=owners))
    for role in (PRIMARY, REPLICA):
        name = f"{DATABASE}-{role}"
        of_role = {"matchLabels": {"app": DATABASE, ROLE: role}}
        budget = {
            "metadata": {"name": name, "namespace": "db", "ownerReferences": owners},
            "spec": {"minAvailable": 1, "selector": of_role},
        }
        store.create(BUDGETS, with_defaults(BUDGETS, budget))


@dataclass
class DrainTrigger:
    """Kills a process when the drain of the primary's node crosses a boundary.

    The answer to the request that crosses it is not on its way yet.
    """

    lab: Lab
    boundary: str
    process: ForkServerProcess | None = None
    node: str = ""
    primary: str = ""
    gaps: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Watch the node that has the primary now; in the lab's loop."""
        (pod,) = self._primaries()
        self.node = node_name(pod)
        self.primary = uid(pod)
        self.lab.store.subscribe(self._observe)

    def _observe(self, change: Change) -> None:
        if not any(map(is_ready, self._primaries())):
            self.gaps.append(f"{change.resource.plural} {name_of(change.obj)}")
        if self.process is not None and self.boundary in self._boundaries_of(change):
            self.process.kill()
            self.process = None

    def _boundaries_of(self, change: Change) -> Iterator[str]:
        if change.resource is NODES and name_of(change.obj) == self.node:
            yield annotations_of(change.obj).get(PHASE, "")
        elif change.resource is EVENTS and change.obj.get("reason") == "DrainBlocked":
            yield "reported"
        elif change.resource is PODS:
            yield from self._boundaries_of_pod(change)

    def _boundaries_of_pod(self, change: Change) -> Iterator[str]:
        pod = change.obj
        if uid(pod) == self.primary:
            yield "gone" if change.gone else "released" if is_deleting(pod) else ""
        elif labels_of(pod).get(ROLE) == PRIMARY:
            yield "switched"
        elif node_name(pod) == self.node and is_deleting(pod):
            yield "evicting"
            if change.gone and self._is_alone():
                yield "alone"

    def _is_alone(self) -> bool:
        pods = self.lab.store.pods_on(self.node)
        return [uid(pod) for pod in pods if not is_daemon(pod)] == [self.primary]

    def _primaries(self) -> list[Json]:
        pods = self.lab.store.items(PODS, "db")
        return [pod for pod in pods if labels_of(pod).get(ROLE) == PRIMARY and is_active(pod)]


def run(machine: Machine, lab: Lab, *arguments: str, trigger: DrainTrigger | None = None) -> int:
    """Run a command until it ends or is killed; return its exit code."""
    number = machine.next_number()
    flags = ("--yes", "--set", "lock.duration=30s", "-o", "json")
    process = machine.start(number, (*arguments, *flags), lab.environment)
    if trigger is not None:
        trigger.process = process
    process.join(120)
    code = process.exitcode
    assert code in {0, -9}, machine.output(number).read_text()
    return code


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_whenever_a_drain_is_killed_that_waits_for_a_controller_another_finishes_it(
    boundary: str, strategy: str, kind: WorkloadKind, machine: Machine, tmp_path: Path
) -> None:
    with database_lab(kind, tmp_path / "lab") as lab:
        witness = Witness(lab, LIMIT)
        one_at_a_time = DatabaseRule(witness)
        trigger = DrainTrigger(lab, boundary)
        for begin in (witness.begin, one_at_a_time.begin, trigger.begin):
            lab.call(begin)
        # Without the soft taint, instances move to nodes that still wait for their reboot.
        rules = (
            *("--max-unavailable", str(LIMIT), "--strategy", strategy),
            *("--set", "waves.health-checks=1"),
            *("--set", "drain.prefer-no-schedule-taint=false"),
        )
        assert run(machine, lab, "apply", *rules, trigger=trigger) == -9
        assert run(machine, lab, "resume", "--force-unlock", held_by(lab)) == 0
        score = lab.scoreboard()
        assert set(score.reboots.values()) == {1}, score
        assert_nothing_left(lab, str(score))
        assert not unfinished(lab)
        assert lab.call(witness.verdicts) == []
        assert trigger.gaps == []
