"""What a bystander sees of a cluster in which several act at once: who did what, told apart.

Everything that this test does by somebody else's hand goes through `others`; what happens outside
is the program's doing, or the cluster's own.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec

from rollout.lab.api.resources import BUDGETS, CONFIGMAPS, NODES, PODS
from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Change, Json
from rollout.lab.hostplan import CONTROL_PLANE_LABEL
from rollout.lab.hosts.machine import HostEvent, Machine
from rollout.lab.lab import Lab
from rollout.lab.objects import (
    condition,
    is_daemon,
    is_deleting,
    is_mirror,
    is_ready,
    labels_of,
    node_name,
    phase,
    spec_of,
    uid,
)
from rollout.lab.scoreboard import BrokenBudget
from rollout.model.node_lifecycle import OUR_REASON
from rollout.model.progress import Phase

PREFIX = "node-rollout.dev/"
RUN = PREFIX + "run"
PHASE = PREFIX + "phase"
CORDONED_BY_US = PREFIX + "cordoned-by-us"
PAUSED = PREFIX + "paused"
LAST_RESULT = PREFIX + "last-result"
# How shortly before a shutdown a pod may come to its node unseen, in real seconds: between the last
# look and the host's taking the command lies the way to the host.
_UNSEEN_WITHIN = 0.5
# How long something may stand unnoticed, in real seconds: between a look at the cluster and the act
# that it allowed lie a few requests, on a busy machine; and where the API server is in trouble, as
# many as it takes.
PROMPTLY = 1.0
PATIENTLY = 3.0
# How long after a node turns unready its pods' budgets may count them, in real seconds; times of
# broken budgets are whole seconds.
_TRAILING_SECONDS = 1.5
# That many reboots may leave a host on its version before it rests.
_REBOOTS_IN_VAIN = 2
ALL = "all nodes"
T = TypeVar("T")


@dataclass
class Witness:
    """Keeps the record of one lab. `broken` are broken rules, in words; everything else is what has happened.

    `phases` are those of nodes that are marked. `silences` are the moments at which nodes turned
    unready, and the budgets of their pods. `cordons` are those of others, which count against
    the limit if `counts_cordons`. `evicted_by_others` are pods by UID. `meddled` are nodes that
    somebody uncordoned or deleted while they were ours; `retries` is how often failed nodes were to
    be tried again. What keeps a node from being begun has to be noticed `within` so many seconds.
    """

    lab: Lab
    limit: int
    broken: list[str] = field(default_factory=list)
    reboots: Counter[tuple[str, str]] = field(default_factory=Counter)
    boots: Counter[str] = field(default_factory=Counter)
    cordons: set[str] = field(default_factory=set)
    meddled: set[str] = field(default_factory=set)
    excused_budgets: set[str] = field(default_factory=set)
    silences: list[tuple[datetime, frozenset[str]]] = field(default_factory=list)
    rebooting_by_others: set[str] = field(default_factory=set)
    evicted_by_others: set[str] = field(default_factory=set)
    phases: dict[str, str] = field(default_factory=dict)
    counts_cordons: bool = False
    acts_for_others: bool = False
    retries: int = 0
    within: float = PROMPTLY
    _away_since: dict[str, float] = field(default_factory=dict)
    _maintained_since: dict[str, float] = field(default_factory=dict)
    _cordoned_since: dict[str, float] = field(default_factory=dict)
    _paused_since: dict[str, float] = field(default_factory=dict)
    # Pods that stay on their nodes and are not Ready, by node and UID; and those that were when
    # their node was begun.
    _fallen_since: dict[tuple[str, str], float] = field(default_factory=dict)
    _well_before: dict[str, frozenset[str]] = field(default_factory=dict)
    _versions: dict[str, str] = field(default_factory=dict)
    _in_vain: Counter[str] = field(default_factory=Counter)
    _put_there: dict[str, float] = field(default_factory=dict)
    _stopping: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Watch from now on; in the lab's loop."""
        self.cordons = {
            node["metadata"]["name"] for node in self.lab.store.items(NODES) if is_cordoned(node)
        }
        self.phases = {
            name: marks.get(PHASE, "")
            for name, marks in (
                (node["metadata"]["name"], annotations(node))
                for node in self.lab.store.items(NODES)
            )
            if RUN in marks
        }
        self.lab.store.subscribe(self._changed)
        for machine in self.lab.machines.values():
            machine.observers.append(partial(self._told, machine))

    @contextmanager
    def others(self) -> Iterator[None]:
        """What happens within is somebody else's doing."""
        self.acts_for_others = True
        try:
            yield
        finally:
            self.acts_for_others = False

    # What nodes go through.

    def _changed(self, change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if change.resource is PODS:
            self._note_pod(change)
        elif change.resource is CONFIGMAPS and name == "node-rollout-memory":
            remembered = msgspec.json.decode(change.obj["data"].get("memory.json", "{}"))
            self._note(self._paused_since, ALL, stands=bool(remembered.get("pause")))
        elif change.resource is NODES:
            self._note_node(name, change)

    def _note_pod(self, change: Change) -> None:
        pod = change.obj
        if is_mirror(pod) or is_daemon(pod):
            stands = not change.gone and not is_ready(pod)
            self._note(self._fallen_since, (node_name(pod), uid(pod)), stands=stands)

    def _note(self, since: dict[T, float], what: T, *, stands: bool) -> None:
        """From when on something stands, for as long as it does."""
        if stands:
            since.setdefault(what, time.monotonic())
        else:
            since.pop(what, None)

    def _standing(self, since: Mapping[T, float]) -> set[T]:
        """What has to have been noticed by now."""
        return {what for what, at in since.items() if time.monotonic() - at > self.within}

    def _note_node(self, name: str, change: Change) -> None:
        if change.gone:
            self._forget(name)
            return
        self._note(self._away_since, name, stands=not is_ready(change.obj))
        self._note(self._paused_since, name, stands=annotations(change.obj).get(PAUSED) == "true")
        self._note(self._maintained_since, name, stands=_is_maintained(change.obj))
        self._note_cordon(name, change)
        self._note_marks(name, change.obj)

    def _forget(self, name: str) -> None:
        if name in self.phases:
            self.meddled.add(name)
        self.phases.pop(name, None)
        self._away_since.pop(name, None)
        self._maintained_since.pop(name, None)
        self._lift_cordon(name)

    def _lift_cordon(self, name: str) -> None:
        self.cordons.discard(name)
        self._cordoned_since.pop(name, None)

    def _note_cordon(self, name: str, change: Change) -> None:
        was = change.previous is not None and is_cordoned(change.previous)
        now = is_cordoned(change.obj)
        marks = annotations(change.obj)
        if was == now:
            return
        if self.acts_for_others:
            self._cordoned_by_others(name, marks, now=now)
        elif now and RUN not in marks and change.previous is not None:
            self.broken.append(f"{name} was cordoned without a mark that says by whom")
        elif not now and name in self.cordons:
            self.broken.append(f"{name} was uncordoned, which somebody else had cordoned")

    def _cordoned_by_others(self, name: str, marks: Mapping[str, str], *, now: bool) -> None:
        """Of a node whose mark says that its cordon is ours, one that comes after an uncordon looks
        like ours.
        """
        if now and marks.get(CORDONED_BY_US) != "true":
            self.cordons.add(name)
            self._cordoned_since[name] = time.monotonic()
        elif not now:
            self._lift_cordon(name)
        if name in self.phases:
            self.meddled.add(name)

    def _note_marks(self, name: str, node: Json) -> None:
        marks = annotations(node)
        if RUN not in marks:
            if self.phases.pop(name, None) is not None and '"outcome":"succeeded"' in marks.get(
                LAST_RESULT, ""
            ):
                self._judge_return(name)
            return
        before = self.phases.get(name)
        self.phases[name] = marks.get(PHASE, "")
        if self.acts_for_others:
            return
        if before is None:
            self._well_before[name] = frozenset(map(uid, filter(is_ready, self._staying_on(name))))
        # A node that is only marked may still be refused.
        if before in (None, Phase.PENDING) and self.phases[name] == Phase.CORDONED:
            self._judge_beginning(name, node)

    def _judge_beginning(self, name: str, node: Json) -> None:
        # A failed node that people uncordon is given back by that.
        returned = {
            other
            for other in self.meddled
            if self.phases.get(other) == "failed" and not self._is_cordoned(other)
        }
        maintained = self._standing(self._maintained_since)
        cordoned = self._standing_cordons()
        begun = {other for other, reached in self.phases.items() if reached != Phase.PENDING}
        unavailable = begun - returned
        unavailable |= self._standing(self._away_since) | maintained | cordoned
        if name in cordoned:
            self.broken.append(f"{name} was begun, and somebody else had cordoned it")
        if name in maintained:
            self.broken.append(f"{name} was begun while somebody else maintained it")
        if len(unavailable) > self.limit:
            self.broken.append(
                f"{name} was begun with {sorted(unavailable)} unavailable; the limit is"
                f" {self.limit}"
            )
        if paused := self._standing(self._paused_since) & {name, ALL}:
            self.broken.append(f"{name} was begun while {paused} were paused")
        if CONTROL_PLANE_LABEL in labels_of(node) and (unwell := self._unwell_members() - {name}):
            self.broken.append(
                f"{name} was begun while static pods on {sorted(unwell)} were not Ready"
            )

    def _standing_cordons(self) -> set[str]:
        """Return the nodes that others have cordoned, if these count against the limit."""
        if not self.counts_cordons:
            return set()
        return self._standing(self._cordoned_since) & self.cordons

    def _unwell_members(self) -> set[str]:
        """Nodes of the control plane of which a static pod is not Ready."""
        fallen = self._standing(self._fallen_since)
        nodes = [
            node for node in self.lab.store.items(NODES) if CONTROL_PLANE_LABEL in labels_of(node)
        ]
        pods = [
            pod
            for node in nodes
            for pod in self.lab.store.pods_on(node["metadata"]["name"])
            if is_mirror(pod)
        ]
        return {node_name(pod) for pod in pods if (node_name(pod), uid(pod)) in fallen}

    def _staying_on(self, name: str) -> list[Json]:
        return [pod for pod in self.lab.store.pods_on(name) if is_mirror(pod) or is_daemon(pod)]

    def _judge_return(self, name: str) -> None:
        fallen = self._standing(self._fallen_since)
        before = self._well_before.pop(name, frozenset())
        lost = [
            pod["metadata"]["name"]
            for pod in self._staying_on(name)
            if (name, uid(pod)) in fallen and uid(pod) in before
        ]
        if lost and name not in self.meddled:
            self.broken.append(f"{name} has succeeded, and {lost} are not Ready, which were before")

    def is_ended_by_rollout(self, change: Change) -> bool:
        """Whether rollout has deleted or evicted the pod with this change."""
        before = change.previous
        has_ended = change.gone or is_deleting(change.obj)
        if before is None or is_deleting(before) or not has_ended or self.acts_for_others:
            return False
        is_ended_by_cluster = uid(change.obj) in self.lab.world.cluster.own_deletions
        return not is_ended_by_cluster and uid(change.obj) not in self.evicted_by_others

    def put_there(self, pod: str) -> None:
        """Somebody has bound this pod to a node, whatever its cordon says."""
        self._put_there[pod] = time.monotonic()

    def _was_unseen(self, pod: str, host: str) -> bool:
        came = self._put_there.get(pod)
        stopped = self._stopping.get(host, time.monotonic())
        return came is not None and came > stopped - _UNSEEN_WITHIN

    # What hosts go through.

    def _told(self, machine: Machine, event: HostEvent) -> None:
        if event is HostEvent.STOPPING:  # it has taken a command to reboot
            self._stopping[machine.name] = time.monotonic()
        elif event is HostEvent.DOWN:
            self._host_went_down(machine)
        elif event is HostEvent.UP:
            self._host_came_up(machine)

    def _host_went_down(self, host: Machine) -> None:
        """A host is off: by whose doing, and what died with it."""
        pods = [pod for pod in self.lab.store.pods_on(host.name) if phase(pod) == "Running"]
        if self.acts_for_others or host.name in self.rebooting_by_others:
            self.rebooting_by_others.discard(host.name)
            self.excused_budgets |= {budget for pod in pods for budget in self._budgets_of(pod)}
            return
        marks = self._marks_of(host.name)
        self.reboots[marks.get(RUN, ""), host.name] += 1
        self._versions[host.name] = host.os_version
        if self._in_vain[host.name] >= _REBOOTS_IN_VAIN + self.retries:
            self.broken.append(
                f"{host.name} was rebooted again, after {self._in_vain[host.name]} reboots in vain"
            )
        if RUN not in marks and host.name not in self.meddled:
            self.broken.append(f"{host.name} was rebooted without a mark that says by whom")
        lost = [
            pod["metadata"]["name"] for pod in pods if not is_daemon(pod) and not is_mirror(pod)
        ]
        lost = [name for name in lost if not self._was_unseen(name, host.name)]
        if lost and host.name not in self.meddled:
            self.broken.append(f"{host.name} was rebooted with {lost} on it")

    def _host_came_up(self, host: Machine) -> None:
        """A host has booted: after a reboot of ours, on another version or on the one before."""
        self.boots[host.name] += 1
        if (before := self._versions.pop(host.name, None)) is not None:
            self._in_vain[host.name] = (
                self._in_vain[host.name] + 1 if host.os_version == before else 0
            )

    def _is_cordoned(self, name: str) -> bool:
        node = self.lab.store.get(NODES, name)
        return node is not None and is_cordoned(node)

    def _marks_of(self, name: str) -> Mapping[str, str]:
        node = self.lab.store.get(NODES, name)
        return annotations(node) if node is not None else {}

    def _budgets_of(self, pod: Json) -> Iterator[str]:
        namespace = pod["metadata"]["namespace"]
        for budget in self.lab.store.items(BUDGETS):
            picked = matches(spec_of(budget).get("selector") or {}, labels_of(pod))
            if budget["metadata"]["namespace"] == namespace and picked:
                yield f"{namespace}/{budget['metadata']['name']}"

    def excuse(self, pod: Json) -> None:
        """Somebody takes this pod from its budgets without asking them."""
        self.excused_budgets |= set(self._budgets_of(pod))

    def note_silence(self, node: str) -> None:
        """Somebody silences a node now; in the lab's loop."""
        pods = self.lab.store.pods_on(node)
        budgets = frozenset(budget for pod in pods for budget in self._budgets_of(pod))
        self.silences.append((self.lab.world.cluster.now(), budgets))

    def is_excused(self, broken: BrokenBudget) -> bool:
        """Whether somebody else broke the budget.

        Right after a node turns unready the API server still grants evictions, because the status
        of the budget trails its pods.
        """
        at = datetime.fromisoformat(broken.at)
        return broken.name in self.excused_budgets or any(
            broken.name in budgets and abs((at - moment).total_seconds()) < _TRAILING_SECONDS
            for moment, budgets in self.silences
        )

    # The verdicts that hold at any time.

    def verdicts(self) -> list[str]:
        """Every rule that was broken so far; in the lab's loop."""
        told = list(self.broken)
        often = {
            name: count for (_run, name), count in self.reboots.items() if count > 1 + self.retries
        }
        told += [
            f"{name} was rebooted {count} times by one rollout" for name, count in often.items()
        ]
        return told


def is_cordoned(node: Json) -> bool:
    return bool(spec_of(node).get("unschedulable"))


def _is_maintained(node: Json) -> bool:
    """Whether somebody else maintains it."""
    found = condition(node, "MaintenanceInProgress") or {}
    return found.get("status") == "True" and found.get("reason") != OUR_REASON


def annotations(node: Json) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("annotations") or {}
    return found
