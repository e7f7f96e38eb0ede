from urllib.parse import quote

from msgspec import Struct

from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.documents import DRY
from rollout.model.cluster import Pod
from rollout.model.deployment import Deployment
from rollout.ports import ClusterApi

_APPS = "/apis/apps/v1/namespaces"


class ReplicaSetOrigin(Struct, frozen=True):
    deployment: str
    # Empty for never.
    restarted_at: str


def read_origin(api: ClusterApi, pod: Pod) -> ReplicaSetOrigin:
    name = pod.owner.name if pod.owner else ""
    path = f"{_APPS}/{quote(pod.namespace, safe='')}/replicasets/{quote(name, safe='')}"
    replica_set = decode.decode(api.get(path), wire.WireReplicaSet, path)
    owner = decode.controller_of(replica_set.metadata.owner_references)
    is_deployment = owner is not None and owner.kind == "Deployment" and owner.group == "apps"
    return ReplicaSetOrigin(
        deployment=owner.name if owner is not None and is_deployment else "",
        restarted_at=replica_set.spec.template.metadata.annotations.get(decode.RESTARTED_AT, ""),
    )


def read_deployment(api: ClusterApi, namespace: str, name: str) -> Deployment:
    path = _deployment_path(namespace, name)
    return decode.decode_object(api.get(path), wire.WireDeployment, decode.deployment, path)


def restart_deployment(
    api: ClusterApi, deployment: Deployment, restarted_at: str, *, dry_run: bool = False
) -> None:
    """Restart like `kubectl rollout restart`.

    `ApiConflictError` if it has changed: maybe another restart.
    """
    template = {"metadata": {"annotations": {decode.RESTARTED_AT: restarted_at}}}
    change = {
        "metadata": {"resourceVersion": deployment.resource_version},
        "spec": {"template": template},
    }
    path = _deployment_path(deployment.namespace, deployment.name)
    api.patch(path, change, DRY if dry_run else None)


def _deployment_path(namespace: str, name: str) -> str:
    return f"{_APPS}/{quote(namespace, safe='')}/deployments/{quote(name, safe='')}"
