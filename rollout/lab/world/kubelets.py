"""All kubelets: who is told of which pod, and one tick for all their heartbeats."""

from collections.abc import Iterator

from rollout.lab.api.resources import NAMESPACES
from rollout.lab.api.store import Change, ChangeType
from rollout.lab.world.cluster import Cluster
from rollout.lab.world.host import HostState, NodeSetting
from rollout.lab.world.kubelet import Kubelet
from rollout.lab.world.objects import node_name

_LEASE_NAMESPACE = "kube-node-lease"
# Kubelets do not all beat at once: each has its place within the interval.
_PLACES = 10


class Kubelets:
    """The kubelets by node name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kubelets: dict[str, Kubelet] = {}
        self._ticks = 0

    def add(self, host: HostState, setting: NodeSetting) -> None:
        """A host joins the cluster."""
        store = self._cluster.store
        if store.get(NAMESPACES, _LEASE_NAMESPACE) is None:
            namespace = {"metadata": {"name": _LEASE_NAMESPACE}, "status": {"phase": "Active"}}
            store.create(NAMESPACES, namespace)
        kubelet = Kubelet(self._cluster, host, setting, len(self._kubelets))
        self._kubelets[host.name] = kubelet
        kubelet.begin()

    def get(self, name: str) -> Kubelet | None:
        """The kubelet of a node; None for Nodes that only clients made."""
        return self._kubelets.get(name)

    def __iter__(self) -> Iterator[Kubelet]:
        return iter(self._kubelets.values())

    def pod_changed(self, change: Change) -> None:
        """Tell the kubelet of the pod's node."""
        kubelet = self._kubelets.get(node_name(change.obj))
        if kubelet is not None:
            kubelet.pod_changed(change)

    def node_changed(self, change: Change) -> None:
        """A Node that was deleted is registered again with the next report."""
        name = change.obj["metadata"]["name"]
        kubelet = self._kubelets.get(name)
        if change.type is ChangeType.DELETED and kubelet is not None and kubelet.alive:
            self._cluster.agenda.after(self._cluster.timings.heartbeat, kubelet.report)

    def begin_heartbeats(self) -> None:
        """Renew all Leases now and regularly from now on, and report conditions more rarely."""
        for kubelet in self._kubelets.values():
            kubelet.renew()
        self._cluster.agenda.repeat(self._cluster.timings.heartbeat / _PLACES, self._tick)

    def _tick(self) -> None:
        self._ticks += 1
        rounds, place = divmod(self._ticks, _PLACES)
        kubelets = list(self._kubelets.values())
        for kubelet in kubelets[place::_PLACES]:
            kubelet.renew()
            if self._reports(rounds, place):
                kubelet.report()

    def _reports(self, rounds: int, place: int) -> bool:
        timings = self._cluster.timings
        every = max(1, round(timings.status_report / timings.heartbeat))
        return rounds % every == place % every
