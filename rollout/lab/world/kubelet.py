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
    uid,
    with_metadata,
    with_spec,
    with_status,
)
from rollout.lab.world.cluster import SimulatedCluster
from rollout.lab.world.host import (
    mark_silent,
    micro_time,
    new_lease,
    new_node,
    registered_node,
    report_ready,
    start_pod,
    with_readiness,
)

_NEVER = "never"
_REBOOT_NEEDED = "flatcar-linux-update.v1.flatcar-linux.net/reboot-needed"
_AGENT_SECONDS = 5.0
_START_SECONDS = 1.0
_SYNC_SECONDS = 1.0
_TERMINATION_SECONDS = (1.0, 2.5)
_HEARTBEAT_SECONDS = 10.0
_HEARTBEATS_PER_REPORT = 30
_HEARTBEAT_GROUPS = 10


class Kubelet:
    """A reboot of the host ends all containers and cancels all timers."""

    def __init__(self, cluster: SimulatedCluster, host: Machine) -> None:
        self.host = host
        self.alive = False
        self._cluster = cluster
        self._store = cluster.store
        self._address = host.address
        self._ready = False
        self._boots = 0
        # By the pod's UID: whether its containers run (True) or are starting (False).
        self._containers: dict[str, bool] = {}
        # By the pod's UID: the shortest grace that it was given, in seconds.
        self._grace_seconds: dict[str, float] = {}

    def begin(self) -> None:
        """If the host is off, the Node is registered but silent."""
        if self.host.running:
            self.alive = True
            self._register(ready=True)
        else:
            self._store.put(NODES, mark_silent(self._node(), self._cluster.now()))

    def follow(self, event: HostEvent) -> None:
        if event is HostEvent.DOWN:
            self.alive = False
            self._boots += 1
            self._containers.clear()
            self._grace_seconds.clear()
        elif event is HostEvent.UP:
            self._after(_START_SECONDS, self._start_service)

    def renew(self) -> None:
        if not self.alive:
            return
        name = self.host.name
        now = self._cluster.now()
        lease = self._store.get(LEASES, name, "kube-node-lease")
        if lease is None:
            self._store.create(LEASES, new_lease(name, now))
        else:
            self._store.put(LEASES, with_spec(lease, renewTime=micro_time(now)))

    def report(self) -> None:
        """Only `restart` creates a deleted Node again."""
        node = self._store.get(NODES, self.host.name)
        if self.alive and node is not None:
            self._store.put(NODES, report_ready(node, self._cluster.now(), ready=self._ready))

    def restart(self) -> None:
        if self.alive:
            self._register(ready=self._ready)

    def report_address(self, address: str) -> None:
        self._address = address
        if self.alive:
            self._register(ready=self._ready)

    def set_ready(self, ready: bool) -> None:  # noqa: FBT001 - timers pass arguments by position
        if not self.alive:
            return
        self._ready = ready
        self.report()
        if ready:
            for pod in self._store.pods_on(self.host.name):
                self._sync(pod)

    def pod_changed(self, change: Change) -> None:
        if not self.alive:
            return
        if change.gone:
            self._containers.pop(uid(change.obj), None)
            self._grace_seconds.pop(uid(change.obj), None)
        else:
            self._sync(change.obj)

    def _start_service(self) -> None:
        self.alive = True
        self._register(ready=False)
        for pod in self._store.pods_on(self.host.name):
            self._recover(pod)
        # `kubelet_ready` counts from the boot.
        seconds = max(0.0, self._cluster.timings.kubelet_ready - _START_SECONDS)
        self._after(seconds, self._become_ready)

    def _become_ready(self) -> None:
        self.set_ready(ready=True)
        for seconds, ready in self.host.settings.flaps or ():
            self._after(seconds, self.set_ready, ready)
        if self.host.settings.agent:
            self._after(_AGENT_SECONDS, self._clear_reboot_needed)

    def _clear_reboot_needed(self) -> None:
        """Act as the agent of Flatcar Linux Update Operator (FLUO) after a reboot."""
        node = self._store.get(NODES, self.host.name)
        if node is not None:
            annotations = {**annotations_of(node), _REBOOT_NEEDED: "false"}
            self._store.put(NODES, with_metadata(node, annotations=annotations))

    def _register(self, *, ready: bool) -> None:
        self._ready = ready
        node = registered_node(self._node(), self.host, self._address)
        self._store.put(NODES, report_ready(node, self._cluster.now(), ready=ready))
        self.renew()

    def _node(self) -> Json:
        node = self._store.get(NODES, self.host.name)
        return node or self._store.create(NODES, new_node(self.host))

    def _sync(self, pod: Json) -> None:
        if is_deleting(pod):
            self._terminate(pod)
        elif is_finished(pod):
            return
        elif uid(pod) not in self._containers:
            self._begin_start(pod)
        elif self._containers[uid(pod)] and self._is_misreported(pod):
            self._after(_SYNC_SECONDS, self._correct, pod)

    def _recover(self, pod: Json) -> None:
        if is_deleting(pod):
            self._remove(pod)
        elif phase(pod) == "Running":
            self._store.put(PODS, with_readiness(pod, self._cluster.now(), ready=False))
        current = self._cluster.current(PODS, pod)
        if current is not None:
            self._sync(current)

    def _begin_start(self, pod: Json) -> None:
        self._containers[uid(pod)] = False
        configured = setting(pod, "startup-seconds")
        if configured:
            seconds = float(configured)
        else:
            timings = self._cluster.timings
            seconds = self._cluster.rng.uniform(timings.startup_min, timings.startup_max)
        self._after(seconds, self._start, pod, seconds)

    def _start(self, created: Json, seconds: float) -> None:
        pod = self._cluster.current(PODS, created)
        if pod is None or not is_active(pod):
            self._containers.pop(uid(created), None)
            return
        self._containers[uid(pod)] = True
        running = start_pod(
            pod,
            self._cluster.now(),
            address=self.host.address,
            ready=setting(pod, "ready") != _NEVER,
            starting=timedelta(seconds=seconds),
        )
        self._store.put(PODS, running)
        run_seconds = setting(pod, "run-seconds")
        if run_seconds:
            self._after(float(run_seconds), self._complete, pod, is_skippable=False)

    def _complete(self, started: Json) -> None:
        pod = self._cluster.current(PODS, started)
        if pod is not None and is_active(pod):
            self._containers[uid(pod)] = False
            ended = with_readiness(pod, self._cluster.now(), ready=False)
            self._store.put(PODS, with_status(ended, phase="Succeeded"))

    def _terminate(self, pod: Json) -> None:
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if self._grace_seconds.get(uid(pod), float("inf")) <= grace:
            return
        self._grace_seconds[uid(pod)] = grace
        configured = setting(pod, "termination-seconds")
        if configured == _NEVER:
            return
        seconds = self._cluster.rng.uniform(*_TERMINATION_SECONDS)
        if configured:
            seconds = float(configured)
        self._after(min(grace, seconds), self._remove, pod)

    def _remove(self, terminated: Json) -> None:
        pod = self._cluster.current(PODS, terminated)
        if pod is not None:
            self._containers.pop(uid(pod), None)
            begin_deletion(self._store, PODS, pod, grace_seconds=0)

    def _is_misreported(self, pod: Json) -> bool:
        return self._ready and not is_ready(pod) and setting(pod, "ready") != _NEVER

    def _correct(self, misreported: Json) -> None:
        """The node lifecycle has marked the pod as not ready."""
        pod = self._cluster.current(PODS, misreported)
        if pod is None or not self._containers.get(uid(pod)) or is_deleting(pod):
            return
        if self._is_misreported(pod):
            self._store.put(PODS, with_readiness(pod, self._cluster.now(), ready=True))

    def _after(
        self, seconds: float, work: Callable[..., None], *args: Any, is_skippable: bool = True
    ) -> None:
        """The work is not done if the host goes down before."""
        boot = self._boots

        def work_unless_rebooted() -> None:
            if boot == self._boots:
                work(*args)

        self._cluster.agenda.after(seconds, work_unless_rebooted, is_skippable=is_skippable)


class Kubelets(dict[str, Kubelet]):
    """Nodes that only clients created have none."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._ticks = 0

    def add(self, host: Machine) -> None:
        kubelet = Kubelet(self._cluster, host)
        self[host.name] = kubelet
        host.observers.append(kubelet.follow)
        kubelet.begin()

    def pod_changed(self, change: Change) -> None:
        kubelet = self.get(node_name(change.obj))
        if kubelet is not None:
            kubelet.pod_changed(change)

    def begin_heartbeats(self) -> None:
        for kubelet in self.values():
            kubelet.renew()
        self._cluster.agenda.repeat(_HEARTBEAT_SECONDS / _HEARTBEAT_GROUPS, self._tick)

    def _tick(self) -> None:
        """Renew one group's Leases; report its conditions in every 30th interval."""
        self._ticks += 1
        interval, group = divmod(self._ticks, _HEARTBEAT_GROUPS)
        reports_now = interval % _HEARTBEATS_PER_REPORT == group
        kubelets = list(self.values())
        for kubelet in kubelets[group::_HEARTBEAT_GROUPS]:
            kubelet.renew()
            if reports_now:
                kubelet.report()
