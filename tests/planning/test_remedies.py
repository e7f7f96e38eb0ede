"""Whatever a plan finds, it names the flag or the change that clears it; one case for each fixed
word.
"""

from datetime import timedelta

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.model.cluster import CONTROL_PLANE_LABELS, OwnerRef, Pod, PodPhase, StoredData
from rollout.model.host import LoggedInUser, UpdateOperation, UpdateStatus
from rollout.model.memory import NO_MEMORY
from rollout.model.plan import BlockerKind, WarningKind
from rollout.model.policy import CompletionPolicy, Critical, DrainPolicy, Policy, Restart
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Count, Duration
from rollout.model.rivals import Coordinator
from rollout.planning.eligibility.memory import EndedNode, NodeEnd, with_node_end
from rollout.planning.plan.build import PlanInputs, build_plan
from tests.planning.builders import (
    HOSTNAME,
    NEW,
    NOW,
    ago,
    budget,
    cordoned,
    deployment,
    facts,
    hosted,
    inputs,
    node,
    pod,
)

NODES = [hosted("w-1"), hosted("w-2")]


def with_pods(
    *pods: Pod,
    allowed: int | None = None,
    expected: int = 2,
    drain: DrainPolicy | None = None,
    **guard: object,
) -> PlanInputs:
    budgets = (
        () if allowed is None else (budget("web", allowed=allowed, expected=expected, **guard),)
    )
    return inputs(NODES, pods=pods, budgets=budgets, policy=Policy(drain=drain or DrainPolicy()))


def pinned(name: str) -> Pod:
    return pod(name, "w-1", node_selector={HOSTNAME: "w-1"})


def with_rival() -> PlanInputs:
    given = with_pods()
    fluo = Coordinator("fluo", "Deployment", "reboot-coordinator", "operator")
    return replace(given, snapshot=replace(given.snapshot, coordinators=(fluo,)))


def failed_before(*, include_held: bool = False) -> PlanInputs:
    """One node failed ten minutes ago: for its drain, or, where nodes of held versions are taken,
    for its version.
    """
    end = (
        NodeEnd(Outcome.ROLLED_BACK, Phase.READY)
        if include_held
        else NodeEnd(Outcome.DRAIN_FAILED, Phase.DRAINING)
    )
    ended = EndedNode("w-1", "4152.2.0", end, "run-1", 1)
    given = inputs(NODES, policy=Policy(include_held=include_held))
    memory = with_node_end(NO_MEMORY, ended, NOW - timedelta(minutes=10))
    return replace(given, snapshot=replace(given.snapshot, memory=memory))


def control_plane(*names: str, unready: str = "") -> PlanInputs:
    """Nodes of a control plane, each with its member of etcd."""
    members = [
        pod(f"etcd-{name}", name, owner="Node", app="etcd", mirror=True, ready=name != unready)
        for name in names
    ]
    return inputs(
        [node(name, labels={CONTROL_PLANE_LABELS[0]: ""}) for name in names], pods=members
    )


def with_stored(data: StoredData) -> PlanInputs:
    given = inputs(NODES)
    return replace(given, snapshot=replace(given.snapshot, stored=(data,)))


def with_lone_replica() -> PlanInputs:
    """Of a Deployment that can be restarted without a gap."""
    owner = OwnerRef("apps/v1", "ReplicaSet", "web-5d4f", "uid-rs")
    labels = {"app": "web", "pod-template-hash": "5d4f"}
    alone = structs.replace(WEB, owner=owner, labels=labels)
    given = with_pods(alone, allowed=0, expected=1, drain=DrainPolicy(restart=Restart.BLOCKED))
    return replace(given, snapshot=replace(given.snapshot, deployments=(deployment(),)))


WEB = pod("web-0", "w-1")
ON_ONE = frozenset(("w-1",))
NAKED = pod("naked", "w-1", owner="")
DAEMON = pod("agent", "w-1", owner="DaemonSet", app="gone")
TWO = (budget("web", allowed=1), budget("web", allowed=1, name="web-too"))
AILING = pod("web-0", "w-1", ready=False, unready_since=ago(900))

BLOCKERS = {
    BlockerKind.BUDGET_NEVER: (
        with_pods(WEB, allowed=0, expected=1),
        ("raise the PDB's maxUnavailable to 1", "--disable-eviction"),
    ),
    BlockerKind.TWO_BUDGETS: (inputs(NODES, pods=[WEB], budgets=TWO), ("delete all but one",)),
    BlockerKind.UNMANAGED_POD: (with_pods(NAKED), ("--force",)),
    BlockerKind.LOCAL_STORAGE: (
        with_pods(
            structs.replace(WEB, has_empty_dir=True), drain=DrainPolicy(delete_emptydir_data=False)
        ),
        ("--delete-emptydir-data",),
    ),
    BlockerKind.DAEMONSET_GONE: (with_pods(DAEMON), ("--force",)),
    BlockerKind.BUDGET_UNHEALTHY: (
        with_pods(AILING, allowed=0, desired_healthy=1, current_healthy=0),
        ("make it ready", "AlwaysAllow", "--disable-eviction"),
    ),
    BlockerKind.STUCK_TERMINATING: (
        with_pods(structs.replace(WEB, deleted_at=ago(900))),
        ("drain.skip-wait-for-delete-timeout=600",),
    ),
    BlockerKind.FITS_NOWHERE: (
        with_pods(*(pinned(f"web-{i}") for i in range(2)), allowed=1),
        ("raise the PDB's maxUnavailable to 2", "--disable-eviction"),
    ),
    BlockerKind.CONTROL_PLANE_UNHEALTHY: (
        control_plane("cp-1", "cp-2", "cp-3", unready="cp-1"),
        ("is not Ready on cp-1", "find out why", "--allow unhealthy"),
    ),
    BlockerKind.STORAGE_UNHEALTHY: (
        with_stored(
            StoredData(
                object="volumes.longhorn.io/longhorn-system/pvc-1",
                nodes=ON_ONE,
                healthy=ON_ONE,
                needed=1,
                problem="is there alone",
                fix="add a replica",
            )
        ),
        ("is there alone", "add a replica", "--allow unhealthy"),
    ),
    BlockerKind.NODES_UNAVAILABLE: (
        inputs([*NODES, node("w-3", ready=False)]),
        ("find out why", "raise the limit"),
    ),
    BlockerKind.RIVAL: (with_rival(), ("pause it", "--allow fluo")),
}
WARNINGS = {
    WarningKind.POD: (
        with_pods(structs.replace(WEB, has_empty_dir=True)),
        ("--no-delete-emptydir-data",),
    ),
    WarningKind.BUDGET_WAITING: (
        with_pods(WEB, allowed=0, expected=3, desired_healthy=2, current_healthy=2),
        ("--drain-timeout", "why its pods are not ready"),
    ),
    WarningKind.BUDGET_MANAGED: (
        with_pods(
            structs.replace(
                WEB, owner=OwnerRef("postgresql.cnpg.io/v1", "Cluster", "web", "uid-web")
            ),
            allowed=0,
            expected=1,
        ),
        ("controller of Cluster shop/web", "add an instance"),
    ),
    WarningKind.BUDGET_RESTART: (
        with_lone_replica(),
        ("restarts Deployment shop/web", "drain.restart"),
    ),
    WarningKind.TERMINATING: (
        with_pods(structs.replace(WEB, deleted_at=ago(60))),
        ("drain.skip-wait-for-delete-timeout",),
    ),
    WarningKind.LONG_GRACE: (
        with_pods(structs.replace(WEB, grace_period=3600)),
        ("may take 1h", "10m", "--drain-timeout", "--grace-period"),
    ),
    WarningKind.LONG_COMPLETION: (
        with_pods(
            structs.replace(WEB, labels={"job-name": "train"}, active_deadline_seconds=9000),
            drain=DrainPolicy(completion=CompletionPolicy(("job-name",))),
        ),
        ("may run for another 2h30m", "1h", "raise drain.wait-for-completion-timeout"),
    ),
    WarningKind.FITS_NOWHERE: (with_pods(pinned("web-0")), ("add a node or relax the rule",)),
    WarningKind.FAILED_RECENTLY: (failed_before(), ("it will not be rebooted again until",)),
    WarningKind.VERSION_HELD: (failed_before(include_held=True), ("as requested", "is held")),
    WarningKind.MORE_UPDATES: (
        inputs(
            NODES,
            observations={
                "w-1": facts("w-1", update=UpdateStatus(UpdateOperation.NEED_REBOOT, "4100.2.0"))
            },
        ),
        ("4100.2.0", NEW, "once that is staged"),
    ),
    WarningKind.LOGGED_IN: (
        inputs(NODES, observations={"w-1": facts("w-1", users=(LoggedInUser("core", "pts/0"),))}),
        ("1 user logged in", "core (pts/0)", "rollout pause w-1"),
    ),
    WarningKind.OTHERS_AT_WORK: (
        inputs([*NODES, cordoned("w-3", ago(60))], policy=Policy(max_unavailable=Count(2))),
        (
            "counts against --max-unavailable",
            "wait until it is uncordoned, or until the cordon is an hour old",
        ),
    ),
    WarningKind.NOTHING_CRITICAL: (
        inputs(NODES, policy=Policy(drain=DrainPolicy(critical=(Critical("shop", "app=wbe", 1),)))),
        ("check its namespace and selector",),
    ),
    WarningKind.ALL_REPLICAS: (
        with_pods(WEB, pod("web-1", "w-1")),
        ("spread them", "create a PDB"),
    ),
}


def test_there_is_a_case_for_every_word() -> None:
    assert set(BLOCKERS) == set(BlockerKind)
    assert set(WARNINGS) == set(WarningKind)


@pytest.mark.parametrize("kind", BLOCKERS)
def test_every_blocker_names_what_clears_it(kind: BlockerKind) -> None:
    given, remedies = BLOCKERS[kind]
    plan = build_plan(given)
    assert {found.kind for found in plan.blockers} == {kind}
    assert all(remedy in plan.blockers[0].message for remedy in remedies), plan.blockers[0].message


SLOW = structs.replace(WEB, grace_period=3600)
GOING = structs.replace(SLOW, deleted_at=ago(-3000))


@pytest.mark.parametrize(
    ("pod", "drain", "warns"),
    [
        (SLOW, DrainPolicy(), True),
        (SLOW, DrainPolicy(timeout=Duration(3601)), False),
        (SLOW, DrainPolicy(timeout=Duration(3600)), True),
        (SLOW, DrainPolicy(grace_period=30), False),
        (WEB, DrainPolicy(grace_period=900), True),
        (SLOW, DrainPolicy(pod_selector="app=other"), False),
        (structs.replace(SLOW, phase=PodPhase.SUCCEEDED), DrainPolicy(), False),
        (GOING, DrainPolicy(), True),
        (GOING, DrainPolicy(skip_wait_for_delete_timeout=60), True),
        (GOING, DrainPolicy(grace_period=30), False),
        (structs.replace(SLOW, deleted_at=ago(-300)), DrainPolicy(), False),
    ],
)
def test_a_grace_period_as_long_as_the_drain_is_warned_of(
    pod: Pod, drain: DrainPolicy, *, warns: bool
) -> None:
    kinds = {warning.kind for warning in build_plan(with_pods(pod, drain=drain)).warnings}
    assert (WarningKind.LONG_GRACE in kinds) is warns


@pytest.mark.parametrize("kind", WARNINGS)
def test_every_warning_names_what_clears_it(kind: WarningKind) -> None:
    given, remedies = WARNINGS[kind]
    found = next(each for each in build_plan(given).warnings if each.kind is kind)
    assert all(remedy in found.message for remedy in remedies), found.message


CLEARED = {
    BlockerKind.BUDGET_NEVER: DrainPolicy(disable_eviction=True),
    BlockerKind.UNMANAGED_POD: DrainPolicy(force=True),
    BlockerKind.LOCAL_STORAGE: DrainPolicy(delete_emptydir_data=True),
    BlockerKind.DAEMONSET_GONE: DrainPolicy(force=True),
    BlockerKind.BUDGET_UNHEALTHY: DrainPolicy(disable_eviction=True),
    BlockerKind.STUCK_TERMINATING: DrainPolicy(skip_wait_for_delete_timeout=600),
    BlockerKind.FITS_NOWHERE: DrainPolicy(disable_eviction=True),
}


@pytest.mark.parametrize("kind", CLEARED)
def test_the_flag_that_a_blocker_names_does_clear_it(kind: BlockerKind) -> None:
    given, _ = BLOCKERS[kind]
    assert not build_plan(
        replace(given, policy=replace(given.policy, drain=CLEARED[kind]))
    ).blockers


def test_the_changes_that_blockers_name_do_clear_them() -> None:
    assert not build_plan(with_pods(WEB, allowed=1)).blockers
    assert not build_plan(inputs(NODES, pods=[WEB], budgets=TWO[:1])).blockers
    ailing, _ = BLOCKERS[BlockerKind.BUDGET_UNHEALTHY]
    lenient = tuple(replace(each, always_allow_unhealthy=True) for each in ailing.snapshot.budgets)
    assert not build_plan(
        replace(ailing, snapshot=replace(ailing.snapshot, budgets=lenient))
    ).blockers
    away, _ = BLOCKERS[BlockerKind.NODES_UNAVAILABLE]
    assert not build_plan(replace(away, policy=Policy(max_unavailable=Count(2)))).blockers
