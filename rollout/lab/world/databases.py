"""The operator of a database: it moves the primary off a cordoned node.

It plays CloudNativePG. One pod is the primary, and the primary's budget allows no eviction. Once
its node is cordoned, the operator makes another pod the primary, and then the first may go. How
many seconds it takes is the annotation `switchover-seconds` of the template, `never` if it does
nothing.
"""

from typing_extensions import override

from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import BUDGETS, CLUSTERS, NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.objects import (
    field_of,
    is_finished,
    is_ready,
    key,
    labels_of,
    name_of,
    namespace_of,
    node_name,
    setting,
    spec_of,
)
from rollout.lab.world.workloads import WorkloadController, owner_reference, template_spec

_CLUSTER = "cnpg.io/cluster"
_ROLE = "cnpg.io/instanceRole"
_PRIMARY = "primary"
_REPLICA = "replica"
_SWITCHOVER_SECONDS = "5"
_NEVER = "never"
# With fewer instances, only the primary has a budget.
_FEWEST_GUARDED = 3


class Databases(WorkloadController):
    """Keeps each database's pods and budgets, and one of its pods the primary."""

    resource = CLUSTERS

    def node_changed(self, change: Change) -> None:
        """Reconcile all databases if the node was cordoned or uncordoned."""
        if change.differs(spec_of):
            for obj in self._store.items(CLUSTERS):
                self._cluster.agenda.soon(self.reconcile, *key(obj))

    @override
    def _act(self, obj: Json) -> None:
        self._create_budgets(obj)
        self._create_instances(obj)
        primary = self._primary(obj)
        if primary is None:
            self._promote_standby(obj)
        elif self._is_cordoned(primary):
            seconds = setting(spec_of(obj)["template"], "switchover-seconds") or _SWITCHOVER_SECONDS
            if seconds != _NEVER:
                self._cluster.agenda.later(float(seconds), self._switch_over, *key(obj))

    def _create_budgets(self, obj: Json) -> None:
        name = name_of(obj)
        self._create_budget(obj, f"{name}-{_PRIMARY}", _PRIMARY, min_available=1)
        instances = _instances(obj)
        if instances >= _FEWEST_GUARDED:
            self._create_budget(obj, name, _REPLICA, min_available=instances - 2)

    def _create_budget(self, obj: Json, name: str, role: str, *, min_available: int) -> None:
        namespace = namespace_of(obj)
        if self._store.get(BUDGETS, name, namespace) is not None:
            return
        selector = {"matchLabels": {_CLUSTER: name_of(obj), _ROLE: role}}
        metadata = {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [owner_reference(obj, CLUSTERS)],
        }
        budget = {
            "metadata": metadata,
            "spec": {"minAvailable": min_available, "selector": selector},
        }
        self._store.create(BUDGETS, with_defaults(BUDGETS, budget))

    def _create_instances(self, obj: Json) -> None:
        pods = {name_of(pod): pod for pod in self._pods(obj)}
        for number in range(1, _instances(obj) + 1):
            name = f"{name_of(obj)}-{number}"
            pod = pods.get(name)
            if pod is None:
                labels = {_CLUSTER: name_of(obj), _ROLE: _REPLICA}
                self._create(obj, name, labels=labels, spec=template_spec(obj))
            elif is_finished(pod):
                self._cluster.delete(PODS, pod)

    def _switch_over(self, namespace: str, name: str) -> None:
        """Move the primary if its node is still cordoned."""
        obj = self._store.get(CLUSTERS, name, namespace)
        if obj is None:
            return
        primary = self._primary(obj)
        if primary is not None and self._is_cordoned(primary):
            self._promote_standby(obj)

    def _promote_standby(self, obj: Json) -> None:
        """Make a replica the primary that is ready on a node without a cordon, if there is one."""
        replicas = [pod for pod in self._active(obj) if _role(pod) == _REPLICA and is_ready(pod)]
        standbys = [pod for pod in replicas if not self._is_cordoned(pod)]
        if not standbys:
            return
        primaries = [pod for pod in self._pods(obj) if _role(pod) == _PRIMARY]
        # In this order, there is a primary at every moment.
        self._give_role(min(standbys, key=name_of), _PRIMARY)
        for pod in primaries:
            self._give_role(pod, _REPLICA)

    def _give_role(self, pod: Json, role: str) -> None:
        labels = {**labels_of(pod), _ROLE: role}
        self._store.put(PODS, {**pod, "metadata": {**pod["metadata"], "labels": labels}})

    def _primary(self, obj: Json) -> Json | None:
        """Return the primary; None if it is terminating or gone."""
        primaries = [pod for pod in self._active(obj) if _role(pod) == _PRIMARY]
        return next(iter(primaries), None)

    def _pods(self, obj: Json) -> list[Json]:
        return self._cluster.pods_owned_by(obj["metadata"]["uid"])

    def _is_cordoned(self, pod: Json) -> bool:
        node = self._store.get(NODES, node_name(pod))
        return node is not None and bool(spec_of(node).get("unschedulable"))


def _role(pod: Json) -> str:
    return labels_of(pod).get(_ROLE, "")


def _instances(obj: Json) -> int:
    return int(field_of(obj, "spec.instances") or 1)
