"""Pods that the disruption controller counts otherwise than they serve: those that ended, those without an owner."""

import pytest

from rollout.model.cluster import Budget, Pod, PodPhase
from rollout.model.plan import BlockerKind, RolloutPlan
from rollout.model.policy import DrainPolicy, Policy
from rollout.planning.plan import build_plan
from tests.planning.builders import budget, inputs, node, pod


def planned(budget_: Budget, pods: list[Pod]) -> RolloutPlan:
    policy = Policy(drain=DrainPolicy(force=True))
    return build_plan(inputs([node("w-1"), node("w-2")], pods=pods, budgets=[budget_], policy=policy))


def kinds(plan: RolloutPlan) -> set[str]:
    blockers = {found.kind.value for found in plan.blockers if found.object == "pdb/shop/web"}
    return blockers | {found.kind.value for found in plan.warnings if found.object == "pdb/shop/web"}


@pytest.mark.parametrize("limit", [{"max_unavailable": "1"}, {"max_unavailable": "50%"}, {"min_available": "50%"}])
def test_what_goes_by_scale_never_allows_pods_without_a_controller(limit: dict[str, str]) -> None:
    guard = budget(
        "web", allowed=0, expected=0, current_healthy=1, desired_healthy=0, **{"max_unavailable": "", **limit}
    )
    plan = planned(guard, [pod("web-0", "w-1", owner="")])
    assert [found.kind for found in plan.blockers] == [BlockerKind.BUDGET_NEVER]
    assert "scale of its pods' controllers" in plan.blockers[0].message


def test_a_controller_that_has_not_counted_yet_may_still_allow() -> None:
    fresh = budget("web", allowed=0, expected=0, current_healthy=0, max_unavailable="1")
    assert kinds(planned(fresh, [pod("web-0", "w-1"), pod("web-1", "w-2")])) == {"budget-waiting"}


@pytest.mark.parametrize("phase", [PodPhase.FAILED, PodPhase.SUCCEEDED])
@pytest.mark.parametrize(("needed", "expected", "kind"), [(2, 3, "budget-never"), (1, 3, "budget-waiting")])
def test_pods_that_ended_are_expected_by_a_plain_number_and_never_healthy(
    phase: PodPhase, needed: int, expected: int, kind: str
) -> None:
    """Two that run and one that ended: of two needed none can ever go, of one needed one can once both are ready."""
    guard = budget(
        "web",
        allowed=0,
        expected=expected,
        current_healthy=needed,
        desired_healthy=needed,
        max_unavailable="",
        min_available=str(needed),
    )
    pods = [pod("web-0", "w-1"), pod("web-1", "w-2"), pod("web-2", "w-2", phase=phase, ready=False)]
    assert kinds(planned(guard, pods)) == {kind}


def test_pods_that_ended_are_no_part_of_a_scale() -> None:
    guard = budget("web", allowed=0, expected=2, current_healthy=1, desired_healthy=1, max_unavailable="1")
    pods = [pod("web-0", "w-1"), pod("web-1", "w-2"), pod("web-2", "w-2", phase=PodPhase.FAILED, ready=False)]
    assert kinds(planned(guard, pods)) == {"budget-waiting"}


def test_a_healthy_pod_without_a_controller_lets_one_with_a_controller_go() -> None:
    """Scale 2, all needed, and three healthy: the controller allows one."""
    guard = budget("web", allowed=1, expected=2, current_healthy=3, desired_healthy=2, max_unavailable="0")
    pods = [pod("web-0", "w-1"), pod("web-1", "w-2"), pod("by-hand", "w-2", owner="")]
    assert not kinds(planned(guard, pods)) & {"budget-never", "budget-waiting"}
