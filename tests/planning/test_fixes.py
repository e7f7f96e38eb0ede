"""Every fix that a blocker offers is applied, alone, and clears it."""

import json
import re
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout.cli.settings.schema import Allow
from rollout.cli.stages.refusals import blockers_not_allowed
from rollout.model import marks
from rollout.model.cluster import (
    Budget,
    ConditionStatus,
    Node,
    OwnerRef,
    PersistentVolume,
    Pod,
    Resources,
    StoredData,
)
from rollout.model.gates import GatePolicy
from rollout.model.placement import NodeTerm
from rollout.model.plan import Blocker, BlockerKind
from rollout.model.policy import Critical, DrainPolicy, Policy, Pool, Restart
from rollout.model.quantity import Count
from rollout.model.rivals import Coordinator, LockAnnotation, Rival
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.plan.build import PlanInputs, build_plan
from tests.planning.builders import (
    HOSTNAME,
    ago,
    budget,
    control_plane,
    deployment,
    hosted,
    inputs,
    node,
    pod,
)

Fix = Callable[[PlanInputs], PlanInputs]


def amount(written: str, of: int) -> int:
    """A number or a percentage, rounded up, as the disruption controller takes it."""
    return ceil(int(written[:-1]) * of / 100) if written.endswith("%") else int(written)


def counted(pods: Sequence[Pod], guard: Budget) -> Budget:
    """The budget with the status that the disruption controller gives it."""
    covered = [pod for pod in pods if guard.covers(pod)]
    healthy = sum(pod.ready and not pod.finished for pod in covered)
    is_number = not guard.max_unavailable and not guard.min_available.endswith("%")
    expected = (
        len(covered)
        if is_number
        else sum(pod.owner is not None and not pod.finished for pod in covered)
    )
    if guard.max_unavailable:
        desired = max(0, expected - amount(guard.max_unavailable, expected))
    else:
        desired = amount(guard.min_available, expected)
    allowed = max(0, healthy - desired) if expected else 0
    return replace(
        guard,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
    )


def recounted(given: PlanInputs) -> PlanInputs:
    budgets = tuple(counted(given.snapshot.pods, guard) for guard in given.snapshot.budgets)
    return replace(given, snapshot=replace(given.snapshot, budgets=budgets))


def guarded(
    pods: Sequence[Pod],
    *,
    nodes: Sequence[Node] = (),
    drain: DrainPolicy | None = None,
    **spec: Any,
) -> PlanInputs:
    guard = budget("web", allowed=1, **({"max_unavailable": "", "min_available": ""} | spec))
    policy = Policy(drain=drain or DrainPolicy())
    return recounted(
        inputs(nodes or [hosted("w-1"), hosted("w-2")], pods=pods, budgets=[guard], policy=policy)
    )


def web(number: int, *, on: str = "w-1", **changes: Any) -> list[Pod]:
    """The first one on this node, the others elsewhere."""
    return [pod(f"web-{i}", on if i == 0 else "w-2", **changes) for i in range(number)]


def with_pods(given: PlanInputs, pods: Sequence[Pod]) -> PlanInputs:
    return recounted(replace(given, snapshot=replace(given.snapshot, pods=tuple(pods))))


def with_budget(given: PlanInputs, **changes: Any) -> PlanInputs:
    budgets = tuple(replace(guard, **changes) for guard in given.snapshot.budgets)
    return recounted(replace(given, snapshot=replace(given.snapshot, budgets=budgets)))


def with_drain(given: PlanInputs, **changes: Any) -> PlanInputs:
    return replace(
        given, policy=replace(given.policy, drain=replace(given.policy.drain, **changes))
    )


def scale(given: PlanInputs, more: int) -> PlanInputs:
    first = given.snapshot.pods[0]
    new = [
        structs.replace(first, name=f"new-{i}", uid=f"uid-new-{i}", node="w-2", ready=True)
        for i in range(more)
    ]
    return with_pods(given, [*given.snapshot.pods, *new])


def ready(given: PlanInputs) -> PlanInputs:
    return with_pods(
        given, [structs.replace(each, ready=True, unready_since="") for each in given.snapshot.pods]
    )


def roomy(given: PlanInputs) -> PlanInputs:
    nodes = [
        replace(node, allocatable=Resources(64000, 64 << 30, 110)) for node in given.snapshot.nodes
    ]
    return replace(given, snapshot=replace(given.snapshot, nodes=tuple(nodes)))


def without_budgets_but(given: PlanInputs, kept: int) -> PlanInputs:
    return replace(
        given, snapshot=replace(given.snapshot, budgets=given.snapshot.budgets[kept : kept + 1])
    )


def lower_critical(given: PlanInputs, least: int) -> PlanInputs:
    rules = tuple(replace(rule, min_available=least) for rule in given.policy.drain.critical)
    return with_drain(given, critical=rules)


def with_snapshot(given: PlanInputs, **changes: Any) -> PlanInputs:
    return replace(given, snapshot=replace(given.snapshot, **changes))


def copied_to(given: PlanInputs, node: str) -> PlanInputs:
    """A healthy copy of everything is on this node as well."""
    stored = tuple(
        replace(data, nodes=data.nodes | {node}, healthy=data.healthy | {node})
        for data in given.snapshot.stored
    )
    return with_snapshot(given, stored=stored)


def rebuilt(given: PlanInputs) -> PlanInputs:
    """What holds a copy that is not healthy has a healthy one."""
    stored = tuple(replace(data, healthy=data.nodes) for data in given.snapshot.stored)
    return with_snapshot(given, stored=stored)


def with_healthy_ceph(given: PlanInputs) -> PlanInputs:
    stored = tuple(
        replace(data, healthy=data.nodes, needed=len(data.nodes) - 1)
        for data in given.snapshot.stored
    )
    return with_snapshot(given, stored=stored)


def back(given: PlanInputs, names: Sequence[str]) -> PlanInputs:
    """These nodes are Ready, schedulable and without marks."""
    nodes = tuple(
        replace(node, ready=ConditionStatus.TRUE, unschedulable=False, annotations={})
        if node.name in names
        else node
        for node in given.snapshot.nodes
    )
    return with_snapshot(given, nodes=nodes)


def away_nodes(given: PlanInputs) -> list[str]:
    objects = dict.fromkeys(blocker.object for blocker in blockers(given))
    return [name.removeprefix("node/") for name in objects if name.startswith("node/")]


def with_member(given: PlanInputs, *names: str, component: str = "etcd") -> PlanInputs:
    """These control-plane nodes are Ready, and so is the component's static pod on each."""
    nodes = [node for node in given.snapshot.nodes if node.name not in names]
    pods = [
        pod
        for pod in given.snapshot.pods
        if pod.node not in names or pod.labels["app"] != component
    ]
    new = [control_plane(name) for name in names]
    new_pods = [static_pod(component, name) for name in names]
    with_nodes = with_snapshot(given, nodes=(*nodes, *new))
    return with_pods(with_nodes, [*pods, *new_pods])


def with_fixed_members(given: PlanInputs, match: re.Match[str]) -> PlanInputs:
    fixed = with_member(given, *match["names"].split(", "))
    return with_member(fixed, "cp-new") if match["growth"] else fixed


def with_raised_limit(given: PlanInputs) -> PlanInputs:
    most = Count(len(away_nodes(given)) + 1)
    pools = tuple(replace(pool, max_unavailable=most) for pool in given.policy.pools)
    return replace(given, policy=replace(given.policy, max_unavailable=most, pools=pools))


def scaled(given: PlanInputs, match: re.Match[str]) -> PlanInputs:
    """Without the coordinator's Deployment, which kubectl has scaled to no replicas."""
    left = tuple(
        found
        for found in given.snapshot.coordinators
        if (found.namespace, found.kind.lower(), found.name) != match.groups()
    )
    return with_snapshot(given, coordinators=left)


def locked_by_hand(given: PlanInputs, match: re.Match[str]) -> PlanInputs:
    """With the lock that is written, if kured reads it in this form and annotation."""
    (kured,) = given.snapshot.coordinators
    assert kured.lock
    assert match["name"] == kured.name
    written = json.loads(match["lock"])
    places = [written] if kured.lock.owners == 1 else written["locks"]
    holders = tuple(place["nodeID"] for place in places)
    is_full = match["annotation"] == kured.lock.name and len(set(holders)) == kured.lock.owners
    taken = replace(kured, holders=holders, locked=is_full)
    return with_snapshot(given, coordinators=(taken,))


def ignoring(given: PlanInputs, rival: str) -> PlanInputs:
    return replace(given, policy=replace(given.policy, gates=GatePolicy(ignored_rivals=(rival,))))


# What a clause of a blocker means; a clause without an entry fails the test.
APPLIED: dict[str, Callable[[PlanInputs, re.Match[str]], Sequence[PlanInputs]]] = {
    r"add a replica": lambda given, _: [
        copied_to(given, "w-2") if given.snapshot.stored else scale(given, 1)
    ],
    r"add (\d+) replicas": lambda given, match: [scale(given, int(match[1]))],
    r"raise the PDB's maxUnavailable to (\d+)": lambda given, match: [
        with_budget(given, max_unavailable=match[1])
    ],
    r"lower the PDB's minAvailable to (\d+)": lambda given, match: [
        with_budget(given, min_available=match[1])
    ],
    r"lower its min-available to (\d+)": lambda given, match: [
        lower_critical(given, int(match[1]))
    ],
    r"set minAvailable to (\d+)": lambda given, match: [
        with_budget(given, max_unavailable="", min_available=match[1])
    ],
    r"set minAvailable to a number": lambda given, _: [
        with_budget(given, sync_error="", max_unavailable="", min_available="1")
    ],
    r"make it select only pods whose controllers have a scale subresource": lambda given, _: [
        with_budget(given, sync_error="")
    ],
    r"let rollout restart the Deployment \(--set drain\.restart=blocked\)": (
        lambda given, _: [with_drain(given, restart=Restart.BLOCKED)]
    ),
    r"use --disable-eviction": lambda given, _: [with_drain(given, disable_eviction=True)],
    r"make (it|them) ready": lambda given, _: [ready(given)],
    r"set its unhealthyPodEvictionPolicy to AlwaysAllow": lambda given, _: [
        with_budget(given, always_allow_unhealthy=True)
    ],
    r"make room on other nodes": lambda given, _: [roomy(given)],
    r"delete all but one of these PDBs": lambda given, _: [
        without_budgets_but(given, kept) for kept in range(len(given.snapshot.budgets))
    ],
    r"see what blocks its deletion": lambda given, _: [with_pods(given, given.snapshot.pods[1:])],
    r"skip it with --set drain.skip-wait-for-delete-timeout=(\d+)": lambda given, match: [
        with_drain(given, skip_wait_for_delete_timeout=int(match[1]))
    ],
    r"wait for its rebuild": lambda given, _: [rebuilt(given)],
    r"wait until it is": lambda given, _: [with_healthy_ceph(given)],
    r"wait until (\S+) is available again": lambda given, match: [back(given, [match[1]])],
    r"find out why with `kubectl describe \w+`": lambda given, _: [
        ready(back(given, away_nodes(given)))
    ],
    r"fix the members? on (?P<names>.+?)(?P<growth> and add a member)?": lambda given, match: [
        with_fixed_members(given, match)
    ],
    r"add a member": lambda given, _: [with_member(given, "cp-new")],
    r"start another API server": lambda given, _: [
        with_member(given, "cp-2", component="kube-apiserver")
    ],
    r"raise the limit": lambda given, _: [with_raised_limit(given)],
    r"`rollout abort` uncordons it once that rollout has ended": lambda given, _: [
        back(given, away_nodes(given))
    ],
    r"pause it \(kubectl -n (\S+) scale (\S+) (\S+) --replicas=0\)": lambda given, match: [
        scaled(given, match)
    ],
    r"take its lock manually \(kubectl -n \S+ annotate daemonset (?P<name>\S+)"
    r" (?P<annotation>\S+)='(?P<lock>.*)'\)": lambda given, match: [locked_by_hand(given, match)],
    r"remove it": lambda given, _: [with_snapshot(given, coordinators=())],
    r"(?:pause its pools \(kubectl .*\), and then )?ignore it with --allow (\S+)": (
        lambda given, match: [ignoring(given, match[1])]
    ),
}

UNREADY: dict[str, Any] = {"ready": False, "unready_since": ago(900)}
PINNED: dict[str, Any] = {"node_selector": {HOSTNAME: "w-1"}}
TWO = (budget("web", allowed=1, expected=2), budget("web", allowed=1, expected=2, name="web-too"))
LARGE = Resources(3000, 1 << 30, 1)
LOCAL = PersistentVolume(
    "pv-local",
    "shop/data",
    (NodeTerm((Requirement(HOSTNAME, SelectorOperator.IN, ("w-1",)),)),),
)
CLAIMS: dict[str, Any] = {"claims": ("data",)}
FAILED_BEFORE = {marks.RUN: "run-1", marks.PHASE: "failed"}
UNDER_WAY = {marks.RUN: "run-1", marks.PHASE: "rebooting"}


def storing(data: StoredData, *nodes: Node) -> PlanInputs:
    return with_snapshot(inputs(nodes or [hosted("w-1"), hosted("w-2")]), stored=(data,))


def volume(*nodes: str, well: Sequence[str], fix: str) -> StoredData:
    return StoredData(
        object="volumes.longhorn.io/longhorn-system/pvc-1",
        nodes=frozenset(nodes),
        healthy=frozenset(well),
        needed=1,
        problem="has its only healthy replica there",
        fix=fix,
    )


def beside(away: Node, policy: Policy | None = None) -> PlanInputs:
    """The node `away` is not to be rebooted, but counts."""
    labels = {"tier": "web"}
    nodes = [node("w-1", labels=labels), node("w-2", labels=labels), away]
    given = inputs(nodes, policy=policy)
    return replace(given, selected=("w-1", "w-2"))


def beside_kured(lock: LockAnnotation | None) -> PlanInputs:
    kured = Coordinator(Rival.KURED, "DaemonSet", "kube-system", "kured", lock=lock)
    return with_snapshot(inputs([hosted("w-1"), hosted("w-2")]), coordinators=(kured,))


def static_pod(component: str, on: str, **changes: Any) -> Pod:
    return pod(f"{component}-{on}", on, owner="Node", app=component, mirror=True, **changes)


def members(number: int, *, unready: Sequence[str] = (), **of_first: Any) -> PlanInputs:
    """A control plane of so many nodes, each with a member of etcd; `of_first` changes cp-1."""
    names = [f"cp-{i}" for i in range(1, number + 1)]
    nodes = [control_plane(name) for name in names]
    nodes[0] = replace(nodes[0], **of_first)
    pods = [static_pod("etcd", name, ready=name not in unready) for name in names]
    return inputs(nodes, pods=pods, policy=Policy(max_unavailable=Count(number)))


def one_api_server() -> PlanInputs:
    given = members(3)
    return with_pods(given, [*given.snapshot.pods, static_pod("kube-apiserver", "cp-1")])


def lone_replica() -> PlanInputs:
    """Of a Deployment that can be restarted without a gap."""
    owner = OwnerRef("apps/v1", "ReplicaSet", "web-5d4f", "uid-rs")
    labels = {"app": "web", "pod-template-hash": "5d4f"}
    alone = structs.replace(pod("web-0", "w-1"), owner=owner, labels=labels)
    return with_snapshot(guarded([alone], min_available="1"), deployments=(deployment(),))


CONTROL_PLANES: dict[str, PlanInputs] = {
    "a-control-plane-node-is-not-ready": members(3, ready=ConditionStatus.FALSE),
    "a-control-plane-node-failed-before": members(3, unschedulable=True, annotations=FAILED_BEFORE),
    "a-control-plane-node-is-under-way": members(3, unschedulable=True, annotations=UNDER_WAY),
    "a-static-pod-is-not-ready": members(5, unready=["cp-1"]),
    "etcd-has-two-members": members(2),
    "etcd-has-two-members-and-lacks-one": members(2, unready=["cp-1"]),
    "etcd-lacks-a-member-of-three": members(3, unready=["cp-1"]),
    "etcd-lacks-two-members-of-five": members(5, unready=["cp-1", "cp-2"]),
    "the-last-api-server": one_api_server(),
}
CASES: dict[str, tuple[PlanInputs, BlockerKind]] = {
    **{
        f"max-unavailable-{most}-of-{number}": (
            guarded(web(number), max_unavailable=most),
            BlockerKind.BUDGET_NEVER,
        )
        for most in ("0", "0%")
        for number in (1, 2, 5)
    },
    **{
        f"min-available-{least}-of-{number}": (
            guarded(web(number), min_available=least),
            BlockerKind.BUDGET_NEVER,
        )
        for least, number in (
            ("1", 1),
            ("2", 2),
            ("5", 2),
            ("100%", 1),
            ("100%", 4),
            ("51%", 1),
            ("90%", 5),
            ("99%", 3),
            ("67%", 2),
        )
    },
    "a-deployment-surges": (lone_replica(), BlockerKind.BUDGET_NEVER),
    "an-ended-pod-is-counted": (
        guarded([*web(2), pod("ended", "w-2", phase="Succeeded", ready=False)], min_available="2"),
        BlockerKind.BUDGET_NEVER,
    ),
    "a-job-is-not-scaled": (
        guarded(web(1, owner="Job"), min_available="1"),
        BlockerKind.BUDGET_NEVER,
    ),
    "nobody-scales-a-pod-without-controller": (
        guarded(web(1, owner=""), min_available="1", drain=DrainPolicy(force=True)),
        BlockerKind.BUDGET_NEVER,
    ),
    "no-scale": (
        guarded(web(2, owner=""), max_unavailable="1", drain=DrainPolicy(force=True)),
        BlockerKind.BUDGET_NEVER,
    ),
    "cannot-be-counted": (
        guarded(
            web(2),
            max_unavailable="1",
            sync_error="jobs.batch does not implement the scale subresource",
        ),
        BlockerKind.BUDGET_NEVER,
    ),
    "critical-without-a-budget": (
        inputs(
            [hosted("w-1"), hosted("w-2")],
            pods=web(2),
            policy=Policy(drain=DrainPolicy(critical=(Critical("shop", "app=web", 2),))),
        ),
        BlockerKind.BUDGET_NEVER,
    ),
    "unready": (
        guarded(web(1, **UNREADY) + web(3)[1:], max_unavailable="1"),
        BlockerKind.BUDGET_UNHEALTHY,
    ),
    "unready-beside-a-ready-one": (
        guarded(
            [*web(1, **UNREADY), pod("web-1", "w-1"), pod("web-2", "w-2")], max_unavailable="1"
        ),
        BlockerKind.BUDGET_UNHEALTHY,
    ),
    "unready-elsewhere": (
        guarded([pod("web-1", "w-1"), pod("web-2", "w-2", **UNREADY)], max_unavailable="50%"),
        BlockerKind.BUDGET_UNHEALTHY,
    ),
    "several-unready": (
        guarded(
            [pod(f"web-{i}", "w-1", **UNREADY) for i in range(2)] + [pod("web-2", "w-2")],
            min_available="2",
        ),
        BlockerKind.BUDGET_UNHEALTHY,
    ),
    "two-budgets": (
        inputs([hosted("w-1"), hosted("w-2")], pods=web(2), budgets=TWO),
        BlockerKind.TWO_BUDGETS,
    ),
    "terminating": (
        inputs([hosted("w-1"), hosted("w-2")], pods=[pod("web-0", "w-1", deleted_at=ago(900))]),
        BlockerKind.STUCK_TERMINATING,
    ),
    "pinned-to-its-node": (
        guarded([pod(f"web-{i}", "w-1", **PINNED) for i in range(2)], max_unavailable="1"),
        BlockerKind.FITS_NOWHERE,
    ),
    "pinned-with-a-percentage": (
        guarded([pod(f"web-{i}", "w-1", **PINNED) for i in range(3)], min_available="60%"),
        BlockerKind.FITS_NOWHERE,
    ),
    "too-large-for-the-others": (
        guarded(
            [pod(f"web-{i}", "w-1", requests=LARGE) for i in range(2)],
            nodes=[
                hosted("w-1", allocatable=Resources(8000, 8 << 30, 110)),
                hosted("w-2", allocatable=Resources(1000, 8 << 30, 110)),
            ],
            max_unavailable="1",
        ),
        BlockerKind.FITS_NOWHERE,
    ),
    "a-volume-that-attaches-to-no-other-node": (
        with_snapshot(
            guarded([pod(f"web-{i}", "w-1", **CLAIMS) for i in range(2)], max_unavailable="1"),
            volumes=(LOCAL,),
        ),
        BlockerKind.FITS_NOWHERE,
    ),
    "longhorns-only-replica": (
        storing(volume("w-1", well=["w-1"], fix="add a replica")),
        BlockerKind.STORAGE_UNHEALTHY,
    ),
    "longhorns-last-healthy-replica": (
        storing(volume("w-1", "w-2", well=["w-1"], fix="wait for its rebuild, or add a replica")),
        BlockerKind.STORAGE_UNHEALTHY,
    ),
    "longhorns-other-replica-is-on-a-node-that-is-away": (
        storing(
            volume("w-1", "w-3", well=["w-1", "w-3"], fix="add a replica"),
            hosted("w-1"),
            hosted("w-2"),
            hosted("w-3", ready=False),
        ),
        BlockerKind.STORAGE_UNHEALTHY,
    ),
    "ceph": (
        storing(
            StoredData(
                object="cephclusters.ceph.rook.io/rook-ceph/main",
                nodes=frozenset(("w-1", "w-2")),
                healthy=frozenset(("w-1",)),
                needed=2,
                problem="is not healthy (OSD_DOWN)",
                fix="wait until it is",
            )
        ),
        BlockerKind.STORAGE_UNHEALTHY,
    ),
    **{
        name: (given, BlockerKind.CONTROL_PLANE_UNHEALTHY) for name, given in CONTROL_PLANES.items()
    },
    "a-node-is-not-ready": (
        beside(node("w-3", ready=False)),
        BlockerKind.NODES_UNAVAILABLE,
    ),
    "a-node-of-the-pool-is-not-ready": (
        beside(
            node("w-3", ready=False, labels={"tier": "web"}),
            Policy(
                max_unavailable=Count(3),
                pools=(Pool("web", "tier=web", max_unavailable=Count(1)),),
            ),
        ),
        BlockerKind.NODES_UNAVAILABLE,
    ),
    "a-node-failed-before": (
        beside(node("w-3", unschedulable=True, annotations=FAILED_BEFORE)),
        BlockerKind.NODES_UNAVAILABLE,
    ),
    "a-node-is-under-way": (
        beside(node("w-3", unschedulable=True, annotations=UNDER_WAY)),
        BlockerKind.NODES_UNAVAILABLE,
    ),
    **{
        f"coordinator-{rival}": (
            with_snapshot(
                inputs([hosted("w-1"), hosted("w-2")]),
                coordinators=(Coordinator(rival, "Deployment", "ops", "its-name"),),
            ),
            BlockerKind.RIVAL,
        )
        for rival in Rival
        if rival not in (Rival.KURED, Rival.LOCKSMITHD, Rival.ZINCATI)
    },
    "coordinator-kured": (beside_kured(LockAnnotation("weave.works/lock")), BlockerKind.RIVAL),
    "coordinator-kured-of-three": (
        beside_kured(LockAnnotation("acme.example/lock", 3)),
        BlockerKind.RIVAL,
    ),
    "coordinator-kured-whose-lock-expires": (beside_kured(None), BlockerKind.RIVAL),
}


def blockers(given: PlanInputs) -> tuple[Blocker, ...]:
    return build_plan(given).blockers


def clauses(blocker: Blocker) -> list[str]:
    return re.split(r", or |, (?!and |cp-)| or ", blocker.fix)


@pytest.mark.parametrize("case", CASES)
def test_each_fix_that_a_blocker_offers_clears_it(case: str) -> None:
    given, kind = CASES[case]
    found = [blocker for blocker in blockers(given) if blocker.kind is kind]
    assert found, blockers(given)
    for blocker in found:
        for clause in clauses(blocker):
            if clause == "use --allow unhealthy":
                assert blocker not in blockers_not_allowed(build_plan(given), (Allow.UNHEALTHY,))
                continue
            pattern = next((each for each in APPLIED if re.fullmatch(each, clause)), None)
            assert pattern, f"nobody knows how to {clause!r}"
            match = re.fullmatch(pattern, clause)
            assert match
            for fixed in APPLIED[pattern](given, match):
                left = {(each.node, each.kind, each.object) for each in blockers(fixed)}
                assert (blocker.node, kind, blocker.object) not in left, (clause, blockers(fixed))


@pytest.mark.parametrize("case", ["failed-before", "is-under-way"])
def test_a_node_that_a_rollout_left_cordoned_is_returned_by_abort(case: str) -> None:
    found = blockers(CONTROL_PLANES[f"a-control-plane-node-{case}"])
    assert found
    assert all("`rollout abort` uncordons it" in blocker.fix for blocker in found)


@pytest.mark.parametrize(
    "spec", [{"max_unavailable": "0"}, {"max_unavailable": "0%"}, {"min_available": "100%"}]
)
def test_no_replica_is_offered_where_none_helps(spec: dict[str, Any]) -> None:
    messages = {found.message for found in blockers(guarded(web(2), **spec))}
    assert len(messages) == 1
    assert "replica" not in messages.pop()


def test_the_number_of_missing_replicas_is_named() -> None:
    messages = {found.message for found in blockers(guarded(web(5), min_available="90%"))}
    assert len(messages) == 1
    assert "add 5 replicas" in messages.pop()


REFUSED: dict[str, tuple[Pod, DrainPolicy, dict[str, Any]]] = {
    "unmanaged": (pod("naked", "w-1", owner=""), DrainPolicy(), {"force": True}),
    "daemon-set-gone": (
        pod("agent", "w-1", owner="DaemonSet", app="gone"),
        DrainPolicy(),
        {"force": True},
    ),
    "local-storage": (
        pod("web-0", "w-1", has_empty_dir=True),
        DrainPolicy(delete_emptydir_data=False),
        {"delete_emptydir_data": True},
    ),
    "unmanaged-with-local-storage": (
        pod("naked", "w-1", owner="", has_empty_dir=True),
        DrainPolicy(delete_emptydir_data=False),
        {"force": True, "delete_emptydir_data": True},
    ),
}
FLAGS = {"force": "--force", "delete_emptydir_data": "--delete-emptydir-data"}


@pytest.mark.parametrize("case", REFUSED)
def test_the_flags_that_a_refusal_names_clear_it(case: str) -> None:
    refused, drain, changes = REFUSED[case]
    given = inputs([hosted("w-1"), hosted("w-2")], pods=[refused], policy=Policy(drain=drain))
    (found,) = blockers(given)
    assert {flag for name, flag in FLAGS.items() if name in changes} == set(
        re.findall(r"--[\w-]+", found.message)
    )
    assert not blockers(with_drain(given, **changes))
