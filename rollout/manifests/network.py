"""Who may reach a pod; where it goes itself nobody knows here: API server, hosts, Prometheus, webhooks."""

from rollout.manifests.installation import Installation, Json
from rollout.manifests.pod import labels


def network_policy(installation: Installation, metadata: Json, port: str) -> Json:
    """Nobody but for this port by name, empty for none: from the networks that are given, else from everywhere."""
    peers = [{"ipBlock": {"cidr": network}} for network in installation.service.networks]
    rule = {"ports": [{"port": port, "protocol": "TCP"}], **({"from": peers} if peers else {})}
    selector = {"matchLabels": labels(installation)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": [rule] if port else []},
    }
