"""A small plan and its events, for reports to show."""

from datetime import UTC, datetime

from rollout.model.cluster import ClusterIdentity
from rollout.model.plan import (
    FORMAT_VERSION,
    Blocker,
    BlockerKind,
    Exclusion,
    ExclusionReason,
    PlannedNode,
    PlanSummary,
    PlanWarning,
    RolloutPlan,
    Wave,
)
from rollout.model.policy import Policy, Selection
from rollout.model.progress import (
    NodeCondition,
    NodeDiagnosis,
    NodeFinished,
    NodeResult,
    NodeStep,
    Notice,
    NotStarted,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    RunFinished,
    RunResult,
    StepEvent,
    VersionHeld,
    WaveSettling,
    WaveStarted,
)

AT = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)


def planned(name: str) -> PlannedNode:
    return PlannedNode(name, "boot-1", f"uid-{name}", "3975.2.0", "4081.2.1", evict=5, leave=2)


def plan(
    *, blockers: tuple[Blocker, ...] = (), warnings: tuple[PlanWarning, ...] = ()
) -> RolloutPlan:
    waves = (
        Wave(1, (planned("node-1"),), "the canary goes alone", "the canary goes alone"),
        Wave(2, (planned("node-2"), planned("node-3")), "up to 2 at once", "up to 2 at once"),
    )
    return RolloutPlan(
        FORMAT_VERSION,
        "0123456789abcdef",
        "2026-03-04T05:06:07Z",
        ClusterIdentity("uid", "https://127.0.0.1:6443", "v1.36.0"),
        Selection(),
        Policy(),
        waves,
        (Exclusion("node-4", ExclusionReason.PAUSED, "paused by an annotation"),),
        blockers,
        warnings,
        PlanSummary(3, 2, 2),
    )


def blocker() -> Blocker:
    return Blocker(
        "node-2",
        BlockerKind.BUDGET_NEVER,
        "pdb/shop/cart",
        "never allows an eviction: mend its selector",
        cause="never allows an eviction",
        fix="mend its selector",
    )


SEEN = NodeDiagnosis(
    "the connection was refused",
    (NodeCondition("Ready", "Unknown", "NodeStatusUnknown", "silent"),),
    "the console of lab://2",
)
FAILED = NodeResult(
    "node-2",
    Outcome.ROLLED_BACK,
    Phase.READY,
    31.25,
    "rolled back to 3975.2.0 from 4081.2.1: the update did not take effect",
    "look",
    "3975.2.0",
    diagnosis=SEEN,
)
DONE = NodeResult("node-1", Outcome.SUCCEEDED, Phase.DONE, 30.0, version="4081.2.1")

EVENTS: tuple[StepEvent, ...] = (
    PlanReady(AT, plan()),
    WaveStarted(AT, 1, 2, ("node-1",), "the canary goes alone"),
    NodeStep(AT, "node-1", Phase.DRAINING, "3 pods left"),
    PodBlocked(AT, "node-1", "shop/cart-1", "shop/cart", AT, "needs 2 healthy pods", 540.04),
    NodeFinished.of(AT, DONE),
    WaveSettling(AT, 1, "ReplicaSet shop/cart has 1 of 2 pods ready"),
    VersionHeld(AT, "4081.2.1", ("node-2",), "version 4081.2.1 is held"),
    Notice(AT, "waiting for the API server"),
    RunFinished(
        AT,
        RunResult(
            (DONE, FAILED),
            (NotStarted("node-3", "its kubelet has reported a new boot since the plan was made"),),
            (NotStarted("node-4", "1 node failed"),),
        ),
    ),
)
