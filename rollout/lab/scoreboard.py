"""What the cluster saw while somebody worked on it.

The figures come from the store's changes and from the hosts going down and coming up, never from
what a client reports of itself: that is what makes them worth asserting on.
"""

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.api.store import Change, Json, object_key, timestamp
from rollout.lab.hosts.machine import HostEvent, Machine
from rollout.lab.objects import (
    annotations_of,
    condition,
    is_daemon,
    is_deleting,
    is_mirror,
    is_ready,
    labels_of,
    name_of,
    namespace_of,
    node_name,
    phase,
    spec_of,
    status_of,
    uid,
)
from rollout.lab.world.world import World

OUR_PREFIX = "node-rollout.dev/"
# What a rollout may leave behind for the reader.
_SOFT_TAINT = (OUR_PREFIX + "awaiting-reboot", "PreferNoSchedule")
_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
_MAY_STAY = frozenset({"node-rollout.dev/last-result", "node-rollout.dev/reboot-needed"})


@dataclass(frozen=True, slots=True)
class BrokenBudget:
    """A budget whose healthy pods fell below what it asks for: `below` is by how many at worst."""

    name: str
    at: str
    below: int


@dataclass(frozen=True, slots=True)
class HostVersions:
    """The version a host ran at the start, and the one it runs now."""

    before: str
    now: str


@dataclass(frozen=True, slots=True)
class Scoreboard:
    """What happened since the start; pods and budgets are named `namespace/name`, hosts by their Node.

    `reboots` counts boots with a new boot id; hosts that are down now stand in `hosts_down`.
    `killed` are pods whose containers died with their host. `deletions` are pods that clients
    deleted without evicting them. `moved_twice` are evictions of pods that came after the start:
    mostly replacements of pods that were evicted before. `most_unavailable` counts nodes that were
    not Ready, off, or cordoned since the start. `taints_left` and `exclusions_left` are nodes that
    have rollout's soft taint, or have since the start got the label that keeps them out of load
    balancers. `rolled_back` are hosts that a boot did not bring to the version that was staged for
    it.
    """

    reboots: dict[str, int]
    hosts_down: tuple[str, ...]
    killed: tuple[str, ...]
    budgets_broken: tuple[BrokenBudget, ...]
    most_unavailable: int
    cordons_left: tuple[str, ...]
    evictions: int
    moved_twice: int
    deletions: int
    annotations_left: dict[str, tuple[str, ...]]
    versions: dict[str, HostVersions]
    rebooted_undrained: tuple[str, ...]
    taints_left: tuple[str, ...] = ()
    exclusions_left: tuple[str, ...] = ()
    rolled_back: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing was harmed and nothing is left: no pod killed, no budget broken, no cordon, taint or label left."""
        left = (*self.cordons_left, *self.taints_left, *self.exclusions_left)
        return not (self.killed or self.budgets_broken or left)

    def to_json(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return {**asdict(self), "clean": self.clean}


class ScoreKeeper:
    """Watches a world from when the scenario stands: what is cordoned or broken by then is the scenario's."""

    def __init__(self, world: World) -> None:
        self._cluster = world.cluster
        self._store = world.cluster.store
        self._hosts = {name: kubelet.host for name, kubelet in sorted(world.kubelets.items())}
        self._versions = {name: host.os_version for name, host in self._hosts.items()}
        # The version that was staged for a host's last boot.
        self._staged: dict[str, str | None] = {}
        self._killed: list[str] = []
        self._undrained: dict[str, None] = {}
        self._broken: dict[str, BrokenBudget] = {}
        # Budgets that a disruption brought below and that have not recovered since.
        self._below_now: set[str] = set()
        self._evictions = self._moved_twice = self._deletions = 0
        self._pods_before = frozenset(map(uid, self._store.items(PODS)))
        self._excluded_before = set(self._nodes_that(_is_excluded))
        # Cordons of the scenario, until they are lifted: their nodes count as available.
        self._cordoned_before = set(self._nodes_that(_is_cordoned))
        self._unavailable: set[str] = set()
        self._most_unavailable = 0
        for node in self._store.items(NODES):
            self._judge(node)
        for host in self._hosts.values():
            host.observers.append(partial(self._follow, host))
        self._store.subscribe(self._observe)

    def scoreboard(self) -> Scoreboard:
        """Return the figures up to now."""
        nodes = self._store.items(NODES)
        hosts = self._hosts
        return Scoreboard(
            reboots={name: host.reboots for name, host in hosts.items()},
            hosts_down=tuple(name for name, host in hosts.items() if not host.running),
            killed=tuple(self._killed),
            budgets_broken=tuple(self._broken.values()),
            most_unavailable=self._most_unavailable,
            cordons_left=self._nodes_that(_is_cordoned, self._cordoned_before),
            evictions=self._evictions,
            moved_twice=self._moved_twice,
            deletions=self._deletions,
            annotations_left={
                name_of(node): left for node in nodes if (left := _leftovers_on(node))
            },
            versions={
                name: HostVersions(self._versions[name], host.os_version)
                for name, host in hosts.items()
            },
            rebooted_undrained=tuple(self._undrained),
            taints_left=self._nodes_that(_has_soft_taint),
            exclusions_left=self._nodes_that(_is_excluded, self._excluded_before),
            rolled_back=tuple(
                name
                for name, staged in sorted(self._staged.items())
                if staged and hosts[name].running and hosts[name].os_version != staged
            ),
        )

    def _nodes_that(
        self, holds: Callable[[Json], bool], before: Container[str] = ()
    ) -> tuple[str, ...]:
        """Return the names of the nodes of which this holds, and did not before."""
        names = (name_of(node) for node in self._store.items(NODES) if holds(node))
        return tuple(name for name in names if name not in before)

    def _host_went_down(self, host: Machine) -> None:
        """Note that a host is off: whatever ran on it is dead."""
        self._staged[host.name] = host.engine.staged
        pods = [pod for pod in self._store.pods_on(host.name) if phase(pod) == "Running"]
        budgets = dict[str, Json]()
        lost = Counter[str]()
        for pod in pods:
            for budget in self._budgets_of(pod):
                budgets[object_key(budget)] = budget
                lost[object_key(budget)] += is_ready(pod) and not is_deleting(pod)
        for name, budget in budgets.items():
            healthy = self._healthy_of(budget)
            self._compare(budget, healthy + lost[name], healthy)
        victims = [object_key(pod) for pod in pods if not is_daemon(pod) and not is_mirror(pod)]
        self._killed += victims
        if victims:
            self._undrained.setdefault(host.name)

    def _follow(self, host: Machine, event: HostEvent) -> None:
        """Note that a host is off, or has booted."""
        if event is HostEvent.DOWN:
            self._host_went_down(host)
        node = self._store.get(NODES, host.name)
        if node is not None:
            self._judge(node)

    def _observe(self, change: Change) -> None:
        if change.resource is NODES:
            self._node_changed(change)
        elif change.resource is PODS:
            self._pod_changed(change)

    def _node_changed(self, change: Change) -> None:
        name = name_of(change.obj)
        if change.gone:
            self._unavailable.discard(name)
            return
        if not _is_cordoned(change.obj):
            # Cordoned anew, it would be somebody's doing since the start.
            self._cordoned_before.discard(name)
        self._judge(change.obj)

    def _judge(self, node: Json) -> None:
        """Whether the node is available, and how many are not by now."""
        name = name_of(node)
        cordoned = _is_cordoned(node) and name not in self._cordoned_before
        if self._is_down(name) or not is_ready(node) or cordoned:
            self._unavailable.add(name)
        else:
            self._unavailable.discard(name)
        self._most_unavailable = max(self._most_unavailable, len(self._unavailable))

    def _pod_changed(self, change: Change) -> None:
        if not _began_to_go(change):
            if is_ready(change.obj):
                self._note_recovery(change.obj)
            return
        if uid(change.obj) in self._cluster.own_deletions:
            return
        if _was_evicted(change.obj):
            self._evictions += 1
            self._moved_twice += uid(change.obj) not in self._pods_before
        else:
            self._deletions += 1
        if change.previous is not None and self._is_healthy(change.previous):
            for budget in self._budgets_of(change.obj):
                healthy = self._healthy_of(budget)
                self._compare(budget, healthy + 1, healthy)

    def _compare(self, budget: Json, before: int, after: int) -> None:
        """Judge a disruption that took healthy pods from a budget: did it break it, or break it further?"""
        desired = int(status_of(budget).get("desiredHealthy", 0))
        name = object_key(budget)
        if after >= min(desired, before):
            return
        if before >= desired or name in self._below_now:
            known = self._broken.get(name)
            moment = known.at if known else timestamp(self._cluster.now())
            worst = max(desired - after, known.below if known else 0)
            self._broken[name] = BrokenBudget(name, moment, worst)
            self._below_now.add(name)

    def _note_recovery(self, pod: Json) -> None:
        """Note that a pod is ready: budgets that have what they ask for again may be broken anew."""
        for budget in self._budgets_of(pod) if self._below_now else ():
            if self._healthy_of(budget) >= int(status_of(budget).get("desiredHealthy", 0)):
                self._below_now.discard(object_key(budget))

    def _budgets_of(self, pod: Json) -> list[Json]:
        return self._cluster.budgets_selecting(namespace_of(pod), labels_of(pod))

    def _healthy_of(self, budget: Json) -> int:
        pods = self._cluster.pods_matching(namespace_of(budget), spec_of(budget).get("selector"))
        return sum(map(self._is_healthy, pods))

    def _is_healthy(self, pod: Json) -> bool:
        """Whether the pod serves in truth: ready, staying, and on a host that runs."""
        return is_ready(pod) and not is_deleting(pod) and not self._is_down(node_name(pod))

    def _is_down(self, node: str) -> bool:
        return node in self._hosts and not self._hosts[node].running


def _is_cordoned(node: Json) -> bool:
    return bool(spec_of(node).get("unschedulable"))


def _is_excluded(node: Json) -> bool:
    return _BALANCERS in labels_of(node)


def _has_soft_taint(node: Json) -> bool:
    taints = spec_of(node).get("taints") or ()
    return any(
        (taint["key"], taint["effect"]) == _SOFT_TAINT and not taint.get("value")
        for taint in taints
    )


def _leftovers_on(node: Json) -> tuple[str, ...]:
    """Our annotations that should have gone."""
    return tuple(
        sorted(
            name
            for name in annotations_of(node)
            if name.startswith(OUR_PREFIX) and name not in _MAY_STAY
        )
    )


def _began_to_go(change: Change) -> bool:
    """Whether with this change the pod's deletion began, or was over at once."""
    was_going = change.previous is not None and is_deleting(change.previous)
    return not was_going and (change.gone or is_deleting(change.obj))


def _was_evicted(pod: Json) -> bool:
    target = condition(pod, "DisruptionTarget")
    return target is not None and target.get("reason") == "EvictionByEvictionAPI"
