"""What this user may do, found out before anything is touched: a right missing half-way costs a node its turn."""

from rollout.cli.gathering import Connections, with_patience
from rollout.errors import ApiError
from rollout.gather.cluster.rights import apply_rights, missing_rights
from rollout.model.policy import DrainPolicy

_FORBIDDEN = 403


def refuse_without_rights(connections: Connections, drain: DrainPolicy, lease_namespace: str) -> None:
    """`ApiError` naming every right that a rollout needs and this user lacks."""
    needs = apply_rights(lease_namespace, disable_eviction=drain.disable_eviction)
    found = missing_rights(connections.api, needs, each=with_patience)
    missing = [right for right in found if not right.optional]
    if missing:
        told = "; ".join(f"{right} (to {right.purpose})" for right in missing)
        raise ApiError(
            f"this user may not: {told}",
            status=_FORBIDDEN,
            hint="Have these rights granted; docs/security.md has a ClusterRole and Roles that hold them all.",
        )
