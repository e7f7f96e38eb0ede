"""Small clusters for tests, written down as briefly as their point allows."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from random import Random

from msgspec import structs
from msgspec.structs import replace

from rollout.model.cluster import (
    ZONE_LABEL,
    Budget,
    ClusterIdentity,
    ClusterSnapshot,
    ConditionStatus,
    DaemonSet,
    LabelSelector,
    Node,
    OwnerRef,
    Pod,
    PodPhase,
    Resources,
)
from rollout.model.deployment import Deployment, DeploymentProgress
from rollout.model.host import Host, HostFacts, HostObservation, UpdateOperation, UpdateStatus
from rollout.model.placement import ANYWHERE, CORDON, Placement, PodTerm, Spread
from rollout.model.plan import Rolling, RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.model.quantity import Count
from rollout.model.selectors import Requirement, SelectorOperator
from rollout.planning.layout.rolling import RollingQueue
from rollout.planning.plan.build import PlanInputs

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
IDENTITY = ClusterIdentity("cluster-uid", "https://127.0.0.1:6443", "v1.36.2")
NEW = "4152.2.0"
OLD = "4081.2.0"
HOSTNAME = "kubernetes.io/hostname"


def node(name: str, *, ready: bool = True, **changes: object) -> Node:
    plain = Node(
        name=name,
        uid=f"uid-{name}",
        resource_version="1",
        labels={},
        annotations={},
        unschedulable=False,
        ready=ConditionStatus.TRUE if ready else ConditionStatus.FALSE,
        ready_message="" if ready else "container runtime is down",
        taints=(),
        addresses=(),
        boot_id=f"boot-{name}",
        machine_id=f"machine-{name}",
        os_image="Flatcar",
        kubelet_version="v1.36.2",
        allocatable=Resources(4000, 8 << 30, 110),
    )
    return replace(plain, **changes)


def hosted(name: str, **changes: object) -> Node:
    """One that pods can be tied to, or kept apart by."""
    return node(name, labels={HOSTNAME: name}, **changes)  # type: ignore[arg-type]


def cordoned(name: str, since: str, **changes: object) -> Node:
    """One whose cordon the cluster saw then; empty if it does not say."""
    taint = structs.replace(CORDON, time_added=since)
    return node(name, unschedulable=True, taints=(taint,), **changes)  # type: ignore[arg-type]


def control_plane(name: str) -> Node:
    return node(name, labels={"node-role.kubernetes.io/control-plane": ""})


def pod(
    name: str, on: str, *, app: str = "web", owner: str = "ReplicaSet", **changes: object
) -> Pod:
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
    return structs.replace(plain, **changes)


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
    return replace(plain, **changes)


def deployment(desired: int = 1, **changes: object) -> Deployment:
    plain = Deployment(
        namespace="shop",
        name="web",
        uid="uid-web",
        is_rolling=True,
        is_paused=False,
        surge=1,
        unavailable=0,
        resource_version="1",
        restarted_at="",
        progress=DeploymentProgress(
            desired, updated=desired, available=desired, is_observed=True, is_late=False
        ),
    )
    return structs.replace(plain, **changes)


def facts(name: str, *, staged: bool = True, **changes: object) -> HostFacts:
    status = (
        UpdateStatus(UpdateOperation.NEED_REBOOT, NEW)
        if staged
        else UpdateStatus(UpdateOperation.IDLE)
    )
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
    return replace(plain, **changes)


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
    snapshot = ClusterSnapshot(
        IDENTITY, known, tuple(pods), tuple(budgets), tuple(daemon_sets), (), read_at=NOW
    )
    return PlanInputs(
        snapshot=snapshot,
        observations=seen,
        selected=tuple(each.name for each in known),
        selection=selection or Selection(),
        policy=policy or Policy(),
        created_at=NOW,
    )


def waves(plan: RolloutPlan) -> list[list[str]]:
    """The names of its nodes, wave by wave."""
    return [[planned.name for planned in wave.nodes] for wave in plan.waves]


def ago(seconds: int) -> str:
    """So long before the plan is made, as the API writes it."""
    return (NOW - timedelta(seconds=seconds)).isoformat()


def may_begin(rules: Rolling, in_flight: Collection[str], name: str) -> bool:
    """Whether a node may be away beside those in flight."""
    return name in RollingQueue(rules, [name], in_flight=in_flight).candidates()


# Random clusters as large as real ones: three zones, many small workloads, budgets of every kind.


ZONES = ("a", "b", "c")


def random_cluster(
    seed: int, nodes: int, pods_per_node: int, *, demanding: bool = False
) -> PlanInputs:
    """A cluster of so many nodes and about so many pods a node.

    In a `demanding` one most workloads keep their pods apart, spread them strictly or are drawn to
    a zone.
    """
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    offered = Resources(8000, 32 << 30, 250)
    machines = [
        node(
            f"w-{i}",
            labels={ZONE_LABEL: ZONES[i % 3], "kubernetes.io/hostname": f"w-{i}"},
            allocatable=offered,
        )
        for i in range(nodes)
    ]
    pods: list[Pod] = []
    budgets: list[Budget] = []
    while len(pods) < nodes * pods_per_node:
        replicas = min(
            random.choice((1, 2, 2, 3, 3, 5, 8, 20, nodes // 10 or 1)),
            nodes * pods_per_node - len(pods),
        )
        app = f"app-{len(pods)}"
        placement = _placement(random, app) if demanding else ANYWHERE
        pods += _pods(random, machines, app, replicas, placement)
        budgets += _budgets(random, app, replicas)
    limit = random.choice((1, 3, nodes // 20 or 1, nodes // 10 or 1, nodes // 4))
    return inputs(machines, pods=pods, budgets=budgets, policy=Policy(max_unavailable=Count(limit)))


def _placement(random: Random, app: str) -> Placement:
    """One of what real workloads demand of their neighbors, mostly of their own pods."""
    own = LabelSelector((Requirement("app", SelectorOperator.IN, (app,)),))
    kinds = (
        ANYWHERE,
        Placement(repulsions=(PodTerm(HOSTNAME, own),)),
        Placement(spreads=(Spread(HOSTNAME, 1, own),)),
        Placement(spreads=(Spread(ZONE_LABEL, 1, own),)),
        Placement(spreads=(Spread(ZONE_LABEL, 1, own), Spread(HOSTNAME, 2, own))),
        Placement(attractions=(PodTerm(ZONE_LABEL, own),)),
    )
    return random.choice(kinds)


def _pods(
    random: Random, machines: list[Node], app: str, replicas: int, placement: Placement
) -> Iterator[Pod]:
    places = random.sample(machines, min(replicas, len(machines)))
    asked = Resources(random.choice((10, 20, 50)), random.choice((32, 64, 128)) << 20, 1)
    for index in range(replicas):
        where = places[index % len(places)].name
        yield pod(f"{app}-{index}", where, app=app, requests=asked, placement=placement)


def _budgets(random: Random, app: str, replicas: int) -> Iterator[Budget]:
    """None, one that allows a pod, a third, a half or all but one; for single replicas rarely one
    that allows none.
    """
    kind = random.randrange(6)
    if kind <= 1 or (replicas == 1 and random.random() > 0.02):
        return
    allowed = {2: 1, 3: max(1, replicas // 3), 4: max(1, replicas // 2), 5: max(1, replicas - 1)}[
        kind
    ]
    yield budget(app, allowed=0 if replicas == 1 else min(allowed, replicas - 1), expected=replicas)
