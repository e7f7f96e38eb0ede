"""Restarts Deployments whose budget never allows an eviction.

A pod whose ReplicaSet is older than its Deployment's template is being replaced already.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from msgspec import Struct

from rollout.errors import ApiConflictError, ApiError, ApiNotFoundError, DrainError
from rollout.execution.base.deadline import Deadline, is_transient
from rollout.execution.drain.advice import describe_deployment_commands
from rollout.execution.drain.returning import tolerates_cordon
from rollout.execution.drain.task import NodeTask
from rollout.gather.cluster.deployments import (
    ReplicaSetOrigin,
    read_deployment,
    read_origin,
    restart_deployment,
)
from rollout.gather.cluster.snapshot import read_volumes
from rollout.model.cluster import OwnerRef, Pod
from rollout.model.deployment import Deployment
from rollout.model.drain_finding import Restarting
from rollout.model.timestamps import whole_second
from rollout.planning.drain.surge import claims_of_shared_volumes, surge_obstacle
from rollout.wording import text

# A Deployment that is scaled changes its status often.
_TRIES = 10
_PAUSE_SECONDS = 0.5
_POLL_SECONDS = 5.0


@dataclass(slots=True)
class _StartedRestart:
    # namespace/name.
    deployment: str
    origin: ReplicaSetOrigin
    status: Restarting | None = None
    # Monotonic seconds.
    read_at: float = 0.0


class _RestartableDeployment(Struct, frozen=True):
    deployment: Deployment
    # The pod's Deployment, and that Deployment's last restart before its ReplicaSet.
    origin: ReplicaSetOrigin

    @property
    def is_restarted(self) -> bool:
        return self.deployment.restarted_at != self.origin.restarted_at

    @property
    def restart(self) -> _StartedRestart:
        return _StartedRestart(self.deployment.key, self.origin)


@dataclass(slots=True)
class Restarts:
    """Restarts Deployments to replace pods of the node: drain.restart.

    A restart is under way until the pod is gone.
    """

    task: NodeTask
    deadline: Deadline
    # By the UID of the pods' ReplicaSet; None if a restart does not help.
    _restarts: dict[str, _StartedRestart | None] = field(default_factory=dict)

    def begin(self, pod: Pod) -> Restarting | None:
        """Restart the pod's Deployment unless a restart is under way.

        None if the pod has no Deployment, or its restart does not help.
        """
        owner = self._replica_set_of(pod)
        if owner is None:
            return None
        if owner.uid not in self._restarts:
            try:
                self._restarts[owner.uid] = self._restart_unless_under_way(pod)
            except ApiNotFoundError:
                # Deleting the Deployment deletes its pods.
                self._restarts[owner.uid] = None
        return self.read_status(pod)

    def find_under_way(self, pod: Pod) -> Restarting | None:
        """Like `read_status`, but also find a restart that another process has begun."""
        owner = self._replica_set_of(pod)
        if owner is None:
            return None
        if owner.uid not in self._restarts:
            with suppress(ApiNotFoundError):
                found = self._find_deployment(pod)
                if found is not None and found.is_restarted:
                    self._restarts[owner.uid] = found.restart
        return self.read_status(pod)

    def _replica_set_of(self, pod: Pod) -> OwnerRef | None:
        owner = pod.owner
        if owner is None or owner.kind != "ReplicaSet":
            return None
        return owner if self.task.policy.drain.restarts else None

    def read_status(self, pod: Pod) -> Restarting | None:
        """Return the status of the pod's known restart, read at most every 5 s."""
        if pod.owner is None:
            return None
        restart = self._restarts.get(pod.owner.uid)
        if restart is None:
            return None
        is_old = self.task.now - restart.read_at >= _POLL_SECONDS
        if restart.status is None or is_old:
            try:
                restart.status = self._read_progress(pod, restart.origin)
            except ApiNotFoundError:
                self._restarts[pod.owner.uid] = None
                return None
            restart.read_at = self.task.now
        return restart.status

    def _restart_unless_under_way(self, pod: Pod) -> _StartedRestart | None:
        for _ in range(_TRIES):
            found = self._find_deployment(pod)
            if found is None:
                return None
            if found.is_restarted:
                return found.restart
            self._check_not_scheduled_again(pod, found.deployment)
            is_restarted_now = self._send_restart(found.deployment)
            if is_restarted_now:
                return found.restart
            self.deadline.pause(_PAUSE_SECONDS)
        raise DrainError(f"the Deployment of {pod.key} changes too often to be restarted")

    def _find_deployment(self, pod: Pod) -> _RestartableDeployment | None:
        origin = self.task.cluster.ask(lambda api: read_origin(api, pod), self.deadline)
        if not origin.deployment:
            return None
        # Read last, because the Deployment must not change before its restart.
        shared_claims = self._shared_claims(pod)
        deployment = self._read_deployment(pod.namespace, origin.deployment)
        if surge_obstacle(pod, deployment, shared_claims) is not None:
            return None
        return _RestartableDeployment(deployment, origin)

    def _check_not_scheduled_again(self, pod: Pod, deployment: Deployment) -> None:
        restarts = filter(None, self._restarts.values())
        was_restarted_before = any(restart.deployment == deployment.key for restart in restarts)
        if was_restarted_before and tolerates_cordon(pod):
            raise DrainError(
                f"Deployment {deployment.key} was restarted, but its new pod {pod.key} tolerates"
                f" the cordon and was scheduled on {self.task.name} again",
                see=describe_deployment_commands(deployment.key),
            )

    def _send_restart(self, deployment: Deployment) -> bool:
        """Return False if the Deployment has changed since it was read."""
        task = self.task
        now = task.cluster.api.server_time() or task.report.now
        restarted_at = whole_second(now)
        if restarted_at == deployment.restarted_at:
            # The same time would not change the template.
            restarted_at = whole_second(now + timedelta(seconds=1))
        try:
            task.cluster.ask(
                lambda api: restart_deployment(api, deployment, restarted_at), self.deadline
            )
        except ApiConflictError:
            return False
        except ApiError as error:
            if is_transient(error):
                raise
            why = f"the API server will not restart Deployment {deployment.key}: {error.message}"
            raise DrainError(why, hint=error.hint) from error
        task.report.notice(
            f"{task.name}: Deployment {deployment.key} was restarted, because its disruption budget"
            " never allows an eviction (drain.restart)"
        )
        return True

    def _read_progress(self, pod: Pod, origin: ReplicaSetOrigin) -> Restarting:
        deployment = self._read_deployment(pod.namespace, origin.deployment)
        # Someone has restored the template of the pod's ReplicaSet.
        is_reverted = deployment.restarted_at == origin.restarted_at
        status = Restarting(deployment.key, deployment.progress, is_reverted=is_reverted)
        if status.has_failed:
            raise DrainError(text(status), see=describe_deployment_commands(status.deployment))
        return status

    def _read_deployment(self, namespace: str, name: str) -> Deployment:
        return self.task.cluster.ask(
            lambda api: read_deployment(api, namespace, name), self.deadline
        )

    def _shared_claims(self, pod: Pod) -> frozenset[str]:
        if not pod.claims:
            return frozenset()
        return claims_of_shared_volumes(self.task.cluster.ask(read_volumes, self.deadline))
