"""What happened to the cluster; clients' own reports do not count."""

from collections import Counter
from collections.abc import Callable, Container
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

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
_SOFT_TAINT = (OUR_PREFIX + "awaiting-reboot", "PreferNoSchedule")
_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
_MAY_STAY = frozenset({"node-rollout.dev/last-result", "node-rollout.dev/reboot-needed"})


class BrokenBudget(Struct, frozen=True):
    """`below` is how many healthy pods the budget lacked at worst."""

    name: str
    at: str
    below: int


class HostVersions(Struct, frozen=True):
    before: str
    now: str


class Scoreboard(Struct, frozen=True):
    """Pods and budgets are named `namespace/name`.

    `killed` pods ran when their host went down. `deletions` are pods that clients deleted without
    an eviction. `moved_twice` counts evictions of pods created after the start. `most_unavailable`
    is the largest number of nodes that were not Ready, off or newly cordoned at one time.
    `exclusions_left` are nodes newly excluded from load balancers. `rolled_back` are hosts that did
    not boot the staged version.
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
        left = self.cordons_left + self.taints_left + self.exclusions_left
        return not (self.killed or self.budgets_broken or left)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "clean": self.clean}


class ScoreKeeper:
    """Cordons and violations before the start belong to the scenario."""

    def __init__(self, world: World) -> None:
        self._cluster = world.cluster
        self._store = world.cluster.store
        self._hosts = {name: kubelet.host for name, kubelet in sorted(world.kubelets.items())}
        self._versions = {name: host.os_version for name, host in self._hosts.items()}
        # By host: the version that was staged when it last went down.
        self._staged: dict[str, str | None] = {}
        self._killed: list[str] = []
        self._undrained: dict[str, None] = {}
        self._broken: dict[str, BrokenBudget] = {}
        # Budgets that were violated and have not recovered since.
        self._below_now: set[str] = set()
        self._evictions = 0
        self._moved_twice = 0
        self._deletions = 0
        self._pods_before = frozenset(uid(pod) for pod in self._store.items(PODS))
        self._excluded_before = set(self._nodes_that(_is_excluded))
        # These count as available until they are uncordoned.
        self._cordoned_before = set(self._nodes_that(_is_cordoned))
        self._unavailable: set[str] = set()
        self._most_unavailable = 0
        for node in self._store.items(NODES):
            self._update_availability(node)
        for host in self._hosts.values():
            host.observers.append(partial(self._follow, host))
        self._store.subscribe(self._observe)

    def scoreboard(self) -> Scoreboard:
        hosts = self._hosts
        annotations_left = {}
        for node in self._store.items(NODES):
            annotations = _annotations_left(node)
            if annotations:
                annotations_left[name_of(node)] = annotations
        rolled_back = []
        for name, staged in sorted(self._staged.items()):
            if staged and hosts[name].running and hosts[name].os_version != staged:
                rolled_back.append(name)
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
            annotations_left=annotations_left,
            versions={
                name: HostVersions(self._versions[name], host.os_version)
                for name, host in hosts.items()
            },
            rebooted_undrained=tuple(self._undrained),
            taints_left=self._nodes_that(_has_soft_taint),
            exclusions_left=self._nodes_that(_is_excluded, self._excluded_before),
            rolled_back=tuple(rolled_back),
        )

    def _nodes_that(
        self, holds: Callable[[Json], bool], before: Container[str] = ()
    ) -> tuple[str, ...]:
        names = [name_of(node) for node in self._store.items(NODES) if holds(node)]
        return tuple(name for name in names if name not in before)

    def _host_went_down(self, host: Machine) -> None:
        self._staged[host.name] = host.update_engine.staged
        pods = [pod for pod in self._store.pods_on(host.name) if phase(pod) == "Running"]
        budgets = dict[str, Json]()
        lost = Counter[str]()
        for pod in pods:
            was_healthy = is_ready(pod) and not is_deleting(pod)
            for budget in self._budgets_of(pod):
                budgets[object_key(budget)] = budget
                lost[object_key(budget)] += was_healthy
        for name, budget in budgets.items():
            self._check_budget(budget, lost=lost[name])
        killed = [object_key(pod) for pod in pods if not is_daemon(pod) and not is_mirror(pod)]
        self._killed += killed
        if killed:
            self._undrained.setdefault(host.name)

    def _follow(self, host: Machine, event: HostEvent) -> None:
        if event is HostEvent.DOWN:
            self._host_went_down(host)
        node = self._store.get(NODES, host.name)
        if node is not None:
            self._update_availability(node)

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
            self._cordoned_before.discard(name)
        self._update_availability(change.obj)

    def _update_availability(self, node: Json) -> None:
        name = name_of(node)
        is_cordoned = _is_cordoned(node) and name not in self._cordoned_before
        if self._is_down(name) or not is_ready(node) or is_cordoned:
            self._unavailable.add(name)
        else:
            self._unavailable.discard(name)
        self._most_unavailable = max(self._most_unavailable, len(self._unavailable))

    def _pod_changed(self, change: Change) -> None:
        pod = change.obj
        if not _began_to_terminate(change):
            if is_ready(pod):
                self._note_recovery(pod)
            return
        if uid(pod) in self._cluster.own_deletions:
            return
        if _was_evicted(pod):
            self._evictions += 1
            self._moved_twice += uid(pod) not in self._pods_before
        else:
            self._deletions += 1
        if change.previous is not None and self._is_healthy(change.previous):
            for budget in self._budgets_of(pod):
                self._check_budget(budget, lost=1)

    def _check_budget(self, budget: Json, *, lost: int) -> None:
        desired = int(status_of(budget).get("desiredHealthy", 0))
        after = self._healthy_count(budget)
        before = after + lost
        name = object_key(budget)
        if after >= min(desired, before):
            return
        if before >= desired or name in self._below_now:
            earlier = self._broken.get(name)
            at = timestamp(self._cluster.now())
            below = desired - after
            if earlier is not None:
                at = earlier.at
                below = max(below, earlier.below)
            self._broken[name] = BrokenBudget(name, at, below)
            self._below_now.add(name)

    def _note_recovery(self, pod: Json) -> None:
        """The next disruption of a recovered budget counts again."""
        if not self._below_now:
            return
        for budget in self._budgets_of(pod):
            desired = int(status_of(budget).get("desiredHealthy", 0))
            if self._healthy_count(budget) >= desired:
                self._below_now.discard(object_key(budget))

    def _budgets_of(self, pod: Json) -> list[Json]:
        return self._cluster.budgets_selecting(namespace_of(pod), labels_of(pod))

    def _healthy_count(self, budget: Json) -> int:
        pods = self._cluster.pods_matching(namespace_of(budget), spec_of(budget).get("selector"))
        return sum(map(self._is_healthy, pods))

    def _is_healthy(self, pod: Json) -> bool:
        return is_ready(pod) and not is_deleting(pod) and not self._is_down(node_name(pod))

    def _is_down(self, node: str) -> bool:
        return node in self._hosts and not self._hosts[node].running


def _is_cordoned(node: Json) -> bool:
    return bool(spec_of(node).get("unschedulable"))


def _is_excluded(node: Json) -> bool:
    return _BALANCERS in labels_of(node)


def _has_soft_taint(node: Json) -> bool:
    for taint in spec_of(node).get("taints") or ():
        if (taint["key"], taint["effect"]) == _SOFT_TAINT and not taint.get("value"):
            return True
    return False


def _annotations_left(node: Json) -> tuple[str, ...]:
    names = [name for name in annotations_of(node) if name.startswith(OUR_PREFIX)]
    return tuple(sorted(name for name in names if name not in _MAY_STAY))


def _began_to_terminate(change: Change) -> bool:
    was_terminating = change.previous is not None and is_deleting(change.previous)
    return not was_terminating and (change.gone or is_deleting(change.obj))


def _was_evicted(pod: Json) -> bool:
    target = condition(pod, "DisruptionTarget")
    return target is not None and target.get("reason") == "EvictionByEvictionAPI"
