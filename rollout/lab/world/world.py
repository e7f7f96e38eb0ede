import random

from rollout.lab.api.resources import BUDGETS, LEASES, NAMESPACES, NODES, PODS
from rollout.lab.api.store import Change, ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.objects import (
    controller_of,
    is_deleting,
    is_ready,
    key,
    namespace_of,
    phase,
    spec_of,
    uid,
)
from rollout.lab.world.agenda import Agenda
from rollout.lab.world.budgets import DisruptionController
from rollout.lab.world.cluster import SimulatedCluster
from rollout.lab.world.databases import Databases
from rollout.lab.world.deployments import Deployments
from rollout.lab.world.host import Timings
from rollout.lab.world.kubelet import Kubelets
from rollout.lab.world.node_lifecycle import NodeLifecycle
from rollout.lab.world.scheduler import SimulatedScheduler
from rollout.lab.world.volumes import AttachController
from rollout.lab.world.workloads import (
    OWNERS,
    DaemonSets,
    GarbageCollector,
    ReplicaSets,
    StatefulSets,
    WorkloadController,
)


class World:
    """`fast_forward` brings a new cluster to rest; `run` lets time pass until `stop`."""

    def __init__(
        self,
        store: ObjectStore,
        clock: LabClock,
        *,
        timings: Timings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.agenda = Agenda(clock)
        self.cluster = SimulatedCluster(
            store=store,
            agenda=self.agenda,
            clock=clock,
            timings=timings or Timings(),
            rng=rng or random.Random(0),
        )
        self.kubelets = Kubelets(self.cluster)
        self._scheduler = SimulatedScheduler(self.cluster)
        self._daemon_sets = DaemonSets(self.cluster)
        self._databases = Databases(self.cluster)
        self._budgets = DisruptionController(self.cluster)
        self._lifecycle = NodeLifecycle(self.cluster)
        self._volumes = AttachController(self.cluster)
        self._garbage = GarbageCollector(self.cluster)
        controllers: tuple[WorkloadController, ...] = (
            Deployments(self.cluster),
            ReplicaSets(self.cluster),
            StatefulSets(self.cluster),
            self._daemon_sets,
            self._databases,
        )
        self._controllers = {controller.resource.kind: controller for controller in controllers}
        store.subscribe(lambda change: self.agenda.do(self._observe, change))
        self._began = False

    def fast_forward(self) -> None:
        self.agenda.fast_forward()

    async def run(self) -> None:
        self._begin()
        await self.agenda.run()

    def stop(self) -> None:
        self.agenda.stop()

    def _begin(self) -> None:
        """From now on, silence of a kubelet counts."""
        if not self._began:
            self._began = True
            self.agenda.time = self.cluster.clock.monotonic()
            self.kubelets.begin_heartbeats()
            self._lifecycle.begin_monitoring()

    def _observe(self, change: Change) -> None:
        resource = change.resource
        if resource is LEASES:
            self._lifecycle.lease_changed(change)
        elif resource is PODS:
            self._pod_changed(change)
        elif resource is NODES:
            self._node_changed(change)
        elif resource in OWNERS:
            self._owner_changed(change)
        elif resource is BUDGETS:
            self._budgets.budget_changed(change)
        if resource is NAMESPACES or (change.gone and resource.namespaced):
            self._garbage.changed(change)

    def _pod_changed(self, change: Change) -> None:
        self._scheduler.pod_changed(change)
        # The owner counts a pod by these.
        if change.differs(is_ready, phase, is_deleting):
            self._wake_owner(change)
            self._databases.pod_changed(change)
        self._budgets.pod_changed(change)
        self._volumes.pod_changed(change)
        self.kubelets.pod_changed(change)
        if change.gone:
            self.agenda.soon(self.cluster.own_deletions.discard, uid(change.obj))

    def _node_changed(self, change: Change) -> None:
        self._scheduler.node_changed(change)
        self._daemon_sets.node_changed(change)
        self._databases.node_changed(change)
        self._lifecycle.node_changed(change)

    def _owner_changed(self, change: Change) -> None:
        controller = self._controllers[change.resource.kind]
        self._wake_owner(change)
        self._budgets.scale_changed(change)
        # A controller that only wrote a status needs no other run.
        if change.differs(spec_of, is_deleting):
            self.agenda.soon(controller.reconcile, *key(change.obj))

    def _wake_owner(self, change: Change) -> None:
        owner = controller_of(change.obj)
        if owner is not None and owner["kind"] in self._controllers:
            controller = self._controllers[owner["kind"]]
            self.agenda.soon(controller.reconcile, namespace_of(change.obj), owner["name"])
