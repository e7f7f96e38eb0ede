"""Which nodes are away, and whether one more may go: by --max-unavailable, control plane, and storage.

Of the control plane none of the nodes may go while another is away, or is not well. Beside that its
static pods have budgets without a PDB: of etcd a majority of the members stays, of the API servers
one. So has storage on the cluster's own nodes, in its copies that are well: of a Longhorn volume
one healthy replica stays; of a Ceph cluster one node's OSDs may be away, and none while copies are
lacking. Asked by plans, rollouts and FleetLock alike, and again right before the cordon.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollout.model import marks
from rollout.model.blocker_finding import (
    AwayFailed,
    AwayNotReady,
    AwayStarted,
    BlockerFinding,
    ControlPlaneAway,
    CopiesLacking,
    EtcdMajorityLost,
    LastApiServer,
    LimitUsedUp,
    NodeAway,
    StaticPodUnready,
)
from rollout.model.cluster import Node, Pod, PodPhase, StoredData
from rollout.model.finding import UnavailableLimit
from rollout.model.node_marks import is_begun
from rollout.model.plan import Blocker, PlannedNode
from rollout.model.policy import Policy
from rollout.model.progress import Phase
from rollout.model.text import grouped
from rollout.planning.eligibility.candidates import is_control_plane
from rollout.planning.eligibility.pools import pools_of
from rollout.wording.blockers import blocker

_ETCD = "etcd"
_API_SERVER = "kube-apiserver"
_ETCD_ROLE = "node-role.kubernetes.io/etcd"


def why_away(node: Node) -> NodeAway | None:
    """Return why the node counts as unavailable, or None.

    A node that any rollout has started counts until it is returned. A failed node counts while it
    is cordoned, because whoever uncordons it returns it.
    """
    if not node.is_ready:
        return AwayNotReady()
    if not is_begun(node):
        return None
    run = node.annotations.get(marks.RUN, "")
    if node.annotations.get(marks.PHASE) != Phase.FAILED:
        return AwayStarted(run)
    return AwayFailed(run) if node.unschedulable else None


def is_away(node: Node) -> bool:
    return why_away(node) is not None


def is_claimed(node: Node) -> bool:
    """Whether a process is about to cordon it, or was: it is marked, and gives way where there is no room for all."""
    return node.annotations.get(marks.PHASE) == Phase.PENDING


@dataclass(frozen=True, slots=True)
class AwayLimit:
    """How many nodes may be away: of all, and of the pools that have a limit of their own.

    `members` says of every node to which of these pools it belongs.
    """

    most: int
    limits: Mapping[str, int] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, policy: Policy, total: int, asked_for: Mapping[str, str], nodes: Iterable[Node]
    ) -> "AwayLimit":
        """Percentages are of the `total`; of pools, of those of the nodes that were asked for, by name.

        All other nodes are in the pool that their labels say.
        """
        pools = pools_of(policy)
        sizes = Counter(asked_for.values())
        own = {
            pool.name: pool.max_unavailable
            for pool in policy.pools
            if pool.max_unavailable is not None
        }
        limits = {name: most.of(sizes[name]) for name, most in own.items()}
        members = {**pools.members(nodes), **asked_for}
        return cls(policy.max_unavailable.of(total), limits, members)

    def beside(self, away: Collection[Node]) -> "AwayLimit":
        """Return what these leave of it; below one where they use it up."""
        gone = Counter(self.members.get(node.name, "") for node in away)
        left = {name: most - gone[name] for name, most in self.limits.items()}
        return replace(self, most=self.most - len(away), limits=left)

    def blockers(
        self, away: Sequence[Node], policy: Policy, planned: Collection[str]
    ) -> Iterator[Blocker]:
        """Yield nodes that use up the limit, or that of a pool; `planned` are pools with nodes to take."""
        reasons = {node.name: reason for node in away if (reason := why_away(node))}
        if self.most < 1 and planned:
            for name, reason in reasons.items():
                finding = LimitUsedUp(reason, policy.max_unavailable)
                yield blocker(name, f"node/{name}", finding)
        for name, reason in reasons.items():
            pool = self.members.get(name, "")
            if pool in planned and self.limits.get(pool, 1) < 1:
                limit = pools_of(policy).rules(pool).max_unavailable
                yield blocker(name, f"node/{name}", LimitUsedUp(reason, limit, pool))

    def why_full(self, node: str, away: Collection[str]) -> UnavailableLimit | None:
        """Return who uses up the limit, or that of this node's pool; None if the node may go as well."""
        others = sorted(name for name in away if name != node)
        if len(others) >= self.most:
            return UnavailableLimit(self.most, tuple(others))
        pool = self.members.get(node, "")
        limit = self.limits.get(pool)
        of_pool = tuple(name for name in others if self.members.get(name) == pool)
        if limit is None or len(of_pool) < limit:
            return None
        return UnavailableLimit(limit, of_pool, pool)

    def full(
        self, waiting: Iterable[PlannedNode], away: Collection[str]
    ) -> Mapping[UnavailableLimit, list[PlannedNode]]:
        """Nodes that wait for room, by who uses it up."""
        return grouped((why, node) for node in waiting if (why := self.why_full(node.name, away)))


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Its nodes, each with why it is away, and their static pods; k3s has no static pods.

    `voters` are the nodes that should have a member of etcd: those with its role. Where none has
    it, those that run one and those whose kubelet is silent, all others run none; or every node,
    where fewer than two run one.
    """

    nodes: Mapping[str, NodeAway | None]
    voters: frozenset[str]
    pods: tuple[Pod, ...]

    @classmethod
    def of(cls, nodes: Iterable[Node], pods: Iterable[Pod], policy: Policy) -> "ControlPlane":
        """Find its nodes and static pods; those that have ended for good, and were meant to, are no part of it."""
        members = [node for node in nodes if is_control_plane(node, policy)]
        names = {node.name: why_away(node) for node in members}
        labelled = frozenset(node.name for node in members if _ETCD_ROLE in node.labels)
        own = (
            pod
            for pod in pods
            if pod.mirror and pod.node in names and pod.phase is not PodPhase.SUCCEEDED
        )
        expected = sorted(own, key=lambda pod: pod.key)
        running = {pod.node for pod in expected if _is(pod, _ETCD)}
        silent = {node.name for node in members if not node.is_ready}
        return cls(
            names,
            labelled or frozenset(running | silent if len(running) > 1 else names),
            tuple(expected),
        )

    def blockers(self, node: str) -> tuple[Blocker, ...]:
        """Return why this node may not go.

        Another node is away, a static pod elsewhere is not Ready, or a quorum would be lost.
        """
        if node not in self.nodes:
            return ()
        found = (
            *self._away(node),
            *self._unready(node),
            *self._without_majority(node),
            *self._without_api_server(node),
        )
        return tuple(blocker(node, subject, finding) for subject, finding in found)

    def _away(self, node: str) -> Iterator[tuple[str, BlockerFinding]]:
        for name, reason in sorted(self.nodes.items()):
            if reason and name != node:
                yield f"node/{name}", ControlPlaneAway(reason)

    def _unready(self, node: str) -> Iterator[tuple[str, BlockerFinding]]:
        for pod in self.pods:
            if pod.node != node and not pod.ready and self.nodes[pod.node] is None:
                yield f"pod/{pod.key}", StaticPodUnready(pod.node, pod.unready_since)

    def _without_majority(self, node: str) -> Iterator[tuple[str, BlockerFinding]]:
        """Yield what etcd would lack. A single member never has a majority without it, and may go."""
        pods, well = self._members(_ETCD)
        voters = self.voters | pods.keys()
        left = well - {node}
        needed = len(voters) // 2 + 1
        if node in well and len(voters) > 1 and len(left) < needed:
            finding = EtcdMajorityLost(
                node=node,
                members=len(voters),
                needed=needed,
                left=len(left),
                lacking=tuple(sorted(voters - well)),
                is_too_small=len(voters) - 1 < needed,
            )
            yield f"pod/{pods[node].key}", finding

    def _without_api_server(self, node: str) -> Iterator[tuple[str, BlockerFinding]]:
        pods, well = self._members(_API_SERVER)
        if node in well and len(self.nodes) > 1 and not well - {node}:
            yield f"pod/{pods[node].key}", LastApiServer()

    def _members(self, component: str) -> tuple[Mapping[str, Pod], frozenset[str]]:
        """Its static pods by node, as kubeadm labels or names them, and the nodes on which they are well."""
        pods = {pod.node: pod for pod in self.pods if _is(pod, component)}
        return pods, frozenset(name for name, pod in pods.items() if pod.ready)


def _is(pod: Pod, component: str) -> bool:
    return pod.labels.get("component") == component or pod.name == f"{component}-{pod.node}"


def storage_blockers(
    node: str, stored: Iterable[StoredData], away: Collection[str] = (), begun: Collection[str] = ()
) -> Iterator[Blocker]:
    """Yield what would lose too many copies without this node, those that are `away` counted as gone already.

    Of data with a copy on a node that is `begun` nothing is said: it is well again once that node
    is back.
    """
    for data in stored:
        if node not in data.well or not data.nodes.isdisjoint(begun):
            continue
        gone = data.well.intersection(away) - {node}
        if data.spare - len(gone) < 1:
            others = tuple(sorted(gone)) if data.spare > 0 else ()
            yield blocker(node, data.object, CopiesLacking(others, data.problem, data.fix))


def is_storage(key: str) -> bool:
    """Whether a key of a load is stored data's: its kind has a group, as no owner's and no budget's has."""
    kind, slash, _ = key.partition("/")
    return bool(slash) and "." in kind


def copies_taken(node: str, stored: Iterable[StoredData]) -> Mapping[str, int]:
    """Return what a node takes of stored data until it is back, by its object."""
    return {data.object: 1 for data in stored if node in data.nodes}


def copies_spare(stored: Iterable[StoredData]) -> Mapping[str, int]:
    """Return how many nodes of each may be away at a time; one at least, for what may not go at all is blocked."""
    return {data.object: max(1, data.spare) for data in stored}
