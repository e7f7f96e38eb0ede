"""Copies of stored data are budgets that nobody wrote: the last healthy one stays, in plans and
between nodes.
"""

from collections.abc import Iterable
from random import Random

import pytest
from msgspec.structs import replace

from rollout.model import marks
from rollout.model.cluster import StoredData
from rollout.model.plan import BlockerKind, WarningKind
from rollout.model.policy import Policy, Strategy
from rollout.model.quantity import Count
from rollout.planning.plan.build import PlanInputs, build_plan
from tests.planning.builders import HOSTNAME, budget, hosted, inputs, node, pod, waves

NAMES = ("w-1", "w-2", "w-3", "w-4")
CEPH = "cephclusters.ceph.rook.io/rook-ceph/rook-ceph"


def volume(name: str, *nodes: str, well: Iterable[str] | None = None) -> StoredData:
    healthy = frozenset(nodes if well is None else well)
    return StoredData(
        f"volumes.longhorn.io/longhorn-system/{name}",
        frozenset(nodes),
        healthy,
        1,
        "has its only one",
        "add a replica",
    )


def storing(*stored: StoredData, policy: Policy | None = None) -> PlanInputs:
    given = inputs([node(name) for name in NAMES], policy=policy)
    return replace(given, snapshot=replace(given.snapshot, stored=stored))


def blocked(given: PlanInputs) -> set[tuple[str, str]]:
    found = build_plan(given).blockers
    assert {blocker.kind for blocker in found} <= {BlockerKind.STORAGE_UNHEALTHY}
    return {(blocker.node, blocker.object.rpartition("/")[2]) for blocker in found}


def test_the_node_of_the_last_healthy_replica_does_not_go() -> None:
    given = storing(
        volume("one", "w-1"), volume("two", "w-2", "w-3", well=("w-3",)), volume("three", *NAMES)
    )
    assert blocked(given) == {("w-1", "one"), ("w-3", "two")}


def test_a_copy_on_a_node_that_is_away_does_not_count() -> None:
    given = storing(volume("two", "w-1", "w-2"))
    away = replace(given.snapshot.nodes[0], annotations={marks.RUN: "r", marks.PHASE: "rebooting"})
    seen = replace(
        given,
        snapshot=replace(given.snapshot, nodes=(away, *given.snapshot.nodes[1:])),
        selected=NAMES[1:],
    )
    (blocker,) = (
        entry for entry in build_plan(seen).blockers if entry.kind is BlockerKind.STORAGE_UNHEALTHY
    )
    assert blocker.node == "w-2"
    # of one's own node under way the copy is well again once it is back
    assert not build_plan(replace(seen, taken_up=frozenset(("w-1",)))).blockers


@pytest.mark.parametrize("strategy", list(Strategy))
def test_nodes_that_hold_all_copies_of_a_volume_are_never_away_together(strategy: Strategy) -> None:
    policy = Policy(max_unavailable=Count(2), strategy=strategy)
    plan = build_plan(
        storing(volume("two", "w-1", "w-2"), volume("others", "w-3", "w-4"), policy=policy)
    )
    if strategy is Strategy.WAVES:
        assert [set(wave) & {"w-1", "w-2"} for wave in waves(plan)] in (
            [{"w-1"}, {"w-2"}],
            [{"w-2"}, {"w-1"}],
        )
    else:
        (wave,) = plan.waves
        assert wave.rolling is not None
        key = "volumes.longhorn.io/longhorn-system/two"
        assert [wave.rolling.holds[name][key] for name in ("w-1", "w-2")] == [1, 1]
        assert wave.rolling.capacity[key] == 1


def test_no_wave_takes_the_last_healthy_copy_of_anything() -> None:
    random = Random(7)  # noqa: S311 - clusters, not secrets
    for _ in range(200):
        stored = []
        for number in range(random.randint(1, 6)):
            nodes = random.sample(NAMES, random.randint(2, 4))
            stored.append(
                volume(
                    f"v-{number}", *nodes, well=random.sample(nodes, random.randint(2, len(nodes)))
                )
            )
        plan = build_plan(
            storing(*stored, policy=Policy(max_unavailable=Count(random.randint(2, 4))))
        )
        assert not plan.blockers
        for wave in waves(plan):
            assert all(data.healthy - set(wave) for data in stored), (wave, stored)


def osds(*, broken: str = "") -> StoredData:
    well = frozenset(NAMES) - {broken}
    return StoredData(
        CEPH,
        frozenset(NAMES),
        well,
        4 if broken else 3,
        "is not healthy (OSD_DOWN)",
        "wait until it is",
    )


def test_one_node_of_a_healthy_ceph_cluster_goes_at_a_time() -> None:
    plan = build_plan(storing(osds(), policy=Policy(max_unavailable=Count(3))))
    assert [len(wave) for wave in waves(plan)] == [1, 1, 1, 1]
    assert (
        plan.waves[0].because == f"with more nodes, {CEPH} would not have enough healthy replicas"
    )


def test_of_one_that_lacks_copies_only_the_node_that_is_not_well_may_go() -> None:
    assert blocked(storing(osds(broken="w-2"))) == {
        (name, "rook-ceph") for name in ("w-1", "w-3", "w-4")
    }


def test_rooks_budget_opens_for_a_whole_node() -> None:
    """One OSD of all may go; once one is gone, Rook lets the others of its node follow."""
    pods = [
        pod(f"osd-{on}-{number}", on, app="rook-ceph-osd", node_selector={HOSTNAME: on})
        for on in ("w-1", "w-2")
        for number in range(2)
    ]
    guard = budget("rook-ceph-osd", allowed=1, expected=4)
    given = inputs(
        [hosted("w-1"), hosted("w-2")],
        pods=pods,
        budgets=[guard],
        policy=Policy(max_unavailable=Count(2)),
    )
    assert not build_plan(given).blockers
    assert [len(wave) for wave in waves(build_plan(given))] == [1, 1]
    shut = build_plan(
        inputs([hosted("w-1")], pods=pods[:2], budgets=[replace(guard, disruptions_allowed=0)])
    )
    assert not shut.blockers
    assert [warning.kind for warning in shut.warnings if "Rook" in warning.message] == [
        WarningKind.BUDGET_WAITING
    ]
