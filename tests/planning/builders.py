"""Small clusters for tests, written down as briefly as their point allows."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from rollout.model.cluster import (
    Budget,
    ClusterIdentity,
    ClusterSnapshot,
    DaemonSet,
    LabelSelector,
    Node,
    OwnerRef,
    Pod,
    PodPhase,
    ReadyState,
    Requirement,
    Resources,
    SelectorOperator,
)
from rollout.model.host import Host, HostFacts, HostObservation, UpdateOperation, UpdateStatus
from rollout.model.plan import Rolling
from rollout.model.policy import Policy, Selection
from rollout.planning.layout.rolling import Following
from rollout.planning.plan.build import PlanInputs

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
IDENTITY = ClusterIdentity("cluster-uid", "https://127.0.0.1:6443", "v1.36.2")
NEW, OLD = "4152.2.0", "4081.2.0"


def node(name: str, *, ready: bool = True, **changes: object) -> Node:
    plain = Node(
        name=name,
        uid=f"uid-{name}",
        resource_version="1",
        labels={},
        annotations={},
        unschedulable=False,
        ready=ReadyState.TRUE if ready else ReadyState.FALSE,
        ready_message="" if ready else "container runtime is down",
        taints=(),
        addresses=(),
        boot_id=f"boot-{name}",
        machine_id=f"machine-{name}",
        os_image="Flatcar",
        kubelet_version="v1.36.2",
        allocatable=Resources(4000, 8 << 30, 110),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def control_plane(name: str) -> Node:
    return node(name, labels={"node-role.kubernetes.io/control-plane": ""})


def pod(name: str, on: str, *, app: str = "web", owner: str = "ReplicaSet", **changes: object) -> Pod:
    plain = Pod(
        namespace="shop",
        name=name,
        uid=f"uid-{name}",
        node=on,
        phase=PodPhase.RUNNING,
        ready=True,
        labels={"app": app},
        owner=OwnerRef("apps/v1", owner, app, f"uid-{app}") if owner else None,
        mirror=False,
        has_empty_dir=False,
        requests=Resources(),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def budget(app: str, *, allowed: int, expected: int = 10, **changes: object) -> Budget:
    plain = Budget(
        namespace="shop",
        name=app,
        selector=LabelSelector((Requirement("app", SelectorOperator.IN, (app,)),)),
        min_available="",
        max_unavailable=str(allowed),
        disruptions_allowed=allowed,
        current_healthy=expected,
        desired_healthy=expected - allowed,
        expected_pods=expected,
        always_allow_unhealthy=False,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def facts(name: str, *, staged: bool = True, **changes: object) -> HostFacts:
    status = UpdateStatus(UpdateOperation.NEED_REBOOT, NEW) if staged else UpdateStatus(UpdateOperation.IDLE)
    plain = HostFacts(
        host=Host(name, "127.0.0.1"),
        update=status,
        os_id="flatcar",
        running_version=OLD,
        group="stable",
        boot_id=f"boot-{name}",
        machine_id=f"machine-{name}",
        locksmithd_active=False,
        may_reboot=True,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def inputs(
    nodes: Iterable[Node],
    *,
    pods: Iterable[Pod] = (),
    budgets: Iterable[Budget] = (),
    daemon_sets: Iterable[DaemonSet] = (),
    observations: Mapping[str, HostObservation] | None = None,
    policy: Policy | None = None,
    selection: Selection | None = None,
) -> PlanInputs:
    known = tuple(nodes)
    seen = {each.name: facts(each.name) for each in known} | dict(observations or {})
    snapshot = ClusterSnapshot(IDENTITY, known, tuple(pods), tuple(budgets), tuple(daemon_sets), (), read_at=NOW)
    return PlanInputs(
        snapshot=snapshot,
        observations=seen,
        selected=tuple(each.name for each in known),
        selection=selection or Selection(),
        policy=policy or Policy(),
        created_at=NOW,
    )


def may_begin(rules: Rolling, in_flight: Collection[str], name: str) -> bool:
    """Whether a node may be away beside those in flight."""
    return name in Following(rules, [name], in_flight=in_flight).candidates()
