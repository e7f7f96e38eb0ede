"""Nodes that someone else is emptying use up the limit; a cordon that stays does not."""

import pytest
from msgspec.structs import replace

from rollout.gather.doctor.cluster import exclusion_checks
from rollout.model import marks
from rollout.model.blocker_finding import AwayCordoned, AwayMaintained, NodeAway
from rollout.model.cluster import CONTROL_PLANE_LABELS, Node
from rollout.model.node_lifecycle import OUR_REASON, Lifecycle, LifecycleCondition
from rollout.model.plan import BlockerKind, ExclusionReason, RolloutPlan, WarningKind
from rollout.model.policy import Policy
from rollout.model.progress import Phase
from rollout.model.quantity import Count
from rollout.planning.eligibility.away import why_away
from rollout.planning.plan.build import build_plan
from rollout.wording import cause_of
from tests.planning.builders import NOW, ago, cordoned, inputs, node, waves

MINUTE = 60
HOUR = 3600
TWO = Policy(max_unavailable=Count(2))
ALLOWED = Policy(include_cordoned=True)
PENDING = [node("w-1"), node("w-2")]


def why(given: Node, policy: Policy = TWO) -> NodeAway | None:
    return why_away(given, policy, NOW)


def under(
    kind: Lifecycle, *, reason: str = "KubectlDrain", is_true: bool = True, name: str = "w-9"
) -> Node:
    """A node with a condition that was set five minutes ago."""
    condition = LifecycleCondition(kind, is_true, reason, ago(5 * MINUTE))
    return node(name, lifecycle=(condition,))


def others(plan: RolloutPlan) -> list[str]:
    return [found.node for found in plan.warnings if found.kind is WarningKind.OTHERS_AT_WORK]


@pytest.mark.parametrize("seconds", [0, 5 * MINUTE, HOUR - 1])
def test_a_cordon_of_the_last_hour_counts(seconds: int) -> None:
    assert why(cordoned("w-9", ago(seconds))) == AwayCordoned(ago(seconds))


@pytest.mark.parametrize("seconds", [HOUR, HOUR + 1, 24 * HOUR])
def test_a_longer_cordon_does_not_count(seconds: int) -> None:
    assert why(cordoned("w-9", ago(seconds))) is None


def test_a_cordon_by_a_clock_that_is_fast_counts() -> None:
    assert why(cordoned("w-9", ago(-MINUTE))) == AwayCordoned(ago(-MINUTE))


def test_a_cordon_counts_if_the_time_of_the_api_server_is_unknown() -> None:
    assert why_away(cordoned("w-9", ago(24 * HOUR)), TWO, None) == AwayCordoned(ago(24 * HOUR))


def test_a_cordon_whose_taint_has_no_time_does_not_count() -> None:
    assert why(cordoned("w-9", "")) is None


def test_a_cordon_that_the_cluster_has_not_seen_yet_counts() -> None:
    """The node lifecycle controller adds the taint, and its time, after the cordon."""
    unseen = why(node("w-9", unschedulable=True))
    assert unseen == AwayCordoned("")
    assert cause_of(unseen) == (
        "was cordoned by someone else (the node.kubernetes.io/unschedulable taint has not been added yet)"
    )


def test_a_taint_that_a_cordon_has_left_does_not_count() -> None:
    assert why(replace(cordoned("w-9", ago(MINUTE)), unschedulable=False)) is None


def test_no_cordon_counts_if_cordoned_nodes_are_allowed() -> None:
    assert why(cordoned("w-9", ago(MINUTE)), ALLOWED) is None


@pytest.mark.parametrize("kind", [Lifecycle.DRAIN_IN_PROGRESS, Lifecycle.MAINTENANCE_IN_PROGRESS])
@pytest.mark.parametrize("policy", [TWO, ALLOWED])
def test_a_node_under_maintenance_counts_without_a_cordon(kind: Lifecycle, policy: Policy) -> None:
    assert why(under(kind), policy) == AwayMaintained(ago(5 * MINUTE), kind)


def test_a_node_under_maintenance_counts_however_old_its_cordon_is() -> None:
    old = cordoned("w-9", ago(24 * HOUR))
    maintained = replace(old, lifecycle=under(Lifecycle.MAINTENANCE_IN_PROGRESS).lifecycle)
    assert why(maintained) == AwayMaintained(ago(5 * MINUTE), Lifecycle.MAINTENANCE_IN_PROGRESS)


@pytest.mark.parametrize("kind", [Lifecycle.MAINTENANCE_PLANNED, Lifecycle.DRAINED])
def test_what_is_only_planned_or_over_does_not_count(kind: Lifecycle) -> None:
    assert why(under(kind)) is None


def test_a_condition_that_is_false_does_not_count() -> None:
    assert why(under(Lifecycle.DRAIN_IN_PROGRESS, is_true=False)) is None


def test_a_condition_of_rollout_does_not_count() -> None:
    assert why(under(Lifecycle.DRAIN_IN_PROGRESS, reason=OUR_REASON)) is None


def test_the_cordon_of_a_rollout_is_not_someone_elses() -> None:
    begun = {
        marks.RUN: "abc",
        marks.PHASE: Phase.DRAINING.value,
        marks.CORDONED_BY_US: "true",
    }
    found = why(cordoned("w-9", ago(MINUTE), annotations=begun))
    assert found is not None
    assert not isinstance(found, AwayCordoned)


def test_a_plan_without_room_names_the_node_and_since_when() -> None:
    plan = build_plan(inputs([*PENDING, cordoned("w-9", ago(5 * MINUTE))]))
    (blocker,) = plan.blockers
    assert blocker.kind is BlockerKind.NODES_UNAVAILABLE
    assert blocker.object == "node/w-9"
    assert blocker.message == (
        f"was cordoned by someone else at {ago(5 * MINUTE)}, and uses up --max-unavailable 1: "
        "wait until it is uncordoned, or until the cordon is an hour old, or raise the limit"
    )
    assert not others(plan)


def test_a_plan_with_room_starts_fewer_at_once_and_says_why() -> None:
    plan = build_plan(inputs([*PENDING, cordoned("w-9", ago(5 * MINUTE))], policy=TWO))
    assert waves(plan) == [["w-1"], ["w-2"]]
    assert not plan.blockers
    assert others(plan) == ["w-9"]
    (warning,) = plan.warnings
    assert warning.message.startswith(f"was cordoned by someone else at {ago(5 * MINUTE)}, and")


def test_a_cordon_of_yesterday_is_left_out_and_stops_nothing() -> None:
    plan = build_plan(inputs([*PENDING, cordoned("w-9", ago(24 * HOUR))], policy=TWO))
    assert waves(plan) == [["w-1", "w-2"]]
    assert not plan.warnings
    assert [(found.node, found.reason) for found in plan.excluded] == [
        ("w-9", ExclusionReason.CORDONED)
    ]


def test_nothing_is_said_where_no_node_is_pending() -> None:
    assert not build_plan(inputs([cordoned("w-9", ago(MINUTE))])).warnings


@pytest.mark.parametrize("policy", [TWO, replace(TWO, include_cordoned=True)])
def test_a_node_that_someone_else_maintains_is_left_out(policy: Policy) -> None:
    plan = build_plan(inputs([*PENDING, under(Lifecycle.DRAIN_IN_PROGRESS)], policy=policy))
    (left_out,) = plan.excluded
    assert left_out.reason is ExclusionReason.CORDONED
    assert left_out.message == (
        "someone else has set its condition DrainInProgress to True (wait until it is False)"
    )
    assert waves(plan) == [["w-1"], ["w-2"]]


def test_a_control_plane_node_waits_for_another_that_someone_else_maintains() -> None:
    role = {CONTROL_PLANE_LABELS[0]: ""}
    busy = replace(under(Lifecycle.MAINTENANCE_IN_PROGRESS, name="cp-2"), labels=role)
    plan = build_plan(inputs([node("cp-1", labels=role), busy], policy=TWO))
    (blocker,) = plan.blockers
    assert blocker.kind is BlockerKind.CONTROL_PLANE_UNHEALTHY
    assert "wait until that condition is False, or use --allow unhealthy" in blocker.message


def test_doctor_says_to_wait_for_the_condition_and_not_to_uncordon() -> None:
    nodes = [*PENDING, under(Lifecycle.DRAIN_IN_PROGRESS)]
    plan = build_plan(inputs(nodes, policy=TWO))
    (check,) = exclusion_checks(plan, nodes, rival_marks={}, self_rebooting=())
    assert check.fix.text == "Wait until it is False"


def test_doctor_says_how_to_uncordon_a_node() -> None:
    nodes = [*PENDING, cordoned("w-9", ago(24 * HOUR))]
    plan = build_plan(inputs(nodes, policy=TWO))
    (check,) = exclusion_checks(plan, nodes, rival_marks={}, self_rebooting=())
    assert check.fix.commands == ("kubectl uncordon w-9",)
