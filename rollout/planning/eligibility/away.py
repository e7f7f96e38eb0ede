from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from rollout.model import blocker_finding as findings
from rollout.model import marks
from rollout.model.cluster import Node, Pod, PodPhase, StoredData
from rollout.model.finding import UnavailableLimit
from rollout.model.node_marks import has_marks
from rollout.model.plan import Blocker, PlannedNode
from rollout.model.policy import Policy
from rollout.model.progress import Phase
from rollout.model.timestamps import seconds_since
from rollout.planning.eligibility.candidates import is_control_plane
from rollout.planning.eligibility.pools import pools_of
from rollout.wording.blockers import blocker

_ETCD = "etcd"
_API_SERVER = "kube-apiserver"
_ETCD_ROLE = "node-role.kubernetes.io/etcd"
# In seconds: a longer cordon by someone else is there to stay.
_LONGEST_DRAIN = 3600.0


def why_away(node: Node, policy: Policy, now: datetime | None) -> findings.NodeAway | None:
    """Return why the node counts as unavailable, or None.

    Cordons by others count for an hour by the API server's clock (`now`).
    """
    if not node.is_ready:
        return findings.AwayNotReady()
    if has_marks(node):
        run_id = node.annotations.get(marks.RUN, "")
        has_failed = node.annotations.get(marks.PHASE) == Phase.FAILED
        if not has_failed:
            return findings.AwayStarted(run_id)
        if node.unschedulable:
            return findings.AwayFailed(run_id)
    maintenance = node.maintenance_by_others
    if maintenance:
        return findings.AwayMaintained(maintenance.since, maintenance.type)
    if _is_newly_cordoned(node, now) and not policy.include_cordoned:
        return findings.AwayCordoned(node.cordoned_at)
    return None


def _is_newly_cordoned(node: Node, now: datetime | None) -> bool:
    if not node.unschedulable:
        return False
    if not node.has_cordon_taint:
        # A controller adds the taint shortly after the cordon.
        return True
    if not node.cordoned_at:
        # The node joined the cluster with its cordon, which may stay.
        return False
    return seconds_since(node.cordoned_at, now) < _LONGEST_DRAIN


def away_reasons(
    nodes: Iterable[Node], policy: Policy, now: datetime | None
) -> Mapping[str, findings.NodeAway]:
    reasons = {}
    for node in nodes:
        reason = why_away(node, policy, now)
        if reason:
            reasons[node.name] = reason
    return reasons


def is_only_marked(node: Node) -> bool:
    return node.annotations.get(marks.PHASE) == Phase.PENDING


class AwayLimit(Struct, frozen=True):
    """How many nodes may be away: `most` of all, and `limits` by pool."""

    most: int
    limits: Mapping[str, int] = field(default_factory=dict)
    pool_by_node: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, policy: Policy, total: int, pool_by_requested: Mapping[str, str], nodes: Iterable[Node]
    ) -> "AwayLimit":
        """Percentages refer to `total`, or to a pool's requested nodes."""
        requested_by_pool = Counter(pool_by_requested.values())
        limits = {}
        for pool in policy.pools:
            if pool.max_unavailable is not None:
                limits[pool.name] = pool.max_unavailable.of(requested_by_pool[pool.name])
        pool_by_node = {**pools_of(policy).pool_by_node(nodes), **pool_by_requested}
        return cls(policy.max_unavailable.of(total), limits, pool_by_node)

    def remaining_beside(self, away: Collection[str]) -> "AwayLimit":
        """Return how many more may be away; it may be negative."""
        away_by_pool = Counter(self.pool_by_node.get(name, "") for name in away)
        limits = {pool: most - away_by_pool[pool] for pool, most in self.limits.items()}
        return replace(self, most=self.most - len(away), limits=limits)

    def blockers(
        self, away: Mapping[str, findings.NodeAway], policy: Policy, planned_pools: Collection[str]
    ) -> Iterator[Blocker]:
        """Yield the nodes away, if these remaining limits allow no other.

        A pool's limit counts only if the pool has planned nodes.
        """
        is_full = self.most < 1
        if is_full and planned_pools:
            for name, reason in away.items():
                finding = findings.LimitUsedUp(reason, policy.max_unavailable)
                yield blocker(name, f"node/{name}", finding)
        for name, reason in away.items():
            pool = self.pool_by_node.get(name, "")
            is_pool_full = pool in self.limits and self.limits[pool] < 1
            if is_pool_full and pool in planned_pools:
                limit = pools_of(policy).rules(pool).max_unavailable
                yield blocker(name, f"node/{name}", findings.LimitUsedUp(reason, limit, pool))

    def why_full(self, node: str, away: Collection[str]) -> UnavailableLimit | None:
        """Return the limit that the other nodes away use up, if any."""
        others_away = sorted(name for name in away if name != node)
        if len(others_away) >= self.most:
            return UnavailableLimit(self.most, tuple(others_away))
        pool = self.pool_by_node.get(node, "")
        limit = self.limits.get(pool)
        of_pool = tuple(name for name in others_away if self.pool_by_node.get(name) == pool)
        if limit is None or len(of_pool) < limit:
            return None
        return UnavailableLimit(limit, of_pool, pool)

    def waiting_by_limit(
        self, waiting: Iterable[PlannedNode], away: Collection[str]
    ) -> Mapping[UnavailableLimit, list[PlannedNode]]:
        nodes_by_limit: dict[UnavailableLimit, list[PlannedNode]] = {}
        for node in waiting:
            limit = self.why_full(node.name, away)
            if limit is not None:
                nodes_by_limit.setdefault(limit, []).append(node)
        return nodes_by_limit


class ControlPlane(Struct, frozen=True):
    """Finds what keeps a control-plane node: others away, etcd, the API server.

    `voters` should have an etcd member. k3s has no static `pods`.
    """

    # Has every control-plane node; None for one that is not away.
    why_away_by_node: Mapping[str, findings.NodeAway | None]
    voters: frozenset[str]
    pods: tuple[Pod, ...]

    @classmethod
    def of(
        cls, nodes: Iterable[Node], pods: Iterable[Pod], policy: Policy, now: datetime | None
    ) -> "ControlPlane":
        control_plane = [node for node in nodes if is_control_plane(node, policy)]
        why_away_by_node = {node.name: why_away(node, policy, now) for node in control_plane}
        static_pods = list[Pod]()
        for pod in pods:
            # A succeeded installer is done; a failed pod should be running.
            should_run = pod.phase is not PodPhase.SUCCEEDED
            if pod.mirror and should_run and pod.node in why_away_by_node:
                static_pods.append(pod)
        static_pods.sort(key=lambda pod: pod.key)
        nodes_with_etcd_pod = {pod.node for pod in static_pods if _is_component(pod, _ETCD)}
        voters = _etcd_voters(control_plane, nodes_with_etcd_pod)
        return cls(why_away_by_node, voters, tuple(static_pods))

    def blockers(self, node: str) -> tuple[Blocker, ...]:
        if node not in self.why_away_by_node:
            return ()
        subjects_and_findings = (
            *self._find_others_away(node),
            *self._find_unready_pods(node),
            *self._find_lost_majority(node),
            *self._find_lost_api_server(node),
        )
        return tuple(blocker(node, subject, finding) for subject, finding in subjects_and_findings)

    def _find_others_away(self, node: str) -> Iterator[tuple[str, findings.BlockerFinding]]:
        for name, reason in sorted(self.why_away_by_node.items()):
            if reason and name != node:
                yield f"node/{name}", findings.ControlPlaneAway(reason)

    def _find_unready_pods(self, node: str) -> Iterator[tuple[str, findings.BlockerFinding]]:
        for pod in self.pods:
            # A node that is away is itself a blocker.
            is_node_here = self.why_away_by_node[pod.node] is None
            if pod.node != node and not pod.ready and is_node_here:
                yield f"pod/{pod.key}", findings.StaticPodUnready(pod.node, pod.unready_since)

    def _find_lost_majority(self, node: str) -> Iterator[tuple[str, findings.BlockerFinding]]:
        pods = self._pods_by_node(_ETCD)
        ready_nodes = _nodes_with_ready_pod(pods)
        voters = self.voters | pods.keys()
        # The only member may leave: no order would help.
        is_only_member = len(voters) == 1
        if node not in ready_nodes or is_only_member:
            return
        ready_elsewhere = ready_nodes - {node}
        majority = len(voters) // 2 + 1
        if len(ready_elsewhere) < majority:
            finding = findings.EtcdMajorityLost(
                node=node,
                members=len(voters),
                needed=majority,
                left=len(ready_elsewhere),
                lacking=tuple(sorted(voters - ready_nodes)),
                is_too_small=len(voters) - 1 < majority,
            )
            yield f"pod/{pods[node].key}", finding

    def _find_lost_api_server(self, node: str) -> Iterator[tuple[str, findings.BlockerFinding]]:
        pods = self._pods_by_node(_API_SERVER)
        is_only_ready_one = _nodes_with_ready_pod(pods) == {node}
        has_other_nodes = len(self.why_away_by_node) > 1
        if is_only_ready_one and has_other_nodes:
            yield f"pod/{pods[node].key}", findings.LastApiServer()

    def _pods_by_node(self, component: str) -> Mapping[str, Pod]:
        return {pod.node: pod for pod in self.pods if _is_component(pod, component)}


def _etcd_voters(
    control_plane: Sequence[Node], nodes_with_etcd_pod: Collection[str]
) -> frozenset[str]:
    """Return the nodes that should have an etcd member.

    Those with the etcd role. Without any, if several have an etcd pod, those and unready nodes,
    whose pod may be missing. Else every control-plane node.
    """
    nodes_with_role = frozenset(node.name for node in control_plane if _ETCD_ROLE in node.labels)
    if nodes_with_role:
        return nodes_with_role
    if len(nodes_with_etcd_pod) > 1:
        unready_nodes = (node.name for node in control_plane if not node.is_ready)
        return frozenset((*nodes_with_etcd_pod, *unready_nodes))
    return frozenset(node.name for node in control_plane)


def _nodes_with_ready_pod(pods: Mapping[str, Pod]) -> frozenset[str]:
    return frozenset(node for node, pod in pods.items() if pod.ready)


def _is_component(pod: Pod, component: str) -> bool:
    return pod.labels.get("component") == component or pod.name == f"{component}-{pod.node}"


def storage_blockers(
    node: str,
    stored: Iterable[StoredData],
    away: Collection[str] = (),
    taken_up: Collection[str] = (),
) -> Iterator[Blocker]:
    """Yield data that would lose too many copies without the node and those `away`.

    Data on `taken_up` nodes is skipped: it recovers when this process finishes them.
    """
    for data in stored:
        has_usable_copy = node in data.healthy
        recovers_with_node = not data.nodes.isdisjoint(taken_up)
        if not has_usable_copy or recovers_with_node:
            continue
        copies_away = data.healthy.intersection(away) - {node}
        spare_copies = data.spare - len(copies_away)
        if spare_copies < 1:
            # Without a spare copy, the nodes away are not to blame.
            blamed_nodes = tuple(sorted(copies_away)) if data.spare > 0 else ()
            finding = findings.CopiesLacking(blamed_nodes, data.problem, data.fix)
            yield blocker(node, data.object, finding)


def is_storage_key(key: str) -> bool:
    """Match keys such as `volume.longhorn.io/longhorn-system/pvc-1`."""
    kind, slash, _ = key.partition("/")
    return bool(slash) and "." in kind


def copies_taken(node: str, stored: Iterable[StoredData]) -> Mapping[str, int]:
    return {data.object: 1 for data in stored if node in data.nodes}


def copies_spare(stored: Iterable[StoredData]) -> Mapping[str, int]:
    """Return how many copies may be away, at least one: blockers say if none may."""
    return {data.object: max(1, data.spare) for data in stored}
