"""Whether the API server would store the lock's Lease, asked of it by a dry run."""

from rollout.errors import ApiError, ApiNotFoundError
from rollout.gather.cluster.documents import DRY, why_refused
from rollout.model import marks
from rollout.ports import ClusterApi

_VERSION = "coordination.k8s.io/v1"


def why_uncreatable(api: ClusterApi, namespace: str) -> ApiError | None:
    """Why a rollout could not create its Lease, for a quota or a webhook; None where it could, or where one stands.

    `ApiUnavailableError`.
    """
    collection = f"/apis/{_VERSION}/namespaces/{namespace}/leases"
    body = {"apiVersion": _VERSION, "kind": "Lease", "metadata": {"name": marks.LEASE_NAME, "namespace": namespace}}

    def rehearse() -> None:
        try:
            api.get(f"{collection}/{marks.LEASE_NAME}")
        except ApiNotFoundError:
            api.create(collection, body, DRY)

    return why_refused(rehearse)
