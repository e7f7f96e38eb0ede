"""A plan played on the lab's world in simulated time: what a rollout would do to the cluster, without its wire.

Its nodes are cordoned, emptied by evictions that budgets may refuse, rebooted and uncordoned wave
by wave, and the next wave waits until the workloads are as well as before, as the engine does.
Where nodes follow one another, each begins as soon as its rules let it, and keeps its place until
the workloads are as well as before it. Nodes that wait are tainted where the policy says so.
Deployments are restarted where their budget needs every pod, and pods that must complete are left
until they have, if the policy says so.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import or_

import msgspec

from rollout.errors import ApiNotFoundError
from rollout.gather.cluster.copying import ClusterCopy
from rollout.gather.cluster.decode import RESTARTED_AT
from rollout.gather.cluster.rivals import DEPLOYMENTS as DEPLOYMENTS_PATH
from rollout.gather.cluster.snapshot import BUDGETS as BUDGETS_PATH
from rollout.gather.cluster.snapshot import (
    DAEMON_SETS,
    KUBE_SYSTEM,
    VERSION,
    CachedObjects,
    read_snapshot,
)
from rollout.gather.cluster.snapshot import NODES as NODES_PATH
from rollout.gather.cluster.snapshot import PODS as PODS_PATH
from rollout.lab.api.evicting import EvictionEndpoint
from rollout.lab.api.requests import Target
from rollout.lab.api.resources import (
    BUDGETS,
    DAEMONSETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICASETS,
    Resource,
)
from rollout.lab.api.selectors import matches
from rollout.lab.api.statuses import StatusError
from rollout.lab.api.store import Json
from rollout.lab.api.writing import Writer
from rollout.lab.copied import fill, hosts_of
from rollout.lab.hosts.machine import HostTimings
from rollout.lab.objects import (
    annotations_of,
    controller_of,
    is_daemon,
    is_deleting,
    is_finished,
    is_ready,
    labels_of,
    node_name,
    phase,
    spec_of,
    with_metadata,
    with_spec,
)
from rollout.lab.world.host import Timings
from rollout.model.host import HostObservation
from rollout.model.plan import PlanWarning, Rolling, RolloutPlan, WarningKind, Wave
from rollout.model.policy import Policy, Selection
from rollout.model.selectors import parse_selector
from rollout.model.soft_taint import AWAITING_REBOOT
from rollout.planning.eligibility.pools import pools_of
from rollout.planning.layout.rolling import RollingQueue
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.play.pace import NO_PAST, PastDurations
from rollout.ports import ClusterApi
from rollout.report.runs.report import read_past
from tests.lab.world.simulation import NAMESPACE, Simulation
from tests.planning.builders import NOW, facts

STEP = 0.5
DOWN = HostTimings().shutdown + HostTimings().boot
_SERVED = {
    NODES_PATH: NODES,
    PODS_PATH: PODS,
    BUDGETS_PATH: BUDGETS,
    DAEMON_SETS: DAEMONSETS,
    DEPLOYMENTS_PATH: DEPLOYMENTS,
}


class StoreApi:
    """What the store holds, as the lists that planning reads."""

    server = "https://127.0.0.1:6443"

    def __init__(self, sim: Simulation, now: datetime) -> None:
        self._sim = sim
        self._now = now

    def server_time(self) -> datetime:
        return self._now

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The few objects that are asked for by name."""
        if path == VERSION:
            return b'{"gitVersion":"v1.36.2"}'
        if path == KUBE_SYSTEM:
            return b'{"metadata":{"name":"kube-system","uid":"cluster-uid"}}'
        raise ApiNotFoundError(f"no {path} {query}", status=404)

    def pages(self, path: str, _query: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """One page with everything."""
        resource = _SERVED.get(path)
        items = list(self._sim.store.items(resource)) if resource else []
        yield msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})


@dataclass
class Played:
    """What a rollout took, in seconds, the nodes that were not empty in time, and what a journal
    would hold of it.
    """

    seconds: float = 0.0
    stuck: set[str] = field(default_factory=set)
    journal: list[dict[str, object]] = field(default_factory=list)

    @property
    def past(self) -> PastDurations:
        """What the journal tells."""
        return read_past([[{"type": "run", "cluster": {"uid": "it"}}, *self.journal]], "it")


def inputs_of(
    sim: Simulation,
    policy: Policy,
    past: PastDurations = NO_PAST,
    *,
    now: datetime = NOW,
    kept: CachedObjects | None = None,
) -> PlanInputs:
    """What a plan for all nodes is made of, as they stand; `kept` collects objects for a copy.

    By default, all pods are old.
    """
    api: ClusterApi = StoreApi(sim, now)  # type: ignore[assignment]
    snapshot = read_snapshot(api, kept, with_jobs=policy.drain.completion.is_used)
    boots = {node.name: node for node in snapshot.nodes}
    seen: dict[str, HostObservation] = {
        name: facts(name, boot_id=node.boot_id, machine_id=node.machine_id)
        for name, node in boots.items()
    }
    return PlanInputs(snapshot, seen, tuple(boots), Selection(), policy, now, past)


def plan_of(sim: Simulation, policy: Policy, past: PastDurations = NO_PAST) -> RolloutPlan:
    """The plan for all nodes as they stand."""
    return build_plan(inputs_of(sim, policy, past))


def copied(document: bytes) -> tuple[Simulation, float]:
    """The cluster in a snapshot, as `lab up --like` copies it, and how long its hosts are down."""
    copy = msgspec.json.decode(document, type=ClusterCopy)
    sim = Simulation()
    for host in hosts_of(copy):
        sim.add_node(host.name, host.settings)
    fill(sim.store, copy)
    sim.begin()
    return sim, copy.pace.reboot - Timings().kubelet_ready


def play(sim: Simulation, plan: RolloutPlan, down: float = DOWN) -> Played:
    """Run the plan's waves, one after another, until one cannot be finished.

    Hosts are down for `down` seconds.
    """
    played = Played()
    began = sim.clock.monotonic()
    if plan.policy.prefer_no_schedule_taint:
        for node in plan.nodes:
            taint(sim, node.name, wanted=True)
    for number, wave in enumerate(plan.waves, start=1):
        kind = _Wave if wave.rolling is None else _Rolling
        kind(sim, plan, wave, played, down).run(settles=number < len(plan.waves))
        if played.stuck:
            break
    played.seconds = sim.clock.monotonic() - began
    return played


def taint(sim: Simulation, name: str, *, wanted: bool) -> None:
    """Let the node have the soft taint, and no other, or none."""
    soft = {"key": AWAITING_REBOOT.key, "effect": AWAITING_REBOOT.effect}
    sim.store.put(NODES, with_spec(sim.node(name), taints=[soft] if wanted else []))


class _Wave:
    """The nodes of one wave, each at its own step."""

    def __init__(
        self, sim: Simulation, plan: RolloutPlan, wave: Wave, played: Played, down: float
    ) -> None:
        self._sim = sim
        self._down_seconds = down
        self._policy = plan.policy
        self._played = played
        self._wave = wave
        self._pools = pools_of(plan.policy)
        self._pool = {node.name: node.pool for node in wave.nodes}
        self._evictor = EvictionEndpoint(sim.store, Writer(sim.store))
        self._waiting = [node.name for node in wave.nodes]
        self._draining, self._down, self._coming = (
            dict[str, float](),
            dict[str, float](),
            set[str](),
        )
        self._held = dict[str, tuple[str, str, datetime]]()
        self._ending = dict[str, tuple[str, str, float]]()
        self._longest = dict[str, dict[str, float]]()
        self._awaited_at = dict[str, float]()
        self._awaited = [parse_selector(text) for text in self._policy.drain.completion.selectors]
        self._before = self._well()

    def run(self, *, settles: bool) -> None:
        """Take all of them through, and let the cluster settle where another wave follows."""
        self._tell(
            "wave_started",
            index=self._wave.index,
            waves=1,
            nodes=[node.name for node in self._wave.nodes],
        )
        self._admit()
        while self._waiting or self._draining or self._down or self._coming:
            self._sim.advance(STEP)
            self._empty()
            self._boot()
            self._give_back()
            self._admit()
            if self._played.stuck:
                return
        if settles:
            self._settle()
        else:
            self._tell("summary")

    def _admit(self) -> None:
        """Begin all that wait."""
        self._begin(list(self._waiting))

    def _begin(self, names: Sequence[str]) -> None:
        for name in names:
            self._waiting.remove(name)
            if self._policy.prefer_no_schedule_taint:
                taint(self._sim, name, wanted=False)
            self._sim.cordon(name)
            self._tell("step", node=name, phase="cordoned")
            self._draining[name] = self._now()

    def _settle(self) -> None:
        ended = self._now()
        while missing := self._before - self._well():
            self._sim.advance(STEP)
            if self._now() - ended > self._policy.settle_timeout:
                self._played.stuck.add(f"settling: {missing}")
                return

    def _tell(self, kind: str, **more: object) -> None:
        self._played.journal.append({"type": kind, "at": self._sim.clock.now().isoformat(), **more})

    def _now(self) -> float:
        return self._sim.clock.monotonic()

    def _well(self, node: str = "") -> Counter[str]:
        """Ready pods that stay, by workload, on one node or all: one that ends is no more counted
        by its controller. Nobody waits for a pod of a Job.
        """
        staying = (
            pod
            for pod in self._sim.pods(node=node)
            if is_ready(pod) and not is_deleting(pod) and not is_of_job(pod)
        )
        return Counter(pod["metadata"]["labels"]["app"] for pod in staying)

    def _empty(self) -> None:
        for name, began in list(self._draining.items()):
            leaving = [pod for pod in self._sim.pods(node=name) if not is_daemon(pod)]
            if leaving and self._now() - began <= STEP:
                self._tell("step", node=name, phase="draining", detail=f"{len(leaving)} left")
            for pod in leaving:
                if self._is_awaited(pod):
                    self._awaited_at[name] = self._now()
                else:
                    self._evict(pod)
            self._watch_endings(name, leaving)
            if not leaving:
                del self._draining[name]
                self._tell("step", node=name, phase="drained", endings=self._longest.pop(name, {}))
                self._sim.switch_off(name)
                self._down[name] = self._now()
            elif self._now() - max(began, self._awaited_at.get(name, 0)) > self._timeout(name):
                self._played.stuck.add(name)

    def _watch_endings(self, node: str, leaving: Sequence[Json]) -> None:
        """How long the pods of each owner take to end, as the engine's drains see it."""
        going = {pod["metadata"]["uid"]: pod for pod in leaving if is_deleting(pod)}
        for uid, pod in going.items():
            owner = pod["metadata"]["ownerReferences"][0]
            self._ending.setdefault(
                uid, (node, f"{owner['kind']}/{NAMESPACE}/{owner['name']}", self._now())
            )
        for uid, (on, owner, since) in list(self._ending.items()):
            if on == node and uid not in going:
                del self._ending[uid]
                longest = self._longest.setdefault(node, {})
                longest[owner] = max(self._now() - since, longest.get(owner, 0.0))

    def _timeout(self, node: str) -> float:
        """How long the drain may take, from the last moment that it waited for a pod to complete."""
        return self._pools.rules(self._pool[node]).drain.timeout

    def _is_awaited(self, pod: Json) -> bool:
        if is_finished(pod) or is_deleting(pod):
            return False
        return any(selector.matches(labels_of(pod)) for selector in self._awaited)

    def _evict(self, pod: Json) -> None:
        if is_deleting(pod):
            return
        name = pod["metadata"]["name"]
        try:
            target = Target("create", "", PODS, "eviction", NAMESPACE, name)
            self._evictor.evict(target, {"metadata": {"name": name}}, {})
        except StatusError:
            self._held.setdefault(
                name, (node_name(pod), pod["metadata"]["labels"]["app"], self._sim.clock.now())
            )
            if self._policy.drain.restarts:
                self._restart(pod)
        else:
            self._release(name)

    def _restart(self, pod: Json) -> None:
        """Restart the pod's Deployment if its budget needs every pod, unless it is being replaced."""
        replica_set = self._owner(REPLICASETS, pod)
        deployment = replica_set and self._owner(DEPLOYMENTS, replica_set)
        if not replica_set or not deployment or not self._needs_every_pod(pod):
            return
        template = spec_of(deployment)["template"]
        before = annotations_of(spec_of(replica_set)["template"]).get(RESTARTED_AT)
        if annotations_of(template).get(RESTARTED_AT) != before:
            return
        at = {RESTARTED_AT: self._sim.clock.now().isoformat()}
        restarted = with_metadata(template, annotations={**annotations_of(template), **at})
        self._sim.store.put(DEPLOYMENTS, with_spec(deployment, template=restarted))

    def _owner(self, resource: Resource, obj: Json) -> Json | None:
        owner = controller_of(obj) or {"kind": "", "name": ""}
        is_this = owner["kind"] == resource.kind
        return self._sim.store.get(resource, owner["name"], NAMESPACE) if is_this else None

    def _needs_every_pod(self, pod: Json) -> bool:
        statuses = [
            budget["status"]
            for budget in self._sim.store.items(BUDGETS, NAMESPACE)
            if matches(spec_of(budget)["selector"], labels_of(pod))
        ]
        return any(status["desiredHealthy"] >= status["expectedPods"] for status in statuses)

    def _release(self, name: str) -> None:
        if name in self._held:
            node, budget, since = self._held.pop(name)
            self._tell("released", node=node, pod=name, budget=budget, since=since.isoformat())

    def _boot(self) -> None:
        for name, since in list(self._down.items()):
            if self._now() - since >= self._down_seconds:
                del self._down[name]
                self._coming.add(name)
                self._sim.switch_on(name)

    def _give_back(self) -> None:
        for name in list(self._coming):
            reported = self._sim.node(name)["status"]["nodeInfo"]["bootID"]
            if reported == self._sim.hosts[name].boot_id and self._sim.is_ready(name):
                self._coming.discard(name)
                self._sim.cordon(name, wanted=False)
                self._tell("node_finished", node=name, outcome="succeeded", phase="done")


class _Rolling(_Wave):
    """Nodes that follow one another; `_measured` is what was well before each that is in flight, and what of it on it.

    `_ended` is since when each waits for the cluster to settle.
    """

    def __init__(
        self, sim: Simulation, plan: RolloutPlan, wave: Wave, played: Played, down: float
    ) -> None:
        super().__init__(sim, plan, wave, played, down)
        self._order = [node.name for node in wave.nodes]
        self._measured = dict[str, tuple[Counter[str], Counter[str]]]()
        self._ended = dict[str, float]()

    def _admit(self) -> None:
        self._free()
        rules = self._wave.rolling or Rolling(1)
        begun = list[str]()
        waiting = list(self._waiting)
        while name := next(
            RollingQueue(rules, self._order, waiting, [*self._measured, *begun]).candidates(), None
        ):
            begun.append(name)
            waiting.remove(name)
        earlier = reduce(or_, (well for well, _ in self._measured.values()), self._well())
        there = {name: self._well(name) for name in begun}
        # as the engine has it: of the owners that have pods on the node
        self._measured.update(
            {name: (Counter({app: earlier[app] for app in on}), on) for name, on in there.items()}
        )
        self._begin(begun)

    def _free(self) -> None:
        """Free the places of those that the cluster has settled from: what others have taken is not held against them.

        A place that is not freed in time is a rollout that cannot be finished.
        """
        running = self._draining.keys() | self._down.keys() | self._coming
        for name in self._measured.keys() - running:
            self._ended.setdefault(name, self._now())
        taken = Counter[str]()
        for name in running:
            taken += self._measured[name][1] - self._well(name)
        for name, since in list(self._ended.items()):
            if not (missing := self._measured[name][0] - self._well() - taken):
                del self._ended[name], self._measured[name]
            elif self._now() - since > self._policy.settle_timeout:
                self._played.stuck.add(f"settling: {missing}")


def is_of_job(pod: Json) -> bool:
    return (controller_of(pod) or {}).get("kind") == "Job"


def is_placed(sim: Simulation) -> bool:
    """Whether every pod has a node and is Ready."""
    return all(node_name(pod) and phase(pod) == "Running" and is_ready(pod) for pod in sim.pods())


def is_warned(warning: PlanWarning) -> bool:
    """Whether the plan warns that a drain may wait for a budget in vain."""
    return warning.kind is WarningKind.FITS_NOWHERE and warning.object.startswith("pdb/")
