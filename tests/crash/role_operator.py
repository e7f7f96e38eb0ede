"""The operator of a custom resource that owns a StatefulSet, as database operators run it.

One pod has the role of the primary, and its budget allows no eviction. Some seconds after its node
is cordoned, the operator gives the role to another pod.
"""

import asyncio
from dataclasses import dataclass

from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import BUDGETS, NODES, PODS, STATEFULSETS
from rollout.lab.api.store import Change, Json
from rollout.lab.lab import Lab
from rollout.lab.objects import (
    is_active,
    is_ready,
    labels_of,
    name_of,
    node_name,
    spec_of,
    uid,
    with_metadata,
)
from rollout.lab.scenario import ScenarioWorkload, WorkloadKind

ROLE = "cnpg.io/instanceRole"
PRIMARY = "primary"
REPLICA = "replica"
_OWNER = {
    "apiVersion": "pgv2.percona.example/v2",
    "kind": "PerconaPGCluster",
    "name": "orders",
    "uid": "uid-of-orders",
    "controller": True,
}


def stateful_set(name: str, namespace: str) -> ScenarioWorkload:
    return ScenarioWorkload(
        kind=WorkloadKind.STATEFUL_SET,
        name=name,
        namespace=namespace,
        replicas=3,
        spread="kubernetes.io/hostname",
        labels={ROLE: REPLICA},
    )


@dataclass
class RoleOperator:
    """Operates one StatefulSet; `seconds` are simulated."""

    lab: Lab
    name: str
    namespace: str
    seconds: float

    def begin(self) -> None:
        """Own the StatefulSet and its budgets, and give the first pod its role; in the lab's loop."""
        found = self.lab.store.get(STATEFULSETS, self.name, self.namespace)
        assert found is not None
        self.lab.store.put(STATEFULSETS, with_metadata(found, ownerReferences=[_OWNER]))
        self._create_budget(PRIMARY)
        self._create_budget(REPLICA)
        self._promote()
        self.lab.store.subscribe(self._observe)

    def _create_budget(self, role: str) -> None:
        metadata = {
            "name": f"{self.name}-{role}",
            "namespace": self.namespace,
            "ownerReferences": [_OWNER],
        }
        selector = {"matchLabels": {"app": self.name, ROLE: role}}
        body = {"metadata": metadata, "spec": {"minAvailable": 1, "selector": selector}}
        self.lab.store.create(BUDGETS, with_defaults(BUDGETS, body))

    def _observe(self, change: Change) -> None:
        if change.resource is NODES and change.differs(spec_of):
            self._move_later(name_of(change.obj))
        elif change.resource is PODS and not self._primaries():
            self._promote()

    def _move_later(self, node: str) -> None:
        for pod in self._primaries():
            if node_name(pod) == node and self._is_cordoned(pod):
                seconds = self.lab.world.cluster.clock.scaled(self.seconds)
                asyncio.get_running_loop().call_later(seconds, self._move, uid(pod))

    def _move(self, primary: str) -> None:
        """Move the role if this pod still has it, and its node is still cordoned."""
        if any(uid(pod) == primary and self._is_cordoned(pod) for pod in self._primaries()):
            self._promote()

    def _promote(self) -> None:
        """Give the role to a ready pod on a node without a cordon, if there is one."""
        primaries = self._primaries()
        standbys = [
            pod for pod in self._pods() if pod not in primaries and is_active(pod) and is_ready(pod)
        ]
        free = [pod for pod in standbys if not self._is_cordoned(pod)]
        if not free:
            return
        self._give(min(free, key=name_of), PRIMARY)
        for pod in primaries:
            self._give(pod, REPLICA)

    def _give(self, pod: Json, role: str) -> None:
        self.lab.store.put(PODS, with_metadata(pod, labels={**labels_of(pod), ROLE: role}))

    def _primaries(self) -> list[Json]:
        pods = self._pods()
        return [pod for pod in pods if is_active(pod) and labels_of(pod).get(ROLE) == PRIMARY]

    def _pods(self) -> list[Json]:
        pods = self.lab.store.items(PODS, self.namespace)
        return [pod for pod in pods if labels_of(pod).get("app") == self.name]

    def _is_cordoned(self, pod: Json) -> bool:
        node = self.lab.store.get(NODES, node_name(pod))
        return node is not None and bool(spec_of(node).get("unschedulable"))
