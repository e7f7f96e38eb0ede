"""The run's plan on the cluster: a ConfigMap beside the Lease, there from before the first node is touched to the end.

With it, whoever goes on with an interrupted rollout needs nothing but the cluster.
"""

from rollout.errors import ApiConflictError, ApiError
from rollout.execution.deadline import Deadline, patiently
from rollout.model import marks
from rollout.model.plan import RolloutPlan
from rollout.planning.document import encode_plan
from rollout.ports import Clock, ClusterApi

_PLAN_KEY = "plan.json"


class RunRecord:
    """Writes and removes the record; `patience` in seconds is how long an absent API server is waited for."""

    def __init__(self, api: ClusterApi, clock: Clock, namespace: str, *, patience: float) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._patience = patience
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"

    def write(self, plan: RolloutPlan) -> None:
        """Put the plan on the cluster, in place of one that an earlier run has left."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": marks.LEASE_NAME,
                "namespace": self._namespace,
                "annotations": {marks.RUN: plan.plan_id},
            },
            "data": {_PLAN_KEY: encode_plan(plan).decode()},
        }
        deadline = Deadline(self._clock, self._patience)
        try:
            patiently(lambda: self._api.create(self._collection, body), deadline)
        except ApiConflictError:
            patiently(lambda: self._api.replace(f"{self._collection}/{marks.LEASE_NAME}", body), deadline)

    def remove(self) -> None:
        """Take it away; that it cannot be is no reason to call a finished rollout failed."""
        deadline = Deadline(self._clock, self._patience)
        try:
            patiently(lambda: self._api.delete(f"{self._collection}/{marks.LEASE_NAME}"), deadline)
        except ApiError:
            return
