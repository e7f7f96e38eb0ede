"""A member of the control plane goes while the others are well, and etcd keeps its majority."""

from dataclasses import replace

import pytest

from rollout.model.plan import BlockerKind
from rollout.planning.plan import PlanInputs, build_plan
from tests.planning.test_remedies import control_plane

THREE = ("cp-1", "cp-2", "cp-3")


def blocked(given: PlanInputs) -> dict[str, str]:
    found = build_plan(given).blockers
    assert {blocker.kind for blocker in found} <= {BlockerKind.CONTROL_PLANE_UNHEALTHY}
    return {blocker.node: blocker.object for blocker in found}


def without_pods_on(given: PlanInputs, *names: str) -> PlanInputs:
    pods = tuple(pod for pod in given.snapshot.pods if pod.node not in names)
    return replace(given, snapshot=replace(given.snapshot, pods=pods))


def test_the_node_of_the_static_pod_that_is_not_ready_may_go_and_no_other() -> None:
    assert blocked(control_plane(*THREE, unready="cp-1")) == dict.fromkeys(THREE[1:], "pod/shop/etcd-cp-1")


@pytest.mark.parametrize("names", [("cp-1",), THREE])
def test_nothing_is_in_the_way_where_all_are_ready(names: tuple[str, ...]) -> None:
    assert not blocked(control_plane(*names))


def test_etcd_keeps_its_majority() -> None:
    assert blocked(control_plane("cp-1", "cp-2")) == {name: f"pod/shop/etcd-{name}" for name in ("cp-1", "cp-2")}
    # cp-3, whose member is not there, may go
    assert blocked(without_pods_on(control_plane(*THREE), "cp-3")).keys() == {"cp-1", "cp-2"}
