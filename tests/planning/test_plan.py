import ast
from pathlib import Path

import pytest
from msgspec.structs import replace

import rollout
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.finding import UnavailableLimit
from rollout.model.host import Host, ProbeFailure, ProbeFailureKind, UpdateOperation, UpdateStatus
from rollout.model.plan import BlockerKind, ExclusionReason, RolloutPlan
from rollout.model.policy import ControlPlaneOrder, DrainPolicy, Policy, Selection
from rollout.model.quantity import Count, Duration
from rollout.planning.eligibility.away import AwayLimit, why_away
from rollout.planning.plan.build import build_plan
from tests.planning.builders import (
    NEW,
    OLD,
    budget,
    control_plane,
    cordoned,
    facts,
    inputs,
    node,
    pod,
    waves,
)


def reasons(plan: RolloutPlan) -> dict[str, str]:
    return {found.node: found.reason.value for found in plan.excluded}


def test_waves_are_as_large_as_the_limit_allows() -> None:
    plan = build_plan(
        inputs([node(f"w-{i}") for i in range(1, 8)], policy=Policy(max_unavailable=Count(3)))
    )
    assert waves(plan) == [["w-1", "w-2", "w-3"], ["w-4", "w-5", "w-6"], ["w-7"]]
    assert plan.summary.waves_lower_bound == 3
    assert "3" in plan.waves[0].because
    assert {wave.note for wave in plan.waves} == {""}


def test_percentages_are_of_the_nodes_that_remain_after_exclusion() -> None:
    nodes = [node(f"w-{i}") for i in range(10)]
    policy = Policy(max_unavailable=Count(25, percent=True))
    assert [len(wave) for wave in waves(build_plan(inputs(nodes, policy=policy)))] == [2] * 5
    selection = Selection(exclude=("w-[0-5]",))
    assert [
        len(wave) for wave in waves(build_plan(inputs(nodes, policy=policy, selection=selection)))
    ] == [1] * 4


def test_the_canary_goes_first_and_alone() -> None:
    plan = build_plan(
        inputs(
            [node(f"w-{i}") for i in range(5)], policy=Policy(max_unavailable=Count(4), canary=1)
        )
    )
    assert waves(plan) == [["w-0"], ["w-1", "w-2", "w-3", "w-4"]]
    assert plan.waves[0].because == "canary: one at a time"
    assert plan.waves[0].note == "canary"


def test_a_wave_stays_within_one_zone() -> None:
    nodes = [node(f"w-{i}", labels={"zone": "ab"[i % 2]}) for i in range(4)]
    plan = build_plan(inputs(nodes, policy=Policy(max_unavailable=Count(3), spread_by="zone")))
    assert waves(plan) == [["w-0", "w-2"], ["w-1", "w-3"]]
    assert "zone=a" in plan.waves[0].because


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (ControlPlaneOrder.LAST, [["w-1", "w-2"], ["cp-1"], ["cp-2"]]),
        (ControlPlaneOrder.FIRST, [["cp-1"], ["cp-2"], ["w-1", "w-2"]]),
        (ControlPlaneOrder.EXCLUDE, [["w-1", "w-2"]]),
    ],
)
def test_the_control_plane_goes_one_at_a_time(
    order: ControlPlaneOrder, expected: list[list[str]]
) -> None:
    nodes = [node("w-1"), node("w-2"), control_plane("cp-1"), control_plane("cp-2")]
    plan = build_plan(inputs(nodes, policy=Policy(max_unavailable=Count(4), control_plane=order)))
    assert waves(plan) == expected
    alone = [wave for wave in plan.waves if wave.nodes[0].name.startswith("cp-")]
    assert {(wave.because, wave.note) for wave in alone} <= {
        ("control plane: one at a time", "control plane")
    }


def test_nodes_that_would_wait_too_long_for_a_budget_never_share_a_wave() -> None:
    nodes = [node(f"w-{i}") for i in range(4)]
    pods = [pod(f"web-{i}", f"w-{i}") for i in range(4)]
    plan = build_plan(
        inputs(
            nodes,
            pods=pods,
            budgets=[budget("web", allowed=1)],
            policy=Policy(Count(4), drain=DrainPolicy(timeout=Duration(60))),
        )
    )
    assert waves(plan) == [["w-0"], ["w-1"], ["w-2"], ["w-3"]]
    assert (
        "drains would wait too long for PDB shop/web, which allows one eviction at a time"
        in plan.waves[0].because
    )
    assert plan.waves[0].note == "limited by PDB shop/web"
    assert plan.summary.waves_lower_bound == 4


@pytest.mark.parametrize(
    ("changed", "observed", "reason", "says"),
    [
        ({"ready": False}, None, "not-ready", "container runtime is down"),
        ({"deleting": True}, None, "deleting", "is being deleted"),
        ({"unschedulable": True}, None, "cordoned", "cordoned manually"),
        (
            {
                "unschedulable": True,
                "annotations": {
                    "node-rollout.dev/run": "one",
                    "node-rollout.dev/phase": "failed",
                    "node-rollout.dev/boot-id-before": "boot-w-1",
                    "node-rollout.dev/cordoned-by-us": "true",
                },
            },
            None,
            "left-cordoned",
            "unfinished rollout one",
        ),
        (
            {"annotations": {"node-rollout.dev/paused": "true"}},
            None,
            "paused",
            "node-rollout.dev/paused",
        ),
        (
            {"annotations": {"flatcar-linux-update.v1.flatcar-linux.net/reboot-paused": "true"}},
            None,
            "paused",
            "flatcar-linux-update",
        ),
        ({}, facts("w-1", staged=False), "no-update", "nothing is staged"),
        (
            {},
            ProbeFailure(
                Host("w-1", "127.0.0.1"), ProbeFailureKind.UNREACHABLE, "connection refused"
            ),
            "unreachable",
            "connection refused",
        ),
        (
            {},
            facts("w-1", update=UpdateStatus(UpdateOperation.UNKNOWN, message="denied")),
            "unknown-status",
            "denied",
        ),
        (
            {},
            facts("w-1", may_reboot=False, reboot_refusal="a password is required"),
            "no-sudo",
            "password",
        ),
    ],
)
def test_each_exclusion_has_its_word_and_a_sentence(
    changed: dict[str, object], observed: object, reason: str, says: str
) -> None:
    observations = {"w-1": observed} if observed else {}
    plan = build_plan(inputs([node("w-1", **changed), node("w-2")], observations=observations))  # type: ignore[arg-type]
    found = plan.excluded[0]
    assert found.node == "w-1"
    assert found.reason.value == reason
    assert says in found.message
    assert waves(plan) == [["w-2"]]


def test_cordoned_and_idle_nodes_are_taken_on_request() -> None:
    nodes = [node("w-1", unschedulable=True), node("w-2")]
    seen = {"w-2": facts("w-2", staged=False)}
    plan = build_plan(
        inputs(nodes, observations=seen, policy=Policy(include_cordoned=True, reboot_idle=True))
    )
    assert [(planned.name, planned.was_cordoned, planned.staged) for planned in plan.nodes] == [
        ("w-1", True, True),
        ("w-2", False, False),
    ]
    assert [planned.staged_version for planned in plan.nodes] == [NEW, ""]
    assert {planned.running_version for planned in plan.nodes} == {OLD}


def test_nodes_that_are_away_use_up_the_limit() -> None:
    nodes = [node(f"w-{i}") for i in range(6)] + [node("broken", ready=False)]
    plan = build_plan(inputs(nodes, policy=Policy(max_unavailable=Count(3))))
    assert [len(wave) for wave in waves(plan)] == [2, 2, 2]
    assert not plan.blockers


def test_a_budget_that_can_never_allow_blocks_and_can_be_skipped() -> None:
    pods = [pod("web-0", "w-1")]
    never = budget("web", allowed=0, expected=1)
    given = {"pods": pods, "budgets": [never]}
    plan = build_plan(inputs([node("w-1"), node("w-2")], **given))  # type: ignore[arg-type]
    assert [(found.node, found.kind, found.object) for found in plan.blockers] == [
        ("w-1", BlockerKind.BUDGET_NEVER, "pdb/shop/web")
    ]
    skipped = build_plan(
        inputs([node("w-1"), node("w-2")], policy=Policy(skip_blocked=True), **given)  # type: ignore[arg-type]
    )
    assert waves(skipped) == [["w-2"]]
    assert reasons(skipped) == {"w-1": "blocked"}
    assert not skipped.blockers


# What counts against --max-unavailable, and what a plan says of it.


RESULT = '{"outcome":"rolled-back","run":"abc"}'


def marked(phase: str, *, cordoned: bool = True) -> Node:
    """A node that a rollout has begun."""
    annotations = {
        marks.RUN: "abc",
        marks.PHASE: phase,
        marks.BOOT_ID_BEFORE: "b",
        marks.CORDONED_BY_US: "true",
    }
    return node("w-9", annotations=annotations, unschedulable=cordoned)


def is_away(given: Node) -> bool:
    return why_away(given, Policy(), None) is not None


@pytest.mark.parametrize(
    "phase", ["pending", "cordoned", "drained", "ready", "failed", "of a newer version"]
)
def test_whatever_bears_a_mark_and_is_not_given_back_is_away(phase: str) -> None:
    assert is_away(marked(phase))


def test_what_was_given_back_or_is_anothers_cordon_is_not() -> None:
    assert not is_away(marked("failed", cordoned=False))
    assert not is_away(node("w-9", annotations={marks.LAST_RESULT: RESULT}))
    assert not is_away(cordoned("w-9", since=""))
    assert is_away(node("w-9", ready=False))


def test_a_plan_whose_limit_is_used_up_by_a_failed_node_names_it_and_the_way_out() -> None:
    given = inputs([node("w-1"), node("w-2"), marked("failed")])
    (blocker,) = build_plan(given).blockers
    assert blocker.node == "w-9"
    assert blocker.kind == BlockerKind.NODES_UNAVAILABLE
    assert (
        blocker.message
        == "failed in rollout abc and is still cordoned, and uses up --max-unavailable 1: "
        "`rollout abort` uncordons it once that rollout has ended, or raise the limit"
    )


def test_a_failed_node_makes_waves_smaller_but_for_a_plan_that_takes_it() -> None:
    two = Policy(max_unavailable=Count(2))
    given = inputs([node("w-1"), node("w-2"), marked("failed")], policy=two)
    assert [len(wave.nodes) for wave in build_plan(given).waves] == [1, 1]
    taking = replace(given, policy=replace(two, include_cordoned=True))
    assert [len(wave.nodes) for wave in build_plan(taking).waves] == [2, 1]
    under_way = replace(given, taken_up=frozenset({"w-9"}))
    assert [len(wave.nodes) for wave in build_plan(under_way).waves] == [2]


def test_a_node_that_is_away_itself_has_room_beside_itself() -> None:
    assert not AwayLimit(1).why_full("w-9", {"w-9"})
    assert AwayLimit(1).why_full("w-1", {"w-9"}) == UnavailableLimit(1, ("w-9",))


def test_a_node_without_a_host_is_unreachable() -> None:
    given = inputs([node("w-1")])
    plan = build_plan(
        type(given)(
            given.snapshot, {}, given.selected, given.selection, given.policy, given.created_at
        )
    )
    assert reasons(plan) == {"w-1": ExclusionReason.UNREACHABLE}


def test_nothing_that_decides_reads_a_clock() -> None:
    """Beside the modules that import-linter forbids there: `datetime` has a clock too."""
    root = Path(rollout.__path__[0])
    files = [path for room in ("planning", "model") for path in (root / room).rglob("*.py")]
    calls = [
        node.func
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
    read = [
        call.attr
        for call in calls
        if isinstance(call, ast.Attribute) and call.attr in ("now", "today", "utcnow")
    ]
    assert files
    assert not read
