"""Kubelets: each runs the pods bound to its node, as long as its host is up; one tick beats for all of them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rollout.lab.api.lifecycle import begin_deletion
from rollout.lab.api.resources import LEASES, NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.hosts.machine import HostEvent, Machine
from rollout.lab.objects import (
    annotations_of,
    is_active,
    is_deleting,
    is_finished,
    is_ready,
    node_name,
    phase,
    setting,
    spec_of,
    uid,
    with_metadata,
)
from rollout.lab.world.cluster import SimulatedCluster
from rollout.lab.world.host import (
    mark_silent,
    micro_time,
    new_lease,
    new_node,
    register_node,
    report_ready,
    start_pod,
    with_readiness,
)

_NEVER = "never"
_REQUEST = "flatcar-linux-update.v1.flatcar-linux.net/reboot-needed"
_AGENT_SECONDS = 5.0
_START_SECONDS = 1.0
_SYNC_SECONDS = 1.0
_TERMINATION_SECONDS = (1.0, 2.5)
_HEARTBEAT_SECONDS = 10.0
_BEATS_A_REPORT = 30


class Kubelet:
    """Registers its Node, renews its Lease, and starts and ends containers.

    `_runs` says of the pods, by UID, whether their containers run or are being started; all of it
    is lost when the host goes down.
    """

    def __init__(self, cluster: SimulatedCluster, host: Machine) -> None:
        self.host = host
        self.alive = False
        self._runs: dict[str, bool] = {}
        self._cluster = cluster
        self._store = cluster.store
        self._address = host.address
        self._ready = False
        # Counts lives: what was planned in an earlier life is not done in a later one.
        self._life = 0
        self._ending: dict[str, float] = {}

    def begin(self) -> None:
        """Join the cluster with the host as it is: ready, or known but silent."""
        if self.host.running:
            self.alive = True
            self._register(ready=True)
        else:
            self._store.put(NODES, mark_silent(self._node(), self._cluster.now()))

    def follow(self, event: HostEvent) -> None:
        """End with the host: containers die at once, and nobody reports it. Register a little after it has booted."""
        if event is HostEvent.DOWN:
            self.alive = False
            self._life += 1
            self._runs.clear()
            self._ending.clear()
        elif event is HostEvent.UP:
            self._after(_START_SECONDS, self._come_up)

    def renew(self) -> None:
        """Renew the Lease: the heartbeat."""
        if not self.alive:
            return
        name = self.host.name
        now = self._cluster.now()
        lease = self._store.get(LEASES, name, "kube-node-lease")
        if lease is None:
            self._store.create(LEASES, new_lease(name, now))
        else:
            self._store.put(
                LEASES, {**lease, "spec": {**spec_of(lease), "renewTime": micro_time(now)}}
            )

    def report(self) -> None:
        """Write the node's conditions; a Node that somebody deleted stays away until the kubelet starts again."""
        node = self._store.get(NODES, self.host.name)
        if self.alive and node is not None:
            self._store.put(NODES, report_ready(node, self._cluster.now(), ready=self._ready))

    def restart(self) -> None:
        """Start its service again: it registers its Node as after a boot, if somebody deleted that."""
        if self.alive:
            self._register(ready=self._ready)

    def report_address(self, address: str) -> None:
        """From now on this is the address that its Node has, whatever its host's is."""
        self._address = address
        if self.alive:
            self._register(ready=self._ready)

    def set_ready(self, ready: bool) -> None:  # noqa: FBT001 - called by timers, which pass positions
        """Become ready or not, and say so."""
        if not self.alive:
            return
        self._ready = ready
        self.report()
        if ready:
            for pod in self._store.pods_on(self.host.name):
                self._sync(pod)

    def pod_changed(self, change: Change) -> None:
        """Take in a pod bound to this node that came, changed or went."""
        if not self.alive:
            return
        if change.gone:
            self._runs.pop(uid(change.obj), None)
            self._ending.pop(uid(change.obj), None)
        else:
            self._sync(change.obj)

    def _come_up(self) -> None:
        self.alive = True
        self._register(ready=False)
        for pod in self._store.pods_on(self.host.name):
            self._recover(pod)
        self._after(
            max(0.0, self._cluster.timings.kubelet_ready - _START_SECONDS), self._become_ready
        )

    def _become_ready(self) -> None:
        self.set_ready(ready=True)
        for seconds, ready in self.host.settings.flaps or ():
            self._after(seconds, self.set_ready, ready)
        if self.host.settings.agent:
            self._after(_AGENT_SECONDS, self._take_request_back)

    def _take_request_back(self) -> None:
        """Do what FLUO's agent does when it starts after a reboot."""
        node = self._store.get(NODES, self.host.name)
        if node is not None:
            self._store.put(
                NODES, with_metadata(node, annotations={**annotations_of(node), _REQUEST: "false"})
            )

    def _register(self, *, ready: bool) -> None:
        self._ready = ready
        fresh = register_node(self._node(), self.host, self._address)
        self._store.put(NODES, report_ready(fresh, self._cluster.now(), ready=ready))
        self.renew()

    def _node(self) -> Json:
        """Return the Node as stored; made where there is none."""
        return self._store.get(NODES, self.host.name) or self._store.create(
            NODES, new_node(self.host)
        )

    def _sync(self, pod: Json) -> None:
        """Do what one pod needs."""
        if is_deleting(pod):
            self._end(pod)
        elif is_finished(pod):
            return
        elif uid(pod) not in self._runs:
            self._begin_start(pod)
        elif self._runs[uid(pod)] and self._is_misreported(pod):
            self._after(_SYNC_SECONDS, self._correct, pod)

    def _recover(self, pod: Json) -> None:
        """See to a pod of the time before the boot: its containers are gone."""
        if is_deleting(pod):
            self._remove(pod)
        elif phase(pod) == "Running":
            self._store.put(PODS, with_readiness(pod, self._cluster.now(), ready=False))
        current = self._cluster.current(PODS, pod)
        if current is not None:
            self._sync(current)

    def _begin_start(self, pod: Json) -> None:
        self._runs[uid(pod)] = False
        timings = self._cluster.timings
        wanted = setting(pod, "startup-seconds")
        seconds = (
            float(wanted)
            if wanted
            else self._cluster.rng.uniform(timings.startup_min, timings.startup_max)
        )
        self._after(seconds, self._start, pod, seconds)

    def _start(self, created: Json, seconds: float) -> None:
        pod = self._cluster.current(PODS, created)
        if pod is None or not is_active(pod):
            self._runs.pop(uid(created), None)
            return
        self._runs[uid(pod)] = True
        ready = setting(pod, "ready") != _NEVER
        starting = timedelta(seconds=seconds)
        address = self.host.address
        now = self._cluster.now()
        self._store.put(PODS, start_pod(pod, now, address=address, ready=ready, starting=starting))

    def _end(self, pod: Json) -> None:
        """Terminate a pod whose deletion has begun; a second, shorter deletion shortens it."""
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if self._ending.get(uid(pod), float("inf")) <= grace:
            return
        self._ending[uid(pod)] = grace
        wanted = setting(pod, "termination-seconds")
        if wanted == _NEVER:
            return
        usual = self._cluster.rng.uniform(*_TERMINATION_SECONDS)
        self._after(min(grace, float(wanted) if wanted else usual), self._remove, pod)

    def _remove(self, ended: Json) -> None:
        """Let a pod go whose containers have ended, or leave it to its finalizers."""
        pod = self._cluster.current(PODS, ended)
        if pod is not None:
            self._runs.pop(uid(pod), None)
            begin_deletion(self._store, PODS, pod, grace_seconds=0)

    def _is_misreported(self, pod: Json) -> bool:
        return self._ready and not is_ready(pod) and setting(pod, "ready") != _NEVER

    def _correct(self, misreported: Json) -> None:
        """Say again that a running pod is ready, after the node lifecycle had given it up."""
        pod = self._cluster.current(PODS, misreported)
        if (
            pod is not None
            and self._runs.get(uid(pod))
            and not is_deleting(pod)
            and self._is_misreported(pod)
        ):
            self._store.put(PODS, with_readiness(pod, self._cluster.now(), ready=True))

    def _after(self, seconds: float, work: Callable[..., None], *args: Any) -> None:
        life = self._life

        def work_in_life() -> None:
            if life == self._life:
                work(*args)

        self._cluster.agenda.after(seconds, work_in_life)


# Kubelets do not all beat at once: each has its place within the interval.
_PLACES = 10


class Kubelets(dict[str, Kubelet]):
    """The kubelets by node name; of Nodes that only clients made there is none."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._ticks = 0

    def add(self, host: Machine) -> None:
        """Have a host join the cluster: its kubelet registers a Node of the host's name, and follows the host."""
        kubelet = self[host.name] = Kubelet(self._cluster, host)
        host.observers.append(kubelet.follow)
        kubelet.begin()

    def pod_changed(self, change: Change) -> None:
        """Tell the kubelet of the pod's node."""
        kubelet = self.get(node_name(change.obj))
        if kubelet is not None:
            kubelet.pod_changed(change)

    def begin_heartbeats(self) -> None:
        """Renew all Leases now and regularly from now on, and report conditions more rarely."""
        for kubelet in self.values():
            kubelet.renew()
        self._cluster.agenda.repeat(_HEARTBEAT_SECONDS / _PLACES, self._tick)

    def _tick(self) -> None:
        self._ticks += 1
        rounds, place = divmod(self._ticks, _PLACES)
        kubelets = list(self.values())
        for kubelet in kubelets[place::_PLACES]:
            kubelet.renew()
            if rounds % _BEATS_A_REPORT == place:
                kubelet.report()
