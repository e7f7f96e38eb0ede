"""A VolumeAttachment exists while a pod on its node claims the volume.

It then lasts until the driver has detached the volume.
"""

from rollout.lab.api.resources import VOLUMEATTACHMENTS, VOLUMES
from rollout.lab.api.store import Change, Json, ObjectStore
from rollout.lab.objects import field_of, is_finished, name_of, namespace_of, node_name, spec_of
from rollout.lab.world.cluster import SimulatedCluster

_DETACH_SECONDS = 2
CSI_DRIVER = "csi.lab.node-rollout.dev"


class AttachController:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def pod_changed(self, change: Change) -> None:
        node = node_name(change.obj)
        if not node:
            return
        agenda = self._cluster.agenda
        for volume in self._attachable(change.obj):
            if change.gone or is_finished(change.obj):
                agenda.later(_DETACH_SECONDS, self._reconcile, node, volume)
            else:
                agenda.soon(self._reconcile, node, volume)

    def _attachable(self, pod: Json) -> list[str]:
        volumes = _claimed_volumes(self._cluster.store, pod)
        return [name_of(volume) for volume in volumes if "csi" in volume["spec"]]

    def _reconcile(self, node: str, volume: str) -> None:
        store = self._cluster.store
        name = f"csi-{node}-{volume}"
        running = [pod for pod in store.pods_on(node) if not is_finished(pod)]
        is_needed = any(volume in self._attachable(pod) for pod in running)
        is_attached = store.get(VOLUMEATTACHMENTS, name) is not None
        if is_needed and not is_attached:
            source = {"persistentVolumeName": volume}
            spec = {"attacher": CSI_DRIVER, "nodeName": node, "source": source}
            attachment = {"metadata": {"name": name}, "spec": spec, "status": {"attached": True}}
            store.create(VOLUMEATTACHMENTS, attachment)
        elif is_attached and not is_needed:
            store.remove(VOLUMEATTACHMENTS, name)


def volume_terms(store: ObjectStore, pod: Json) -> tuple[list[Json], ...]:
    affinities = [
        field_of(volume, "spec.nodeAffinity.required") for volume in _claimed_volumes(store, pod)
    ]
    return tuple(required["nodeSelectorTerms"] for required in affinities if required)


def _claimed_volumes(store: ObjectStore, pod: Json) -> list[Json]:
    claims = set()
    for volume in spec_of(pod).get("volumes") or ():
        source = volume.get("persistentVolumeClaim")
        if source:
            claims.add((namespace_of(pod), source["claimName"]))
    if not claims:
        return []
    volumes = []
    for volume in store.items(VOLUMES):
        claim = spec_of(volume).get("claimRef") or {}
        if (claim.get("namespace"), claim.get("name")) in claims:
            volumes.append(volume)
    return volumes
