"""The FleetLock server in the cluster that it drains: its own last replica must never be what keeps a node from it.

Two replicas never share a node, so that a drain takes one at a time; the budget keeps the other, which goes on with the
drain. A replica that does not work is never what holds a drain up. A rollout takes one down before it starts the next:
the place that the old one left is often the only one.
"""

from collections.abc import Iterator

from rollout.manifests.installation import Installation, Json
from rollout.manifests.network import network_policy
from rollout.manifests.pod import PORT_NAME, fleetlock_template, labels

_PORTS = {"http": 80, "https": 443}


def fleetlock_objects(installation: Installation, metadata: Json) -> Iterator[Json]:
    """Service, who may reach it, the budget of its pods, and these."""
    selector = {"matchLabels": labels(installation)}
    yield _object("v1", "Service", metadata, _service(installation))
    yield network_policy(installation, metadata, PORT_NAME)
    # a replica that is broken is no reason to keep a node from its drain
    budget = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": selector}
    yield _object("policy/v1", "PodDisruptionBudget", metadata, budget)
    yield _object("apps/v1", "Deployment", metadata, _deployment(installation, selector))


def _object(version: str, kind: str, metadata: Json, spec: Json) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _service(installation: Installation) -> Json:
    service = installation.service
    port = {"name": service.scheme, "port": _PORTS[service.scheme], "targetPort": PORT_NAME, "protocol": "TCP"}
    fixed = {"clusterIP": service.cluster_ip} if service.cluster_ip else {}
    return {"type": "ClusterIP", **fixed, "selector": labels(installation), "ports": [port]}


def _deployment(installation: Installation, selector: Json) -> Json:
    return {
        "replicas": installation.service.replicas,
        "revisionHistoryLimit": 3,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "selector": selector,
        "template": fleetlock_template(installation),
    }
