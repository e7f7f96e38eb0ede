"""Volumes: a VolumeAttachment per node and volume, which outlives the last pod that used it by a moment.

A pod names the volume to attach in an annotation; volumes that attach to certain nodes only, and the claims bound to
them, are objects of their own, which the scheduler heeds.
"""

import hashlib

from rollout.lab.api.resources import NODES, VOLUMEATTACHMENTS, VOLUMES
from rollout.lab.api.store import Change, ChangeType, Json, ObjectStore
from rollout.lab.world.cluster import Cluster
from rollout.lab.world.objects import is_finished, node_name, setting, spec_of, with_status

_DRIVER = "csi.lab.node-rollout.dev"


class AttachController:
    """Attaches volumes where pods need them, and detaches them where none does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def pod_changed(self, change: Change) -> None:
        """A pod came to a node, or left it."""
        volume, node = setting(change.obj, "volume"), node_name(change.obj)
        if not volume or not node:
            return
        if change.type is ChangeType.DELETED or is_finished(change.obj):
            delay = self._cluster.timings.volume_detach
            self._cluster.agenda.later(delay, self._detach, node, volume)
        else:
            self._cluster.agenda.soon(self._attach, node, volume)

    def _attach(self, node: str, volume: str) -> None:
        name = attachment_name(node, volume)
        if self._cluster.store.get(VOLUMEATTACHMENTS, name) is not None or not self._is_used(node, volume):
            return
        attachment = {
            "metadata": {"name": name},
            "spec": {
                "attacher": _DRIVER,
                "nodeName": node,
                "source": {"persistentVolumeName": volume},
            },
            "status": {"attached": True},
        }
        self._cluster.store.create(VOLUMEATTACHMENTS, attachment)
        self._list_on_node(node)

    def _detach(self, node: str, volume: str) -> None:
        name = attachment_name(node, volume)
        attached = self._cluster.store.get(VOLUMEATTACHMENTS, name) is not None
        if attached and not self._is_used(node, volume):
            self._cluster.store.remove(VOLUMEATTACHMENTS, name)
            self._list_on_node(node)

    def _is_used(self, node: str, volume: str) -> bool:
        pods = self._cluster.store.pods_on(node)
        return any(setting(pod, "volume") == volume and not is_finished(pod) for pod in pods)

    def _list_on_node(self, name: str) -> None:
        """Repeat the attachments in the Node's status, where a real kubelet and controller keep them."""
        node = self._cluster.store.get(NODES, name)
        if node is None:
            return
        volumes = [
            f"kubernetes.io/csi/{_DRIVER}^{item['spec']['source']['persistentVolumeName']}"
            for item in self._cluster.store.items(VOLUMEATTACHMENTS)
            if item["spec"]["nodeName"] == name
        ]
        attached = [{"name": volume, "devicePath": ""} for volume in volumes]
        self._cluster.store.put(NODES, with_status(node, volumesAttached=attached, volumesInUse=volumes))


def volume_terms(store: ObjectStore, pod: Json) -> tuple[list[Json], ...]:
    """For each volume that the pod claims and that attaches to certain nodes only, the alternatives it names."""
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in spec_of(pod).get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    }
    if not claims:
        return ()
    namespace = pod["metadata"].get("namespace", "")
    bound = [
        spec_of(volume)
        for volume in store.items(VOLUMES)
        if (ref := spec_of(volume).get("claimRef") or {}).get("name") in claims and ref.get("namespace") == namespace
    ]
    return tuple(
        spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
        for spec in bound
        if (spec.get("nodeAffinity") or {}).get("required")
    )


def attachment_name(node: str, volume: str) -> str:
    """The name that a real attach controller gives: a digest of volume, driver and node."""
    return "csi-" + hashlib.sha256(f"{volume}{_DRIVER}{node}".encode()).hexdigest()
