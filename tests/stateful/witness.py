"""What a bystander sees of a cluster in which several act at once: who did what, told apart.

Everything that this test does by somebody else's hand goes through `others`; what happens outside is the program's
doing, or the cluster's own.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rollout.lab.api.resources import BUDGETS, NODES
from rollout.lab.api.selectors import matches
from rollout.lab.api.store import Change, ChangeType, Json
from rollout.lab.hosts.machine import Machine
from rollout.lab.lab import Lab
from rollout.lab.world.host import HostState
from rollout.lab.world.objects import is_daemon, is_mirror, is_ready, labels_of, phase, spec_of

PREFIX = "node-rollout.dev/"
RUN, PHASE, CORDONED_BY_US = PREFIX + "run", PREFIX + "phase", PREFIX + "cordoned-by-us"
# How shortly before a shutdown a pod may come to its node unseen, in real seconds: between the last look and the host's
# taking the command lies the way to the host.
_UNSEEN_WITHIN = 0.5
# How long a node may be away unnoticed, in real seconds: between a look at the cluster and the act that it allowed
# lies the look at the host.
_NOTICED_WITHIN = 3.0


@dataclass
class Witness:
    """Keeps the record of one lab. `broken` are broken rules, in words; everything else is what has happened.

    `cordons` are those of others, `meddled` are nodes that somebody uncordoned or deleted while they were ours;
    `retries` is how often failed nodes were to be tried again.
    """

    lab: Lab
    limit: int
    broken: list[str] = field(default_factory=list)
    reboots: Counter[tuple[str, str]] = field(default_factory=Counter)
    boots: Counter[str] = field(default_factory=Counter)
    cordons: set[str] = field(default_factory=set)
    meddled: set[str] = field(default_factory=set)
    excused_budgets: set[str] = field(default_factory=set)
    rebooting_by_others: set[str] = field(default_factory=set)
    most_marked: int = 0
    retries: int = 0
    _others: bool = False
    _marked: dict[str, str] = field(default_factory=dict)
    _away_since: dict[str, float] = field(default_factory=dict)
    _put_there: dict[str, float] = field(default_factory=dict)
    _stopping: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Watch from now on; in the lab's loop."""
        self.cordons = {node["metadata"]["name"] for node in self.lab.store.items(NODES) if is_cordoned(node)}
        self.lab.store.subscribe(self._changed)
        self.lab.world.host_observers.append(self)
        for machine in self.lab.machines.values():
            machine.observers.append(self)

    @contextmanager
    def others(self) -> Iterator[None]:
        """What happens within is somebody else's doing."""
        self._others = True
        try:
            yield
        finally:
            self._others = False

    # What nodes go through.

    def _changed(self, change: Change) -> None:
        if change.resource is not NODES:
            return
        name = change.obj["metadata"]["name"]
        if change.type is ChangeType.DELETED:
            self._forget(name)
            return
        self._note_readiness(name, change.obj)
        self._note_cordon(name, change)
        self._note_marks(name, change.obj)

    def _forget(self, name: str) -> None:
        if name in self._marked:
            self.meddled.add(name)
        self._marked.pop(name, None)
        self._away_since.pop(name, None)
        self.cordons.discard(name)

    def _note_readiness(self, name: str, node: Json) -> None:
        if is_ready(node):
            self._away_since.pop(name, None)
        else:
            self._away_since.setdefault(name, time.monotonic())

    def _note_cordon(self, name: str, change: Change) -> None:
        was = change.previous is not None and is_cordoned(change.previous)
        now, marks = is_cordoned(change.obj), annotations(change.obj)
        if was == now:
            return
        if self._others:
            self._cordoned_by_others(name, now=now)
        elif now and RUN not in marks and change.previous is not None:
            self.broken.append(f"{name} was cordoned without a mark that says by whom")
        elif not now and name in self.cordons:
            self.broken.append(f"{name} was uncordoned, which somebody else had cordoned")

    def _cordoned_by_others(self, name: str, *, now: bool) -> None:
        if now:
            self.cordons.add(name)
        else:
            self.cordons.discard(name)
        if name in self._marked:
            self.meddled.add(name)

    def _note_marks(self, name: str, node: Json) -> None:
        marks = annotations(node)
        if RUN not in marks:
            self._marked.pop(name, None)
            return
        is_new = name not in self._marked
        self._marked[name] = marks.get(PHASE, "")
        self.most_marked = max(self.most_marked, len(self._marked))
        if is_new:
            self._judge_beginning(name)

    def _judge_beginning(self, name: str) -> None:
        now = time.monotonic()
        away = {other for other, since in self._away_since.items() if now - since > _NOTICED_WITHIN}
        unavailable = self._marked.keys() | away
        if len(unavailable) > self.limit:
            self.broken.append(f"{name} was begun with {sorted(unavailable)} unavailable; the limit is {self.limit}")

    def put_there(self, pod: str) -> None:
        """Somebody has bound this pod to a node, whatever its cordon says."""
        self._put_there[pod] = time.monotonic()

    def _was_unseen(self, pod: str, host: str) -> bool:
        came, stopped = self._put_there.get(pod), self._stopping.get(host, time.monotonic())
        return came is not None and came > stopped - _UNSEEN_WITHIN

    # What hosts go through.

    def machine_stopping(self, machine: Machine) -> None:
        """It has taken a command to reboot."""
        self._stopping[machine.name] = time.monotonic()

    def machine_down(self, machine: Machine) -> None:
        """Its kubelet is told of."""

    def machine_up(self, machine: Machine) -> None:
        """The same."""

    def machine_changed(self, machine: Machine) -> None:
        """Faults are no acts."""

    def host_joined(self, host: HostState) -> None:
        """None does."""

    def host_went_down(self, host: HostState) -> None:
        """A host is off: by whose doing, and what died with it."""
        pods = [pod for pod in self.lab.store.pods_on(host.name) if phase(pod) == "Running"]
        if self._others or host.name in self.rebooting_by_others:
            self.rebooting_by_others.discard(host.name)
            self.excused_budgets |= {budget for pod in pods for budget in self._budgets_of(pod)}
            return
        marks = self._marks_of(host.name)
        self.reboots[marks.get(RUN, ""), host.name] += 1
        if RUN not in marks and host.name not in self.meddled:
            self.broken.append(f"{host.name} was rebooted without a mark that says by whom")
        lost = [pod["metadata"]["name"] for pod in pods if not is_daemon(pod) and not is_mirror(pod)]
        lost = [name for name in lost if not self._was_unseen(name, host.name)]
        if lost and host.name not in self.meddled:
            self.broken.append(f"{host.name} was rebooted with {lost} on it")

    def host_came_up(self, host: HostState) -> None:
        """A host has booted."""
        self.boots[host.name] += 1

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

    # The verdicts that hold at any time.

    def verdicts(self) -> list[str]:
        """Every rule that was broken so far; in the lab's loop."""
        told = list(self.broken)
        often = {name: count for (_run, name), count in self.reboots.items() if count > 1 + self.retries}
        told += [f"{name} was rebooted {count} times by one rollout" for name, count in often.items()]
        if self.most_marked > self.limit:
            told.append(f"{self.most_marked} nodes were away by our doing at once; the limit is {self.limit}")
        return told


def is_cordoned(node: Json) -> bool:
    return bool(spec_of(node).get("unschedulable"))


def annotations(node: Json) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("annotations") or {}
    return found
