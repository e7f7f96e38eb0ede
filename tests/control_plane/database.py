"""A stand-in for a database's operator: three instances, and a budget for whichever is the primary."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.control_plane.rest import RefusedError, Rest

_CLUSTERS = "/apis/postgresql.example.com/v1/namespaces/default/clusters"
_PODS = "/api/v1/namespaces/default/pods"
_DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.postgresql.example.com}
spec:
  group: postgresql.example.com
  scope: Namespaced
  names: {plural: clusters, singular: cluster, kind: Cluster}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
# The operator's own checks and a promotion take so long.
_SECONDS_TO_MOVE = 3.0


@contextmanager
def database(rest: Rest, *, moves: bool) -> Iterator[None]:
    """A database whose operator moves the primary from a cordoned node, or never does."""
    rest.create_all(_DEFINITION)
    operator = Operator(rest, moves=moves)
    operator.start()
    try:
        yield
    finally:
        operator.stop()


class Operator(threading.Thread):
    """Keeps three instances, one of them labeled as the primary."""

    def __init__(self, rest: Rest, *, moves: bool) -> None:
        super().__init__(name="operator", daemon=True)
        self._rest = rest
        self._moves = moves
        self._stop_event = threading.Event()
        self._owner: list[Any] = []
        self._cordoned_since = 0.0
        self._created = 0

    def stop(self) -> None:
        """End it."""
        self._stop_event.set()
        self.join()

    def run(self) -> None:
        """Compare what is there with what should be, until the end."""
        while not self._stop_event.wait(0.3):
            try:
                if not self._owner:
                    self._create_cluster()
                self._reconcile()
            except RefusedError as error:
                # The definition is not served yet, or a pod has gone meanwhile.
                if error.status not in {404, 409}:
                    raise

    def _create_cluster(self) -> None:
        version = "postgresql.example.com/v1"
        body = {"apiVersion": version, "kind": "Cluster", "metadata": {"name": "shop"}}
        created = self._rest.post(_CLUSTERS, body)
        reference = {
            "apiVersion": version,
            "kind": "Cluster",
            "name": "shop",
            "uid": created["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        self._owner = [reference]
        budget = {
            "metadata": {"name": "shop-primary", "ownerReferences": self._owner},
            "spec": {
                "minAvailable": 1,
                "selector": {"matchLabels": {"app": "shop", "role": "primary"}},
            },
        }
        self._rest.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)

    def _reconcile(self) -> None:
        pods = self._rest.items(f"{_PODS}?labelSelector=app%3Dshop")
        living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if len(living) < 3:
            self._create_instance()
        primary = next((pod for pod in living if _role(pod) == "primary"), None)
        if primary is None or self._has_to_move(primary):
            self._promote(living, primary)

    def _create_instance(self) -> None:
        self._created += 1
        metadata = {
            "name": f"shop-{self._created}",
            "labels": {"app": "shop", "role": "replica"},
            "ownerReferences": self._owner,
        }
        apart = {"labelSelector": {"matchLabels": {"app": "shop"}}}
        terms = [{**apart, "topologyKey": "kubernetes.io/hostname"}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec = {
            "affinity": {"podAntiAffinity": required},
            "containers": [{"name": "postgres", "image": "postgres"}],
        }
        self._rest.post(_PODS, {"metadata": metadata, "spec": spec})

    def _has_to_move(self, primary: Any) -> bool:
        if not self._moves or not self._is_cordoned(primary):
            self._cordoned_since = 0.0
            return False
        self._cordoned_since = self._cordoned_since or time.monotonic()
        return time.monotonic() - self._cordoned_since > _SECONDS_TO_MOVE

    def _promote(self, living: list[Any], primary: Any) -> None:
        for pod in living:
            if pod is not primary and _is_ready(pod) and not self._is_cordoned(pod):
                self._label(pod, "primary")
                if primary is not None:
                    self._label(primary, "replica")
                self._cordoned_since = 0.0
                return

    def _label(self, pod: Any, role: str) -> None:
        self._rest.patch(
            f"{_PODS}/{pod['metadata']['name']}", {"metadata": {"labels": {"role": role}}}
        )

    def _is_cordoned(self, pod: Any) -> bool:
        node = self._rest.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")
        return bool(node["spec"].get("unschedulable"))


def _role(pod: Any) -> str:
    role: str = pod["metadata"]["labels"]["role"]
    return role


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
