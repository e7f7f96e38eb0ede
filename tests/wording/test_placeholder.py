"""Nothing that is decided depends on words: with a placeholder for each sentence, all is the same."""

from collections.abc import Iterator

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.model import marks
from rollout.model.cluster import DaemonSet, Node, OwnerRef, Pod
from rollout.model.host import (
    Host,
    HostObservation,
    ProbeFailure,
    ProbeFailureKind,
    UpdateOperation,
    UpdateStatus,
)
from rollout.model.memory import Memory, NodeFailures, VersionFailures
from rollout.model.policy import Policy, Pool, Selection, Strategy
from rollout.model.progress import RunResult
from rollout.model.quantity import Count
from rollout.planning.eligibility.status import NodeStatus, node_statuses
from rollout.planning.plan import build, explanation
from rollout.planning.plan.build import PlanInputs, build_plan, decide
from rollout.planning.plan.explanation import explain
from rollout.report.plan_screen import blocked_line
from rollout.report.status import status_text
from rollout.wording import words as wording
from rollout.wording.words import Words
from tests.planning.builders import budget, facts, inputs, node, pod, random_cluster

PLACEHOLDER = "~"
FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"
BAD = "4152.9.9"


def nodes() -> Iterator[Node]:
    """Yield a node for each of many reasons to leave one out, and some that are planned."""
    yield from (node(f"planned-{number}") for number in range(4))
    yield node("not-ready", ready=False)
    yield node("cordoned", unschedulable=True)
    yield node("deleting", deleting=True)
    yield node("windows", operating_system="windows")
    yield node("paused", annotations={marks.PAUSED: "true"})
    yield node("paused-by-fluo", annotations={f"{FLUO}reboot-paused": "true"})
    yield node("rival", annotations={f"{FLUO}reboot-in-progress": "true"})
    yield node("rival-cordoned", annotations={f"{FLUO}reboot-ok": "true"}, unschedulable=True)
    yield node("unknown-mark", annotations={f"{marks.PREFIX}strange": "1"})
    for name in ("idle", "held", "unreachable", "unknown", "no-sudo", "inhibited", "excluded"):
        yield node(name)


def pods() -> list[Pod]:
    """Return a pod for each of many reasons of a drain to leave it, refuse it or warn of it."""
    agent = OwnerRef("apps/v1", "DaemonSet", "agent", "u-agent")
    gone = OwnerRef("apps/v1", "DaemonSet", "gone", "u-gone")
    return [
        pod("web-1", "planned-0"),
        pod("bare-1", "planned-1", owner=""),
        structs.replace(pod("scratch-1", "planned-1"), has_empty_dir=True),
        structs.replace(pod("agent-1", "planned-1"), owner=agent, ready=False, node_critical=True),
        structs.replace(pod("etcd-1", "planned-1"), mirror=True),
        structs.replace(pod("gone-1", "planned-2"), owner=gone),
        structs.replace(pod("slow-1", "planned-3"), grace_period=86_400),
        pod("pinned-1", "planned-3", node_selector={"disk": "none"}),
    ]


def observations() -> dict[str, HostObservation]:
    host = Host("unreachable", "127.0.0.1")
    unknown = UpdateStatus(UpdateOperation.UNKNOWN, message="denied")
    held = UpdateStatus(UpdateOperation.NEED_REBOOT, BAD)
    return {
        "idle": facts("idle", staged=False),
        "held": facts("held", update=held),
        "unreachable": ProbeFailure(host, ProbeFailureKind.UNREACHABLE, "connection refused"),
        "unknown": facts("unknown", update=unknown),
        "no-sudo": facts("no-sudo", may_reboot=False),
        "inhibited": facts("inhibited", inhibited_by="backup"),
    }


def mixed_cluster(*, skip_blocked: bool) -> PlanInputs:
    made = inputs(
        nodes(),
        pods=pods(),
        daemon_sets=[DaemonSet("shop", "agent", "u-agent")],
        budgets=[budget("web", allowed=0, expected=1)],
        observations=observations(),
        policy=Policy(skip_blocked=skip_blocked),
        selection=Selection(exclude=("excluded",)),
    )
    return with_memory(made)


def with_memory(made: PlanInputs) -> PlanInputs:
    stamp = "2026-03-01T11:00:00Z"
    memory = Memory(
        nodes={"planned-2": NodeFailures(1, stamp, "rolled-back")},
        versions={BAD: VersionFailures(("w-8", "w-9"), stamp, stamp)},
    )
    snapshot = replace(made.snapshot, memory=memory)
    return replace(made, snapshot=snapshot)


def rows_of(made: PlanInputs) -> tuple[NodeStatus, ...]:
    return node_statuses(made.snapshot.nodes, {}, made.observations, made.policy, made.eligibility)


def decisions(made: PlanInputs) -> dict[str, object]:
    """Return everything that is decided, without the sentences."""
    decided = decide(made)
    plan = decided.plan
    ended = RunResult((), excluded=plan.excluded)
    statuses = rows_of(made)
    return {
        "waves": [[planned.name for planned in wave.nodes] for wave in plan.waves],
        "estimate": plan.estimate.seconds,
        "summary": plan.summary,
        "excluded": [(left.node, left.reason, left.version) for left in plan.excluded],
        "blockers": [(found.node, found.kind, found.object) for found in plan.blockers],
        "warnings": [(found.node, found.kind, found.object) for found in plan.warnings],
        "refusal": blocked_line(plan.blockers),
        "complete": ended.complete,
        "not done": [(missing.node, missing.reason) for missing in ended.not_done],
        "left out": ended.left_out,
        "fates": [
            (fate.pod, fate.action, fate.reason, len(fate.warnings))
            for planned in plan.nodes
            for fate in explain(decided, planned.name).pods
        ],
        "not earlier": [
            [
                (entry.wave, len(entry.because))
                for entry in explain(decided, planned.name).not_earlier
            ]
            for planned in plan.nodes
        ],
        "states": [(row.node, row.state, row.reason, row.judged) for row in statuses],
        "pending": [row.node for row in statuses if row.is_pending],
    }


def remove_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the words of findings and of waves by a placeholder."""
    monkeypatch.setattr(wording, "words", lambda _finding: Words(PLACEHOLDER, PLACEHOLDER))
    for name in ("full_reason", "table_note", "table_note_without_delay"):
        monkeypatch.setattr(build, name, lambda _reason: PLACEHOLDER)
    for name in ("title", "crowding_clause"):
        monkeypatch.setattr(explanation, name, lambda _finding: PLACEHOLDER)
    monkeypatch.setattr(explanation, "limit_words", lambda _limit: Words(PLACEHOLDER))


def with_placeholders(monkeypatch: pytest.MonkeyPatch, made: PlanInputs) -> dict[str, object]:
    with monkeypatch.context() as patched:
        remove_words(patched)
        return decisions(made)


@pytest.mark.parametrize("skip_blocked", [False, True])
def test_each_decision_about_a_node_is_made_without_words(
    monkeypatch: pytest.MonkeyPatch, *, skip_blocked: bool
) -> None:
    made = mixed_cluster(skip_blocked=skip_blocked)
    assert with_placeholders(monkeypatch, made) == decisions(made)


def test_the_mixed_cluster_has_many_reasons() -> None:
    reasons = {left.reason for left in build_plan(mixed_cluster(skip_blocked=True)).excluded}
    assert len(reasons) >= 12


def test_the_mixed_cluster_has_many_verdicts() -> None:
    made = decide(mixed_cluster(skip_blocked=False))
    fates = [fate for planned in made.plan.nodes for fate in explain(made, planned.name).pods]
    assert len({(fate.action, fate.reason) for fate in fates}) >= 6
    assert len({warned.kind for warned in made.plan.warnings}) >= 4


def test_the_placeholder_reaches_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wording, "words", lambda _finding: Words(PLACEHOLDER))
    plan = build_plan(mixed_cluster(skip_blocked=False))
    assert {left.message for left in plan.excluded} == {PLACEHOLDER}
    assert {found.message for found in plan.blockers} == {PLACEHOLDER}
    assert {found.message for found in plan.warnings} == {PLACEHOLDER}


POOLS = (
    Pool("edge", "zone=a", canary=1),
    Pool("core", "zone=b"),
    Pool("late", "zone=c", after=("edge",)),
)


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("pools", [(), POOLS])
def test_waves_are_laid_out_alike_without_words(
    monkeypatch: pytest.MonkeyPatch, strategy: Strategy, pools: tuple[Pool, ...]
) -> None:
    policy = Policy(
        max_unavailable=Count(4), canary=1, ramp=(Count(1), Count(3)), strategy=strategy
    )
    machines = [node(f"w-{i}", labels={"zone": "abc"[i % 3]}) for i in range(12)]
    made = inputs(machines, policy=replace(policy, pools=pools))
    with_words = decisions(made)
    assert with_placeholders(monkeypatch, made) == with_words
    remove_words(monkeypatch)
    assert {wave.because for wave in build_plan(made).waves} == {PLACEHOLDER}


@pytest.mark.parametrize("seed", range(5))
def test_random_clusters_are_planned_alike_without_words(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    made = random_cluster(seed, 30, 10)
    assert with_placeholders(monkeypatch, made) == decisions(made)


def test_the_rows_of_a_status_keep_their_order_and_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = mixed_cluster(skip_blocked=False)
    before = [line.split()[0] for line in status_text(rows_of(made), width=200).splitlines()]
    monkeypatch.setattr(wording, "words", lambda _finding: Words(PLACEHOLDER))
    after = [line.split()[0] for line in status_text(rows_of(made), width=200).splitlines()]
    assert after[: len(made.snapshot.nodes) + 1] == before[: len(made.snapshot.nodes) + 1]
