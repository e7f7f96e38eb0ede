"""Volumes that attach to certain nodes only; those of a driver stay attached a moment longer than they are used.

A VolumeAttachment stands for each node and volume, as long as a pod on the node claims the volume,
and until it is detached.
"""

from rollout.lab.api.resources import VOLUMEATTACHMENTS, VOLUMES
from rollout.lab.api.store import Change, Json, ObjectStore
from rollout.lab.objects import is_finished, name_of, namespace_of, node_name, spec_of
from rollout.lab.world.cluster import SimulatedCluster

_DETACH_SECONDS = 2
CSI_DRIVER = "csi.lab.node-rollout.dev"


class AttachController:
    """Attaches volumes where pods need them, and detaches them where none does."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def pod_changed(self, change: Change) -> None:
        """Take in a pod that came to a node, or left it."""
        node = node_name(change.obj)
        for volume in self._attachable(change.obj) if node else ():
            if change.gone or is_finished(change.obj):
                self._cluster.agenda.later(_DETACH_SECONDS, self._follow, node, volume)
            else:
                self._cluster.agenda.soon(self._follow, node, volume)

    def _attachable(self, pod: Json) -> list[str]:
        return [
            name_of(volume)
            for volume in _claimed_volumes(self._cluster.store, pod)
            if "csi" in volume["spec"]
        ]

    def _follow(self, node: str, volume: str) -> None:
        """Attach the volume where a pod of the node needs it, or detach it where none does."""
        store = self._cluster.store
        name = f"csi-{node}-{volume}"
        used = any(
            volume in self._attachable(pod) and not is_finished(pod) for pod in store.pods_on(node)
        )
        attached = store.get(VOLUMEATTACHMENTS, name) is not None
        if used and not attached:
            spec = {
                "attacher": CSI_DRIVER,
                "nodeName": node,
                "source": {"persistentVolumeName": volume},
            }
            store.create(
                VOLUMEATTACHMENTS,
                {"metadata": {"name": name}, "spec": spec, "status": {"attached": True}},
            )
        elif attached and not used:
            store.remove(VOLUMEATTACHMENTS, name)


def volume_terms(store: ObjectStore, pod: Json) -> tuple[list[Json], ...]:
    """For each volume that the pod claims and that attaches to certain nodes only, the alternatives it names."""
    affinities = (
        spec_of(volume).get("nodeAffinity") or {} for volume in _claimed_volumes(store, pod)
    )
    return tuple(
        affinity["required"]["nodeSelectorTerms"]
        for affinity in affinities
        if affinity.get("required")
    )


def _claimed_volumes(store: ObjectStore, pod: Json) -> list[Json]:
    """Return the volumes that the pod's claims are bound to."""
    sources = (volume.get("persistentVolumeClaim") for volume in spec_of(pod).get("volumes") or ())
    claims = {(namespace_of(pod), source["claimName"]) for source in sources if source}
    if not claims:
        return []
    refs = ((volume, spec_of(volume).get("claimRef") or {}) for volume in store.items(VOLUMES))
    return [volume for volume, ref in refs if (ref.get("namespace"), ref.get("name")) in claims]
