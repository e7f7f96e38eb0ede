"""Pods that a restart of their Deployment replaces before it ends them.

Disruption budgets do not stop a rolling update.
"""

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from rollout.model.blocker_finding import NoSurge, SurgeObstacle
from rollout.model.cluster import Budget, ClusterSnapshot, OwnerRef, PersistentVolume, Pod
from rollout.model.deployment import Deployment
from rollout.model.policy import DrainPolicy

_HASH = "pod-template-hash"


class Surges(Struct, frozen=True):
    # By `namespace/name`.
    deployments: Mapping[str, Deployment]
    # Claims (`namespace/name`) of volumes that several nodes can mount.
    shared_claims: frozenset[str]
    may_restart: bool

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, policy: DrainPolicy) -> "Surges":
        deployments = {deployment.key: deployment for deployment in snapshot.deployments}
        return cls(deployments, claims_of_shared_volumes(snapshot.volumes), policy.restarts)

    def deployment_to_restart(self, pod: Pod, budget: Budget) -> Deployment | None:
        if not self.may_restart:
            return None
        restart = self.find_restart(pod, budget)
        return restart if isinstance(restart, Deployment) else None

    def find_restart(self, pod: Pod, budget: Budget) -> Deployment | NoSurge | None:
        """Return the Deployment whose restart helps, or why none does.

        None if the budget does not need every pod, or the pod has another owner.
        """
        owner = pod.owner
        if owner is None or owner.group != "apps":
            return None
        if budget.critical or not budget.needs_every_pod:
            return None
        if owner.kind == "StatefulSet":
            return NoSurge(owner.named_in(pod.namespace), SurgeObstacle.STATEFUL_SET)
        deployment = self.deployments.get(f"{pod.namespace}/{_deployment_name(pod, owner)}")
        if deployment is None:
            return None
        obstacle = surge_obstacle(pod, deployment, self.shared_claims)
        return NoSurge(f"Deployment {deployment.key}", obstacle) if obstacle else deployment


def _deployment_name(pod: Pod, owner: OwnerRef) -> str:
    """Return `web` for a pod of the ReplicaSet `web-5d4f8c`; empty for other owners."""
    suffix = f"-{pod.labels.get(_HASH, '')}"
    if owner.kind != "ReplicaSet" or not owner.name.endswith(suffix):
        return ""
    return owner.name.removesuffix(suffix)


def claims_of_shared_volumes(volumes: Iterable[PersistentVolume]) -> frozenset[str]:
    return frozenset(volume.claim for volume in volumes if volume.is_shared)


def surge_obstacle(
    pod: Pod, deployment: Deployment, shared_claims: frozenset[str]
) -> SurgeObstacle | None:
    """Return why the new pod cannot start before the old one ends."""
    claims = {f"{pod.namespace}/{claim}" for claim in pod.claims}
    can_mount_twice = claims <= shared_claims
    if deployment.is_paused:
        return SurgeObstacle.PAUSED
    if not deployment.is_rolling:
        return SurgeObstacle.RECREATE
    if deployment.surge < 1:
        return SurgeObstacle.NO_SURGE
    if deployment.unavailable > 0:
        return SurgeObstacle.UNAVAILABLE
    if not can_mount_twice:
        return SurgeObstacle.VOLUME
    return None


def restart_rounds(deployment: Deployment) -> int:
    """Return how many pods start one after another in a restart."""
    return math.ceil(deployment.progress.desired / deployment.surge)
